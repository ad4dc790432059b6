"""Exact search in memory: the reference for every engine.

Shapes: n documents, m of them, q queries, v output vocabulary, k results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Self, Unpack

import numpy as np
from scipy.sparse import csr_array

from vocable.core.arrays import Strings, load_arrays, order_of, save_arrays, typed
from vocable.core.storage import StrPath
from vocable.encoding.vectors import VectorsMeta, as_vectors
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes import exact_kernels
from vocable.indexes.exact_numpy import Sparse
from vocable.indexes.postings import Postings, arrays_of, frozen, in_threads, needed_terms, query_arrays
from vocable.indexes.ranking import Ranking, best
from vocable.options import Count, Matching, checked


class ExactIndex:
    """Postings of n document vectors, searched exhaustively; ties are broken by id (by row without ids)."""

    kind = "exact"  # kind of the index in a file
    readable: Sequence[str] = ("exact", "bm25")  # kinds whose postings `load` opens
    ids: Strings | None

    def __init__(
        self,
        vectors: csr_array,
        ids: Sequence[str] | None = None,
        meta: VectorsMeta | None = None,
        *,
        weight_bits: int | None = None,
    ) -> None:
        """Index `vectors` [n, v]; `ids` are the documents' names by row, `meta` is the origin of the vectors.

        `weight_bits` is as in `Postings.of`. Raises `VectorsError` if the number of ids is not n, an id occurs twice or
        a weight is not a positive number.
        """
        vectors = as_vectors(vectors, "the documents")
        self.shape: tuple[int, int] = vectors.shape
        self.meta = meta
        self.ids = ids if ids is None or isinstance(ids, Strings) else Strings(ids)
        # Postings number the documents in the order of their ids, so that equal scores need no further sorting.
        self._order = np.empty(0, dtype=np.int32) if self.ids is None else _order(self.ids, self.shape[0])
        self.postings = Postings.of(vectors[self._order] if len(self._order) else vectors, weight_bits)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        name, (n, v) = type(self).__name__, self.shape
        return f"{name}({n:,} documents, {v:,} terms, {self.postings.count:,} postings)"

    @property
    def nbytes(self) -> int:
        """Size in bytes of postings and ids, with pointers to the lists of the terms that documents have."""
        starts = self.postings.lists[0]
        empty = int(np.count_nonzero(np.diff(starts) == 0)) * starts.itemsize
        return sum(array.nbytes for array in self.arrays().values()) - empty

    @property
    def document_frequency(self) -> np.ndarray:
        """Number of documents with each term, int64 [v]."""
        return self.postings.frequency()

    def get(self, rows: Sequence[int] | np.ndarray | None = None) -> csr_array:
        """Return the stored vectors of the documents in `rows`, csr_array [m, v]; of all n by default.

        Raises `ArgumentError` for a row that does not exist.
        """
        if not len(self._order):
            return self.postings.get(rows)
        numbers = np.argsort(self._order)
        if rows is None:
            return self.postings.get()[numbers]
        if len(rows) and not 0 <= min(rows) <= max(rows) < len(self):
            raise ArgumentError(f"rows must lie between 0 and {len(self) - 1}, not {min(rows)} to {max(rows)}")
        return self.postings.get(numbers[np.asarray(rows, dtype=np.int64)])

    @checked
    def search(
        self,
        queries: csr_array,
        k: Count = 10,
        *,
        allowed: np.ndarray | None = None,
        threads: Count | None = None,
        **matching: Unpack[Matching],
    ) -> Ranking:
        """Return the k documents with the highest dot product for each of `queries` [q, v].

        In `matching`, `minimum_match` is the share of a query's terms that a hit must have: the Boolean model with a
        static term overlap threshold. `allowed`, bool [n], marks the documents that may be hits. `threads` defaults to
        all cores; the result does not depend on it. Raises `VectorsError` if the queries have another vocabulary size
        than the index.

        >>> index = ExactIndex(csr_array(np.array([[1.0, 0.0], [2.0, 3.0]])), ids=["a", "b"])
        >>> index.search(csr_array(np.array([[1.0, 1.0]])), k=3).hits(0)
        [('b', 5.0), ('a', 1.0)]
        """
        arrays = query_arrays(queries, self.shape[1])
        needed = needed_terms(arrays, matching.get("minimum_match", 0.0))
        if allowed is not None and allowed.shape != (len(self),):
            raise ArgumentError(f"allowed must have the shape ({len(self)},), not {allowed.shape}")
        # Postings number the documents in the order of their ids: convert the rows to this order and back.
        if allowed is not None and len(self._order):
            allowed = allowed[self._order]
        rows, scores = self.postings.search(arrays, k, needed=needed, allowed=allowed, threads=threads)
        if len(self._order):
            rows = np.where(rows < 0, np.int32(-1), self._order[rows])
        return Ranking(rows, scores, self.ids)

    def matched(self, queries: csr_array, *, minimum_match: float = 0.0) -> np.ndarray:
        """Return the number of documents that a search scores for each of `queries` [q, v], int64 [q].

        These documents have a term of the query, or with `minimum_match` that share of its terms.

        >>> index = ExactIndex(csr_array(np.array([[1.0, 0.0], [2.0, 3.0]])))
        >>> query = csr_array(np.array([[1.0, 1.0]]))
        >>> index.matched(query).tolist(), index.matched(query, minimum_match=1).tolist()
        ([2], [1])
        """
        arrays = query_arrays(queries, self.shape[1])
        return self.postings.matched(arrays, needed_terms(arrays, minimum_match))

    def save(self, path: StrPath) -> None:
        """Write the index as a file (atomically)."""
        save_arrays(path, self.kind, self.arrays(), self.header())

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Open the index in a file, memory-mapped: a search reads only the postings of the queries' terms.

        `ExactIndex` also opens the postings of a `BM25Index`. Checksums are compared, and postings must stay within
        their arrays. Raises `VectorsError` if the file is not an index, or is damaged or truncated.
        """
        return cls.from_arrays(*load_arrays(path, cls.readable), str(path))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to store together with `header`."""
        named = self.postings.arrays() | {"order": self._order}
        return named if self.ids is None else named | self.ids.arrays("ids")

    def header(self) -> dict[str, object]:
        """Return the properties that `arrays` does not contain, as JSON values."""
        return {**self.postings.header(), "meta": None if self.meta is None else asdict(self.meta)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], header: dict[str, Any], place: str) -> Self:
        """Return the index of `arrays` and `header`; raise `VectorsError` with `place` if they do not fit together."""
        index = cls.__new__(cls)
        index.postings = Postings.stored(arrays, header, place)
        index.shape, n = index.postings.shape, len(index.postings)
        index._order = frozen(typed(arrays, "order", np.int32, place), np.int32)
        index.ids = Strings.stored("ids", arrays, place) if "ids_offsets" in arrays else None
        index.meta = None if header.get("meta") is None else VectorsMeta.from_dict(header["meta"], place)
        order, ids = index._order, index.ids
        if len(order) not in (0, n if ids else 0) or (ids is not None and len(ids) != n):
            raise VectorsError(f"{place}: the index is damaged: its parts do not fit together")
        if len(order) and not 0 <= order.min() <= order.max() < n:
            raise VectorsError(f"{place}: the index is damaged: order has a row that does not exist")
        if ids is not None and not rising(ids.take(order.astype(np.int64)) if len(order) else ids):
            raise VectorsError(f"{place}: the index is damaged: the ids are not in order, or an id is repeated")
        return index


def rising(ids: Strings) -> bool:
    """Return whether each id is greater than the id before."""
    encoded = ids.all_encoded()
    return all(first < second for first, second in pairwise(encoded))


def _order(ids: Strings, n: int) -> np.ndarray:
    """Return the rows in the order of their ids, int32 [n], or an empty array if they are in order already."""
    if len(ids) != n:
        raise VectorsError(f"{len(ids)} ids for {n} documents")
    rows = order_of(ids)
    return rows[:0] if np.array_equal(rows, np.arange(n)) else rows


@checked
def rescore(
    ranking: Ranking, queries: csr_array, documents: csr_array, k: Count = 10, *, threads: int | None = None
) -> Ranking:
    """Return the k best candidates of `ranking` by the dot product of `queries` [q, v] and `documents` [n, v].

    This is the second of two steps (Lassance et al. 2024); the first step searches pruned vectors, or another index:

        first = ExactIndex(prune(documents, max_terms=50)).search(prune(queries, max_terms=5), k=100)
        ranking = rescore(first, queries, documents, k=10)

    Scores equal the scores of a search over `documents` to the last bit. Candidates without a shared term are dropped.
    """
    documents = as_vectors(documents, "the documents")
    arrays = query_arrays(queries, documents.shape[1])
    if len(arrays[0]) - 1 != len(ranking.rows):
        raise VectorsError(f"{len(arrays[0]) - 1} queries for a ranking of {len(ranking.rows)}")
    if ranking.rows.max(initial=-1) >= documents.shape[0]:
        raise VectorsError(f"the ranking has row {ranking.rows.max()}, there are {documents.shape[0]} documents")
    # Scores [q, candidates] with the sums of a search, term by term in the same order.
    rows, scores = frozen(ranking.rows, np.int32), np.zeros(ranking.rows.shape, dtype=np.float32)
    candidates, v = arrays_of(documents), documents.shape[1]

    def rescore_part(part: slice, queries: Sparse) -> None:
        exact_kernels.rescore(candidates, v, queries, rows[part], scores[part])

    in_threads(rescore_part, arrays, threads)
    return best(np.where(scores > 0, rows, np.int32(-1)), scores, k, ranking.ids)
