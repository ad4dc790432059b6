"""A collection and its model behind a queue: encode, search, explain, read and change, of many requests together.

Letters: v output vocabulary.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document, Query
from vocable.encoder.asymmetric import route, static_embedding
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ArgumentError
from vocable.pruning import prune
from vocable.retrieval.answers import Answers
from vocable.retrieval.collection import Collection
from vocable.retrieval.engines.base import rows_of
from vocable.retrieval.explain import Expansion, Explanation, expand_vector, explain_vectors, text_terms
from vocable.retrieval.filters import Comparison, Filter, Not, parse_filter
from vocable.retrieval.fusion import Fusion
from vocable.retrieval.living import LivingCollection
from vocable.retrieval.protocols import Space
from vocable.retrieval.records import Changed, Hit
from vocable.retrieval.verbs import changeable
from vocable.service.batching import Batcher, Work, as_exception
from vocable.service.limits import Limits
from vocable.service.metrics import Metrics
from vocable.service.view import Wanted, term_postings, view

Row: TypeAlias = tuple[np.ndarray, np.ndarray]  # a vector of v terms: columns int32, rising, and weights float32
LONGEST_KEPT = 500  # characters of a query that the cache keeps
EXPLAINED = 100  # hits of a search that are explained at most


class TooLargeError(Exception):
    """A request has more, or longer, texts than are taken."""


class ThereAlreadyError(Exception):
    """A document that is to be added is there already."""


class NotFoundError(Exception):
    """There is no such document."""


class Reading(NamedTuple):
    """How a text is encoded: by which prompt, and on which side one that is too long is cut; None refuses it."""

    prompt: str | None = None
    cut: str | None = "right"


class Asked(NamedTuple):
    """How a query is searched with; as the arguments of `vocable.search`."""

    k: int
    hybrid: bool
    weights: tuple[tuple[Space, float], ...] | None
    fusion: Fusion
    filter: Filter | None
    explain: bool
    max_terms: int | None
    min_weight: float


class Service:
    """What the endpoints call; all work on model and collection is done in one thread, whose errors are raised here."""

    def __init__(
        self, collection: Collection, limits: Limits, metrics: Metrics, wacky: frozenset[str] | None = None
    ) -> None:
        self.collection, self.limits, self._metrics, self.wacky = collection, limits, metrics, wacky
        self.model = collection.loaded_model
        self.queries = collection.query_encoder()
        self.documents = TextEncoder(self.queries.model, "document", dtype=collection.dtype)
        text = ["what is compiled once is compiled now"]  # or the first who asks would wait for it
        vectors = self.queries.encode(text)
        self.columns = vectors.shape[1]
        collection.search(text, 1, vectors=vectors, hybrid=len(collection.spaces) > 1)
        self._kept: OrderedDict[tuple[str, Reading], Row] = OrderedDict()
        self.batcher = Batcher(size=limits.batch_size, limit=limits.max_queue, seen=self._seen)

    def close(self) -> None:
        """Finish what was taken on, and close the collection."""
        self.batcher.close()
        self.collection.close()

    @property
    def can_change(self) -> bool:
        """Whether documents can be added and deleted."""
        return isinstance(self.collection, LivingCollection)

    async def embed(self, texts: Sequence[str], reading: Reading) -> list[Row]:
        """The vectors of texts; those of queries are kept for the next time."""
        self._check(texts)
        self._encoder(reading.prompt)  # one that is not there is said before anything waits
        if reading.prompt != "query":
            return await self._run(self._encode, texts, reading, wait=self.limits.batch_wait / 1000)
        found = {text: self._kept.get((text, reading)) for text in texts}
        missing = [text for text, row in found.items() if row is None]
        self._metrics.add("vocable_cache_hits_total", amount=len(found) - len(missing))
        self._metrics.add("vocable_cache_misses_total", amount=len(missing))
        if missing:
            rows = await self._run(self._encode, missing, reading, wait=self.limits.batch_wait / 1000)
            found.update(zip(missing, rows, strict=True))
        for text in found:
            self._keep((text, reading), found[text])
        return [row for text in texts if (row := found[text]) is not None]

    async def search(self, query: str | None, row: Row | None, asked: Asked) -> list[Hit]:
        """The hits of one query; `row` in place of its vector."""
        limit = min(self.limits.max_k, EXPLAINED) if asked.explain else self.limits.max_k
        if asked.k > limit:
            raise ArgumentError(f"k must be at most {limit}{' with explain' if asked.explain else ''}, not {asked.k}")
        others = asked.hybrid or any(space != "sparse" for space, _ in asked.weights or ())
        if query is None and (row is None or others or asked.explain):
            raise ArgumentError("query is missing: give a query or its vector; hybrid and explain need the query")
        if row is not None and row[0].max(initial=-1) >= self.columns:
            raise ArgumentError(f"vector: the index has {self.columns} terms, there is none at {row[0].max()}")
        self._check([query or ""])
        if row is None:
            [row] = await self.embed([query or ""], Reading("query"))
        [hits] = await self._run(self._search, [(query or "", row)], asked)
        return list(hits)

    def filter(self, text: str | None) -> Filter | None:
        """Return the filter that a text says; raise `ArgumentError` if it is wrong or too deep."""
        if text is None:
            return None
        parsed = parse_filter(text)
        if _depth(parsed) > self.limits.max_filter_depth:
            raise ArgumentError(f"filter: and, or and not stand more than {self.limits.max_filter_depth} deep")
        return parsed

    async def explain(
        self, query: str, document: str | None, identifier: str | None, k: int
    ) -> Explanation | Expansion:
        """The terms of a query's vector, or those that it shares with a text or with a document of the index."""
        if document is not None and identifier is not None:
            raise ArgumentError("document and id: give one of them")
        [row] = await self.embed([query], Reading("query"))
        rows = [row] if document is None else [row, *await self.embed([document], Reading("document"))]
        [explained] = await self._run(self._explain, [(rows, query, document, identifier)], k)
        found: Explanation | Expansion = explained
        return found

    async def view(self, query: str, wanted: Wanted) -> dict[str, Any]:
        """What the page shows of a query."""
        [row] = await self.embed([query], Reading("query"))
        [found] = await self._run(self._view, [(query, row)], wanted)
        viewed: dict[str, Any] = found
        return viewed

    async def postings(self, term: str) -> dict[str, Any]:
        """What the page shows of a term."""
        [found] = await self._run(self._postings, [term])
        postings: dict[str, Any] = found
        return postings

    async def get(self, ids: Sequence[str]) -> list[Document | None]:
        """The documents with these ids, None where there is none."""
        self._check([], len(ids))
        return await self._run(self.collection.documents, ids)

    async def add(self, documents: Sequence[Document], *, replace: bool) -> Changed:
        """Add documents, all or none, as the collection checks them; one that is there is replaced, or an error."""
        changeable(self.collection)
        self._check([document.full for document in documents])
        return await self._change(self._upsert if replace else self._add, documents)

    async def delete(self, ids: Sequence[str]) -> Changed:
        """Delete documents; an id that is not there is passed over."""
        changeable(self.collection)
        self._check([], len(ids))
        return await self._change(self._delete, ids)

    async def _run(self, work: Work, items: Sequence[Any], *shared: Any, wait: float = 0.0) -> list[Any]:
        depth = "vocable_queue_depth"
        self._metrics.add(depth, amount=len(items))
        try:
            return await self.batcher.run(work, items, *shared, wait=wait)
        finally:
            self._metrics.add(depth, amount=-len(items))

    async def _change(self, work: Work, items: Sequence[Any]) -> Changed:
        [changed] = await self._run(work, [items])
        done: Changed = changed
        return done

    def _seen(self, work: Work, count: int) -> None:
        if work == self._encode:
            self._metrics.observe("vocable_batch_texts", count)

    def _check(self, texts: Sequence[str], count: int = 0) -> None:
        if (count := max(count, len(texts))) > self.limits.max_inputs:
            raise TooLargeError(f"a request has at most {self.limits.max_inputs} inputs, not {count}")
        if (longest := max(map(len, texts), default=0)) > self.limits.max_characters:
            raise TooLargeError(f"a text has at most {self.limits.max_characters:,} characters, not {longest:,}")

    def _keep(self, key: tuple[str, Reading], row: Row | None) -> None:
        """Keep a vector as the one that was used last."""
        if row is not None and len(key[0]) <= LONGEST_KEPT:
            self._kept[key] = row
            self._kept.move_to_end(key)
            if len(self._kept) > self.limits.cache_size:
                self._kept.popitem(last=False)

    def _encoder(self, prompt: str | None) -> TextEncoder:
        """What encodes with the prompt of a name; without one, documents with the default prompt, if there is one."""
        if prompt in ("query", "document"):
            return self.queries if prompt == "query" else self.documents
        name = prompt or self.model.default_prompt_name
        if name is not None and name not in self.model.prompts:
            known = ", ".join(sorted({"query", "document", *self.model.prompts}))
            raise ArgumentError(f"prompt_name must be one of {known}, not {name!r}")
        encoder = copy.copy(self.documents)
        encoder.prompt = None if name is None else self.model.prompts[name]
        return encoder

    # From here on: what the thread of the batcher does.

    def _encode(self, texts: list[str], reading: Reading) -> list[Row | TooLargeError]:
        encoder = self._encoder(reading.prompt)
        refused: dict[int, TooLargeError] = {}
        if reading.cut is None and encoder.max_length is not None:
            lengths = encoder.lengths(texts)
            message = f"`inputs` must have at most {encoder.max_length} tokens, not {{}}: truncate cuts them"
            for place in np.flatnonzero(lengths > encoder.max_length).tolist():
                refused[place] = TooLargeError(message.format(lengths[place]))
        taken = [text for place, text in enumerate(texts) if place not in refused]
        vectors = self._cut_left(encoder, taken) if reading.cut == "left" else encoder.encode(taken)
        rows = iter((columns.copy(), weights.copy()) for columns, weights in rows_of(vectors))
        return [refused.get(place) or next(rows) for place in range(len(texts))]

    def _cut_left(self, encoder: TextEncoder, texts: list[str]) -> csr_array:
        if static_embedding(encoder.model, encoder.role) is not None:
            raise ArgumentError("truncation_direction: queries of this model are looked up, and cut on the right only")
        tokenizer: Any = getattr(route(encoder.model, encoder.role)[0], "tokenizer", None)
        tokenizer.truncation_side = "left"  # which no other thread reads
        try:
            return encoder.encode(texts)
        finally:
            tokenizer.truncation_side = "right"

    def _search(self, items: list[tuple[str, Row]], asked: Asked) -> list[tuple[Hit, ...]]:
        texts, rows = zip(*items, strict=True)
        vectors = prune(self._matrix(rows), asked.max_terms, asked.min_weight)
        weights = None if asked.weights is None else dict(asked.weights)
        how: dict[str, Any] = {"hybrid": asked.hybrid, "weights": weights, "fusion": asked.fusion}
        ranking = self.collection.search(texts, asked.k, vectors=vectors, filter=asked.filter, **how)
        queries = tuple(Query(str(number), text) for number, text in enumerate(texts))
        answers = Answers(self.collection, queries, lambda: vectors, ranking, asked.explain, self.wacky)
        return [answer.hits for answer in answers]

    def _explain(
        self, items: list[tuple[list[Row], str, str | None, str | None]], k: int
    ) -> list[Explanation | Expansion]:
        explained: list[Explanation | Expansion] = []
        names = self.collection.terms
        for rows, query, document, identifier in items:
            vectors, own = self._matrix(rows), text_terms(self.model, query)
            other = vectors[[-1]]
            if identifier is not None:
                [found] = self.collection.documents([identifier])
                if found is None:
                    raise NotFoundError(f"there is no document {identifier!r}")
                [shown] = self.collection.shown([found], partial(self._matrix, rows[:1]))
                document, other = shown.full, self.collection.vectors([shown.id])
            if document is None:
                explained.append(expand_vector(vectors, names, own, k, self.wacky))
            else:
                there = text_terms(self.model, document)
                explained.append(explain_vectors(vectors[[0]], other, names, own, there, self.wacky))
        return explained

    def _view(self, items: list[tuple[str, Row]], wanted: Wanted) -> list[dict[str, Any]]:
        return [view(self.collection, query, self._matrix([row]), wanted, self.wacky) for query, row in items]

    def _postings(self, terms: list[str]) -> list[dict[str, Any] | NotFoundError]:
        missing = "there is no term {!r}"
        found = ((term, term_postings(self.collection, term)) for term in terms)
        return [NotFoundError(missing.format(term)) if one is None else one for term, one in found]

    def _upsert(self, items: list[Sequence[Document]]) -> list[Changed | Exception]:
        return [_tried(changeable(self.collection).add, documents) for documents in items]

    def _add(self, items: list[Sequence[Document]]) -> list[Changed | Exception]:
        def add(documents: Sequence[Document]) -> Changed:
            for there in self.collection.documents([document.id for document in documents]):
                if there is not None:
                    raise ThereAlreadyError(f"the document {there.id!r} is there already: PUT replaces it")
            return changeable(self.collection).add(documents)

        return [_tried(add, documents) for documents in items]

    def _delete(self, items: list[Sequence[str]]) -> list[Changed | Exception]:
        return [_tried(changeable(self.collection).delete, ids) for ids in items]

    def _matrix(self, rows: Sequence[Row]) -> csr_array:
        """The rows as csr_array [b, v]."""
        columns, weights = zip(*rows, strict=True)
        indptr = np.cumsum([0, *map(len, columns)]).astype(np.int32)
        return csr_array((np.concatenate(weights), np.concatenate(columns), indptr), shape=(len(rows), self.columns))


def _tried(change: Callable[[Any], Changed], given: Any) -> Changed | Exception:
    """Return what a change gives, or its error: no change is tried twice."""
    try:
        return change(given)
    except BaseException as error:
        return as_exception(error)


def _depth(filter: Filter) -> int:
    """How many conditions stand within each other."""
    if isinstance(filter, Comparison):
        return 1
    return 1 + max(map(_depth, [filter.part] if isinstance(filter, Not) else filter.parts))
