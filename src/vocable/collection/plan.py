"""The plan of a search, and the steps that every retriever shares: fuse, rerank, cut and sort.

A `Retriever` finds candidates by each kind of vectors, a space, and carries out a plan on them: an index is one, and so
are stored vectors, a run and BM25 with an expander (`vocable.evaluation.retrievers`).

Letters: q queries, v output vocabulary, d dimensions of dense vectors, k results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.conditions import Conditions
from vocable.collection.rerank import RERANK_DEPTH
from vocable.collection.sorting import sorted_by
from vocable.collection.verbatim import VERBATIM_MATCH, DocumentsOf, verbatim
from vocable.data import Document
from vocable.encoding.protocol import EncodedTexts
from vocable.engines.base import UNBOUNDED
from vocable.engines.filters import Filter, parse_filter
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError
from vocable.indexes.fusion import MIN_DEPTH, aligned, fused, fusion_depth
from vocable.indexes.ranking import Ranking
from vocable.options import Fusion, Matching, Pruning, QueryEncoding, RerankOptions, SearchOptions, check, select

SPARE_HITS = 100  # candidates of the hits that are shown, at least: some may be copies, and facets count them
Weights = Mapping[Space, float]  # of the spaces that a search fuses, above 0


@dataclass(frozen=True)
class Depths:
    """The numbers of documents at each step of a search for k documents after the `offset` best.

    Each space is searched for `depth` documents, their fusion is cut to the best `first`, which may be reranked, and
    the best `kept` of these are sorted if there is a field to sort by. The third page of ten, of 50 reranked hits, has
    k=10, offset=20, depth=100 (the least that a fusion takes), first=50, kept=30: hits 21 to 30 are shown.
    """

    k: int
    offset: int
    depth: int
    first: int
    kept: int

    @classmethod
    def of(
        cls,
        k: int,
        options: SearchOptions,
        spaces: int,
        *,
        spare: int = 0,
        reachable: Callable[[int], int] = int,
        most: int = UNBOUNDED,
    ) -> Depths:
        """Return the depths of a search of some number of `spaces`; `ArgumentError` for a page that is too deep.

        For each hit `spare` candidates are kept, at most `most` in all, since some hits are shown together.
        `reachable(k)` is the number of documents that a search for k can return.
        """
        sorted_hits = options["sort_hits"] if options["sort"] else 0
        reranks = (options["rerank_depth"] or RERANK_DEPTH) if options["rerank"] else 0
        offset, fuses = options["offset"], spaces > 1
        kept, deepest = sorted_hits or offset + k, max(MIN_DEPTH, reranks)
        # Sorted pages are all of the same hits; other pages would be of different fusions.
        if fuses and offset and not sorted_hits and reachable(kept) > deepest:
            limit = f"offset + k must be at most {deepest} in a fused search, not {kept}"
            raise ArgumentError(f"{limit}: take further hits from one search with a larger k")
        first = reachable(max(kept, reranks))
        depth = fusion_depth(first) if fuses else first
        if spare and not sorted_hits:
            kept = max(kept, min(max(SPARE_HITS, spare * kept), most))
            first = reachable(max(kept, reranks))
            depth = depth if fuses else first
        return cls(k=k, offset=offset, depth=depth, first=first, kept=kept)


@dataclass(frozen=True)
class SearchPlan:
    """A search: the weights of its spaces, its depths and conditions, a reranking and an order."""

    depths: Depths
    weights: Weights
    fusion: Fusion = "weighted"
    filter: Filter | None = None
    idf_filter: Filter | None = None  # documents that give words and terms their IDF; None for all
    like: str | None = None  # id of a document whose vectors are the query
    min_score: float | None = None
    matching: Matching = field(default_factory=Matching)
    reranking: RerankOptions = field(default_factory=lambda: check(RerankOptions, {}))
    sort: str | None = None  # field, or -FIELD
    query_encoding: QueryEncoding = field(default_factory=QueryEncoding)
    facets: tuple[str, ...] = ()  # fields whose values are counted among the best hits
    by_page: bool = False  # the hits of one page are shown together
    plain: bool = False  # queries are searched as they are: quotes and hyphens are no syntax
    feedback: int = 0  # first hits whose terms are added to each query

    @classmethod
    def of(
        cls,
        depths: Depths,
        weights: Weights,
        options: SearchOptions,
        *,
        facets: tuple[str, ...] = (),
        by_page: bool = False,
    ) -> SearchPlan:
        """Return the plan of a search with these options."""
        condition = options["filter"]
        return cls(
            depths=depths,
            weights=weights,
            fusion=options["fusion"],
            filter=parse_filter(condition) if isinstance(condition, str) else condition,
            like=options["like"],
            min_score=options["min_score"],
            matching=select(Matching, options),
            reranking=select(RerankOptions, options),
            sort=options["sort"],
            query_encoding=select(QueryEncoding, options),
            facets=facets,
            by_page=by_page,
            plain=options["plain"],
            feedback=options["feedback"] if options["like"] is None and "sparse" in weights else 0,
        )

    @property
    def pruning(self) -> Pruning:
        """Return the limits of the query's vector."""
        return select(Pruning, self.query_encoding)

    @property
    def reranks(self) -> bool:
        """Return whether a cross encoder orders the first hits."""
        return self.reranking["rerank"] is not None

    def page(self, ranking: Ranking) -> Ranking:
        """Return the k documents after the offset of a ranking [q, kept]."""
        return ranking.after(self.depths.offset).first(self.depths.k)

    def key(self, space: Space) -> tuple[Hashable, ...]:
        """Return all that the ranking of a space depends on, apart from the queries."""
        filters = repr((self.filter, self.idf_filter))
        return space, self.depths.depth, self.like, filters, repr(self.matching), repr(self.pruning)

    def without_feedback(self) -> SearchPlan:
        """Return the plan of the first of two searches, whose hits extend the queries."""
        none = check(RerankOptions, {})
        return replace(self, feedback=0, reranking=none, sort=None, min_score=None)

    def rankings(
        self,
        queries: EncodedQueries,
        search: Callable[[Sequence[Space]], Mapping[Space, Ranking]],
        documents_of: DocumentsOf,
    ) -> dict[Space, Ranking]:
        """Return the rankings [q, depth] of the plan's spaces, with one list of ids.

        `search` makes the rankings that no plan of the same queries has asked for, all at once. A fusion of words and
        others also has the verbatim matches [q, 1], whose documents it reads.
        """
        searched = queries.searched
        if new := [space for space in self.weights if self.key(space) not in searched]:
            searched.update((self.key(space), ranking) for space, ranking in search(new).items())
        rankings = {space: searched[self.key(space)] for space in self.weights}
        if "bm25" in rankings and len(rankings) > 1:
            if (key := self.key(VERBATIM_MATCH)) not in searched:
                searched[key] = verbatim(rankings["bm25"], queries.texts, documents_of)
            rankings[VERBATIM_MATCH] = searched[key]
        return dict(zip(rankings, aligned([*rankings.values()]), strict=True))

    def carry_out(
        self,
        rankings: Mapping[Space, Ranking],
        rerank: Callable[[Ranking], Ranking],
        documents_of: DocumentsOf,
        factors: Mapping[Space, np.ndarray] | None = None,
    ) -> Ranking:
        """Return the candidates [q, kept] of rankings [q, depth] by space, with their parts.

        `rerank` is called if the plan reranks, and `documents_of` reads the hits to sort. `factors` [q, depth] multiply
        the scaled scores of a space. A verbatim match has the weight of all spaces together, which puts it first.
        """
        depths = self.depths
        if self.like is not None:
            rankings = {name: ranking.without([self.like]).first(depths.depth) for name, ranking in rankings.items()}
        # Fuse the spaces. Verbatim matches, which have no weight of theirs, get the sum of all weights.
        if len(self.weights) > 1:
            weights = {name: self.weights.get(name, sum(self.weights.values())) for name in rankings}
            ranking = fused(rankings, weights, self.fusion, depths.first, factors)
        else:
            [ranking] = rankings.values()
            ranking = replace(ranking, parts=rankings)
        if self.reranks:
            ranking = rerank(ranking)
        ranking = ranking.first(depths.kept).after(0, self.min_score)
        return ranking if self.sort is None else sorted_by(ranking, self.sort, partial(_fields, documents_of))


def _fields(documents_of: DocumentsOf, ids: Sequence[str]) -> list[Mapping[str, object]]:
    return [{} if document is None else document.fields for document in documents_of(ids)]


@dataclass(eq=False)
class EncodedQueries:
    """The texts of q queries, their vectors, which `encode` makes when they are first used, and what was found so far.

    `conditions` on hits are by the number of the query; most queries have none.
    """

    texts: Sequence[str]
    encode: Callable[[], EncodedTexts]
    conditions: Mapping[int, Conditions] = field(default_factory=dict)
    searched: dict[tuple[Hashable, ...], Ranking] = field(default_factory=dict)
    read: dict[str, Document | None] = field(default_factory=dict)
    _vectors: EncodedTexts | None = None
    extended: EncodedQueries | None = None  # the queries with the terms of their first hits

    @classmethod
    def of(cls, texts: Sequence[str], sparse: csr_array, dense: np.ndarray | None = None) -> EncodedQueries:
        """Return queries without conditions whose vectors, sparse [q, v] and dense [q, d], are known."""
        return cls(texts, lambda: EncodedTexts(sparse, dense))

    @property
    def vectors(self) -> EncodedTexts:
        """Return the sparse vectors [q, v], and any dense vectors [q, d] of the same pass."""
        # Not a cached_property: its lock, one for all queries in Python 3.11, would be held in a fork for ever.
        if self._vectors is None:
            self._vectors = self.encode()
        return self._vectors

    def documents(self, ids: Sequence[str], documents_of: DocumentsOf) -> list[Document | None]:
        """Return documents by id; each is read once for these queries."""
        if new := [name for name in dict.fromkeys(ids) if name not in self.read]:
            self.read.update(zip(new, documents_of(new), strict=True))
        return [self.read[name] for name in ids]

    def __len__(self) -> int:
        return len(self.texts)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the queries as data, with their vectors."""
        return EncodedQueries.of, (self.texts, *self.vectors)


class Retriever(Protocol):
    """Documents that can be searched by each of `spaces`."""

    @property
    def name(self) -> str:
        """The name in a comparison."""

    @property
    def spaces(self) -> Sequence[Space]:
        """The kinds of vectors."""

    def rank(self, queries: EncodedQueries, plan: SearchPlan) -> Ranking:
        """Return the candidates [q, kept] that the plan keeps, best first."""

    def texts(self, ids: Sequence[str]) -> list[str]:
        """Return the texts of documents, with their titles; `ArgumentError` for an unknown id."""
