"""The search of a collection: a plan of what its options say, and the function that carries it out.

Letters: q queries, v output vocabulary, d dimensions of dense vectors, k results.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Unpack, cast

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.models import CollectionModels
from vocable.collection.passages import Units
from vocable.collection.rerank import check_reranking, rerank_depth, reranked
from vocable.collection.sorting import sort_depth, sorted_by
from vocable.core.progress import progress
from vocable.encoding.protocol import EncodedTexts
from vocable.encoding.pruning import prune
from vocable.encoding.text_encoder import warn_of_unknown
from vocable.engines.base import Store, Vectors
from vocable.engines.filters import Filter, check_field, check_fields, parse_filter
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError
from vocable.indexes.fusion import MIN_DEPTH, aligned, fused_with_parts, fusion_depth, parse_weights
from vocable.indexes.ranking import Ranking, ranking_of
from vocable.language.coverage import Coverage
from vocable.options import (
    AnswerOptions,
    Fusion,
    Matching,
    Pruning,
    QueryEncoding,
    RerankOptions,
    SearchOptions,
    SortOptions,
    check,
    select,
)

logger = logging.getLogger(__name__)

# Terms of a document that are the query for others like it. Over Python's documentation (6,404 documents, on average 70
# terms) they find 9.9 of the first 10 documents that the whole vector finds; 32 terms find 9.2.
LIKE_TERMS = 64
ALL_DOCUMENTS = "all"  # in place of a filter
# A tenth: a tenant that has less of the documents gains 0.006 to 0.04 nDCG@10 (benchmarks/idf_filter.py).
IDF_SHARE = 0.1
SPARE_HITS = 100  # candidates of the hits that are shown, at least: some may be copies, and facets count them


@dataclass(frozen=True)
class SearchPlan:
    """A search for k documents after the `offset` best.

    Each space with a weight is searched for `depth` documents. The best `first` of them, fused if there are several
    spaces, are reranked, and the best `kept` are sorted by a field if there is one.
    """

    k: int
    offset: int
    weights: Mapping[Space, float]  # above 0
    fusion: Fusion
    filter: Filter | None
    idf_filter: Filter | None  # documents that give words and terms their IDF; None for all
    like: str | None  # id of a document whose vectors are the query
    min_score: float | None
    matching: Matching
    reranking: RerankOptions
    sort: str | None  # field, or -FIELD
    query_encoding: QueryEncoding
    pruning: Pruning  # pruning of the vectors of `like`
    facets: tuple[str, ...]  # fields whose values are counted among the best hits
    depth: int
    first: int
    kept: int
    needs_model: bool  # the collection's own model encodes the query


class CollectionSearch:
    """Searches of the collection at a place, over its store, models and counts."""

    def __init__(
        self,
        place: str,
        store: Store,
        spaces: Sequence[Space],
        models: CollectionModels,
        units: Units,
    ) -> None:
        self._place, self._store, self._spaces = place, store, spaces
        self._models, self._units = models, units

    def plan(self, k: int, options: SearchOptions, *, spare: bool = False) -> SearchPlan:
        """Return the plan of a search with these options; `ArgumentError` for options that do not go together.

        With `spare` it has candidates for more than k hits, since some hits may have the same text (`copies.merged`).
        """
        like, filter = options.get("like"), _parsed(options.get("filter"))
        weights = self.weighting(options.get("hybrid", False), options.get("weights"), like=like is not None)
        if like is not None and not (weights := {name: weight for name, weight in weights.items() if name != "bm25"}):
            raise ArgumentError("weights: BM25 searches words: `like` needs sparse or dense vectors")
        reranking, sorting = select(RerankOptions, options), select(SortOptions, options)
        check_reranking(reranking)
        if field := sorting.get("sort"):
            self._check_names(lambda known: check_field(field.removeprefix("-"), known, "sort"))
        offset, reranks = options.get("offset", 0), rerank_depth(reranking)
        facets = select(AnswerOptions, options).get("facets")
        kept, deepest = sort_depth(sorting) or offset + k, max(MIN_DEPTH, reranks)
        paged = offset and not sorting.get("sort")  # sorted pages are all of the same hits
        if len(weights) > 1 and paged and self.reachable(kept) > deepest:  # pages would be of different fusions
            limit = f"offset + k must be at most {deepest} in a fused search, not {kept}"
            raise ArgumentError(f"{limit}: take further hits from one search with a larger k")
        first = self.reachable(max(kept, reranks))
        depth = fusion_depth(first) if len(weights) > 1 else first
        if spare and not sorting.get("sort"):
            kept = max(kept, min(max(SPARE_HITS, 2 * kept), self._store.max_hits))
            first = self.reachable(max(kept, reranks))
            depth = depth if len(weights) > 1 else first
        return SearchPlan(
            k=k,
            offset=offset,
            weights=weights,
            fusion=options.get("fusion", "weighted"),
            filter=filter,
            idf_filter=self.idf_filter(filter, options.get("idf_filter")),
            like=like,
            min_score=options.get("min_score"),
            matching=select(Matching, options),
            reranking=reranking,
            sort=field,
            query_encoding=select(QueryEncoding, options),
            pruning=select(Pruning, options),
            facets=() if facets is None else self._facets(facets),
            depth=depth,
            first=first,
            kept=kept,
            needs_model=like is None and ("sparse" in weights or ("dense" in weights and self._models.dense_inside)),
        )

    def encode(self, plan: SearchPlan, texts: Sequence[str]) -> EncodedTexts:
        """Return the sparse vectors [q, v] of a plan's queries, and any dense vectors [q, d] of the same pass."""
        if plan.like is not None:
            dense = self._units.vectors([plan.like], "dense") if "dense" in plan.weights else None
            return EncodedTexts(self.like([plan.like], **plan.pruning), cast(np.ndarray | None, dense))
        encoder = self._models.queries(**plan.query_encoding)
        if encoder.query_idf:
            encoder.term_idf = partial(self._store.idf, filter=plan.idf_filter)  # of the commit that is searched
        with progress("search", total=len(texts)) as advance:
            vectors = encoder.encode_both(texts, advance)
        warn_of_unknown(encoder.unknown, len(texts), "queries", share=0)
        return vectors

    def run(self, plan: SearchPlan, texts: Sequence[str], encoded: EncodedTexts | None = None) -> Ranking:
        """Carry out a plan for q queries; `encoded` are their vectors, if they are known."""
        return self.candidates(plan, texts, encoded).after(plan.offset).first(plan.k)

    def candidates(self, plan: SearchPlan, texts: Sequence[str], encoded: EncodedTexts | None = None) -> Ranking:
        """Return the hits that a plan keeps, from the best on."""
        if "dense" in plan.weights and plan.like is None and not self._models.dense_inside:
            _ = self._models.dense  # a graph loads in a thread, while the sparse model loads
        if encoded is None and (plan.needs_model or plan.like is not None):
            encoded = self.encode(plan, texts)
        vectors, dense = encoded or (None, None)
        rankings = self.rankings(
            texts,
            plan.depth + (plan.like is not None),
            list(plan.weights),
            vectors=vectors,
            dense=dense if self._models.dense_inside or plan.like is not None else None,
            filter=plan.filter,
            idf_filter=plan.idf_filter,
            **plan.matching,
        )
        if missing := next((ranking.missing for ranking in rankings.values() if ranking.missing), None):
            logger.warning("%s: %s: the hits are of the rest", self._place, missing)
        elif (share := self._store.encoded_share) < 1 and (share == 0 or rankings.keys() != {"bm25"}):
            missing = f"the index is being made: {share:.0%} of the documents have vectors so far"
        if plan.like is not None:
            rankings = {space: ranking.without([plan.like]).first(plan.depth) for space, ranking in rankings.items()}
        if len(plan.weights) > 1:
            factors = self._factors(rankings, plan.weights)
            ranking = fused_with_parts(rankings, plan.weights, plan.fusion, plan.first, factors)
        else:
            [ranking] = rankings.values()
            ranking = replace(ranking, parts=None if "sparse" in rankings else rankings)
        if plan.reranking.get("rerank"):
            ranking, _ = self.reranked(ranking, texts, vectors, **plan.reranking)
        ranking = ranking.first(plan.kept).after(0, plan.min_score)
        if plan.sort:
            ranking = sorted_by(ranking, plan.sort, self._fields)
        return replace(ranking, missing=missing)

    def _factors(
        self, rankings: Mapping[Space, Ranking], weights: Mapping[Space, float]
    ) -> dict[Space, np.ndarray] | None:
        """Return factors [q, k] of words while an index is made: of a document without vectors, words count for all."""
        if self._store.encoded_share == 1 or "bm25" not in weights:
            return None
        lack = self._store.lack_vectors(rankings["bm25"].rows)
        return {"bm25": np.where(lack, sum(weights.values()) / weights["bm25"], 1.0)}

    def weighting(
        self, hybrid: bool, weights: str | Mapping[Space, float] | None, *, like: bool = False
    ) -> dict[Space, float]:
        """Return the non-zero weights of the spaces that a search fuses; a search `like` a document uses its vectors.

        The weights that the collection keeps were chosen by queries: a search `like` a document has equal weights.

        Raises `ArgumentError` for a space that the collection does not have.
        """
        if hybrid and len(self._spaces) == 1:
            raise ArgumentError("a hybrid search needs words or dense vectors: index again without --no-bm25")
        if weights is None and hybrid and not like:
            weights = self._store.settings.get("weights")
        if weights is None and "bm25" in self._spaces and not like and (share := self._store.encoded_share) < 1:
            weights = dict.fromkeys(self.hybrid_spaces if share else ("bm25",), 1.0)  # the index is being made
        if weights is None:
            spaces = ("sparse",) if not hybrid else self._spaces if like else self.hybrid_spaces
            weights = dict.fromkeys(spaces, 1.0)
        return parse_weights(weights, self._spaces)

    @property
    def coverage(self) -> Coverage:
        """Coverage of the first documents by the model's vocabulary."""
        return Coverage(*self._store.settings["progress"]["coverage"])

    @property
    def hybrid_spaces(self) -> tuple[Space, ...]:
        """The spaces that a hybrid search fuses by default: without the model's if its vocabulary lacks the tokens."""
        spaces = self._models.query_spaces
        if "bm25" not in spaces or not self.coverage.mostly_lost:
            return spaces
        return tuple(space for space in spaces if space not in self._models.of_one_vocabulary)

    def rankings(
        self,
        queries: Sequence[str],
        k: int,
        spaces: Sequence[Space],
        *,
        vectors: csr_array | None = None,
        dense: np.ndarray | None = None,
        filter: Filter | None = None,
        idf_filter: Filter | None = None,
        **matching: Unpack[Matching],
    ) -> dict[Space, Ranking]:
        """Return the k best documents in each of `spaces`, with one list of ids.

        `vectors` are the sparse vectors [q, v] of the queries and `dense` their dense vectors [q, d], if known.
        `matching` applies to sparse vectors only.
        """
        if dense is None and "dense" in spaces:
            dense = self._models.dense_queries(queries)
        rankings = []
        for space in spaces:
            if space == "sparse":
                sparse = self._models.queries().encode(queries) if vectors is None else vectors
                rankings.append(self.rank(sparse, k, filter=filter, **matching))
            else:
                words = space == "bm25"
                encoded = self._store.lexicon.query_vectors(queries, idf_filter=idf_filter) if words else dense
                assert encoded is not None
                rankings.append(self.rank(encoded, k, space=space, filter=filter))
        return dict(zip(spaces, aligned(rankings), strict=True))

    def rank(
        self,
        queries: Vectors,
        k: int,
        *,
        space: Space = "sparse",
        filter: Filter | None = None,
        **matching: Unpack[Matching],
    ) -> Ranking:
        """Return the k best documents that pass the filter for each of `queries` [q, columns], in one space.

        For an engine that does not count shared terms, more hits are requested until k have enough of the query's
        terms. Raises `ArgumentError` for another option of `matching` that the engine does not support.
        """
        conditions = {name: value for name, value in check(Matching, matching).items() if value}
        if space not in self._spaces:
            raise ArgumentError(f"{self._place}: it was made without {space} vectors")
        if filter is not None:
            self.check_filter(filter)
        if isinstance(queries, np.ndarray):  # dense vectors have no terms
            conditions = {}
        if self._units.whole and conditions.keys() <= {*self._store.about.matching}:
            return self._store.search(queries, k, space=space, filter=filter, **select(Matching, conditions))
        hits, missing, share = [], None, conditions.pop("minimum_match", 0.0)
        for row in range(queries.shape[0]):
            query: csr_array = queries[[row]]
            needed = int(np.ceil(query.nnz * share - 1e-9)) if share else 0
            hits.append(self._hits(query, k, needed, space, filter, select(Matching, conditions)))
            missing = missing or self._store.missing
        return replace(ranking_of(hits, k), missing=missing)

    def _hits(
        self, query: csr_array, k: int, needed: int, space: Space, filter: Filter | None, matching: Matching
    ) -> list[tuple[str, float]]:
        """Return the k best hits of one query [1, columns] that have at least `needed` of its terms."""
        most = self._store.max_hits
        depth = min(4 * k, max(k, most))
        while True:
            hits = enough = self._store.search(query, depth, space=space, filter=filter, **matching).hits(0)
            if needed and hits:
                stored = csr_array(self._store.vectors([identifier for identifier, _ in hits], space))
                shared = np.diff((stored[:, query.indices] > 0).tocsr().indptr)
                enough = [hit for hit, count in zip(hits, shared, strict=True) if count >= needed]
            enough = self._units.hits(enough)
            if len(enough) >= k or len(hits) < depth or depth >= most:
                return enough
            depth = min(4 * depth, most)

    def reranked(
        self,
        ranking: Ranking,
        queries: Sequence[str],
        vectors: csr_array | None = None,
        **options: Unpack[RerankOptions],
    ) -> tuple[Ranking, np.ndarray]:
        """Return a ranking of q `queries` reranked, and the milliseconds of each; `vectors` [q, v] if they are known.

        The cross encoder reads the text that is shown: the best passage of a document that is searched by passages.
        """

        def texts_of(number: int, ids: Sequence[str]) -> list[str]:
            documents = [document for document in self._units.documents(ids) if document is not None]
            typed = queries[number]
            query = (lambda: self._models.queries().encode([typed])) if vectors is None else lambda: vectors[[number]]
            shown = zip(documents, self._units.shown(documents, query), strict=True)
            texts = {document.id: unit.full for document, unit in shown}
            return [texts.get(identifier, "") for identifier in ids]

        return reranked(ranking, queries, texts_of, device=self._models.device, **options)

    def like(self, ids: Sequence[str], **options: Unpack[Pruning]) -> csr_array:
        """Return the stored vectors [q, v] of documents as queries, pruned to the `LIKE_TERMS` largest weights.

        `options` prune otherwise. Raises `ArgumentError` for an unknown id.
        """
        limits: Pruning = {"max_terms": LIKE_TERMS, **options}
        return prune(csr_array(self._units.vectors(ids, "sparse")), **limits)

    def reachable(self, k: int) -> int:
        """Return k, or the number of documents if it is smaller; a server is asked for it only if k is large."""
        if k <= self._store.uncounted_depth or self._store.partial:
            return k
        return min(k, max(1, len(self._units)))

    @property
    def known_fields(self) -> frozenset[str] | None:
        """Names of fields for filters, deleted documents' included; None if there are too many."""
        names = self._store.settings.get("fields")
        return None if names is None else frozenset(names)

    def check_filter(self, filter: Filter, option: str = "filter") -> None:
        """Raise `ArgumentError` for a filter on a field that no document has, or an engine without filters.

        On a server, where several writers may add fields at once, an unknown field is a warning.
        """
        if not self._store.about.filters:
            raise ArgumentError(f"{option}: the {self._store.about.engine} engine has no filters")
        self._check_names(partial(check_fields, filter, option=option))

    def idf_filter(self, filter: Filter | None, given: str | Filter | None = None) -> Filter | None:
        """Return the filter whose documents give words and terms their IDF; None for all documents.

        By default these are the documents that pass the `filter` of the search, if they are few.
        """
        if given is not None:
            if (chosen := None if given == ALL_DOCUMENTS else _parsed(given)) is not None:
                self.check_filter(chosen, "idf_filter")
            return chosen
        if filter is None or not self._store.about.filters:
            return None
        no_terms = np.empty(0, np.int64)
        (_, passing), (_, documents) = (self._store.count_terms(no_terms, filter=part) for part in (filter, None))
        return filter if passing < IDF_SHARE * documents else None

    def _facets(self, names: str) -> tuple[str, ...]:
        """Return the fields of facets; raise `ArgumentError` for a field that no document has; on a server, warn."""
        fields = tuple(name.strip() for name in names.split(","))
        for field in fields:
            self._check_names(partial(check_field, field.removesuffix("/"), option="facets"))
        return fields

    def _check_names(self, check_known: Callable[[frozenset[str]], object]) -> None:
        """Check names of fields against the names that documents have."""
        try:
            if (known := self.known_fields) is not None:
                check_known(known)
        except ArgumentError:
            if self._store.about.knows_fields:
                raise
            if (names := self._store.settings_now().get("fields")) is not None:
                try:
                    check_known(frozenset(names))
                except ArgumentError as error:
                    logger.warning("%s: %s", self._place, error)

    def _fields(self, ids: Sequence[str]) -> list[Mapping[str, object]]:
        return [{} if document is None else document.fields for document in self._units.documents(ids)]


def _parsed(filter: str | Filter | None) -> Filter | None:
    return parse_filter(filter) if isinstance(filter, str) else filter
