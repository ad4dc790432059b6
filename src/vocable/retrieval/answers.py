"""Questions put to a collection, answered with documents and with the terms that found them.

Letters: q queries, v output vocabulary, k results.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Collection as Container
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from annotated_types import Ge, Le
from scipy.sparse import csr_array

from vocable.data import Query
from vocable.data.texts import Texts, as_queries
from vocable.encoder.terms import Word, term_places
from vocable.encoder.text_encoder import warn_of_unknown
from vocable.options import Count, Share, checked
from vocable.progress import progress
from vocable.retrieval.collection import Collection
from vocable.retrieval.explain import explain
from vocable.retrieval.explain_texts import text_terms
from vocable.retrieval.fusion import Fusion
from vocable.retrieval.hits import SNIPPET, Answer, Hit
from vocable.retrieval.passages import passage
from vocable.retrieval.protocols import Space
from vocable.retrieval.ranking import Ranking
from vocable.retrieval.verbs import open_index
from vocable.tables import counted, line_width, shortened


@dataclass(frozen=True, eq=False)
class Answers(Sequence[Answer]):
    """The answers to q `queries`: their `ranking` [q, k], and the function that gives their sparse vectors [q, v].

    Documents are read, and scores explained if they are to be `explained`, when an answer is looked at.
    """

    collection: Collection
    queries: tuple[Query, ...]
    encoded: Callable[[], csr_array]
    ranking: Ranking
    explained: bool = False
    wacky: Container[str] | None = None

    @property
    def vectors(self) -> csr_array:
        """Return the sparse vectors of the queries [q, v]."""
        return self.encoded()

    def __len__(self) -> int:
        return len(self.queries)

    def __getitem__(self, number: Any) -> Any:  # an answer, or of a slice a list of them
        if isinstance(number, slice):
            return [self[i] for i in range(len(self))[number]]
        ranked = self.ranking.hits(number)
        found = self.collection.documents([identifier for identifier, _ in ranked])
        there = [(document, score) for document, (_, score) in zip(found, ranked, strict=True) if document is not None]
        shown = self.collection.shown([document for document, _ in there], lambda: self.vectors[[number]])
        stored = self.collection.vectors([one.id for one in shown]) if self.explained else None
        hits = []
        for position, ((document, score), one) in enumerate(zip(there, shown, strict=True)):
            why, places = None, tuple[Word, ...]()
            if stored is not None:
                model, query = self.collection.loaded_model, self.queries[number].text
                tokens = text_terms(model, query), text_terms(model, one.full)
                why = explain(self.vectors[[number]], stored[[position]], self.collection.terms, *tokens, self.wacky)
                places = tuple(term_places(model, one.text[:SNIPPET]))
            hits.append(Hit(position + 1, score, document, why, None if one is document else passage(one), places))
        return Answer(self.queries[number], tuple(hits))

    def __repr__(self) -> str:
        return f"Answers({counted(len(self), 'query', 'queries')}, k={self.ranking.rows.shape[1]})"

    def __str__(self) -> str:
        if len(self) == 1:
            return str(self[0])
        return "\n\n".join(f"{shortened(answer.query.text, line_width())}\n{answer}" for answer in self)

    def _repr_html_(self) -> str:
        return "".join(answer._repr_html_() for answer in self)

    def to_json(self) -> list[dict[str, Any]]:
        """The answers as JSON values."""
        return [answer.to_json() for answer in self]


@checked
def search(
    index: str | os.PathLike[str] | Collection,
    queries: Texts,
    k: Count = 10,
    *,
    hybrid: bool = False,
    weights: str | Mapping[Space, float] | None = None,
    fusion: Fusion = "weighted",
    explain: bool = False,
    wacky: Container[str] | None = None,
    filter: str | None = None,
    minimum_match: Annotated[float, Ge(0), Le(1)] = 0.0,
    max_terms: Count | None = None,
    min_weight: Annotated[float, Ge(0)] = 0.0,
    mass: Share | None = None,
    query_idf: Annotated[float, Ge(0)] | None = None,
    run: str | os.PathLike[str] | None = None,
    allow_changed_model: bool = False,
    device: str | None = None,
) -> Answers:
    """Search an index.

    Args:
        index: its place, or what `vocable.open_index` gave, which loads the model once.
        queries: texts; or records, whose ids a run has.
        k: results per query.
        hybrid: fuse with BM25 and dense vectors, as far as the index was built with them.
        weights: fuse the spaces with these weights, as "sparse=0.5,bm25=0.3,dense=0.2"; one alone is searched alone.
        fusion: add up scores scaled to 0 to 1, or the reciprocals of 60 + rank.
        explain: say of each hit which terms made its score.
        wacky: the terms whose expansions are marked in an explanation.
        filter: which documents may be hits, by their fields, as "lang=de and year>=2020" (docs/search.md).
        minimum_match: share of a query's terms that a hit must have.
        max_terms: keep only so many terms of a query, the heaviest. As in `vocable.prune`.
        min_weight: drop terms lighter than this.
        mass: keep the fewest terms that have this share of a query's weight.
        query_idf: multiply a query's weights by the IDF of its terms in the index to this power, in place of the
            model's own.
        run: a file for the hits as a TREC run.
        allow_changed_model: search even if the model's weights are not those that made the index.
        device: where models run, as cpu, cuda or cuda:1; by default the best there is.

    Raises:
        ArgumentError: an argument out of its range, or a fusion of what the index has not.
        VectorsError: there is no index, it is damaged, or its model has changed.
        ModelError: its model cannot be loaded.
    """
    records = as_queries(queries)
    collection = index if isinstance(index, Collection) else open_index(index)
    asked: dict[str, Any] = {"allow_changed_model": allow_changed_model, "device": device}
    if changed := {name: value for name, value in asked.items() if value and value != getattr(collection, name)}:
        collection = collection.with_model(**changed)
    texts = [query.text for query in records]
    limits: dict[str, Any] = {"max_terms": max_terms, "min_weight": min_weight, "mass": mass, "query_idf": query_idf}

    @cache
    def encoded() -> csr_array:
        encoder = collection.query_encoder(**limits)
        with progress("search", total=len(texts)) as advance:
            found = encoder.encode(texts, advance)
        warn_of_unknown(encoder.unknown, len(texts), "queries", share=0)
        return found

    # A search without the sparse space needs no model: it is loaded when an explanation or a passage asks for it.
    vectors = encoded() if "sparse" in collection.weighting(hybrid, weights) else None
    how: dict[str, Any] = {"hybrid": hybrid, "weights": weights, "fusion": fusion}
    ranking = collection.search(texts, k, vectors=vectors, filter=filter, minimum_match=minimum_match, **how)
    if run is not None:
        ranking.write_trec(run, [query.id for query in records])
    return Answers(collection, tuple(records), encoded, ranking, explain, wacky)
