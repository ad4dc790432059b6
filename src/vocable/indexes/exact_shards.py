"""Exact search of documents whose postings do not fit into memory at once.

The documents are cut into shards, each an `ExactIndex` in a separate folder. A shard is made in memory, which takes 24
bytes a posting, saved, and searched memory-mapped. A score depends on a single document, so that the best documents of
all shards are the best of all documents, to the last bit and in the same order.

FOLDER/shards.json    numbers of documents by shard
FOLDER/shard-00001/   index of the first documents, ...
FOLDER/ranks/         the place of each document in the order of the ids

Shapes: n documents, m chosen documents, q queries, v output terms, k results.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeAlias, Unpack

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array, vstack

from vocable.core.arrays import Ids, load_arrays, save_arrays
from vocable.core.storage import read_record, write_record
from vocable.core.verified import verifying
from vocable.encoding.vectors import SHARDS, StoredVectors, joined, shard_folder
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes import exact_kernels as kernels
from vocable.indexes.exact_index import ExactIndex, order_of
from vocable.indexes.ranking import Ranking
from vocable.options import Count, Matching, checked

RANKS = "ranks"  # name of the folder, and kind of its array
SHARD_POSTINGS = 1 << 27  # postings of a shard: 3.2 GB while it is made, 0.8 GB on disk
MAKING_BYTES = 24  # bytes a posting while an index is made: the vectors, the vectors sorted by id, and by term


class ExactShards:
    """Documents in several exact indexes, searched as one; ties are broken by id."""

    def __init__(self, shards: Sequence[ExactIndex], ranks: np.ndarray | None = None) -> None:
        """Search the documents of `shards`, at least one shard; all shards have ids.

        `ranks`, int32 [n], are the places of the documents in the order of their ids, if they are known. Raises
        `VectorsError` if a shard has no ids, a document is in two shards, or their vocabularies differ.
        """
        first = shards[0]
        if other := next(
            (shard for shard in shards if shard.shape[1] != first.shape[1] or shard.meta != first.meta), None
        ):
            raise VectorsError(f"shards of other vectors: {first!r} of {first.meta}, {other!r} of {other.meta}")
        self.shards, self.meta = shards, first.meta
        self.ids = Ids(pa.concat_arrays([_ids_of(shard).array for shard in shards]))
        self._firsts = np.cumsum([0, *map(len, shards)])
        self.shape: tuple[int, int] = int(self._firsts[-1]), first.shape[1]
        self.ranks = _ranks(self.ids) if ranks is None else ranks

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} documents, {self.shape[1]:,} terms, {len(self.shards)} shards)"

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        return sum(shard.nbytes for shard in self.shards)

    @cached_property
    def document_frequency(self) -> np.ndarray:
        """Number of documents with each term, int64 [v]."""
        return np.sum([shard.document_frequency for shard in self.shards], axis=0)

    def get(self, rows: Sequence[int] | np.ndarray | None = None) -> csr_array:
        """Return the stored vectors of the documents in `rows`, csr_array [m, v]; of all n by default.

        Raises `ArgumentError` for a row that does not exist.
        """
        wanted = np.arange(len(self)) if rows is None else np.asarray(rows, dtype=np.int64)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise ArgumentError(f"rows must lie between 0 and {len(self) - 1}, not {wanted.min()} to {wanted.max()}")
        of = np.searchsorted(self._firsts, wanted, side="right") - 1
        parts = [self.shards[number].get(wanted[of == number] - self._firsts[number]) for number in np.unique(of)]
        if not parts:
            return self.shards[0].get([])
        vectors = csr_array(vstack(parts, format="csr"))
        return vectors if (np.diff(of) >= 0).all() else vectors[np.argsort(np.argsort(of, kind="stable"))]

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
        """Return the k documents with the highest dot product for each of `queries` [q, v], as `ExactIndex` does.

        Each shard answers all queries before the next shard is read. With several queries, its memory pages are then
        freed, so that no more than one shard is in memory.
        """
        if allowed is not None and allowed.shape != (len(self),):
            raise ArgumentError(f"allowed must have the shape ({len(self)},), not {allowed.shape}")
        rows = np.full((queries.shape[0], k), -1, dtype=np.int32)
        scores = np.zeros(rows.shape, dtype=np.float32)
        for shard, first in zip(self.shards, self._firsts[:-1].tolist(), strict=True):
            mask = None if allowed is None else allowed[first : first + len(shard)]
            hits = shard.search(queries, k, allowed=mask, threads=threads, **matching)
            more = np.where(hits.rows < 0, np.int32(-1), hits.rows + np.int32(first))
            kernels.merge(rows, scores, more, hits.scores, self.ranks)
            if queries.shape[0] > 1:
                shard.release()
        return Ranking(rows, scores, self.ids)

    def matched(self, queries: csr_array, *, minimum_match: float = 0.0) -> np.ndarray:
        """Return the number of documents that a search scores for each of `queries` [q, v], int64 [q]."""
        return np.sum([shard.matched(queries, minimum_match=minimum_match) for shard in self.shards], axis=0)


Exact: TypeAlias = ExactIndex | ExactShards


def save_exact(
    parts: Iterable[StoredVectors],
    folder: Path,
    *,
    postings: int = SHARD_POSTINGS,
    weight_bits: int | None = None,
    heaviest: float | None = None,
) -> None:
    """Write an index of the vectors of `parts`, at least one, which are read one at a time; `load_exact` opens it.

    It is a single `ExactIndex` if the vectors have at most `postings` postings; otherwise it has shards of at most
    `postings` postings each, and a longer vector makes up a whole shard. With `weight_bits`, `heaviest` is the largest
    of all weights. The folder is not written atomically: it belongs to a larger work.
    """
    shutil.rmtree(folder, ignore_errors=True)  # left by a call that was killed
    folder.mkdir(parents=True)
    ids = list[pa.LargeStringArray]()  # of each shard
    for group in _groups(parts, postings):
        index = ExactIndex(group.matrix, group.ids, group.meta, weight_bits=weight_bits, heaviest=heaviest)
        del group  # free its memory before the next group is read
        ids.append(_ids_of(index).array)
        index.save(shard_folder(folder, len(ids)))
        del index
    if len(ids) == 1:
        alone = folder.with_name(f".{folder.name}.alone")
        shard_folder(folder, 1).rename(alone)
        folder.rmdir()
        alone.rename(folder)
    else:
        save_arrays(folder / RANKS, RANKS, {"ranks": _ranks(Ids(pa.concat_arrays(ids)))}, {})
        write_record(folder / SHARDS, [*map(len, ids)])


def load_exact(folder: Path) -> Exact:
    """Open an index that `save_exact` wrote, memory-mapped; raise `VectorsError` if it is missing or damaged."""
    if not (folder / SHARDS).is_file():
        return ExactIndex.load(folder)
    counts = read_record(folder / SHARDS, list[int])
    shards = list[ExactIndex]()
    for number in range(1, len(counts) + 1):
        shards.append(ExactIndex.load(shard_folder(folder, number)))
        shards[-1].release()  # the first opening reads the whole shard, to compare its checksums
    if [*map(len, shards)] != counts or not shards:
        raise VectorsError(f"{folder}: the index is damaged: its shards have other documents than {SHARDS} counts")
    with verifying(folder / RANKS) as is_new:
        ranks = load_arrays(folder / RANKS, RANKS, verify=is_new)[0].get("ranks", np.empty(0))
        whole = ExactShards(shards, None if is_new else ranks)
        if ranks.dtype != np.int32 or not np.array_equal(ranks, whole.ranks):
            raise VectorsError(f"{folder / RANKS}: the index is damaged: these are not the ranks of its ids")
    return whole


def _ranks(ids: Ids) -> np.ndarray:
    """Return the place of each id in the order of all ids, int32 [n]; raise `VectorsError` if an id is repeated."""
    order, ranks = order_of(ids, len(ids)), np.arange(len(ids), dtype=np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return ranks


def _ids_of(shard: ExactIndex) -> Ids:
    if shard.ids is None:
        raise VectorsError(f"{shard!r}: a shard needs the ids of its documents")
    return shard.ids


def _groups(parts: Iterable[StoredVectors], most: int) -> Iterator[StoredVectors]:
    """Join consecutive vectors to groups of at most `most` postings; a longer vector makes up a whole group."""
    held, count, whole = list[StoredVectors](), 0, None
    for whole in parts:
        whole = whole._replace(dense=None)
        indptr, start, n = whole.matrix.indptr, 0, len(whole.ids)
        while start < n:
            end = int(np.searchsorted(indptr, int(indptr[start]) + most - count, side="right")) - 1
            if end <= start and held:
                yield _joined(held)
                count = 0
                continue
            end = max(end, start + 1)
            part = (
                whole if end - start == n else whole._replace(ids=whole.ids[start:end], matrix=whole.matrix[start:end])
            )
            held.append(part)
            count += int(indptr[end] - indptr[start])
            start = end
            del part
    if held:
        yield _joined(held)
    elif whole is not None and not len(whole.ids):
        yield whole  # without documents


def _joined(held: list[StoredVectors]) -> StoredVectors:
    """Join the vectors in a list, and empty it."""
    vectors = joined(held)
    held.clear()
    return vectors
