"""A collection and its model behind a queue: requests are encoded, searched, explained and changed in batches.

Letters: v output vocabulary.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.answers import Answers, score_parts, search
from vocable.collection.collection import Collection
from vocable.collection.records import Answer, Changed
from vocable.collection.rerank import RERANK_DEPTH
from vocable.collection.search import ANY_DOCUMENT
from vocable.core.cancelling import answer_by
from vocable.data import Document, Query
from vocable.encoding.idf import weighed
from vocable.encoding.protocol import EncodedTexts
from vocable.encoding.pruning import prune
from vocable.encoding.text_encoder import TextEncoder
from vocable.engines.base import rows_of
from vocable.engines.filters import Comparison, Filter, Not, parse_filter
from vocable.errors import ArgumentError
from vocable.explanation.explain import Expansion, Explanation, expand_vector, explain_vectors, text_terms
from vocable.explanation.highlights import QueryWords
from vocable.indexes.fusion import MIN_DEPTH
from vocable.language.query_syntax import parse_query
from vocable.options import AnswerOptions, Pruning, RerankOptions, check, select
from vocable.service import ServiceLimits
from vocable.service.batching import ARRIVED, Batcher, Work
from vocable.service.metrics import Metrics
from vocable.service.readiness import Readiness
from vocable.service.schemas import ExplainRequest, SearchRequest, SparseValue, ViewRequest
from vocable.service.view import TermPostings, View, term_postings, view

T = TypeVar("T")
MAX_CACHED = 500  # characters of a query in the cache
MAX_EXPLAINED = 100  # hits of a search with explanations
MAX_FILTER = 4096  # characters
LONG_QUERY = 4096  # characters of a query beyond which a search is slow


class TooLargeError(Exception):
    """A request has too many or too long texts."""


class ThereAlreadyError(Exception):
    """A document to add has the id of another."""


class NotFoundError(Exception):
    """There is no such document or term."""


class Row(NamedTuple):
    """The vectors of a text: columns, int32, ascending, and weights, float32, of its terms; any dense vector [d]."""

    columns: np.ndarray
    weights: np.ndarray
    dense: np.ndarray | None = None


class Prompt(NamedTuple):
    """Settings of an encoding: the prompt by name, and the side that is cut from long texts.

    If `truncate` is None, long texts are refused.
    """

    name: str | None = None
    truncate: str | None = "right"


class Service:
    """The functions behind the endpoints; one thread does all work on model and collection.

    Several threads search a server, and wait for its answers.

    The cache holds what depends on the model alone. The batch that searches multiplies a query's weights by the IDF of
    the collection, so that every search follows all changes of the documents.
    """

    def __init__(
        self,
        collection: Collection,
        limits: ServiceLimits,
        metrics: Metrics,
        wacky: frozenset[str] | None = None,
        rerank: RerankOptions | None = None,
        title: str | None = None,
    ) -> None:
        name = PurePath(collection.place.partition("?")[0]).name
        self.title = name if title is None else title
        self.collection, self.limits, self._metrics, self.wacky = collection, limits, metrics, wacky
        self.rerank = check(RerankOptions, rerank or {})
        self.model = collection.models.loaded
        encoder = collection.models.queries()
        self.queries, self._query_idf = collection.models.queries(query_idf=0), encoder.query_idf
        self.documents = TextEncoder(self.queries.model, "document", dtype=collection.settings.limits["dtype"])
        self.readiness = Readiness(collection, metrics)
        text = ["the first search loads the rest"]
        vectors, dense = encoder.encode_both(text)
        self.columns = vectors.shape[1]
        collection.search(text, 1, vectors=vectors, dense=dense)
        self._cached: OrderedDict[tuple[str, Prompt], Row] = OrderedDict()
        queue = partial(Batcher, size=limits["batch_size"], limit=limits["max_queue"], timeout=limits["timeout"])
        self.batcher = self.searches = queue(seen=self._seen)
        if collection.store.about.side_by_side:
            self.searches = queue(threads=limits["search_threads"], seen=self._limit)

    def told(self, error: Exception) -> str:
        """Return the message of an error in one line, without the place of the index on this machine."""
        return " ".join(str(error).removeprefix(f"{self.collection.place}: ").split())

    def close(self) -> None:
        """Finish the accepted work, and close the collection."""
        self.searches.close()
        self.batcher.close()
        self.collection.close()

    @property
    def can_change(self) -> bool:
        """Return whether documents can be added and deleted."""
        return self.collection.store.about.changes

    async def embed(self, texts: Sequence[str], prompt: Prompt) -> list[Row]:
        """Return the vectors of texts."""
        known = {"query", "document", *self.model.prompts}
        if prompt.name not in (None, *known):
            raise ArgumentError(f"prompt_name must be one of {', '.join(sorted(known))}, not {prompt.name!r}")
        rows = await self._embedded(texts, prompt)
        return await self._run(self._with_idf, rows) if prompt.name == "query" and self._query_idf else rows

    async def _embedded(self, texts: Sequence[str], prompt: Prompt) -> list[Row]:
        """Return the vectors of texts, without IDF; vectors of queries are cached."""
        self._check(texts)
        wait = self.limits["batch_wait"] / 1000
        if prompt.name != "query":
            return await self._run(self._encode, texts, prompt, wait=wait)
        cached = {text: self._cached.get((text, prompt)) for text in texts}
        missing = [text for text, row in cached.items() if row is None]
        self._metrics.cache_hits.inc(len(cached) - len(missing))
        self._metrics.cache_misses.inc(len(missing))
        if missing:
            rows = await self._run(self._encode, missing, prompt, wait=wait)
            cached.update(zip(missing, rows, strict=True))
        for text in cached:
            self._cache((text, prompt), cached[text])
        return [row for text in texts if (row := cached[text]) is not None]

    async def search(self, request: SearchRequest) -> Answer:
        """Return the answer to one query."""
        options = request.options(AnswerOptions, **self._reranking(request))
        query = request.query or ""
        limit = min(self.limits["max_k"], MAX_EXPLAINED) if request.explain else self.limits["max_k"]
        offset = options["offset"]
        if (most := offset + request.k) > limit:
            explained = " with explain" if request.explain else ""
            raise ArgumentError(f"{'offset + ' * bool(offset)}k must be at most {limit}{explained}, not {most}")
        self.check_filter(options["filter"])
        if options["idf_filter"] != ANY_DOCUMENT:
            self.check_filter(options["idf_filter"])
        liked = options["like"] is not None
        if request.query is None and request.vector is not None and options["weights"] is None:
            options["weights"] = "sparse"
        fused = self.collection.searcher.weighting(options)
        if liked and (request.query is not None or request.vector is not None):
            raise ArgumentError("`like` stands in place of query and vector")
        if liked:
            return await self._call(self._liked, request.k, request.explain, options, slow=request.explain)
        needed = request.explain or request.rerank or fused.keys() != {"sparse"}
        if request.query is None and (request.vector is None or needed):
            message = "send a query or its vector; words, dense vectors, explain and rerank need the query"
            raise ArgumentError(f"query is missing: {message}")
        self._check([query])
        if request.vector is not None:
            if options["query_idf"] is not None:
                raise ArgumentError("`query_idf` needs a query that is encoded, not its vector")
            row, options["query_idf"] = self._row(request.vector), 0.0
        else:
            read = query if options["plain"] else parse_query(query).text
            [row] = await self._embedded([read], Prompt("query"))
        key = json.dumps(options, sort_keys=True)  # searches with the same options go in one batch
        if request.explain or len(query) > LONG_QUERY:  # each is answered when it is done
            return await self._call(self._search_alone, query, row, request.k, key, request.explain, slow=True)
        with self._waiting(1):
            answers: list[Answer] = await self.searches.run(self._search, [(query, row)], request.k, key)
        return answers[0]

    def _reranking(self, request: SearchRequest) -> RerankOptions:
        """Return the options of a request's reranking; the service's numbers are their limits."""
        if request.rerank and self.rerank["rerank"] is None:
            raise ArgumentError("rerank: the service was started without a cross encoder")
        limits: dict[str, Any] = {**self.rerank}
        most = {**limits, "rerank_depth": limits["rerank_depth"] or RERANK_DEPTH}
        asked = {name: value for name in limits if name != "rerank" and (value := getattr(request, name)) is not None}
        for name, value in asked.items():
            if most[name] is not None and value > most[name]:
                raise ArgumentError(f"{name} must be at most {most[name]:g}, not {value:g}")
        if request.rerank is False or request.query is None:
            limits = {}
        return check(RerankOptions, {**limits, **asked})

    def check_filter(self, text: str | None) -> None:
        """Raise `ArgumentError` for a filter that cannot be read, or is too long or too deep."""
        if text is None:
            return
        if len(text) > MAX_FILTER:
            raise ArgumentError(f"filter: at most {MAX_FILTER:,} characters, not {len(text):,}")
        if _depth(parse_filter(text)) > self.limits["max_filter_depth"]:
            raise ArgumentError(f"filter: and, or and not stand more than {self.limits['max_filter_depth']} deep")

    async def explain(self, request: ExplainRequest) -> Explanation | Expansion:
        """Return the terms of a query's vector, or the terms that it shares with a text or a document of the index."""
        if request.document is not None and request.id is not None:
            raise ArgumentError("document and id: give one of them")
        rows = await self._embedded([parse_query(request.query).text], Prompt("query"))
        if request.document is not None:
            rows += await self._embedded([request.document], Prompt("document"))
        return await self._call(self._explained, request, rows, slow=True)

    async def view(self, request: ViewRequest) -> View:
        """Return the view of a query for the page."""
        self.check_filter(request.filter)
        query = request.query if request.plain else parse_query(request.query).text
        [row] = [None] if request.like is not None else await self._embedded([query], Prompt("query"))
        seen: View = await self._call(self._view, request, row, slow=True)
        now = time.monotonic()
        return dataclasses.replace(seen, milliseconds=1000 * (now - ARRIVED.get(now)))

    async def postings(self, term: str) -> TermPostings:
        """Return the postings of a term for the page."""
        if (postings := await self.look(term_postings, term)) is None:
            raise NotFoundError(f"there is no term {term!r}")
        return postings

    async def check_place(self) -> str | None:
        """Return what searches leave out; raise `VocableError` or `TimeoutError` if they fail."""
        return await self.readiness.check(self._call)

    async def look(self, function: Callable[..., T], *given: Any) -> T:
        """Return what a function finds in the collection."""
        return await self._call(function, self.collection, *given, slow=True)

    async def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, None for an unknown id."""
        self._check([], len(ids))
        return await self._run(self.collection.documents, ids)

    async def add(self, documents: Sequence[Document], *, replace: bool) -> Changed:
        """Add all documents or none; a document with a known id replaces the stored document, or is an error."""
        self.collection.writer.check_changes()
        self._check([document.full for document in documents])
        return await self._call(self.collection.add if replace else self._add, documents, change=True)

    async def delete(self, ids: Sequence[str]) -> Changed:
        """Delete documents; unknown ids are ignored."""
        self.collection.writer.check_changes()
        self._check([], len(ids))
        return await self._call(self.collection.delete, ids, change=True)

    async def _run(self, work: Work, items: Sequence[Any], *shared: Any, wait: float = 0.0) -> list[Any]:
        with self._waiting(len(items)):
            return await self.batcher.run(work, items, *shared, wait=wait)

    @contextmanager
    def _waiting(self, count: int) -> Iterator[None]:
        self._metrics.queue_depth.inc(count)
        try:
            yield
        finally:
            self._metrics.queue_depth.dec(count)

    async def _call(self, function: Callable[..., T], *given: Any, slow: bool = False, change: bool = False) -> T:
        """Call a function in the thread of the batcher, once: a change is never tried twice."""
        with self._waiting(1):
            result: T = await self.batcher.call(function, *given, slow=slow, change=change)
        return result

    def _seen(self, work: Work, count: int) -> None:
        if work == self._encode:
            self._metrics.batch_texts.observe(count)

    def _limit(self, work: Work, count: int) -> None:
        """End the requests of a batch to a server when nobody waits for its answers any more."""
        answer_by.set(ARRIVED.get() + self.limits["timeout"])

    def _check(self, texts: Sequence[str], count: int = 0) -> None:
        if (count := max(count, len(texts))) > self.limits["max_inputs"]:
            raise TooLargeError(f"a request has at most {self.limits['max_inputs']} inputs, not {count}")
        if (longest := max(map(len, texts), default=0)) > self.limits["max_characters"]:
            raise TooLargeError(f"a text has at most {self.limits['max_characters']:,} characters, not {longest:,}")

    def _cache(self, key: tuple[str, Prompt], row: Row | None) -> None:
        """Keep a vector, marked as the last used."""
        if row is not None and len(key[0]) <= MAX_CACHED:
            self._cached[key] = row
            self._cached.move_to_end(key)
            if len(self._cached) > self.limits["cache_size"]:
                self._cached.popitem(last=False)

    def _row(self, vector: Sequence[SparseValue]) -> Row:
        weights = {term.index: term.value for term in vector}
        if len(weights) < len(vector):
            raise ArgumentError("vector: an index occurs twice")
        columns = np.array(sorted(weights), dtype=np.int32)
        if columns.max(initial=-1) >= self.columns:
            raise ArgumentError(f"vector: the index has {self.columns} terms, there is none at {columns.max()}")
        values = np.array([weights[column] for column in columns.tolist()], dtype=np.float32)
        return Row(columns[values > 0], values[values > 0])

    # The methods below run in a thread of a batcher.

    def _encoder(self, prompt: Prompt) -> TextEncoder:
        """Return the encoder of a prompt; without a name, the encoder of documents with any default prompt."""
        if prompt.name in ("query", "document"):
            return self.queries if prompt.name == "query" else self.documents
        name = prompt.name or self.model.default_prompt
        encoder = copy.copy(self.documents)
        encoder.prompt = None if name is None else self.model.prompts[name]
        return encoder

    def _encode(self, texts: list[str], prompt: Prompt) -> list[Row | TooLargeError]:
        encoder = self._encoder(prompt)
        refused: dict[int, TooLargeError] = {}
        if prompt.truncate is None and encoder.max_length is not None:
            lengths = encoder.lengths(texts)
            message = f"`inputs` must have at most {encoder.max_length} tokens, not {{}}: truncate cuts them"
            for place in np.flatnonzero(lengths > encoder.max_length).tolist():
                refused[place] = TooLargeError(message.format(lengths[place]))
        taken = [text for place, text in enumerate(texts) if place not in refused]
        if prompt.truncate == "left":
            encoder = self._truncating_left(encoder)
        vectors, dense = encoder.encode_both(taken)
        both = zip(rows_of(vectors), [None] * len(taken) if dense is None else dense, strict=True)
        rows = iter(Row(columns.copy(), weights.copy(), dense_row) for (columns, weights), dense_row in both)
        return [refused.get(place) or next(rows) for place in range(len(texts))]

    def _truncating_left(self, encoder: TextEncoder) -> TextEncoder:
        if encoder.looked_up:
            raise ArgumentError("truncation_direction: queries of this model are looked up, and cut on the right only")
        left = copy.copy(encoder)
        left.truncation = "left"
        return left

    def _liked(self, k: int, explain: bool, options: AnswerOptions) -> Answer:
        answer: Answer = search(self.collection, None, k, explain=explain, wacky=self.wacky, **options)[0]
        return answer

    def _search_alone(self, query: str, row: Row, k: int, key: str, explain: bool) -> Answer:
        return self._search([(query, row)], k, key, explain)[0]

    def _search(self, items: list[tuple[str, Row]], k: int, key: str, explain: bool = False) -> Answers:
        """Return the answers to queries, each of which is made when it is asked for."""
        texts, rows = zip(*items, strict=True)
        options = json.loads(key)
        current = self.collection.current()
        plan = current.searcher.plan(k, options, facets=options["facets"], sections=options["sections"], spare=True)
        power = self._query_idf if options["query_idf"] is None else options["query_idf"]
        weights = weighed(self._matrix(rows), partial(current.searcher.term_idf, plan, texts), power)
        vectors = prune(weights, **select(Pruning, options))
        encoded = current.searcher.queries(plan, texts, EncodedTexts(vectors, self._dense(rows)))
        return Answers(
            collection=current,
            queries=tuple(Query(str(number), text) for number, text in enumerate(texts)),
            encoded=encoded,
            plan=plan,
            candidates=current.searcher.rank(encoded, plan),
            explained=explain,
            wacky=self.wacky,
        )

    def _explained(self, request: ExplainRequest, rows: list[Row]) -> Explanation | Expansion:
        collection, vectors = self.collection.current(), self._weighed(rows[:1])
        text, stored, document = request.document, self._matrix(rows[-1:]), None
        if request.id is not None:
            [document] = collection.documents([request.id])
            if document is None:
                raise NotFoundError(f"there is no document {request.id!r}")
            [shown] = collection.units.shown([document], lambda: vectors)
            text, stored = shown.full, collection.vectors([shown.id])
        names = self.collection.models.terms
        tokens, document_tokens = text_terms(self.model, [parse_query(request.query).text, text or ""])
        if text is None:
            return expand_vector(vectors, names, tokens, request.k, self.wacky)
        why = explain_vectors(vectors, stored, names, tokens, document_tokens, self.wacky)
        if document is None:
            return why
        ranking = collection.search([request.query], MIN_DEPTH, vectors=vectors, dense=self._dense(rows))
        if document.id not in dict(ranking.hits(0)):
            return why
        [parts] = score_parts(ranking, 0, [document], QueryWords(request.query, collection.settings.language))
        return dataclasses.replace(why, parts=parts)

    def _view(self, request: ViewRequest, row: Row | None) -> View:
        current = self.collection.current()
        if row is not None:
            idf_filter = None if request.filter is None else current.searcher.idf_filter(parse_filter(request.filter))
            vector = self._weighed([row], filter=idf_filter)
            return view(current, request, vector, self.wacky, self.rerank, self._dense([row]))
        ids = [request.like or ""]
        dense = np.asarray(current.units.vectors(ids, "dense")) if "dense" in current.spaces else None
        return view(current, request, current.like(ids), self.wacky, dense=dense)

    def _add(self, documents: Sequence[Document]) -> Changed:
        for stored in self.collection.documents([document.id for document in documents]):
            if stored is not None:
                raise ThereAlreadyError(f"duplicate id {stored.id!r}: PUT replaces the document")
        return self.collection.add(documents)

    def _weighed(self, rows: Sequence[Row], filter: Filter | None = None) -> csr_array:
        """Return rows of queries as csr_array [b, v], times their terms' IDF to the model's power.

        The documents that pass a filter, by default all, give the terms their IDF.
        """
        return weighed(self._matrix(rows), partial(self.collection.store.idf, filter=filter), self._query_idf)

    def _with_idf(self, rows: list[Row]) -> list[Row]:
        """Return rows of queries with the weights of `_weighed`."""
        pairs = zip(rows, rows_of(self._weighed(rows)), strict=True)
        return [row._replace(weights=weights) for row, (_, weights) in pairs]

    def _matrix(self, rows: Sequence[Row]) -> csr_array:
        """Return the rows as csr_array [b, v]."""
        columns, weights, _ = zip(*rows, strict=True)
        indptr = np.cumsum([0, *map(len, columns)]).astype(np.int32)
        return csr_array((np.concatenate(weights), np.concatenate(columns), indptr), shape=(len(rows), self.columns))

    def _dense(self, rows: Sequence[Row]) -> np.ndarray | None:
        """Return the dense vectors [b, d] of the rows; None unless the collection stores dense vectors of its model."""
        vectors = [row.dense for row in rows if row.dense is not None]
        return np.array(vectors) if self.collection.models.dense_inside and len(vectors) == len(rows) else None


def _depth(filter: Filter) -> int:
    """Return how deep conditions are nested."""
    if isinstance(filter, Comparison):
        return 1
    return 1 + max(map(_depth, [filter.part] if isinstance(filter, Not) else filter.parts))
