"""Exact search in memory: the reference for every engine.

Shapes: n documents, m of them, q queries, v output vocabulary, k results.

A query is scored term at a time over the postings (CSC), in float32 and in the order of the terms, so that the same
query and documents give the same scores to the last bit with any number of threads. The documents are processed in
windows: the accumulator of a window stays in the processor's cache, and memory does not grow with n.

A posting takes 6 bytes, 2 for the document's place in its window and 4 for the weight. Weights can be rounded to 16 or
8 bits (4 and 3 bytes a posting). They then are multiples of a unit that is a power of 2, so that the search of the
rounded weights is also exact.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csc_array, csr_array

from vocable.core.arrays import Ids, load_arrays, numbers, read_header, release, save_arrays, wrong_entries
from vocable.core.storage import StrPath
from vocable.core.verified import verifying
from vocable.encoding.vectors import VectorsMeta, as_vectors
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes import exact_kernels as kernels
from vocable.indexes.ranking import Ranking, best
from vocable.options import Count, Matching, checked

WEIGHTS: dict[int | None, type[np.generic]] = {None: np.float32, 8: np.uint8, 16: np.uint16}  # by `weight_bits`
WRONG = (  # defects of an index, first the results of `wrong_entries`
    "",
    "places.npy: a posting of a document that does not exist",
    "places.npy: the documents of a posting list do not rise",
    "weights.npy: a weight is not a positive number",
    "starts.npy: the starts of the posting lists do not rise from 0",
    "order.npy: a row that does not exist",
    "order.npy: the ids are not in this order, or an id is repeated",
)


class ExactIndex:
    """Postings of n document vectors, searched exhaustively; ties are broken by id (by row without ids)."""

    kind = "exact"  # kind of the index in a folder
    ids: Ids | None

    def __init__(
        self,
        vectors: csr_array,
        ids: Sequence[str] | None = None,
        meta: VectorsMeta | None = None,
        *,
        weight_bits: int | None = None,
        heaviest: float | None = None,
    ) -> None:
        """Index `vectors` [n, v]; `ids` are the documents' names by row, `meta` is the origin of the vectors.

        `weight_bits`, 8 or 16, rounds each weight to a positive multiple of a unit, which is less than
        2 / (2^bits - 1) of the largest weight. For a part of the documents, `heaviest` is the largest weight of all
        documents. Raises `VectorsError` if the number of ids is not n, an id occurs twice or a weight is not a positive
        number.
        """
        if weight_bits not in WEIGHTS:
            raise ArgumentError(f"weight_bits must be 8 or 16, not {weight_bits!r}")
        vectors = as_vectors(vectors, "the documents")
        self.shape: tuple[int, int] = vectors.shape
        self.meta = meta
        self.ids = None if ids is None else ids if isinstance(ids, Ids) else Ids(ids)
        # Postings number the documents in the order of their ids, so that equal scores need no further sorting.
        self._order = np.empty(0, dtype=np.int32) if self.ids is None else order_of(self.ids, self.shape[0])
        if len(self._order):
            vectors = vectors[self._order]
        self._postings, self._unit = _lists(vectors.tocsc()), 1.0
        if weight_bits:
            *lists, weights = self._postings
            weights, self._unit = _rounded(weights, weight_bits, heaviest)
            self._postings = lists[0], lists[1], weights

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        name, (n, v) = type(self).__name__, self.shape
        return f"{name}({n:,} documents, {v:,} terms, {self._postings[0][-1]:,} postings)"

    @property
    def nbytes(self) -> int:
        """Size in bytes of postings and ids, with pointers to the lists of the terms that documents have."""
        starts = self._postings[0]
        empty = int(np.count_nonzero(np.diff(starts) == 0)) * starts.itemsize
        return sum(array.nbytes for array in self.arrays().values()) - empty

    @property
    def document_frequency(self) -> np.ndarray:
        """Number of documents with each term, int64 [v]."""
        return np.diff(self._postings[0][:: kernels.windows_of(len(self))])

    def get(self, rows: Sequence[int] | np.ndarray | None = None) -> csr_array:
        """Return the stored vectors of the documents in `rows`, csr_array [m, v]; of all n by default.

        Raises `ArgumentError` for a row that does not exist.
        """
        (n, v), (starts, places, weights) = self.shape, self._postings
        if rows is not None and len(rows) and not 0 <= min(rows) <= max(rows) < n:
            raise ArgumentError(f"rows must lie between 0 and {n - 1}, not {min(rows)} to {max(rows)}")
        # Search each posting list for each document, or transpose the whole index, whichever is less work.
        if rows is not None and len(rows) * v * 16 < starts[-1]:
            numbers = np.argsort(self._order)[rows] if len(self._order) else np.asarray(rows)
            entries = np.full((len(rows), v), -1, dtype=np.int64)
            kernels.find_postings(self._postings, n, numbers.astype(np.int64), entries)
            chosen, terms = np.nonzero(entries >= 0)
            indptr = np.searchsorted(chosen, np.arange(len(rows) + 1)).astype(np.int32)
            values = self._values(weights[entries[chosen, terms]])
            return csr_array((values, terms.astype(np.int32), indptr), shape=(len(rows), v))
        windows = kernels.windows_of(n)
        first = np.tile(np.arange(windows, dtype=np.int32) * kernels.WINDOW_SIZE, v)  # document of each list's window
        documents = np.repeat(first, np.diff(starts)) + places
        vectors: csr_array = csc_array((self._values(weights), documents, starts[::windows]), shape=self.shape).tocsr()
        vectors = vectors[np.argsort(self._order)] if len(self._order) else vectors
        return vectors if rows is None else vectors[np.asarray(rows, dtype=np.int64)]

    def _values(self, weights: np.ndarray) -> np.ndarray:
        """Return the stored weights as float32."""
        return weights if weights.dtype == np.float32 else weights.astype(np.float32) * np.float32(self._unit)

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
        starts, terms, weights = query_arrays(queries, self.shape[1])
        arrays = starts, terms, weights if self._unit == 1 else _frozen(weights * np.float32(self._unit), np.float32)
        needed = _needed(arrays, matching.get("minimum_match", 0.0))
        if allowed is not None and allowed.shape != (len(self),):
            raise ArgumentError(f"allowed must have the shape ({len(self)},), not {allowed.shape}")
        passing = np.ones(0, bool) if allowed is None else allowed[self._order] if len(self._order) else allowed
        passing = _frozen(passing, np.bool_)
        rows = np.full((len(needed), k), -1, dtype=np.int32)
        scores = np.zeros(rows.shape, dtype=np.float32)

        def search_part(part: slice, queries: kernels.Sparse) -> None:
            window = _window(kernels.room_of(len(self)))
            outputs = rows[part], scores[part]
            try:
                kernels.search(self._postings, len(self), queries, needed[part], passing, window, *outputs)
            except BaseException:  # no memory for the hits: the next search must not see the scores of this search
                window[:] = 0
                raise

        _in_threads(search_part, arrays, threads)
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
        needed = _needed(arrays, minimum_match)
        counts = np.zeros(len(needed), dtype=np.int64)
        kernels.count_matches(self._postings, self.shape[0], arrays, needed, counts)
        return counts

    def release(self) -> None:
        """Free the memory pages of a memory-mapped index, which the next search reads again."""
        for array in self._postings:
            release(array)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index as a folder (atomically)."""
        save_arrays(folder, self.kind, self.arrays(), self.header())

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Open the index in a folder, memory-mapped: search reads only the postings of the queries' terms.

        `ExactIndex` also reads the postings of an index of a derived class. The first opening compares checksums and
        checks that postings stay within their arrays; later ones only notice changed files. Raises `VectorsError` if
        the folder is not an index, or is damaged or truncated.
        """
        kind = str(read_header(Path(folder)).get("kind")) if cls is ExactIndex else cls.kind
        with verifying(Path(folder)) as is_new:
            return cls.from_arrays(*load_arrays(folder, kind, verify=is_new), str(folder), verified=not is_new)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to store together with `header`."""
        named = dict(zip(("starts", "places", "weights", "order"), (*self._postings, self._order), strict=True))
        return named if self.ids is None else named | strings_to_arrays("ids", self.ids)

    def header(self) -> dict[str, object]:
        """Return the properties that `arrays` does not contain, as JSON values."""
        header: dict[str, object] = {
            "shape": list(self.shape),
            "meta": None if self.meta is None else asdict(self.meta),
        }
        bits = next(bits for bits, kind in WEIGHTS.items() if kind == self._postings[2].dtype)
        return header if bits is None else {**header, "weight_bits": bits, "unit": self._unit}

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, np.ndarray], header: dict[str, Any], place: str, *, verified: bool = False
    ) -> Self:
        """Return the index of `arrays` and `header`; raise `VectorsError` with `place` if they do not fit together.

        Contents that were `verified` before are not read again.
        """
        index = cls.__new__(cls)
        try:
            n, v = header["shape"]
            meta, unit = header["meta"], float(header.get("unit", 1))
            kind = WEIGHTS[header.get("weight_bits")]
        except (KeyError, TypeError, ValueError) as error:
            raise VectorsError(f"{place}: the index is not complete: {error!r}") from error
        starts = _frozen(typed(arrays, "starts", np.int64, place), np.int64)
        places = _frozen(typed(arrays, "places", np.uint16, place), np.uint16)
        weights = _frozen(typed(arrays, "weights", kind, place), kind)
        order = _frozen(typed(arrays, "order", np.int32, place), np.int32)
        index.ids = strings_from_arrays("ids", arrays, place, verified=verified) if "ids_offsets" in arrays else None
        index.meta = None if meta is None else VectorsMeta.from_dict(meta, place)
        index.shape, index._order, index._postings, index._unit = (n, v), order, (starts, places, weights), unit
        fits = type(n) is type(v) is int and 0 <= n <= np.iinfo(np.int32).max and 0 < unit < np.inf
        fits = fits and len(starts) == v * kernels.windows_of(n) + 1 > 0
        fits = fits and starts[-1] == len(places) == len(weights) and len(order) in (0, n if index.ids else 0)
        if not fits or (index.ids is not None and len(index.ids) != n):
            raise VectorsError(f"{place}: the index is damaged: its parts do not fit together")
        if not verified and (wrong := index._wrong()):
            raise VectorsError(f"{Path(place, WRONG[wrong])} (the index is damaged)")
        return index

    def _wrong(self) -> int:
        """Return the number in `WRONG` of the first defect of arrays whose lengths fit, or 0."""
        (starts, places, weights), order = self._postings, self._order
        if starts[0] != 0 or (starts[1:] < starts[:-1]).any():  # a difference might overflow
            return 4
        if wrong := wrong_entries((weights, places, starts), kernels.WINDOW_SIZE) or _beyond(starts, places, len(self)):
            return wrong
        if len(order) and not 0 <= order.min() <= order.max() < len(self):
            return 5
        return 0 if self.ids is None or _rising(self.ids.array, order) else 6


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
    rows, scores = _frozen(ranking.rows, np.int32), np.zeros(ranking.rows.shape, dtype=np.float32)
    candidates, v = _arrays(documents), documents.shape[1]

    def rescore_part(part: slice, queries: kernels.Sparse) -> None:
        kernels.rescore(candidates, v, queries, rows[part], scores[part])

    _in_threads(rescore_part, arrays, threads)
    return best(np.where(scores > 0, rows, np.int32(-1)), scores, k, ranking.ids)


_kept = threading.local()


def _window(room: int) -> np.ndarray:
    """Return zeros for the scores of a window, float32 [room]; each thread keeps them, and a search resets them.

    New memory would cost a sixth of a query over 100,000 documents: the system hands it out page by page.
    """
    window = np.asarray(getattr(_kept, "window", ()), np.float32)
    if len(window) < room:
        _kept.window = window = np.zeros(room, np.float32)
    return window[:room]


def _lists(columns: csc_array) -> kernels.Sparse:
    """Return the posting lists of a CSC matrix [n, v], for the kernels."""
    starts, documents, weights = _arrays(columns)
    n, v = columns.shape
    lists = np.zeros(v * kernels.windows_of(n) + 1, np.int64), np.empty(len(documents), np.uint16)
    kernels.cut((starts, documents, weights), n, *lists)
    return _frozen(lists[0], np.int64), _frozen(lists[1], np.uint16), weights


def _rounded(weights: np.ndarray, bits: int, heaviest: float | None) -> tuple[np.ndarray, float]:
    """Return weights as positive multiples of a unit, in `bits` bits, and the unit, the least possible power of 2."""
    most, heaviest = 2**bits - 1, float(weights.max(initial=0)) if heaviest is None else heaviest
    unit = 2.0 ** max(np.ceil(np.log2(heaviest / most)), -126) if heaviest else 1.0  # least exact float32
    most = min(most, int(np.finfo(np.float32).max / unit))  # so that all weights stay finite
    return _frozen(np.clip(np.rint(weights / np.float32(unit)), 1, most), WEIGHTS[bits]), float(unit)


def _beyond(starts: np.ndarray, places: np.ndarray, n: int) -> int:
    """Return 1 if a posting in the last window is beyond the last document, else 0; places must ascend."""
    windows = kernels.windows_of(n)
    ends = starts[windows::windows]
    ends = ends[ends > starts[windows - 1 :: windows][: len(ends)]]  # ends of the lists that are not empty
    return int((places[ends - 1] >= n - (windows - 1) * kernels.WINDOW_SIZE).any())


def query_arrays(queries: csr_array, size: int) -> kernels.Sparse:
    """Return the arrays of queries [q, v] for the kernels; raise `VectorsError` if v is not `size`."""
    as_made = isinstance(queries, csr_array) and queries.ndim == 2 and queries.shape[1] == size
    if as_made and queries.dtype == np.float32 and queries.indices.dtype == np.int32:
        arrays = _arrays(queries)  # `as_vectors` would take a tenth of the time of a query over 100,000 documents
        if len(arrays[0]) == queries.shape[0] + 1 and kernels.in_order(arrays, size):
            return arrays
    queries = as_vectors(queries, "the queries")
    if queries.shape[1] != size:
        raise VectorsError(f"the queries have {queries.shape[1]} terms, the documents {size}: another vocabulary")
    return _arrays(queries)


def _arrays(vectors: csr_array | csc_array) -> kernels.Sparse:
    return _frozen(vectors.indptr, np.int64), _frozen(vectors.indices, np.int32), _frozen(vectors.data, np.float32)


def _needed(queries: kernels.Sparse, minimum_match: float) -> np.ndarray:
    """Return the number of terms that a document must share with each query, int32 [q]."""
    if minimum_match == 0:
        return _frozen(np.zeros(len(queries[0]) - 1, np.int32), np.int32)
    # A share such as 0.3 of 10 terms means 3, not the 4 that rounding up 3.0000000000000004 would give.
    return _frozen(np.ceil(np.diff(queries[0]) * minimum_match - 1e-9), np.int32)


def order_of(ids: Ids, n: int) -> np.ndarray:
    """Return the rows in the order of their ids, int32 [n], or an empty array if they are in order already."""
    if len(ids) != n:
        raise VectorsError(f"{len(ids)} ids for {n} documents")
    order = pc.array_sort_indices(ids.array)
    ordered = ids.array.take(order)
    twice = pc.index(pc.equal(ordered[1:], ordered[:-1]), True).as_py() if n else -1
    if twice >= 0:
        raise VectorsError(f"the document id {ordered[twice].as_py()!r} occurs more than once")
    rows = _frozen(numbers(order, np.uint64), np.int32)
    return rows[:0] if np.array_equal(rows, np.arange(n)) else rows


def _rising(ids: pa.LargeStringArray, order: np.ndarray) -> bool:
    """Return whether the ids rise in this order, or as they are if `order` is empty."""
    ordered = ids.take(pa.array(order)) if len(order) else ids
    return pc.all(pc.less(ordered[:-1], ordered[1:])).as_py() is not False


def _frozen(array: np.ndarray, kind: type[np.generic]) -> np.ndarray:
    """Return a contiguous, read-only view, so that each kernel is compiled once for memory-mapped and other arrays."""
    view = np.ascontiguousarray(array, dtype=kind).view()
    view.flags.writeable = False
    return view


def _in_threads(work: Callable[[slice, kernels.Sparse], None], queries: kernels.Sparse, threads: int | None) -> None:
    """Call `work` on parts of the queries in threads: the kernels release the interpreter's lock."""
    if threads is not None and threads < 1:
        raise ArgumentError(f"threads must be at least 1, not {threads}")
    starts, terms, weights = queries
    count = len(starts) - 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(threads or cores, count)
    if workers <= 1:
        work(slice(0, count), queries)
        return
    step = -(-count // (workers * 8))  # several parts a thread: queries differ in cost
    parts = [slice(start, min(start + step, count)) for start in range(0, count, step)]
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, parts, [(starts[part.start : part.stop + 1], terms, weights) for part in parts]))


def strings_to_arrays(name: str, strings: Ids) -> dict[str, np.ndarray]:
    """Return two arrays that hold n strings as UTF-8: `NAME_offsets` int64 [n + 1] and `NAME_bytes` uint8."""
    array = pa.concat_arrays([strings.array])  # a slice of a larger array starts at an offset; a copy starts at 0
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return {f"{name}_offsets": ends - ends[0], f"{name}_bytes": content[ends[0] : ends[-1]]}


def strings_from_arrays(
    name: str, arrays: dict[str, np.ndarray], place: StrPath = "", *, verified: bool = False
) -> Ids:
    """Return the strings of `strings_to_arrays`, without a copy; a `VectorsError` names files in `place`."""
    offsets = typed(arrays, f"{name}_offsets", np.int64, place)
    content = typed(arrays, f"{name}_bytes", np.uint8, place)
    file = Path(place, f"{name}_offsets.npy")
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(content) or (offsets[1:] < offsets[:-1]).any():
        raise VectorsError(f"{file}: does not fit {name}_bytes.npy")
    buffers = pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(content))
    strings = pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers)
    try:
        strings.validate(full=not verified)
    except pa.ArrowInvalid as error:
        raise VectorsError(f"{file.with_stem(f'{name}_bytes')}: not text in UTF-8: {error}") from error
    return Ids(strings)


def typed(arrays: dict[str, np.ndarray], name: str, kind: type[np.generic], place: StrPath = "") -> np.ndarray:
    """Return the array `name`, which has the type `kind` and one dimension; else raise `VectorsError` with its file."""
    array = arrays.get(name)
    if array is None:
        raise VectorsError(f"{place}: the index is not complete: {name} is missing")
    if array.dtype != kind or array.ndim != 1:
        raise VectorsError(
            f"{Path(place, name)}.npy: {array.dtype} {array.shape}, expected one row of {np.dtype(kind)}"
        )
    return array
