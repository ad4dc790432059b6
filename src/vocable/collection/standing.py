"""The verb `explain`: the terms that make a score, and the standing of a document of an index in a search.

Letters: v output vocabulary, k results.
"""

from __future__ import annotations

from collections.abc import Collection as Container
from dataclasses import dataclass
from os import PathLike
from textwrap import fill
from typing import Unpack, cast

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.answers import score_parts
from vocable.collection.collection import Collection, open_index
from vocable.collection.plan import EncodedQueries
from vocable.core.tables import text_width, visible
from vocable.data.texts import Text, as_text
from vocable.encoding.models import Model
from vocable.encoding.vectors import selected
from vocable.engines.filters import matches, parse_filter
from vocable.engines.protocols import holds_index
from vocable.errors import ArgumentError
from vocable.explanation.explain import (
    Expansion,
    Explanation,
    expand_vector,
    explain_texts,
    explain_vectors,
    json_values,
    text_terms,
)
from vocable.explanation.highlights import QueryWords
from vocable.indexes.fusion import MIN_DEPTH, ScoreParts
from vocable.language.query_syntax import parse_query
from vocable.options import Count, QueryEncoding, SearchOptions, StandingOptions, changed, check, checked, select

LISTED = 20  # terms of a query, and terms that one side has alone
DESCRIBING = 50  # hits whose texts tell what a latent stands for
DEEPEST = 10_000  # hits in which a document is looked for: a server returns no more


@dataclass(frozen=True)
class Standing:
    """The standing of the document `id` in a search for `k` hits.

    `rank` and `score` are None if the document is not among the first `searched` hits. `last_score` is the score of hit
    k, None if there are fewer hits. `passes` says whether the document passes the filter, None without a filter; if it
    does not, the ranks come from a search without the filter. `unmet` is the condition of the query that the document
    does not fulfil, such as a phrase; then the ranks come from a search without conditions. `explanation` explains the
    model's own score. `lacking` are terms of the query that the document lacks, and `unasked` terms of the document
    that the query lacks. `parts` are the parts of a fused score.
    """

    id: str
    title: str
    k: int
    searched: int
    rank: int | None
    score: float | None
    last_score: float | None
    passes: bool | None
    unmet: str | None
    explanation: Explanation
    lacking: Expansion
    unasked: Expansion
    parts: ScoreParts | None = None

    def to_json(self) -> dict[str, object]:
        """Return the standing as JSON values."""
        return json_values(self)

    def __str__(self) -> str:
        name = " ".join(dict.fromkeys(one for one in (self.id, self.title) if one))
        lines = [f"{name}: {self._place()}"]
        explanation = self.explanation
        if self.parts is not None and self.parts.several:
            lines.append(f"parts: {self.parts}")
        if explanation.matches and (self.score is None or abs(explanation.score - self.score) > 1e-3 * self.score):
            lines.append(f"the model's own score is {explanation.score:.4g}")
        lines += [f"shared: {reason}" for reason in explanation.reasons() if explanation.matches]
        for what, terms in (("the query's, not in it", self.lacking), ("its heaviest, not asked for", self.unasked)):
            if terms.active:
                shown = [f"{'' if term.in_text else '+'}{term.term} {term.weight:.2f}" for term in terms.terms[:8]]
                more = f", and {terms.active - len(shown)} more" if terms.active > len(shown) else ""
                lines.append(f"{what}: {', '.join(shown)}{more}")
        return "\n".join(fill(visible(line), text_width(), subsequent_indent="  ") for line in lines)

    def _place(self) -> str:
        """Return the rank and the scores in words."""
        without = "the filter leaves it out; without it, " if self.passes is False else ""
        if self.unmet is not None:
            without = f"{self.unmet}; {without or 'without that, '}"
        if self.rank is None:
            where = "shares no term with the query" if not self.explanation.matches else "is no hit"
            return f"{without}it {where}" if self.searched < DEEPEST else f"{without}not among {self.searched:,} hits"
        place = f"{without}hit {self.rank:,}, with the score {self.score:.4g}"
        if self.rank > self.k and self.last_score is not None:
            return f"{place}; hit {self.k:,} has {self.last_score:.4g}"
        return place


@checked
def explain(
    model: Model | str | PathLike[str] | Collection,
    query: Text,
    document: Text | None = None,
    wacky: Container[str] | None = None,
    *,
    k: Count | None = None,
    **options: Unpack[StandingOptions],
) -> Explanation | Expansion | Standing:
    """Show which terms make a score or a rank.

    Without a document: the terms that the model gives the query. With an index: the terms that a search uses, IDF
    included. With the id of a document as well: its rank, or why it is no hit.

    Args:
        model: vocable-mini, a folder, a Hub id; or an index; in Python also a model from `vocable.load`, or the result
            of `vocable.open_index`.
        query: a query, or @FILE; in Python a text or a record.
        document: the text of a document, or @FILE; of an index, the id of a document; in Python also a record.
        wacky: terms whose expansions are marked, as `vocable.encoding.term_scores.read_wacky_terms` reads them.
        k: results of the search of an index, 10 by default.
        options: settings of that search (`vocable.options.StandingOptions`); without a document, settings of the query
            (`vocable.options.QueryEncoding`).

    Raises:
        ArgumentError: no such document, or options of a search without an index or a document.
    """
    given = changed(StandingOptions, options)
    if isinstance(model, str | PathLike) and holds_index(model):
        with open_index(model) as opened:
            return explain(opened, query, document, wacky, k=k, **options)
    # A model alone has no ranking to explain.
    if not isinstance(model, Collection):
        if k is not None or given:
            raise ArgumentError("`k` and the options of a search need an index")
        return explain_texts(cast(Model, model), query, document, wacky)
    # Without a document: the terms that a search of the index uses.
    if document is None:
        asked = select(QueryEncoding, options)
        if k is not None or given.keys() - asked.keys():
            raise ArgumentError("`k` and the options of a ranking need the id of a document")
        text, encoder = parse_query(as_text(query, "query")).text, model.models.queries(**asked)
        [tokens] = text_terms(model.models.loaded, [text])
        names = model.models.loaded.described_terms(lambda: [text])
        return expand_vector(encoder.encode([text]), names, tokens, LISTED, wacky)
    return _standing(model, as_text(query, "query"), as_text(document, "document"), k or 10, wacky, options)


def _standing(
    collection: Collection, query: str, name: str, k: int, wacky: Container[str] | None, options: StandingOptions
) -> Standing:
    [document] = collection.documents([name])
    if document is None:
        raise ArgumentError(f"{collection.place}: there is no document {name!r}")
    # A document that the filter excludes gets the rank that it would have without the filter.
    passes, unmet, filter = None, None, options["filter"]
    if filter is not None:
        collection.searcher.check_filter(parsed := parse_filter(filter))
        passes = matches(parsed, document.fields)
    if passes is False:
        options = {**options, "filter": None}
    collection = collection.current()
    depth = min(max(k, MIN_DEPTH), DEEPEST)
    settings = check(SearchOptions, options)
    plan = collection.searcher.plan(depth, settings)
    queries = collection.searcher.queries(plan, [query])
    [query], conditions = queries.texts, queries.conditions.get(0)
    # So does a document that conditions of the query exclude.
    if conditions is not None and (unmet := conditions.unmet_by(document)):
        queries = EncodedQueries([query], queries.encode)
    # Search deeper until the document is a hit, or there are no more hits.
    while True:
        ranking = plan.page(collection.searcher.rank(queries, plan))
        hits = ranking.hits(0)
        if len(hits) < depth or depth == DEEPEST or any(identifier == name for identifier, _ in hits):
            break
        depth = min(10 * depth, DEEPEST)
        plan = collection.searcher.plan(depth, settings)
    rank = next((place for place, (hit, _) in enumerate(hits, start=1) if hit == name), None)
    # Vectors of the query [1, v], and of the document or its best passage [1, v].
    vector = queries.vectors.sparse
    [shown] = collection.units.shown([document], lambda: vector)
    stored = collection.vectors([shown.id])

    def texts() -> list[str]:
        best = collection.documents([hit for hit, _ in hits[:DESCRIBING]])
        return [query, shown.full, *(found.full for found in best if found is not None)]

    names = collection.models.loaded.described_terms(texts)
    query_terms, document_terms = text_terms(collection.models.loaded, [query, shown.full])
    words = QueryWords(query, collection.settings.language)
    return Standing(
        id=name,
        title=document.title,
        k=k,
        searched=len(hits),
        rank=rank,
        score=None if rank is None else hits[rank - 1][1],
        last_score=hits[k - 1][1] if len(hits) >= k else None,
        passes=passes,
        unmet=unmet,
        explanation=explain_vectors(vector, stored, names, query_terms, document_terms, wacky),
        lacking=expand_vector(_alone(vector, stored), names, query_terms, LISTED, wacky),
        unasked=expand_vector(_alone(stored, vector), names, document_terms, LISTED, wacky),
        parts=None if rank is None else score_parts(ranking, 0, [document], words)[0],
    )


def _alone(vector: csr_array, other: csr_array) -> csr_array:
    """Return a vector [1, v] without the terms of another."""
    return selected(vector, ~np.isin(vector.indices, other.indices))
