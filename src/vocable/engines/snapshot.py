"""One commit of an index, whole: its segments, the documents that are gone from each, and the search of them all.

A score depends on the query, the document and the collection's counts alone, so that the best documents of all segments
are the best of all documents, to the last bit and in the same order.

Letters: n documents, m of them, q queries, t terms, v output vocabulary, k results.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import chain
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array, vstack

from vocable.data import Document
from vocable.encoding.idf import idf
from vocable.engines.filters import Filter
from vocable.engines.protocols import Space
from vocable.engines.segment import KEPT_FILTERS, Segment
from vocable.indexes.exact_numpy import Sparse
from vocable.indexes.postings import frozen, needed_terms, query_arrays
from vocable.indexes.ranking import Ranking, best
from vocable.indexes.words import WeighedWords


class LiveSegment:
    """A segment, and the documents that are `gone` from it, bool [n] or None; `gone_name` is the file that says so."""

    def __init__(self, segment: Segment, gone: np.ndarray | None = None, gone_name: str | None = None) -> None:
        self.segment, self.gone, self.gone_name = segment, gone, gone_name
        self.allowed = lru_cache(KEPT_FILTERS)(partial(_allowed, segment, gone))

    @cached_property
    def live(self) -> int:
        """The number of documents that are not gone."""
        return len(self.segment) - (0 if self.gone is None else int(np.count_nonzero(self.gone)))

    def rows(self) -> np.ndarray:
        """Return the rows of the documents that are not gone."""
        return np.arange(len(self.segment)) if self.gone is None else np.flatnonzero(~self.gone)

    def without(self, rows: np.ndarray) -> LiveSegment:
        """Return the part without the documents in these rows, too."""
        if not len(rows):
            return self
        gone = np.zeros(len(self.segment), bool) if self.gone is None else self.gone.copy()
        gone[rows] = True
        return LiveSegment(self.segment, gone)

    def find(self, ids: Sequence[str]) -> np.ndarray:
        """Return the row of each id, int64 [m]; -1 for an unknown id."""
        rows = self.segment.ids.rows(ids)
        return rows if self.gone is None else np.where((rows >= 0) & self.gone[rows], -1, rows)

    def left_out(self, filter: Filter | None) -> np.ndarray | None:
        """Return whether each document is gone or does not pass a filter, bool [n]; None if all pass."""
        return self.gone if filter is None else ~np.asarray(self.allowed(filter))

    @cached_property
    def words_count(self) -> int:
        """The number of words of all documents, repeats counted."""
        if self.segment.words is None:
            return 0
        lengths = self.segment.words.lengths
        return int((lengths if self.gone is None else lengths[~self.gone]).sum(dtype=np.int64))

    @cached_property
    def word_frequencies(self) -> np.ndarray:
        """The number of documents with each word of the segment, int64 [words]."""
        assert self.segment.words is not None
        return self.segment.words.postings.frequency(None, self.gone)


def _no_counts(filter: Filter | None) -> dict[Any, int]:
    return {}


def _allowed(segment: Segment, gone: np.ndarray | None, filter: Filter | None) -> np.ndarray | None:
    """Return whether each document is not gone and passes a filter, bool [n]; None if all do."""
    if filter is None:
        return None if gone is None else ~gone
    passing = segment.passing(filter)
    return passing if gone is None else passing & ~gone


class ChainedIds(Sequence[str]):
    """Lists of ids as one list: segment after segment, with the ids of documents that are gone."""

    def __init__(self, lists: Sequence[Sequence[str]]) -> None:
        self._ids = list(lists)
        self.firsts = np.cumsum([0, *map(len, self._ids)]).tolist()

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        number = bisect_right(self.firsts, row) - 1
        return self._ids[number][row - self.firsts[number]]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._ids)


class BM25Counts(Protocol):
    """Counts that BM25 weighs words by."""

    def __len__(self) -> int:
        """Return the number of documents."""

    @property
    def mean_length(self) -> float:
        """The mean length of the documents in words; 1 without words."""

    def count_words(self, words: Sequence[str], filter: Filter | None = None) -> np.ndarray:
        """Count the documents that have each of t stemmed words and pass a filter, int64 [t]."""


class Snapshot:
    """The documents of one commit; BM25 weighs their words by `counts`, by default the commit's own."""

    def __init__(self, parts: Sequence[LiveSegment], number: int = 0, counts: BM25Counts | None = None) -> None:
        self.parts, self.number = list(parts), number
        self.ids = ChainedIds([part.segment.ids for part in self.parts])
        self._given_counts = counts  # not itself: a cycle would keep the files of an old commit open
        self._weighed: dict[int, WeighedWords] = {}  # by part
        # Numbers of documents with a word or a term, by the filter that they pass.
        self._word_counts = lru_cache(KEPT_FILTERS)(_no_counts)
        self._term_counts = lru_cache(KEPT_FILTERS)(_no_counts)

    @property
    def _counts(self) -> BM25Counts:
        return self if self._given_counts is None else self._given_counts

    def __len__(self) -> int:
        return self.length

    @cached_property
    def length(self) -> int:
        """The number of documents."""
        return sum(part.live for part in self.parts)

    def rows(self, ids: Sequence[str]) -> np.ndarray:
        """Return the row of each id among all rows, int64 [m]; -1 for an unknown id."""
        rows = np.full(len(ids), -1, np.int64)
        for part, first in zip(self.parts, self.ids.firsts, strict=False):
            mine = part.find(ids)
            rows[mine >= 0] = mine[mine >= 0] + first
        return rows

    def live_ids(self) -> Iterator[str]:
        """Iterate over the ids of all documents."""
        for part in self.parts:
            yield from part.segment.ids if part.gone is None else part.segment.ids.take(part.rows())

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, None for an unknown id."""
        return [None if row < 0 else self._document(row) for row in self.rows(ids).tolist()]

    def _document(self, row: int) -> Document:
        number = bisect_right(self.ids.firsts, row) - 1
        return self.parts[number].segment.document(row - self.ids.firsts[number])

    def vectors(self, rows: np.ndarray, space: Space, columns: int) -> Any:
        """Return the vectors [m, columns] of the documents in rows; zeros for a document that has none yet."""
        of, blocks, places = np.searchsorted(self.ids.firsts, rows, side="right") - 1, [], []
        for number in np.unique(of).tolist():
            part, mine = self.parts[number].segment, np.flatnonzero(of == number)
            places.append(mine)
            if space in part.spaces:
                blocks.append(part.vectors(rows[mine] - self.ids.firsts[number], space))
            else:
                empty = (len(mine), columns)
                blocks.append(np.zeros(empty, np.float32) if space == "dense" else csr_array(empty, dtype=np.float32))
        if not blocks:
            return np.zeros((0, columns), np.float32) if space == "dense" else csr_array((0, columns), dtype=np.float32)
        back = np.argsort(np.concatenate(places))
        if space == "dense":
            return np.concatenate(blocks)[back]
        vectors = blocks[0] if len(blocks) == 1 else csr_array(vstack(blocks, format="csr"))
        return vectors if (np.diff(back) > 0).all() else vectors[back]

    def search(
        self, queries: csr_array, k: int, filter: Filter | None = None, *, minimum_match: float = 0.0
    ) -> Ranking:
        """Return the k best documents for sparse `queries` [q, v]."""
        arrays = query_arrays(queries, queries.shape[1])
        needed = needed_terms(arrays, minimum_match)
        rankings = []
        for part, first in self._with("sparse"):
            postings = part.segment.postings
            assert postings is not None
            rankings.append((first, *postings.search(arrays, k, needed=needed, allowed=part.allowed(filter))))
            if len(arrays[0]) > 2 and len(self.parts) > 1:
                postings.release()  # no more than one segment is in memory
        return self._best(rankings, len(arrays[0]) - 1, k)

    def search_dense(self, queries: np.ndarray, k: int, filter: Filter | None = None) -> Ranking:
        """Return the k best documents for dense `queries` [q, d]."""
        rankings = []
        for part, first in self._with("dense"):
            assert part.segment.dense is not None
            ranking = part.segment.dense.search(queries, k, allowed=part.allowed(filter))
            rankings.append((first, ranking.rows, ranking.scores))
        return self._best(rankings, len(queries), k)

    def search_words(self, queries: csr_array, words: Sequence[str], k: int, filter: Filter | None = None) -> Ranking:
        """Return the k best documents by BM25 for queries [q, columns] whose columns are numbers of `words`."""
        q = queries.shape[0]
        numbers = np.array(sorted({*queries.indices.tolist()}), np.int32)
        spelled = {number: words[number] for number in numbers.tolist()}
        # A server beside this commit counts documents and words at two moments.
        documents = max(1, len(self._counts))
        frequencies = np.minimum(self._counts.count_words([*spelled.values()]), documents)
        factors = dict(zip(spelled, idf(frequencies, documents), strict=True))
        rankings = []
        for number, (part, first) in enumerate(self._with("bm25")):
            held = part.segment.words
            assert held is not None
            column_of = {number: held.column(word) for number, word in spelled.items()}
            weighed = self._weighed.get(number)
            if weighed is None:
                weighed = self._weighed.setdefault(number, WeighedWords(held, self._counts.mean_length))
            known = [number for number, column in column_of.items() if column >= 0]
            columns = np.array([column_of[number] for number in known], np.int64)
            weighed.weigh(columns, np.array([factors[number] for number in known], np.float32))
            arrays = _in_columns(queries, column_of)
            rankings.append((first, *weighed.postings.search(arrays, k, allowed=part.allowed(filter))))
        return self._best(rankings, q, k)

    def _with(self, space: Space) -> Iterator[tuple[LiveSegment, int]]:
        pairs = zip(self.parts, self.ids.firsts, strict=False)
        return ((part, first) for part, first in pairs if space in part.segment.spaces and part.live)

    def _best(self, rankings: Sequence[tuple[int, np.ndarray, np.ndarray]], q: int, k: int) -> Ranking:
        """Return the k best documents of all parts: of each, the number of its first row, rows and scores [q, k]."""
        if not rankings:
            return Ranking(np.full((q, k), -1, np.int32), np.zeros((q, k), np.float32), self.ids)
        rows = [np.where(rows < 0, np.int32(-1), rows + np.int32(first)) for first, rows, _ in rankings]
        if len(rankings) == 1:
            return Ranking(rows[0], rankings[0][2], self.ids)
        return best(
            np.concatenate(rows, axis=1), np.concatenate([scores for _, _, scores in rankings], axis=1), k, self.ids
        )

    def count(self, filter: Filter) -> int:
        """Count the documents that pass a filter."""
        masks = [np.asarray(part.allowed(filter)) for part in self.parts]
        return sum(int(np.count_nonzero(mask)) for mask in masks)

    def count_terms(self, terms: np.ndarray, filter: Filter | None = None) -> np.ndarray:
        """Count the documents that have each of t `terms` and pass a filter, int64 [t]."""
        known = self._term_counts(filter)
        new = np.array([term for term in terms.tolist() if term not in known], np.int64)
        counts = np.zeros(len(new), np.int64)
        for part, _ in self._with("sparse"):
            assert part.segment.postings is not None
            counts += part.segment.postings.frequency(new, part.left_out(filter))
        known.update(zip(new.tolist(), counts.tolist(), strict=True))
        return np.array([known[term] for term in terms.tolist()], np.int64)

    @property
    def with_vectors(self) -> int:
        """The number of documents that have sparse vectors."""
        return sum(part.live for part, _ in self._with("sparse"))

    @cached_property
    def words_count(self) -> int:
        """The number of words of all documents, repeats counted."""
        return sum(part.words_count for part in self.parts)

    @property
    def mean_length(self) -> float:
        """The mean length of the documents in words; 1 without words."""
        return self.words_count / len(self) if self.words_count else 1.0

    def count_words(self, words: Sequence[str], filter: Filter | None = None) -> np.ndarray:
        """Count the documents that have each of t stemmed words and pass a filter, int64 [t]."""
        known = self._word_counts(filter)
        new = [word for word in words if word not in known]
        counts = np.zeros(len(new), np.int64)
        for part, _ in self._with("bm25") if new else ():
            assert part.segment.words is not None
            columns = np.array([part.segment.words.column(word) for word in new], np.int64)
            places = np.flatnonzero(columns >= 0)
            counts[places] += part.segment.words.postings.frequency(columns[places], part.left_out(filter))
        known |= {word: count for word, count in zip(new, counts.tolist(), strict=True) if count}  # of no other query
        return np.array([known.get(word, 0) for word in words], np.int64)

    def words_like(self, initials: str, shortest: int, longest: int) -> list[tuple[str, int]]:
        """Return words of these lengths that begin with a letter of `initials`, with their document frequencies."""
        counts = Counter[str]()
        for part, _ in self._with("bm25"):
            words = part.segment.words
            assert words is not None
            for column in words.starting(initials):
                word = words.vocabulary[column]
                if shortest <= len(word) <= longest and part.word_frequencies[column]:
                    counts[word] += int(part.word_frequencies[column])
        return [*counts.items()]


def _in_columns(queries: csr_array, column_of: dict[int, int]) -> Sparse:
    """Return the arrays of queries whose columns are numbered otherwise, ascending; -1 leaves a column out."""
    starts, columns, weights = [0], list[int](), list[float]()
    for start, end in zip(queries.indptr[:-1].tolist(), queries.indptr[1:].tolist(), strict=True):
        pairs = zip(queries.indices[start:end].tolist(), queries.data[start:end].tolist(), strict=True)
        entries = sorted((column_of[number], weight) for number, weight in pairs if column_of[number] >= 0)
        columns += [column for column, _ in entries]
        weights += [weight for _, weight in entries]
        starts.append(len(columns))
    ends = frozen(np.array(starts), np.int64)
    return ends, frozen(np.array(columns), np.int32), frozen(np.array(weights), np.float32)
