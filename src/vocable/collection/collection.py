"""A searchable collection: documents in a store, queries, and rankings.

Letters: q queries, v output vocabulary, d dimensions of dense vectors, k results.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Unpack, cast

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.rerank import check_reranking, rerank_depth, reranked
from vocable.collection.settings import of_vocabulary
from vocable.collection.sorting import sort_depth, sorted_by
from vocable.collection.stored_documents import StoredDocuments
from vocable.data import Document
from vocable.data.texts import Texts, as_texts
from vocable.encoding.dense_models import normalized
from vocable.encoding.idf import idf
from vocable.encoding.models import Model
from vocable.encoding.pruning import prune
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.tokens import WORD_MARKS
from vocable.engines.base import UNBOUNDED, Vectors
from vocable.engines.filters import Filter, check_field, check_fields, parse_filter
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError, UnavailableError, VectorsError
from vocable.explanation.highlights import MARKED_CHARACTERS
from vocable.indexes.fusion import MIN_DEPTH, ScoreParts, aligned, fused_with_parts, fusion_depth, parse_weights
from vocable.indexes.ranking import Ranking, ranking_of
from vocable.language.suggestions import DOCUMENTS_READ, edits_of, likely_stems, nearest
from vocable.language.words import stemmed, unspaced, word_spans, words
from vocable.options import (
    Count,
    Matching,
    Pruning,
    QueryEncoding,
    RerankOptions,
    SearchOptions,
    SortOptions,
    check,
    checked,
    select,
)

logger = logging.getLogger(__name__)

# Terms of a document that are the query for others like it. Over Python's documentation (6,404 documents, on average 70
# terms) they find 9.9 of the first 10 documents that the whole vector finds; 32 terms find 9.2.
LIKE_TERMS = 64


class Collection(StoredDocuments):
    """Documents searched by sparse vectors and, if the collection has them, by BM25 and dense vectors."""

    @cached_property
    def terms(self) -> list[str]:
        """The v output terms of the model, by column."""
        return self.loaded_model.terms

    @cached_property
    def query_spaces(self) -> tuple[Space, ...]:
        """The spaces in which queries have vectors: without dense ones if the model looks queries up.

        A warning names the vectors that are left out.
        """
        if not self.dense_inside or self.query_encoder().dimensions is not None:
            return self.spaces
        logger.warning(
            "%s: %s gives queries no dense vectors: those of the documents are left out", self.place, self.model
        )
        return tuple(space for space in self.spaces if space != "dense")

    def query_encoder(self, model: Model | None = None, **options: Unpack[QueryEncoding]) -> TextEncoder:
        """Return an encoder of queries with `model`, by default the collection's own.

        The weights of queries are multiplied by the terms' IDF in the collection to the power `query_idf`, by default
        the model's.
        Raises `VectorsError` for a model of another vocabulary.
        """
        encoder = TextEncoder(model or self.loaded_model, "query", dtype=self.dtype, **options)
        of_vocabulary(encoder, self.meta, self.model)
        if encoder.query_idf:
            encoder.term_idf = self.term_idf
        return encoder

    def term_idf(self, terms: np.ndarray) -> np.ndarray:
        """Return the IDF of t terms in the documents as they are now, float32 [t]; 1 without documents."""
        if not self.store.about.in_folder:
            frequencies, documents = self.store.count_terms(terms)
            return idf(frequencies, documents) if documents else np.ones(len(terms), np.float32)
        counts = self.term_counts
        return np.ones(len(terms), np.float32) if counts.idf is None else counts.idf[terms]

    def shown(self, documents: Sequence[Document], query: Callable[[], csr_array]) -> list[Document]:
        """Return the passages to display for these hits (by default the documents), with the ids of their vectors.

        `query` returns the query's vector [1, v].
        """
        return list(documents)

    def check_filter(self, filter: Filter) -> None:
        """Raise `ArgumentError` for a filter on a field that no document has, or an engine without filters.

        On a server, where several writers may add fields at once, the former is a warning.
        """
        if not self.store.about.filters:
            raise ArgumentError(f"filter: the {self.store.about.engine} engine has no filters")
        self._check_names(partial(check_fields, filter))

    def _check_names(self, check_known: Callable[[frozenset[str]], object]) -> None:
        """Check names of fields against those that documents have."""
        try:
            if (known := self.known_fields) is not None:
                check_known(known)
        except ArgumentError:
            if self.store.about.in_folder:
                raise
            if (names := self.store.settings_now().get("fields")) is not None:
                try:
                    check_known(frozenset(names))
                except ArgumentError as error:
                    logger.warning("%s: %s", self.place, error)

    @checked
    def search(
        self,
        queries: Texts,
        k: Count = 10,
        *,
        vectors: csr_array | None = None,
        dense: np.ndarray | None = None,
        **options: Unpack[SearchOptions],
    ) -> Ranking:
        """Return the ranking of the verb `vocable.search`.

        `vectors` are the sparse vectors of the queries [q, v], and `dense` the dense ones [q, d] of the same pass; by
        default the collection's model encodes them. The spaces with `weights` are fused; with `hybrid` alone, all
        `query_spaces` with weight 1. With `like`, that document is no hit, and its stored vectors are the one query:
        BM25 has no part.
        """
        texts, filter = as_texts(queries, "queries"), options.get("filter")
        like = None if (liked := options.get("like")) is None else [liked]
        weights = self.weighting(options.get("hybrid", False), options.get("weights"), like=like is not None)
        if like is not None and not (weights := {name: weight for name, weight in weights.items() if name != "bm25"}):
            raise ArgumentError("weights: BM25 searches words: `like` needs sparse or dense vectors")
        reranking, sorting = select(RerankOptions, options), select(SortOptions, options)
        offset, deepest = options.get("offset", 0), max(MIN_DEPTH, rerank_depth(reranking))
        check_reranking(reranking)
        self.check_sort(sorting)
        wanted = sort_depth(sorting) or offset + k
        paged = offset and not sorting.get("sort")  # sorted pages are all of the same hits
        if len(weights) > 1 and paged and self.reachable(wanted) > deepest:  # pages would be of different fusions
            limit = f"offset + k must be at most {deepest} in a fused search, not {wanted}"
            raise ArgumentError(f"{limit}: take further hits from one search with a larger k")
        first = self.reachable(max(wanted, rerank_depth(reranking)))
        depth = fusion_depth(first) if len(weights) > 1 else first
        if like is not None:
            vectors = self.like(like, **select(Pruning, options)) if vectors is None else vectors
            dense = np.asarray(self.document_vectors(like, "dense")) if "dense" in weights else None
        elif vectors is None and self.needs_model(weights):
            vectors, dense = self.query_encoder(**select(QueryEncoding, options)).encode_both(texts)
        found = self.rankings(
            texts,
            depth + (like is not None),
            list(weights),
            vectors=vectors,
            dense=dense if self.dense_inside or like is not None else None,
            filter=parse_filter(filter) if isinstance(filter, str) else filter,
            **select(Matching, options),
        )
        if missing := next((one.missing for one in found.values() if one.missing), None):
            logger.warning("%s: %s: the hits are of the rest", self.place, missing)
        if like is not None:
            found = {space: ranking.without(like).first(depth) for space, ranking in found.items()}
        if len(weights) > 1:
            ranking = fused_with_parts(found, weights, options.get("fusion", "weighted"), first)
        else:
            [ranking] = found.values()
            ranking = replace(ranking, parts=None if "sparse" in found else found)
        if reranking.get("rerank"):
            ranking, _ = self.reranked(ranking, texts, vectors, **reranking)
        ranking = ranking.first(wanted).after(0, options.get("min_score"))
        if field := sorting.get("sort"):
            ranking = sorted_by(ranking, field, self._fields)
        return replace(ranking.after(offset).first(k), missing=missing)

    def reachable(self, k: int) -> int:
        """Return k, or the number of documents if it is smaller; a server is asked for it only if k is large."""
        of_server = not self.store.about.in_folder
        if of_server and (k <= MIN_DEPTH or getattr(self.store.opening, "partial", False)):
            return k
        return min(k, max(1, len(self)))

    def count(self) -> int | None:
        """Return the number of documents; None while a server that may answer from a part cannot count them."""
        try:
            return len(self)
        except UnavailableError:
            if getattr(self.store.opening, "partial", False):
                return None
            raise

    def check_whole(self, verb: str) -> None:
        """Raise `ArgumentError` if a search may leave out a part, which would pass for a result of the whole."""
        if getattr(self.store.opening, "partial", False):
            raise ArgumentError(f"{verb}: opened with partial=true, which may leave out documents: open it without")

    def score_parts(self, ranking: Ranking, number: int, query: str, document: Document) -> ScoreParts | None:
        """Return the parts of the score of a hit of one query; None for a score of sparse vectors alone."""
        if ranking.parts is None:
            return None
        found, words = {kind: dict(one.hits(number)) for kind, one in ranking.parts.items()}, None
        if "bm25" in found:
            there, typed = set(stemmed([document.full], self.language)[0]), [query[a:b] for a, b in word_spans(query)]
            stems = stemmed(typed, self.language)
            words = tuple(
                dict.fromkeys(word for word, own in zip(typed, stems, strict=True) if there.intersection(own))
            )
        return ScoreParts({kind: hits.get(document.id, 0.0) for kind, hits in found.items()}, words)

    def check_sort(self, options: SortOptions) -> None:
        """Raise `ArgumentError` for an order by a field that no document has; on a server, warn."""
        if field := options.get("sort"):
            self._check_names(lambda known: check_field(field.removeprefix("-"), known, "sort"))

    def _fields(self, ids: Sequence[str]) -> list[Mapping[str, object]]:
        return [{} if document is None else document.fields for document in self.documents(ids)]

    def reranked(
        self,
        ranking: Ranking,
        queries: Sequence[str],
        vectors: csr_array | None = None,
        **options: Unpack[RerankOptions],
    ) -> tuple[Ranking, np.ndarray]:
        """Return a ranking of q `queries` reranked, and the milliseconds of each; `vectors` [q, v] if they are known.

        The text of a hit is the one that is shown: of a document that is searched by passages, the best passage.
        """

        def texts_of(number: int, ids: Sequence[str]) -> list[str]:
            found = [document for document in self.documents(ids) if document is not None]
            query = partial(self._sparse_query, queries[number]) if vectors is None else lambda: vectors[[number]]
            shown = zip(found, self.shown(found, query), strict=True)
            texts = {document.id: one.full for document, one in shown}
            return [texts.get(identifier, "") for identifier in ids]

        return reranked(ranking, queries, texts_of, device=self.device, **options)

    def _sparse_query(self, query: str) -> csr_array:
        return self.query_encoder().encode([query])

    def texts(self, ids: Sequence[str]) -> list[str]:
        """Return the texts of documents, with their titles; `ArgumentError` for an unknown id."""
        found = [*zip(ids, self.documents(ids), strict=True)]
        if (missing := next((name for name, document in found if document is None), None)) is not None:
            raise ArgumentError(f"{self.place}: there is no document {missing!r}")
        return [document.full for _, document in found if document is not None]

    def document_vectors(self, ids: Sequence[str], space: Space = "sparse") -> Vectors:
        """Return one stored vector [m, columns] of each document; `ArgumentError` for an unknown id."""
        return self.store.vectors(ids, space)

    def like(self, ids: Sequence[str], **options: Unpack[Pruning]) -> csr_array:
        """Return the stored vectors [q, v] of documents as queries, pruned to the `LIKE_TERMS` largest weights.

        `options` prune otherwise. Raises `ArgumentError` for an unknown id.
        """
        limits: Pruning = {"max_terms": LIKE_TERMS, **options}
        return prune(csr_array(self.document_vectors(ids)), **limits)

    def weighting(
        self, hybrid: bool, weights: str | Mapping[Space, float] | None, *, like: bool = False
    ) -> dict[Space, float]:
        """Return the non-zero weights of the spaces that a search fuses; a search `like` a document has its vectors.

        Raises `ArgumentError` for a space that the collection does not have.
        """
        if hybrid and len(self.spaces) == 1:
            raise ArgumentError("a hybrid search needs the lexical index: build this index with --bm25 or --dense")
        if weights is None:
            spaces = ("sparse",) if not hybrid else self.spaces if like else self.query_spaces
            weights = dict.fromkeys(spaces, 1.0)
        return parse_weights(weights, self.spaces)

    def needs_model(self, spaces: Container[Space]) -> bool:
        """Return whether the collection's own model encodes the queries of any of `spaces`."""
        return "sparse" in spaces or ("dense" in spaces and self.dense_inside)

    def rankings(
        self,
        queries: Sequence[str],
        k: int,
        spaces: Sequence[Space],
        *,
        vectors: csr_array | None = None,
        dense: np.ndarray | None = None,
        filter: Filter | None = None,
        **matching: Unpack[Matching],
    ) -> dict[Space, Ranking]:
        """Return the k best documents in each of `spaces`, with one list of ids.

        `vectors` are the sparse vectors of the queries [q, v] and `dense` the dense ones [q, d], as far as they are
        known; `matching` applies to sparse ones only.
        """
        if dense is None and "dense" in spaces:
            dense = self.dense_queries(queries)
        found = []
        for space in spaces:
            if space == "sparse":
                sparse = self.query_encoder().encode(queries) if vectors is None else vectors
                found.append(self.rank(sparse, k, filter=filter, **matching))
            else:
                encoded = self.lexical_queries(queries) if space == "bm25" else dense
                assert encoded is not None
                found.append(self.rank(encoded, k, space=space, filter=filter))
        return dict(zip(spaces, aligned(found), strict=True))

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
        if space not in self.spaces:
            raise ArgumentError(f"{self.place}: it was made without {space} vectors")
        if filter is not None:
            self.check_filter(filter)
        if isinstance(queries, np.ndarray):  # dense vectors have no terms
            conditions = {}
        if self.limits.long_documents != "passages" and conditions.keys() <= {*self.store.about.matching}:
            return self.store.search(queries, k, space=space, filter=filter, **select(Matching, conditions))
        found, missing, share = [], None, conditions.pop("minimum_match", 0.0)
        for row in range(queries.shape[0]):
            query: csr_array = queries[[row]]
            needed = int(np.ceil(query.nnz * share - 1e-9)) if share else 0
            found.append(self._hits(query, k, needed, space, filter, select(Matching, conditions)))
            missing = missing or getattr(self.store, "missing", None)
        return replace(ranking_of(found, k), missing=missing)

    def _hits(
        self, query: csr_array, k: int, needed: int, space: Space, filter: Filter | None, matching: Matching
    ) -> list[tuple[str, float]]:
        """Return the k best hits of one query [1, columns] that have at least `needed` of its terms."""
        most = getattr(self.store, "max_hits", None) or UNBOUNDED
        depth = min(4 * k, max(k, most))
        while True:
            hits = enough = self.store.search(query, depth, space=space, filter=filter, **matching).hits(0)
            if needed and hits:
                stored = csr_array(self.store.vectors([identifier for identifier, _ in hits], space))
                shared = np.diff((stored[:, query.indices] > 0).tocsr().indptr)
                enough = [hit for hit, count in zip(hits, shared, strict=True) if count >= needed]
            enough = self._documents_of(enough)
            if len(enough) >= k or len(hits) < depth or depth >= most:
                return enough
            depth = min(4 * depth, most)

    def _documents_of(self, hits: list[tuple[str, float]]) -> list[tuple[str, float]]:
        """Return the documents of hits of the store, best first, each once."""
        return hits

    def suggestion(self, text: str) -> str | None:
        """Return a query with each word that no document has replaced by the nearest of the collection; None without.

        Only the words of BM25 are known, so a collection without it, or on a server, suggests nothing. A word that is
        a term of the model is right, if the model is loaded already: no model is loaded for this.
        """
        places = [(start, end) for start, end in word_spans(text) if edits_of(text[start:end])]
        places = [(start, end) for start, end in places if not unspaced(text[start:end])]
        if "bm25" not in self.spaces or self.hashed_words is not None or not places:
            return None
        typed = [text[start:end] for start, end in places]
        unknown = (np.diff(self.lexical_queries(typed).indptr) == 0) & [
            bool(stems) for stems in stemmed(typed, self.language)
        ]
        found, done = "", 0
        known = set(self.terms) if unknown.any() and "loaded_model" in vars(self) else set[str]()
        for (start, end), word in ((places[at], typed[at]) for at in np.flatnonzero(unknown)):
            right = any(mark + word.lower() in known for mark in ("", *WORD_MARKS))
            if not right and (instead := self._nearest(word)):
                found, done = found + text[done:start] + instead, end
        return found + text[done:] if found else None

    def _nearest(self, word: str) -> str | None:
        """Return the word, in lower case, that is nearest to an unknown one in the documents of the likely stems.

        Stems are no words to read, and an index has no other: words are taken from the text of documents.
        """
        [[stem]], [typed] = stemmed([word], self.language), words(word)
        edits, lexicon = edits_of(typed), cast(Any, self.statistics or self.store)
        counts = dict(lexicon.words_like(typed[:2], max(3, len(typed) // 2 - 1), len(typed) + edits))
        if not (stems := likely_stems(typed, stem, counts)):
            return None
        best = self.rank(lexicon.query_vectors(stems, stems=True), DOCUMENTS_READ, space="bm25")
        names = dict.fromkeys(name for number in range(len(stems)) for name, _ in best.hits(number))
        texts = (one.full[:MARKED_CHARACTERS] for one in self.documents([*names]) if one is not None)
        written = {one for text in texts for one in words(text)}
        near = sorted(one for one in written if one[0] in typed[:2] and abs(len(one) - len(typed)) <= edits)
        pairs = zip(near, stemmed(near, self.language), strict=True)
        return nearest(typed, [(one, counts.get(some[0], 0)) for one, some in pairs if some])  # without stop words

    def lexical_queries(self, queries: Sequence[str]) -> csr_array:
        """Return the vectors [q, columns] of texts as queries in the space bm25."""
        return self.lexicon.query_vectors(queries)

    def dense_queries(self, queries: Sequence[str]) -> np.ndarray:
        """Return the vectors [q, d] of texts as queries in the space dense."""
        if self.dense_inside:
            if (dense := self.query_encoder().encode_both(queries).dense) is None:
                raise VectorsError(f"{self.place}: {self.model} gives queries no dense vectors: search without them")
            return dense
        return normalized(self.dense_model.encode_query(list(queries), show_progress_bar=False))
