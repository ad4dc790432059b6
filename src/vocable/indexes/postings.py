"""Posting lists of document vectors, and their exact search.

Shapes: n documents, m of them, q queries, v output vocabulary, k results.

A query is scored term at a time over the postings (CSC), in float32 and in the order of the terms, so that the same
query and documents give the same scores to the last bit with any number of threads, compiled or not. The documents are
processed in windows: the accumulator of a window stays in the processor's cache, and memory does not grow with n.

A posting takes 6 bytes, 2 for the document's place in its window and 4 for the weight. Weights can be rounded to 16 or
8 bits (4 and 3 bytes a posting). They then are multiples of a unit that is a power of 2, so that the search of the
rounded weights is also exact.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array

from vocable.core.arrays import release, typed, wrong_entries
from vocable.core.storage import StrPath
from vocable.encoding.vectors import as_vectors
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes import exact_kernels
from vocable.indexes.exact_numpy import WINDOW_SIZE, Sparse, windows_of

WEIGHTS: dict[int | None, type[np.generic]] = {None: np.float32, 8: np.uint8, 16: np.uint16}  # by `weight_bits`
WRONG = (  # defects of posting lists, first the results of `wrong_entries`
    "",
    "a posting of a document that does not exist",
    "the documents of a posting list do not rise",
    "a weight is not a positive number",
    "the starts of the posting lists do not rise from 0",
)
PART_POSTINGS = 1 << 22  # postings whose documents are numbered at a time


class Postings:
    """Posting lists of n documents over v terms; of equal scores, the lower row is better."""

    def __init__(self, lists: Sparse, shape: tuple[int, int], unit: float = 1.0) -> None:
        """Take lists as `lists_of` makes them; weights are multiples of `unit`."""
        starts, places, weights = lists
        self.lists = frozen(starts, np.int64), frozen(places, np.uint16), frozen(weights, weights.dtype.type)
        self.shape, self.unit = shape, unit

    @classmethod
    def of(cls, vectors: csr_array, weight_bits: int | None = None, heaviest: float | None = None) -> Postings:
        """Return the posting lists of `vectors` [n, v].

        `weight_bits`, 8 or 16, rounds each weight to a positive multiple of a unit, which is less than
        2 / (2^bits - 1) of the largest weight, or of `heaviest` if that is larger.
        """
        if weight_bits not in WEIGHTS:
            raise ArgumentError(f"weight_bits must be 8 or 16, not {weight_bits!r}")
        columns = vectors.tocsc()
        starts, places = _cut(columns)
        weights, unit = frozen(columns.data, np.float32), 1.0
        if weight_bits:
            weights, unit = _rounded(weights, weight_bits, heaviest)
        return cls((starts, places, weights), vectors.shape, unit)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def count(self) -> int:
        """The number of postings."""
        return int(self.lists[0][-1])

    def frequency(self, terms: np.ndarray | None = None, gone: np.ndarray | None = None) -> np.ndarray:
        """Return the number of documents with each of t `terms`, int64 [t], by default all v.

        Documents that are marked in `gone`, bool [n], are not counted.
        """
        starts, places, _ = self.lists
        windows = windows_of(len(self))
        if terms is None:
            counts = np.diff(starts[::windows])
            return counts if gone is None else counts - self._gone_frequency(gone)
        counts = starts[(terms + 1) * windows] - starts[terms * windows]
        if gone is not None:
            for number, term in enumerate(terms.tolist()):
                for window, start in enumerate(range(term * windows, (term + 1) * windows)):
                    documents = places[starts[start] : starts[start + 1]]
                    counts[number] -= np.count_nonzero(gone[window * WINDOW_SIZE :][documents])
        return counts

    def _gone_frequency(self, gone: np.ndarray) -> np.ndarray:
        """Return the number of documents in `gone` [n] with each term, int64 [v], a part of the postings at a time."""
        starts, places, _ = self.lists
        windows, counts = windows_of(len(self)), np.zeros(self.shape[1], np.int64)
        for start in range(0, self.count, PART_POSTINGS):
            end = min(start + PART_POSTINGS, self.count)
            lists = np.searchsorted(starts, np.arange(start, end), side="right") - 1
            documents = lists % windows * WINDOW_SIZE + places[start:end]
            counts += np.bincount(lists[gone[documents]] // windows, minlength=self.shape[1])
        return counts

    def search(
        self,
        queries: Sparse,
        k: int,
        *,
        needed: np.ndarray | None = None,
        allowed: np.ndarray | None = None,
        threads: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows int32 [q, k] and scores float32 [q, k] of the k best documents; -1 and 0 for no hit.

        `queries` are the arrays of `query_arrays`, `needed` int32 [q] is the number of terms that a hit must share
        with a query, and `allowed` bool [n] marks the documents that may be hits.
        """
        starts, terms, weights = queries
        # Integer weights have a common unit, by which the query's weights are multiplied.
        arrays = queries if self.unit == 1 else (starts, terms, frozen(weights * np.float32(self.unit), np.float32))
        wanted = np.zeros(len(starts) - 1, np.int32) if needed is None else needed
        passing = frozen(np.ones(0, bool) if allowed is None else allowed, np.bool_)
        # [q, k]; each thread fills the rows of its queries.
        rows = np.full((len(starts) - 1, k), -1, dtype=np.int32)
        scores = np.zeros(rows.shape, dtype=np.float32)

        def search_part(part: slice, queries: Sparse) -> None:
            least = frozen(wanted[part], np.int32)
            exact_kernels.search(self.lists, len(self), queries, least, passing, rows[part], scores[part])

        in_threads(search_part, arrays, threads)
        return rows, scores

    def matched(self, queries: Sparse, needed: np.ndarray) -> np.ndarray:
        """Return the number of documents that share a term, or `needed` int32 [q] terms, with each query, int64 [q]."""
        counts = np.zeros(len(needed), dtype=np.int64)
        exact_kernels.count_matches(self.lists, len(self), queries, frozen(needed, np.int32), counts)
        return counts

    def get(self, rows: Sequence[int] | np.ndarray | None = None) -> csr_array:
        """Return the vectors of the documents in `rows`, csr_array [m, v]; of all n by default.

        Raises `ArgumentError` for a row that does not exist.
        """
        (n, v), (starts, places, weights) = self.shape, self.lists
        if rows is not None and len(rows) and not 0 <= min(rows) <= max(rows) < n:
            raise ArgumentError(f"rows must lie between 0 and {n - 1}, not {min(rows)} to {max(rows)}")
        # Search each posting list for each document, or go through all postings, whichever is less work.
        if rows is not None and len(rows) * v * 4 < starts[-1]:
            entries = np.full((len(rows), v), -1, dtype=np.int64)
            exact_kernels.find_postings(self.lists, n, np.ascontiguousarray(rows, np.int64), entries)
            chosen, terms = np.nonzero(entries >= 0)
            indptr = np.searchsorted(chosen, np.arange(len(rows) + 1)).astype(np.int32)
            values = self._values(weights[entries[chosen, terms]])
            return csr_array((values, terms.astype(np.int32), indptr), shape=(len(rows), v))
        windows = windows_of(n)
        first = np.tile(np.arange(windows, dtype=np.int32) * WINDOW_SIZE, v)  # first document of each list's window
        documents, term_starts = np.repeat(first, np.diff(starts)) + places, starts[::windows]
        if rows is None:
            return csc_array((self._values(weights), documents, term_starts), shape=self.shape).tocsr()
        distinct, back = np.unique(np.asarray(rows, dtype=np.int64), return_inverse=True)
        row_of = np.full(n, -1, np.int32)
        row_of[distinct] = np.arange(len(distinct))
        kept = np.flatnonzero(row_of[documents] >= 0)
        arrays = self._values(weights[kept]), row_of[documents[kept]], np.searchsorted(kept, term_starts)
        return csc_array(arrays, shape=(len(distinct), v)).tocsr()[back]

    def _values(self, weights: np.ndarray) -> np.ndarray:
        """Return stored weights as float32."""
        return weights if weights.dtype == np.float32 else weights.astype(np.float32) * np.float32(self.unit)

    def release(self) -> None:
        """Free the memory pages of memory-mapped lists, which the next search reads again."""
        for array in self.lists:
            release(array)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to store together with `header`."""
        return dict(zip(("starts", "places", "weights"), self.lists, strict=True))

    def header(self) -> dict[str, object]:
        """Return the properties that `arrays` does not contain, as JSON values."""
        return {"shape": list(self.shape), "unit": self.unit}

    @classmethod
    def stored(
        cls, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any], place: StrPath, *, verified: bool = False
    ) -> Postings:
        """Return stored lists; raise `VectorsError` with `place` if they do not fit together.

        Contents that were `verified` before are not read again.
        """
        try:
            (n, v), unit = header["shape"], float(header["unit"])
        except (KeyError, TypeError, ValueError) as error:
            raise VectorsError(f"{place}: the index is not complete: {error!r}") from error
        starts, places = typed(arrays, "starts", np.int64, place), typed(arrays, "places", np.uint16, place)
        weights = arrays.get("weights", np.empty(0))
        if weights.dtype not in map(np.dtype, WEIGHTS.values()) or weights.ndim != 1:
            raise VectorsError(f"{place}: the index is damaged: its weights are {weights.dtype} {weights.shape}")
        fits = type(n) is type(v) is int and 0 <= n <= np.iinfo(np.int32).max and v >= 0 and 0 < unit < np.inf
        fits = fits and len(starts) == v * windows_of(n) + 1 and starts[-1] == len(places) == len(weights)
        if not fits:
            raise VectorsError(f"{place}: the index is damaged: its parts do not fit together")
        postings = cls((starts, places, weights), (n, v), unit)
        if not verified and (wrong := postings.wrong()):
            raise VectorsError(f"{place}: the index is damaged: {WRONG[wrong]}")
        return postings

    def wrong(self) -> int:
        """Return the number in `WRONG` of the first defect of lists whose lengths fit, or 0."""
        starts, places, weights = self.lists
        if starts[0] != 0 or (starts[1:] < starts[:-1]).any():  # a difference might overflow
            return 4
        return wrong_entries((weights, places, starts), WINDOW_SIZE) or _beyond(starts, places, len(self))


def query_arrays(queries: csr_array, size: int) -> Sparse:
    """Return the arrays of queries [q, v] for a search; raise `VectorsError` if v is not `size`."""
    as_made = isinstance(queries, csr_array) and queries.ndim == 2 and queries.shape[1] == size
    if as_made and queries.dtype == np.float32 and queries.indices.dtype == np.int32:
        arrays = arrays_of(queries)  # `as_vectors` would take a tenth of the time of a query over 100,000 documents
        if len(arrays[0]) == queries.shape[0] + 1 and exact_kernels.in_order(arrays, size):
            return arrays
    queries = as_vectors(queries, "the queries")
    if queries.shape[1] != size:
        raise VectorsError(f"the queries have {queries.shape[1]} terms, the documents {size}: another vocabulary")
    return arrays_of(queries)


def arrays_of(vectors: csr_array | csc_array) -> Sparse:
    """Return the arrays of a matrix with the types that the compiled loops take."""
    return frozen(vectors.indptr, np.int64), frozen(vectors.indices, np.int32), frozen(vectors.data, np.float32)


def needed_terms(queries: Sparse, minimum_match: float) -> np.ndarray:
    """Return the number of terms that a document must share with each query, int32 [q]."""
    if minimum_match == 0:
        return np.zeros(len(queries[0]) - 1, np.int32)
    # A share such as 0.3 of 10 terms means 3, not the 4 that rounding up 3.0000000000000004 would give.
    return np.ceil(np.diff(queries[0]) * minimum_match - 1e-9).astype(np.int32)


def frozen(array: np.ndarray, kind: type[np.generic]) -> np.ndarray:
    """Return a contiguous, read-only view of a type, as the compiled loops take it."""
    view = np.ascontiguousarray(array, dtype=kind).view()
    view.flags.writeable = False
    return view


def in_threads(work: Callable[[slice, Sparse], None], queries: Sparse, threads: int | None) -> None:
    """Call `work` on parts of the queries in threads: compiled loops release the interpreter's lock."""
    if threads is not None and threads < 1:
        raise ArgumentError(f"threads must be at least 1, not {threads}")
    starts, terms, weights = queries
    count = len(starts) - 1
    workers = 1 if count <= 1 else min(threads or _cores(), count)
    if workers <= 1:
        work(slice(0, count), queries)
        return
    step = -(-count // (workers * 8))  # several parts a thread: queries differ in cost
    parts = [slice(start, min(start + step, count)) for start in range(0, count, step)]
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, parts, [(starts[part.start : part.stop + 1], terms, weights) for part in parts]))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cut(columns: csc_array) -> tuple[np.ndarray, np.ndarray]:
    """Cut the columns of a CSC matrix [n, v] into lists by window: starts [v w + 1], and places in the windows."""
    starts, documents, _ = arrays_of(columns)
    v, windows = columns.shape[1], windows_of(columns.shape[0])
    if windows > 1:
        lists = np.repeat(np.arange(v, dtype=np.int64) * windows, np.diff(starts)) + documents // WINDOW_SIZE
        starts = np.concatenate([[0], np.cumsum(np.bincount(lists, minlength=v * windows))])
    return starts, (documents % WINDOW_SIZE).astype(np.uint16)


def _rounded(weights: np.ndarray, bits: int, heaviest: float | None) -> tuple[np.ndarray, float]:
    """Return weights as positive multiples of a unit, in `bits` bits, and the unit, the least possible power of 2."""
    most = 2**bits - 1
    heaviest = max(float(weights.max(initial=0)), heaviest or 0.0)
    unit = 2.0 ** max(np.ceil(np.log2(heaviest / most)), -126) if heaviest else 1.0  # least exact float32
    most = min(most, int(np.finfo(np.float32).max / unit))  # so that all weights stay finite
    return frozen(np.clip(np.rint(weights / np.float32(unit)), 1, most), WEIGHTS[bits]), float(unit)


def _beyond(starts: np.ndarray, places: np.ndarray, n: int) -> int:
    """Return 1 if a posting in the last window is beyond the last document, else 0; places must ascend."""
    windows = windows_of(n)
    ends = starts[windows::windows]
    ends = ends[ends > starts[windows - 1 :: windows][: len(ends)]]  # ends of the lists that are not empty
    return int((places[ends - 1] >= n - (windows - 1) * WINDOW_SIZE).any())
