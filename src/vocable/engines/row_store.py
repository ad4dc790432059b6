"""A store that writes, reads and searches documents page by page, as servers take them.

Letters: m documents, q queries, k results.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from vocable.data import Document
from vocable.engines.base import (
    UNBOUNDED,
    Hits,
    SpaceSearch,
    Store,
    VectorRow,
    Vectors,
    fitting,
    matrix_of,
    pages,
    rows_of,
)
from vocable.engines.filters import Filter
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.postings import arrays_of, needed_terms
from vocable.indexes.ranking import Ranking, ranking_of
from vocable.options import Matching

T = TypeVar("T")


class RowQuery(NamedTuple):
    """A query for the k best documents that pass the filter and share the `needed` number of its terms."""

    row: VectorRow
    k: int
    space: Space
    filter: Filter | None
    needed: int


class RowStore(Store):
    """A store that writes, reads and searches documents page by page; an engine adds the primitives."""

    page: int = 1_000  # documents or queries in one request
    ties_by_id: ClassVar[bool] = True  # the engine itself orders documents with equal scores by id

    @abstractmethod
    def _write(self, documents: Sequence[Document], rows: Sequence[Sequence[VectorRow]]) -> None:
        """Add or replace a page of documents, each with a row for every space."""

    @abstractmethod
    def _delete(self, ids: Sequence[str]) -> int:
        """Delete documents with distinct ids, and return how many of them existed."""

    @abstractmethod
    def _documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return the existing documents by id."""

    @abstractmethod
    def _rows(self, ids: Sequence[str], space: Space) -> dict[str, VectorRow]:
        """Return the vectors of the existing documents by id."""

    @abstractmethod
    def _query(self, queries: Sequence[RowQuery]) -> Iterator[Hits]:
        """Iterate over the best documents of each query of a page, which is one request if the engine can."""

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]) -> None:
        documents, vectors = self._checked(documents, vectors)
        rows = list(zip(*(rows_of(vectors[space]) for space in self.spaces), strict=True))
        self._write_pages(list(zip(pages(documents, self.page), pages(rows, self.page), strict=True)))

    def _write_pages(self, parts: Sequence[tuple[Sequence[Document], Sequence[Sequence[VectorRow]]]]) -> None:
        """Write pages of documents with their rows."""
        for documents, rows in parts:
            self._write(documents, rows)

    def delete(self, ids: Sequence[str]) -> int:
        return sum(self._delete(page) for page in pages(list(dict.fromkeys(ids)), self.page))

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        documents = self._by_id(ids, self._documents)
        return [documents.get(identifier) for identifier in ids]

    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> Vectors:
        columns = self._columns(space)
        rows = self._by_id(ids, lambda page: self._rows(page, space))
        if (missing := next((identifier for identifier in ids if identifier not in rows), None)) is not None:
            raise ArgumentError(f"{self.place}: there is no document {missing!r}")
        return matrix_of([rows[identifier] for identifier in ids], space, columns)

    def _search(self, queries: Vectors, k: int, space: Space, filter: Filter | None, matching: Matching) -> Ranking:
        return self._rankings([SpaceSearch(queries, k, space, filter, matching)])[0]

    def _rankings(self, searches: Sequence[SpaceSearch]) -> list[Ranking]:
        """Return the rankings of searches, with the queries of all of them page by page."""
        queries, counts = list[RowQuery](), list[int]()
        for vectors, k, space, filter, matching in searches:
            vectors = self._checked_queries(vectors, space)
            rows = zip(rows_of(vectors), needed_of(vectors, matching), strict=True)
            of_search = [RowQuery(row, k, space, filter, needed) for row, needed in rows]
            queries, counts = queries + of_search, [*counts, len(of_search)]
        hits = chain.from_iterable(map(self._best, pages(queries, self.page)))
        return [ranking_of([*islice(hits, count)], one.k) for count, one in zip(counts, searches, strict=True)]

    def _best(self, queries: Sequence[RowQuery]) -> Iterator[Hits]:
        """Iterate over the k best documents of each query, and the documents that tie with the k-th."""
        most = self.max_hits
        depths = [query.k if self.ties_by_id else min(query.k + 1, most) for query in queries]
        asked = [query._replace(k=depth) for query, depth in zip(queries, depths, strict=True)]
        for query, depth, hits in zip(queries, depths, self._query(asked), strict=True):
            while query.k < depth == len(hits) and hits[-1][1] == hits[query.k - 1][1] and depth < most:
                depth = min(4 * depth, most)
                [hits] = self._query([query._replace(k=depth)])
            yield hits

    def _by_id(self, ids: Sequence[str], read: Callable[[Sequence[str]], dict[str, T]]) -> dict[str, T]:
        values: dict[str, T] = {}
        for page in pages(list(dict.fromkeys(ids)), self.page):
            values |= read(page)
        return values

    def _columns(self, space: Space) -> int:
        if space not in self.spaces:
            raise ArgumentError(f"space must be one of {', '.join(self.spaces)}, not {space!r}")
        return self.spaces[space]

    def _checked_queries(self, queries: Vectors, space: Space) -> Vectors:
        columns, about = self._columns(space), self.about
        queries = fitting(queries, columns, "queries")
        if queries.ndim != 2 or queries.shape[1] != (columns or UNBOUNDED):
            raise VectorsError(f"the queries have {queries.shape[-1]} columns, the documents {columns}")
        if not isinstance(queries, np.ndarray) and about.max_terms is not None:
            lengths = np.diff(queries.indptr)
            if lengths.max(initial=0) > about.max_terms:
                limit = (
                    f"{lengths.max():,} terms, {about.engine} takes {about.max_terms:,}: search with lower max_terms"
                )
                raise ArgumentError(f"query {int(lengths.argmax()) + 1}: {limit}")
        return queries


def needed_of(queries: Vectors, matching: Matching) -> list[int]:
    """Return the number of its terms that a hit of each query shares, 0 for dense queries."""
    share = matching.get("minimum_match", 0.0)
    if isinstance(queries, np.ndarray):
        return [0] * len(queries)
    return needed_terms(arrays_of(queries), share).tolist()
