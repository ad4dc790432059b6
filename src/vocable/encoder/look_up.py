"""Inference-free vectors: the weights of a text's tokens, looked up in a table.

Letters: b texts, v terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from scipy.sparse import csr_array
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding


def look_up(static: SparseStaticEmbedding, tokens: Sequence[Sequence[int]]) -> csr_array:
    """The vectors that `static` gives texts, without the b x v matrices by which it does.

    Args:
        static: the table, its weights [v].
        tokens: the token ids of each of b texts. How often a token occurs does not count.

    Returns:
        [b, v] csr_array of float32 weights > 0, indices sorted.
    """
    weights = static.weight.detach().float().cpu().numpy()
    columns = [np.unique(np.asarray(ids, dtype=np.int32)) for ids in tokens]
    columns = [found[weights[found] > 0] for found in columns]
    indices = np.concatenate([np.empty(0, dtype=np.int32), *columns])
    indptr = np.array([0, *accumulate(map(len, columns))], dtype=np.int32)
    return csr_array((weights[indices], indices, indptr), shape=(len(tokens), len(weights)))
