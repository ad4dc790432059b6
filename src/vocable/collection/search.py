"""The search of a collection: its plans, and the searches of its spaces.

Letters: q queries, v output vocabulary, d dimensions of dense vectors, k results.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack, cast

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.conditions import Conditions
from vocable.collection.feedback import fed_back
from vocable.collection.groups import FILE, FURTHER
from vocable.collection.models import CollectionModels
from vocable.collection.passages import Units
from vocable.collection.plan import Depths, EncodedQueries, SearchPlan, Weights
from vocable.collection.rerank import reranked, within_budget
from vocable.collection.verbatim import READ_HITS
from vocable.core.cancelling import stop_if_cancelled
from vocable.core.progress import progress
from vocable.encoding.protocol import EncodedTexts
from vocable.encoding.pruning import prune
from vocable.encoding.text_encoder import warn_of_cut, warn_of_unknown
from vocable.engines.base import SpaceSearch, Store, Vectors
from vocable.engines.filters import Filter, check_field, check_fields, listed_names, parse_filter
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.fusion import parse_weights
from vocable.indexes.ranking import Ranking, ranking_of
from vocable.language.coverage import Coverage
from vocable.language.languages import ENGLISH
from vocable.language.query_syntax import TypedQuery, parse_query
from vocable.options import Matching, Pruning, SearchOptions, check, select

logger = logging.getLogger(__name__)

# Terms of a document that are the query for others like it. Over Python's documentation (6,404 documents, on average 70
# terms) they find 9.9 of the first 10 documents that the whole vector finds; 32 terms find 9.2.
LIKE_TERMS = 64
ANY_DOCUMENT = "all"  # in place of a filter
# A tenth: a tenant that has less of the documents gains 0.006 to 0.04 nDCG@10.
IDF_SHARE = 0.1  # share of the documents below which a filter's documents have an IDF of their own
CHECKED_AT_ONCE = 1000  # documents that have a word of a phrase, at most, to be all checked at once


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

    def plan(
        self,
        k: int,
        options: SearchOptions,
        *,
        facets: str | Sequence[str] | None = None,
        sections: bool = False,
        spare: bool = False,
    ) -> SearchPlan:
        """Return the plan of a search with these options; `ArgumentError` for options that exclude each other.

        With `spare` it has candidates for more than k hits, since some hits may have the same text (`copies.merged`),
        or be of the same page (`groups.grouped`), and a budget for their reranking, since somebody waits for them.
        """
        weights = self.weighting(options)
        if field := options["sort"]:
            self._check_names(lambda known: check_field(field.removeprefix("-"), known, "sort"))
        # A page needs candidates for its further sections, a hit one for a copy.
        by_page = spare and not sections and self.has_pages
        per_hit = 1 + FURTHER if by_page else 2
        candidates = per_hit if spare else 0
        depths = Depths.of(
            k, options, len(weights), spare=candidates, reachable=self.reachable, most=self._store.max_hits
        )
        fields = () if facets is None else self._facets([facets] if isinstance(facets, str) else facets)
        plan = SearchPlan.of(depths, weights, options, facets=fields, by_page=by_page)
        reranking = within_budget(plan.reranking) if spare else plan.reranking
        return replace(plan, idf_filter=self.idf_filter(plan.filter, options["idf_filter"]), reranking=reranking)

    def queries(self, plan: SearchPlan, texts: Sequence[str], encoded: EncodedTexts | None = None) -> EncodedQueries:
        """Return the queries of a plan with their conditions, encoded when a space or an explanation needs vectors.

        `encoded` are the vectors, if they are known. Raises `ArgumentError` for a query that only excludes words.
        """
        typed = [TypedQuery(text) if plan.plain or plan.like is not None else parse_query(text) for text in texts]
        read = [query.text for query in typed]
        encode = partial(self._encode, plan, read) if encoded is None else lambda: encoded
        return EncodedQueries(
            read, encode, {number: self._conditions(query) for number, query in enumerate(typed) if query}
        )

    def _conditions(self, query: TypedQuery) -> Conditions:
        """Return the conditions of a query; the documents with a rare word of a phrase are the only ones to check."""
        language = str(self._store.settings.get("language", ENGLISH))
        conditions = Conditions(query, self._units, language)
        stems = query.required_stems(language) if "bm25" in self._spaces and self._units.are_documents else []
        if stems:
            vectors = self._store.lexicon.query_vectors(stems, stems=True)
            ranking = self._store.search(vectors, CHECKED_AT_ONCE, space="bm25")
            rarest = min((ranking.hits(number) for number in range(len(stems))), key=len)
            if len(rarest) < CHECKED_AT_ONCE:
                conditions.among(name for name, _ in rarest)
        return conditions

    def _encode(self, plan: SearchPlan, texts: Sequence[str]) -> EncodedTexts:
        if plan.like is not None:
            dense = self._units.vectors([plan.like], "dense") if "dense" in plan.weights else None
            return EncodedTexts(self.like([plan.like], **plan.pruning), cast(np.ndarray | None, dense))
        encoder = self._models.queries(**plan.query_encoding)
        if encoder.query_idf:
            encoder.term_idf = partial(self.term_idf, plan, texts if "bm25" in plan.weights else [])
        with progress("search", total=len(texts)) as advance:
            vectors = encoder.encode_both(texts, advance)
        warn_of_cut(encoder.truncated, len(texts), "queries", encoder.max_length)
        warn_of_unknown(encoder.unknown, len(texts), "queries", share=0)
        return vectors

    def term_idf(self, plan: SearchPlan, texts: Sequence[str], terms: np.ndarray) -> np.ndarray:
        """Return the IDF of terms, float32 [t], in the commit that is searched; count the words of texts with them."""
        self._store.count_ahead(texts, terms, plan.idf_filter)
        return self._store.idf(terms, filter=plan.idf_filter)

    def rank(self, queries: EncodedQueries, plan: SearchPlan) -> Ranking:
        """Return the candidates [q, kept] of a plan, best first.

        With feedback, the queries of the second search are the `extended` ones of `queries`.
        """
        if plan.feedback and self._store.encoded_share == 1:
            first = self._rank(queries, plan.without_feedback())
            hits = [[name for name, _ in first.hits(number)[: plan.feedback]] for number in range(len(queries))]
            vectors_of = cast(Callable[[list[str]], csr_array], partial(self._units.vectors, space="sparse"))
            encoded = EncodedTexts(fed_back(queries.vectors.sparse, hits, vectors_of), queries.vectors.dense)
            others = {key: ranking for key, ranking in queries.searched.items() if key[0] != "sparse"}
            queries.extended = replace(queries, encode=lambda: encoded, searched=others, _vectors=None)
            queries = queries.extended
        return self._rank(queries, plan)

    def _rank(self, queries: EncodedQueries, plan: SearchPlan) -> Ranking:
        if "dense" in plan.weights and plan.like is None and not self._models.dense_inside:
            self._models.begin_loading_dense()
        documents_of = partial(queries.documents, documents_of=self._units.documents)

        def search(spaces: Sequence[Space]) -> dict[Space, Ranking]:
            rankings = self._of_spaces(queries, plan, spaces)
            # A verbatim match and an answer read these documents: from a server in one request.
            if "bm25" in rankings and len(rankings) > 1 and not self._store.about.cheap_reads:
                documents_of([name for ranking in rankings.values() for name in _first_hits(ranking)])
            return rankings

        rankings = plan.rankings(queries, search, documents_of)
        if missing := next((ranking.missing for ranking in rankings.values() if ranking.missing), None):
            logger.warning("%s: %s: the results exclude that part", self._place, missing)
        elif (share := self._store.encoded_share) < 1 and (share == 0 or rankings.keys() != {"bm25"}):
            missing = f"the index is being made: {share:.0%} of the documents have vectors so far"
        rerank = partial(self._reranked, queries, plan)
        factors = self._factors(rankings, plan.weights)
        return replace(plan.carry_out(rankings, rerank, documents_of, factors), missing=missing)

    def _of_spaces(self, queries: EncodedQueries, plan: SearchPlan, spaces: Sequence[Space]) -> dict[Space, Ranking]:
        """Return the rankings [q, depth] of a plan's queries in several spaces."""
        stop_if_cancelled()
        # The liked document is a hit, too, and is dropped later.
        depth = plan.depths.depth + (plan.like is not None)
        vectors_of = {space: self._vectors(queries, plan, space) for space in spaces}
        matching = {"sparse": cast(Matching, {name: value for name, value in plan.matching.items() if value})}
        if not self._engine_does(matching["sparse"] if "sparse" in spaces else {}, queries.conditions):
            search = partial(self.search_space, k=depth, filter=plan.filter, conditions=queries.conditions)
            return {
                space: search(vectors, space=space, **matching.get(space, {})) for space, vectors in vectors_of.items()
            }
        if plan.filter is not None:
            self.check_filter(plan.filter)
        # All spaces are searched in one request.
        searches = [
            SpaceSearch(vectors, depth, space, plan.filter, matching.get(space, Matching()))
            for space, vectors in vectors_of.items()
        ]
        return dict(zip(spaces, self._store.search_all(searches), strict=True))

    def _engine_does(self, matching: Mapping[str, object], conditions: Mapping[int, Conditions] | None) -> bool:
        """Return whether the engine alone finds the hits: their terms counted, no conditions, no passages to join."""
        return self._units.are_documents and not conditions and matching.keys() <= {*self._store.about.matching}

    def _vectors(self, queries: EncodedQueries, plan: SearchPlan, space: Space) -> Vectors:
        """Return the vectors of queries in one space."""
        if space == "sparse":
            return queries.vectors.sparse
        if space == "bm25":
            return self._store.lexicon.query_vectors(queries.texts, idf_filter=plan.idf_filter)
        if self._models.dense_inside or plan.like is not None:
            return self._dense(queries)
        return self._models.dense_queries(queries.texts)

    def _dense(self, queries: EncodedQueries) -> np.ndarray:
        """Return the dense vectors [q, d] of queries, of the pass that gives their sparse vectors."""
        if (dense := queries.vectors.dense) is None:
            raise VectorsError(
                f"{self._place}: {self._models.name} gives queries no dense vectors: search without them"
            )
        return dense

    def _factors(
        self, rankings: Mapping[Space, Ranking], weights: Mapping[Space, float]
    ) -> dict[Space, np.ndarray] | None:
        """Return factors [q, k] of words while an index is made: of a document without vectors, words count for all."""
        if self._store.encoded_share == 1 or "bm25" not in weights:
            return None
        lack = self._store.lack_vectors(rankings["bm25"].rows)
        return {"bm25": np.where(lack, sum(weights.values()) / weights["bm25"], 1.0)}

    def weighting(self, options: SearchOptions) -> Weights:
        """Return the non-zero weights of the spaces that a search with these options fuses.

        By default all spaces of queries have the weights that the collection keeps, or equal weights. Words have no
        part in a search `like` a document, and the kept weights neither: they were chosen by queries. `minimum_match`
        counts the terms of sparse vectors, so these are searched alone by default. While an index is being made, words
        stand for vectors that are missing.

        Raises `ArgumentError` for a space that the collection does not have.
        """
        weights, like = options["weights"], options["like"] is not None
        if weights is None and options["minimum_match"]:
            weights = {"sparse": 1.0}
        if weights is None and not like and self._store.encoded_share == 0 and "bm25" in self._spaces:
            weights = {"bm25": 1.0}
        if weights is None and not like and (kept := self._store.settings.get("weights")):
            spaces = self._models.query_spaces if "dense" in kept else self._spaces  # which loads the dense model
            weights = {space: weight for space, weight in kept.items() if space in spaces} or None
        if weights is None:
            weights = dict.fromkeys(self._spaces if like else self.query_spaces, 1.0)
        parsed = parse_weights(weights, self._spaces)
        if like and not (parsed := {name: weight for name, weight in parsed.items() if name != "bm25"}):
            raise ArgumentError("weights: BM25 searches words: `like` needs sparse or dense vectors")
        return parsed

    @property
    def coverage(self) -> Coverage:
        """Coverage of the first documents by the model's vocabulary."""
        return Coverage(*self._store.settings["progress"]["coverage"])

    @property
    def query_spaces(self) -> tuple[Space, ...]:
        """The spaces that a search fuses by default: without the model's if its vocabulary lacks the tokens."""
        spaces = self._spaces
        if "bm25" in spaces and self.coverage.mostly_lost:
            spaces = [space for space in spaces if space not in self._models.of_one_vocabulary]
        return tuple(space for space in spaces if space != "dense" or space in self._models.query_spaces)

    def search_space(
        self,
        queries: Vectors,
        k: int,
        *,
        space: Space = "sparse",
        filter: Filter | None = None,
        conditions: Mapping[int, Conditions] | None = None,
        **matching: Unpack[Matching],
    ) -> Ranking:
        """Return the k best documents that pass the filter for each of `queries` [q, columns], in one space.

        For `conditions` of queries, and an engine that does not count shared terms, more hits are requested until k
        fulfil the conditions and have enough of the query's terms. Raises `ArgumentError` for another option of
        `matching` that the engine does not support.
        """
        counting = {name: value for name, value in check(Matching, matching).items() if value}
        if space not in self._spaces:
            raise ArgumentError(f"{self._place}: it was made without {space} vectors")
        if filter is not None:
            self.check_filter(filter)
        # Dense vectors have no terms to count.
        if isinstance(queries, np.ndarray):
            counting = {}
        if self._engine_does(counting, conditions):
            return self._store.search(queries, k, space=space, filter=filter, **select(Matching, counting))
        # What the engine cannot do is done here for each query, on deeper rankings.
        hits, missing, share = [], None, 0.0
        if "minimum_match" in counting and "minimum_match" not in self._store.about.matching:
            share = cast(float, counting.pop("minimum_match"))
        for row in range(queries.shape[0]):
            query: csr_array = queries[[row]]
            # The number of terms is rounded up; 1e-9 makes up for the error of the product.
            needed = int(np.ceil(query.nnz * share - 1e-9)) if share else 0
            search = partial(self._store.search, query, space=space, filter=filter, **select(Matching, counting))
            hits.append(self._hits(query, k, needed, space, search, (conditions or {}).get(row)))
            missing = missing or self._store.missing
        return replace(ranking_of(hits, k), missing=missing)

    def _hits(
        self,
        query: csr_array,
        k: int,
        needed: int,
        space: Space,
        search: Callable[..., Ranking],
        conditions: Conditions | None,
    ) -> list[tuple[str, float]]:
        """Return the k best hits of a query [1, columns] with `needed` of its terms that fulfil its conditions."""
        # Search four times deeper until enough hits are left, or the engine has no more.
        most, enough_hits = self._store.max_hits, k if conditions is None else min(k, conditions.most)
        depth = min(4 * k, max(k, most))
        while True:
            stop_if_cancelled()
            candidates = search(k=depth).hits(0)
            kept = candidates
            # The number of terms that each hit shares with the query [hits].
            if needed and candidates:
                stored = csr_array(self._store.vectors([identifier for identifier, _ in candidates], space))
                shared = np.diff((stored[:, query.indices] > 0).tocsr().indptr)
                kept = [hit for hit, count in zip(candidates, shared, strict=True) if count >= needed]
            kept = self._units.hits(kept)
            if conditions is not None:
                kept = conditions.met_by(kept)
            if len(kept) >= enough_hits or len(candidates) < depth or depth >= most:
                return kept
            depth = min(4 * depth, most)

    def _reranked(self, queries: EncodedQueries, plan: SearchPlan, ranking: Ranking) -> Ranking:
        """Return a ranking reranked: the cross encoder reads the text that is shown, such as the best passage."""

        def texts_of(number: int, ids: Sequence[str]) -> list[str]:
            documents = [document for document in self._units.documents(ids) if document is not None]
            shown = zip(documents, self._units.shown(documents, lambda: queries.vectors.sparse[[number]]), strict=True)
            texts = {document.id: unit.full for document, unit in shown}
            return [texts.get(identifier, "") for identifier in ids]

        return reranked(ranking, queries.texts, texts_of, device=self._models.device, **plan.reranking)

    def like(self, ids: Sequence[str], **options: Unpack[Pruning]) -> csr_array:
        """Return the stored vectors [q, v] of documents as queries, pruned to `max_terms`, by default `LIKE_TERMS`.

        Raises `ArgumentError` for an unknown id.
        """
        limits = check(Pruning, options)
        limits["max_terms"] = limits["max_terms"] or LIKE_TERMS
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

    @property
    def has_pages(self) -> bool:
        """Return whether documents may be sections of pages."""
        return self.known_fields is None or FILE in self.known_fields

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
            if given == ANY_DOCUMENT:
                return None
            chosen = parse_filter(given) if isinstance(given, str) else given
            self.check_filter(chosen, "idf_filter")
            return chosen
        if filter is None or not self._store.about.filters:
            return None
        no_terms = np.empty(0, np.int64)
        (_, passing), (_, documents) = (self._store.count_terms(no_terms, filter=part) for part in (filter, None))
        return filter if passing < IDF_SHARE * documents else None

    def _facets(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the fields of facets; raise `ArgumentError` for a field that no document has; on a server, warn."""
        fields = tuple(dict.fromkeys(name for text in names for name in listed_names(text)))
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


def _first_hits(ranking: Ranking) -> Iterator[str]:
    """Yield the ids of the first hits of all queries, which a verbatim match or an answer reads."""
    first = ranking.first(READ_HITS)
    return (name for number in range(len(first)) for name, _ in first.hits(number))
