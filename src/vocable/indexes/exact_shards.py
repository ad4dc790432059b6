"""Exact search of stored vectors whose postings do not fit into memory at once.

The documents are cut into shards, each an `ExactIndex` in a file. A shard is made in memory, which takes 24 bytes a
posting, saved, and searched memory-mapped. A score depends on a single document, so that the best documents of all
shards are the best of all documents, to the last bit and in the same order.

FOLDER/shards.json    numbers of documents by shard
FOLDER/shard-00001    index of the first documents, ...

Shapes: n documents, m chosen documents, q queries, v output terms, k results.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeAlias, Unpack

import numpy as np
from scipy.sparse import csr_array, vstack

from vocable.core.arrays import Strings
from vocable.core.storage import read_record, write_record
from vocable.encoding.vectors import SHARDS, StoredVectors, joined, shard_folder
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.ranking import Ranking, best
from vocable.options import Count, Matching, checked

SHARD_POSTINGS = 1 << 27  # postings of a shard: 3.2 GB while it is made, 0.8 GB on disk
MAKING_BYTES = 24  # bytes a posting while an index is made: the vectors, the vectors sorted by id, and by term


class ExactShards:
    """Documents in several exact indexes, searched as one; ties are broken by id."""

    def __init__(self, shards: Sequence[ExactIndex]) -> None:
        """Search the documents of `shards`, at least one shard; all shards have ids, each id once.

        Raises `VectorsError` if a shard has no ids, or their vocabularies differ.
        """
        first = shards[0]
        if other := next(
            (shard for shard in shards if shard.shape[1] != first.shape[1] or shard.meta != first.meta), None
        ):
            raise VectorsError(f"shards of other vectors: {first!r} of {first.meta}, {other!r} of {other.meta}")
        self.shards, self.meta = shards, first.meta
        self.ids = Strings.joined([_ids_of(shard) for shard in shards])
        self._firsts = np.cumsum([0, *map(len, shards)])
        self.shape: tuple[int, int] = int(self._firsts[-1]), first.shape[1]

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
        threads: Count | None = None,
        **matching: Unpack[Matching],
    ) -> Ranking:
        """Return the k documents with the highest dot product for each of `queries` [q, v], as `ExactIndex` does.

        Each shard answers all queries before the next shard is read. With several queries, its memory pages are then
        freed, so that no more than one shard is in memory.
        """
        rows = np.full((queries.shape[0], k), -1, dtype=np.int32)
        scores = np.zeros(rows.shape, dtype=np.float32)
        for shard, first in zip(self.shards, self._firsts[:-1].tolist(), strict=True):
            hits = shard.search(queries, k, threads=threads, **matching)
            more = np.where(hits.rows < 0, np.int32(-1), hits.rows + np.int32(first))
            both = np.concatenate([rows, more], axis=1), np.concatenate([scores, hits.scores], axis=1)
            ranking = best(*both, k, self.ids)
            rows, scores = ranking.rows, ranking.scores
            if queries.shape[0] > 1:
                shard.postings.release()
        return Ranking(rows, scores, self.ids)

    def matched(self, queries: csr_array, *, minimum_match: float = 0.0) -> np.ndarray:
        """Return the number of documents that a search scores for each of `queries` [q, v], int64 [q]."""
        return np.sum([shard.matched(queries, minimum_match=minimum_match) for shard in self.shards], axis=0)


Exact: TypeAlias = ExactIndex | ExactShards


def save_exact(parts: Iterable[StoredVectors], folder: Path, *, postings: int = SHARD_POSTINGS) -> None:
    """Write an index of the vectors of `parts`, at least one, which are read one at a time; `load_exact` opens it.

    Its shards have at most `postings` postings each, and a longer vector makes up a whole shard. The folder is not
    written atomically: it belongs to a larger work. Raises `VectorsError` if an id is repeated.
    """
    shutil.rmtree(folder, ignore_errors=True)  # left by a call that was killed
    folder.mkdir(parents=True)
    counts, seen = list[int](), set[int]()  # hashes of ids
    for group in _groups(parts, postings):
        hashes = set(map(hash, group.ids))
        if seen & hashes:
            raise VectorsError("a document id occurs more than once")
        seen |= hashes
        index = ExactIndex(group.matrix, group.ids, group.meta)
        del group  # free its memory before the next group is read
        counts.append(len(index))
        index.save(shard_folder(folder, len(counts)))
        del index
    write_record(folder / SHARDS, counts)


def load_exact(folder: Path) -> Exact:
    """Open an index that `save_exact` wrote, memory-mapped; raise `VectorsError` if it is missing or damaged."""
    if not (folder / SHARDS).is_file():
        raise VectorsError(f"{folder}: there is no index here: {SHARDS} is missing")
    counts = read_record(folder / SHARDS, list[int])
    shards = list[ExactIndex]()
    for number in range(1, len(counts) + 1):
        shards.append(ExactIndex.load(shard_folder(folder, number)))
        shards[-1].postings.release()  # opening reads the whole shard, to compare its checksums
    if [*map(len, shards)] != counts or not shards:
        raise VectorsError(f"{folder}: the index is damaged: its shards have other documents than {SHARDS} counts")
    return shards[0] if len(shards) == 1 else ExactShards(shards)


def _ids_of(shard: ExactIndex) -> Strings:
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
