"""Vectors of texts that are looked up in a table of tokens, without a model: sparse by weights, dense by rows.

Letters: b texts, v terms or tokens, d dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from vocable.core.storage import regular
from vocable.encoding.protocol import EncodedTexts, EncodingModel, RoleEncoder, RoleSettings, Tokenization
from vocable.errors import ModelError

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


class VectorTable(NamedTuple):
    """A dense vector of each token in 8 bits: rows [v, d] and their scales [v]; zeros for special tokens."""

    rows: NDArray[np.int8]
    scales: NDArray[np.float32]

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> VectorTable:
        """Return the nearest table to vectors [v, d]: the largest number of a row becomes 127."""
        scales = np.abs(vectors).max(axis=1) / 127
        return cls(np.rint(vectors / np.maximum(scales, 1e-12)[:, None]).astype(np.int8), scales)

    def looked_up(self, ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return the sum of the rows of each text's tokens, at length 1, [b, d]; zeros without known tokens."""
        sums = [self.scales[tokens] @ self.rows[tokens].astype(np.float32) for tokens in map(list, ids)]
        vectors = np.array(sums, dtype=np.float32).reshape(len(sums), self.rows.shape[1])
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def read_tables(path: Path, *names: str) -> list[NDArray[Any]]:
    """Return the named arrays of a file of tables; raise `ModelError` if it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tables = load_file(regular(path))
        return [tables[name] for name in names]
    except (OSError, KeyError, SafetensorError) as error:
        raise ModelError(f"{path}: the table of queries is missing or damaged ({error})") from error
