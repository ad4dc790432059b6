"""Weights of texts that are looked up in a table of token weights, without a model.

Letters: b texts, v terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from vocable.encoding.protocol import EncodedTexts, EncodingModel, RoleEncoder, RoleSettings, Tokenization

TABLE_TOKENS = 1 << 16  # in a batch


class TableEncoder(RoleEncoder):
    """The encoder of a role by a table of token weights, float32 [v], which `weights` returns for each batch."""

    pooling, looked_up, batch_tokens, threads = "static", True, TABLE_TOKENS, 1

    def __init__(
        self,
        model: EncodingModel,
        tokenization: Tokenization,
        weights: Callable[[], NDArray[np.float32]],
        settings: RoleSettings,
    ) -> None:
        self.model, self.tokenization, self._weights, self.settings = model, tokenization, weights, settings

    def encode(self, texts: object, ids: Sequence[Sequence[int]], prompt: object, side: object) -> EncodedTexts:
        """Return the weight of each distinct token, [b, v]; `ids` have no special tokens around them."""
        weights = self._weights()
        distinct = [np.unique(np.asarray(tokens[: self.settings.max_length], dtype=np.int32)) for tokens in ids]
        columns = [tokens[weights[tokens] > 0] for tokens in distinct]
        indices = np.concatenate([np.empty(0, dtype=np.int32), *columns])
        indptr = np.array([0, *accumulate(map(len, columns))], dtype=np.int32)
        return EncodedTexts(csr_array((weights[indices], indices, indptr), shape=(len(ids), len(weights))))
