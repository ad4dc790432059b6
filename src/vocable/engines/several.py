"""Several stores as one: each is searched, the rankings are merged, and terms and words are counted over all stores.

A hit has the name of its index in the field `index`. An id that several indexes have becomes "INDEX:ID".

Letters: m documents, q queries, t terms or words, k results.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array, vstack

from vocable.data import Document
from vocable.engines.base import Store, Vectors
from vocable.engines.filters import Filter, decided
from vocable.engines.numbered_words import NumberedWords, WordNumbers
from vocable.engines.protocols import About, Space
from vocable.engines.segmented import SegmentedStore
from vocable.engines.snapshot import ChainedIds, Snapshot
from vocable.errors import ArgumentError
from vocable.indexes.ranking import Ranking, best
from vocable.options import Matching

INDEX_FIELD = "index"  # field of a document with the name of its index
ONE_INDEX = "change one index at a time"

SettingsByIndex = Mapping[str, Mapping[str, Any]]  # settings of stores by the names of the indexes


class Located(NamedTuple):
    """A document, the number of its store, and its id there."""

    store: int
    id: str
    document: Document


class SharedRows:
    """Rows of the documents of several stores in one ranking, numbered as they are found."""

    def __init__(self) -> None:
        self.ids: list[str] = []  # by row
        self.places: list[tuple[int, int]] = []  # store and row in the store, by row
        self._known: dict[tuple[int, str], int] = {}

    def of(self, rows: np.ndarray, ids: ChainedIds, named: Callable[[int, Sequence[str]], list[str]]) -> np.ndarray:
        """Return the rows [q, k] of documents by their `rows` in the `ids` of one store after another.

        `named` returns the ids of documents of a store among all stores.
        """
        distinct = np.unique(rows[rows >= 0])
        stores = np.searchsorted(ids.firsts, distinct, side="right") - 1
        keys = [(store, ids[row]) for store, row in zip(stores.tolist(), distinct.tolist(), strict=True)]
        rows_there = (distinct - np.array(ids.firsts)[stores]).tolist()
        new = {key: row for key, row in zip(keys, rows_there, strict=True) if key not in self._known}
        for number in np.unique(stores).tolist():
            of_store = [key for key in new if key[0] == number]
            for key, name in zip(of_store, named(number, [identifier for _, identifier in of_store]), strict=True):
                self._known[key] = len(self.ids)
                self.ids.append(name)
                self.places.append((number, new[key]))
        numbers = np.array([*(self._known[key] for key in keys), -1], np.int32)
        return numbers[np.where(rows < 0, -1, np.searchsorted(distinct, rows))]


class SeveralStore(NumberedWords):
    """The documents of several stores, by the names of their indexes; it cannot change.

    `agree` returns common settings of stores, or raises an error. `close` closes the stores in `opened`.
    """

    def __init__(
        self,
        stores: Mapping[str, Store],
        agree: Callable[[SettingsByIndex], dict[str, Any]],
        opened: Sequence[Store] = (),
    ) -> None:
        self.place, self.names, self.stores = ", ".join(stores), [*stores], [*stores.values()]
        self._agree, self._opened, self._pinned = agree, opened, False
        self._numbers, self._rows = WordNumbers(), SharedRows()
        # Commits of stores, and views of them whose words are weighed by the counts of all stores.
        self._weighed: tuple[list[Snapshot | None], list[Store]] = [], []
        self.settings = self._settings()
        self.spaces = self.stores[0].spaces
        abouts = [store.about for store in self.stores]
        self.about = About(  # type: ignore[misc]  # of these stores
            "several",
            exact=all(about.exact for about in abouts),
            changes=False,
            instead=ONE_INDEX,
            filters=all(about.filters for about in abouts),
            matching=tuple(name for name in abouts[0].matching if all(name in about.matching for about in abouts)),
            cheap_reads=all(about.cheap_reads for about in abouts),
            knows_fields=all(about.knows_fields for about in abouts),
            part=min(about.part for about in abouts),
        )
        self.max_hits = min(store.max_hits for store in self.stores)  # type: ignore[misc]

    def _settings(self) -> dict[str, Any]:
        return self._agree({name: store.settings for name, store in zip(self.names, self.stores, strict=True)})

    def pinned(self) -> Self:
        """Return a view of the stores as they are now."""
        if self._pinned:
            return self
        view = copy.copy(self)
        view.stores, view._rows, view._pinned = [store.pinned() for store in self.stores], SharedRows(), True
        self.settings = view.settings = view._settings()
        # Weights of words stay as long as no store changes; a server counts anew for each search.
        commits = [store.now() if isinstance(store, SegmentedStore) else None for store in view.stores]
        if None in commits or commits != self._weighed[0]:
            weighed = [
                store.counted_with(view) if isinstance(store, SegmentedStore) else store for store in view.stores
            ]
            self._weighed = view._weighed = commits, weighed
        return view

    def settings_now(self) -> Mapping[str, Any]:
        return self._agree({name: store.settings_now() for name, store in zip(self.names, self.stores, strict=True)})

    def version(self) -> object:
        versions = tuple(store.version() for store in self.stores)
        return None if None in versions else versions

    # Documents.

    def _named(self, number: int, ids: Sequence[str]) -> list[str]:
        """Return the ids of documents of a store as they are among all stores."""
        others = [store for other, store in enumerate(self.stores) if other != number and ids]
        firsts = [_first_passage(identifier) for identifier in ids]
        held = [document is not None for store in others for document in store.documents(firsts)]
        ambiguous = np.any(np.reshape(held, (len(others), len(ids))), axis=0).tolist()
        return [
            f"{self.names[number]}:{identifier}" if is_held or self._named_store(identifier) is not None else identifier
            for identifier, is_held in zip(ids, ambiguous, strict=True)
        ]

    def _named_store(self, identifier: str) -> int | None:
        """Return the number of the store whose name an id begins with."""
        name, colon, _ = identifier.partition(":")
        return self.names.index(name) if colon and name in self.names else None

    def _find(self, ids: Sequence[str]) -> dict[str, Located]:
        """Return the existing documents by id; `ArgumentError` for an id that several indexes have."""
        located: dict[str, Located] = {}
        named = {identifier: self._named_store(identifier) for identifier in ids}
        for number, store in enumerate(self.stores):
            ids_there = {
                identifier: identifier if of is None else identifier.partition(":")[2]
                for identifier, of in named.items()
                if of in (None, number)
            }
            pairs = zip(ids_there.items(), store.documents([*ids_there.values()]), strict=True)
            for (identifier, its), document in pairs:
                if document is None or (its != identifier and [identifier] != self._named(number, [its])):
                    continue
                if identifier in located:
                    raise self._ambiguous(identifier.partition("\t")[0], located[identifier].store, number)
                located[identifier] = Located(number, its, document)
        return located

    def _ambiguous(self, identifier: str, *stores: int) -> ArgumentError:
        first, second = (repr(f"{self.names[number]}:{identifier}") for number in stores)
        return ArgumentError(f"{self.place}: two indexes have the document {identifier!r}: name {first} or {second}")

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        located = self._find(ids)
        return [self._shown(identifier, located[identifier]) if identifier in located else None for identifier in ids]

    def _shown(self, identifier: str, located: Located) -> Document:
        """Return a document with its id among all stores, and the name of its index."""
        others = {name: value for name, value in located.document.fields.items() if name != INDEX_FIELD}
        return located.document._replace(id=identifier, fields={INDEX_FIELD: self.names[located.store], **others})

    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> Vectors:
        located = self._find(ids)
        if (missing := next((identifier for identifier in ids if identifier not in located), None)) is not None:
            raise ArgumentError(f"{self.place}: there is no document {missing!r}")
        blocks, places = [], list[int]()
        for number, store in enumerate(self.stores):
            mine = [place for place, identifier in enumerate(ids) if located[identifier].store == number]
            if mine or (number == 0 and not ids):
                blocks.append(store.vectors([located[ids[place]].id for place in mine], space))
                places += mine
        back = np.argsort(places)
        whole = np.concatenate(blocks) if space == "dense" else csr_array(vstack(blocks, format="csr"))
        return whole[back]

    def ids(self) -> Iterator[str]:
        for number, store in enumerate(self.stores):
            ids = store.ids()
            while part := list(islice(ids, self.about.part)):
                yield from self._named(number, part)

    # Searches.

    def _search(self, queries: Vectors, k: int, space: Space, filter: Filter | None, matching: Matching) -> Ranking:
        if not self._pinned:
            return self.pinned()._search(queries, k, space, filter, matching)
        none = np.full((queries.shape[0], k), -1, np.int32)
        rankings = [Ranking(none, np.zeros(none.shape, np.float32), [])] * len(self.stores)
        for number, of_store in self._filtered(filter):
            store = self._weighed[1][number]
            asked = self._word_queries(store, csr_array(queries)) if space == "bm25" else queries
            rankings[number] = store.search(asked, k, space=space, filter=of_store, **matching)
        ids = ChainedIds([ranking.ids or () for ranking in rankings])
        pairs = zip(ids.firsts, rankings, strict=False)
        rows = [np.where(ranking.rows < 0, ranking.rows, ranking.rows + np.int32(first)) for first, ranking in pairs]
        merged = best(np.concatenate(rows, axis=1), np.concatenate([one.scores for one in rankings], axis=1), k, ids)
        missing = next((ranking.missing for ranking in rankings if ranking.missing), None)
        shared = self._rows.of(merged.rows, ids, self._named)
        return replace(merged, rows=shared, ids=self._rows.ids, missing=missing)

    def _filtered(self, filter: Filter | None) -> Iterator[tuple[int, Filter | None]]:
        """Iterate over the stores whose documents can pass a filter: their numbers, and the filter of their fields."""
        for number, name in enumerate(self.names):
            of_store = None if filter is None else decided(filter, INDEX_FIELD, name)
            if of_store is not False:
                yield number, None if of_store is True else of_store

    def _word_queries(self, store: Store, queries: csr_array) -> csr_array:
        """Return queries [q, words] in the columns of one store."""
        numbers, places = np.unique(queries.indices, return_inverse=True)
        entries = store.lexicon.query_vectors(self._numbers.spelled(numbers), stems=True)
        known = np.diff(entries.indptr) > 0  # each word has an entry if the store has it
        columns, weights = np.zeros(len(numbers), np.int32), np.ones(len(numbers), np.float32)
        columns[known] = entries.indices
        if not isinstance(store, SegmentedStore):  # its documents are not weighed by IDF
            weights = self.idf(numbers, "bm25")
        kept = known[places]
        starts = np.concatenate([[0], np.cumsum(kept)])[queries.indptr]
        arrays = (queries.data * weights[places])[kept], columns[places][kept], starts
        vectors: csr_array = csr_array(arrays, shape=(queries.shape[0], entries.shape[1]))
        vectors.sum_duplicates()
        return vectors

    @property
    def missing(self) -> str | None:  # type: ignore[override]
        return next(filter(None, (store.missing for store in self.stores)), None)

    @property
    def partial(self) -> bool:
        return any(store.partial for store in self.stores)

    @property
    def encoded_share(self) -> float:
        shares = [store.encoded_share for store in self.stores]
        if all(share == 1 for share in shares):
            return 1.0
        return sum(share * len(store) for share, store in zip(shares, self.stores, strict=True)) / max(1, len(self))

    def lack_vectors(self, rows: np.ndarray) -> np.ndarray:
        lack, places = np.zeros(rows.shape, bool), np.array([*self._rows.places, (-1, -1)])
        for number, store in enumerate(self.stores):
            lack |= store.lack_vectors(np.where(places[rows, 0] == number, places[rows, 1], -1))
        return lack

    # Counts.

    def __len__(self) -> int:
        return sum(map(len, self.stores))

    def count(self, filter: Filter) -> int:
        return sum(
            len(self.stores[number]) if of_store is None else self.stores[number].count(of_store)
            for number, of_store in self._filtered(filter)
        )

    def count_terms(
        self, columns: np.ndarray, space: Space = "sparse", filter: Filter | None = None
    ) -> tuple[np.ndarray, int]:
        if space == "bm25":
            documents = len(self) if filter is None else self.count(filter)
            return self.count_words(self._numbers.spelled(columns), filter), documents
        filtered = self._filtered(filter)
        counts = [self.stores[number].count_terms(columns, space, of_store) for number, of_store in filtered]
        frequencies = sum((frequencies for frequencies, _ in counts), np.zeros(len(columns), np.int64))
        return frequencies, sum(documents for _, documents in counts)

    def count_words(self, words: Sequence[str], filter: Filter | None = None) -> np.ndarray:
        counts = np.zeros(len(words), np.int64)
        for number, of_store in self._filtered(filter):
            store = self.stores[number]
            columns = store.lexicon.query_vectors(words, stems=True)
            counts[np.diff(columns.indptr) > 0] += store.count_terms(columns.indices, "bm25", of_store)[0]
        return counts

    def words_like(self, initials: str, shortest: int, longest: int) -> list[tuple[str, int]]:
        """Return words of these lengths that begin with a letter of `initials`, with their document frequencies."""
        counts: dict[str, int] = {}
        for store in self.stores:
            for word, count in store.lexicon.words_like(initials, shortest, longest):
                counts[word] = counts.get(word, 0) + count
        return [*counts.items()]

    @property
    def mean_length(self) -> float:
        """The mean length of the documents in words; 1 without words."""
        words = 0
        for store in self.stores:
            if isinstance(store, SegmentedStore):
                words += store.now().words_count
            else:
                words += round(store.lexicon.mean_lengths()[1] * len(store))
        return words / len(self) if words else 1.0

    def mean_lengths(self) -> tuple[float | None, float]:
        """Return the mean length of the documents in words twice: weights follow it."""
        return (self.mean_length,) * 2

    # What a single index does.

    def close(self) -> None:
        for store in self._opened:
            store.close()

    @property
    def nbytes(self) -> int | None:
        sizes = [store.nbytes for store in self.stores]
        return None if None in sizes else sum(filter(None, sizes))

    def configure(self, settings: dict[str, object]) -> None:
        raise self._unchanging()

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]) -> None:
        raise self._unchanging()

    def delete(self, ids: Sequence[str]) -> int:
        raise self._unchanging()

    def optimize(self) -> None:
        raise self._unchanging()

    def drop(self) -> None:
        raise self._unchanging()

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, object]) -> Self:
        raise NotImplementedError

    @classmethod
    def open(cls, address: str) -> Self:
        raise NotImplementedError

    @classmethod
    def find(cls, address: str) -> Self | None:
        raise NotImplementedError

    def _unchanging(self) -> ArgumentError:
        return ArgumentError(f"{self.place} cannot change: {ONE_INDEX}")


def _first_passage(identifier: str) -> str:
    """Return the id of the first passage of a passage's document, which every such document has.

    >>> _first_passage("a\\t7"), _first_passage("a")
    ('a\\t0', 'a')
    """
    document, tab, _ = identifier.partition("\t")
    return f"{document}{tab}0" if tab else document
