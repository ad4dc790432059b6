"""Questions put to a collection, answered with documents and with the terms that found them.

Shapes: q queries, v output vocabulary, k results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.data import Document, Query
from vocable.encoder.encode import TextEncoder
from vocable.encoder.load import load
from vocable.encoder.terms import terms
from vocable.search.collection import Collection, open_collection
from vocable.search.explain import Explanation, explain, text_terms
from vocable.search.ranking import Ranking


class Hit(NamedTuple):
    """A document that was found; `explanation` is there where it was asked for.

    A hit of a hybrid search has a fused score, while its explanation is of the model's own score.
    """

    rank: int
    score: float
    document: Document
    explanation: Explanation | None = None

    def to_json(self) -> dict[str, Any]:
        """The hit as JSON values."""
        values = {"rank": self.rank, "score": self.score, **self.document._asdict()}
        return values if self.explanation is None else values | {"explanation": self.explanation.to_json()}


class Answer(NamedTuple):
    """A query and its hits, best first."""

    query: Query
    hits: tuple[Hit, ...]

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return {"id": self.query.id, "query": self.query.text, "hits": [hit.to_json() for hit in self.hits]}


@dataclass(frozen=True)
class Searcher:
    """A collection, the model that made it, and how to search: one for any number of queries.

    `k`, `hybrid` and `minimum_match` are as in `Collection.search`; `explained` says why each hit was found, and marks
    the expansions of `wacky` terms where they are known.
    """

    collection: Collection
    model: SparseEncoder
    encoder: TextEncoder
    names: Sequence[str]
    k: int = 10
    hybrid: bool = False
    minimum_match: float = 0.0
    explained: bool = False
    wacky: frozenset[str] | None = None

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        top_k: int | None = None,
        min_weight: float = 0.0,
        mass: float | None = None,
        **settings: Any,
    ) -> Searcher:
        """Open a collection and load the model that it names.

        Args:
            folder: of the collection.
            top_k: keep only so many terms of a query, as `min_weight` and `mass` in `vocable.prune`.
            min_weight: lightest weight of a query's term.
            mass: share of a query's weight to keep.
            settings: the fields from `k` on.

        Raises:
            ArgumentError: a limit out of its range.
            VectorsError: there is no collection, it is damaged, or its model now has another vocabulary.
            ModelError: its model cannot be loaded.
        """
        collection = open_collection(folder)
        model = load(collection.model)
        encoder = collection.query_encoder(model, top_k=top_k, min_weight=min_weight, mass=mass)
        return cls(collection, model, encoder, terms(model), **settings)

    def ranking(self, texts: Sequence[str], advance: Callable[[int], object] = lambda done: None) -> Ranking:
        """The k best documents for each of q query texts; errors are those of `Collection.search`."""
        return self._search(texts, self.encoder.encode(texts, advance))

    def answers(self, queries: Sequence[Query]) -> list[Answer]:
        """The answer to each of `queries`; errors are those of `Collection.search`."""
        texts = [query.text for query in queries]
        vectors = self.encoder.encode(texts)
        ranking = self._search(texts, vectors)
        return [Answer(query, self._hits(query, vectors[[i]], ranking, i)) for i, query in enumerate(queries)]

    def _search(self, texts: Sequence[str], vectors: csr_array) -> Ranking:
        return self.collection.search(texts, vectors, self.k, hybrid=self.hybrid, minimum_match=self.minimum_match)

    def _hits(self, query: Query, vector: csr_array, ranking: Ranking, i: int) -> tuple[Hit, ...]:
        tokens = text_terms(self.model, query.text) if self.explained else set()
        found = []
        for rank, row in enumerate(ranking.rows[i][ranking.rows[i] >= 0].tolist(), start=1):
            document = self.collection.document(row)
            why = self._explain(vector, tokens, row, document) if self.explained else None
            found.append(Hit(rank, float(ranking.scores[i, rank - 1]), document, why))
        return tuple(found)

    def _explain(self, query: csr_array, tokens: set[str], row: int, document: Document) -> Explanation:
        """Why the document in `row` matches the vector [1, v] of a query with these tokens, by the stored weights."""
        weights = self.collection.matched(query, row)
        return explain(query, weights, self.names, tokens, text_terms(self.model, document.full), self.wacky)
