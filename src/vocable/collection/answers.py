"""The verb `search`: documents for queries, with explanations if requested.

Letters: q queries, v output vocabulary, k results.
"""

from __future__ import annotations

import os
from collections.abc import Collection as Container
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Unpack, cast

from scipy.sparse import csr_array

from vocable.collection.collection import Collection, open_index
from vocable.collection.copies import MergedHit, merged
from vocable.collection.facets import facet
from vocable.collection.groups import FURTHER, FurtherSection, grouped, page_of
from vocable.collection.passages import passage
from vocable.collection.plan import SPARE_HITS, EncodedQueries, SearchPlan
from vocable.collection.records import Answer, Hit, ranked_by
from vocable.collection.suggestion import suggestion, unknown_note
from vocable.collection.verbatim import VERBATIM_MATCH
from vocable.core.cancelling import stop_if_cancelled
from vocable.core.tables import counted, line_width, shortened
from vocable.data import Document, Query
from vocable.data.texts import Texts, as_queries
from vocable.encoding.terms import term_places
from vocable.engines.protocols import OpenedSearchOptions
from vocable.errors import ArgumentError
from vocable.explanation.explain import Explanation, explain_hits, text_terms
from vocable.explanation.highlights import MARKED_CHARACTERS, QueryWords, Snippet, snippet, word_marks
from vocable.indexes.fusion import ScoreParts
from vocable.indexes.ranking import Ranking
from vocable.options import Count, checked


@dataclass(frozen=True, eq=False)
class Answers(Sequence[Answer]):
    """The answers to q `queries` by a `plan`, from the candidates of hits and the `encoded` queries.

    The first look at an answer reads its documents, merges copies, puts the hits of one page together and, if
    `explained`, explains their scores, all of the commit that was searched. In a search `like` a document, the query
    has the document's id.
    """

    collection: Collection
    queries: tuple[Query, ...]
    encoded: EncodedQueries
    plan: SearchPlan
    candidates: Ranking
    explained: bool = False
    wacky: Container[str] | None = None
    _made: dict[int, Answer] = field(default_factory=dict, repr=False)  # each is computed once

    @property
    def ranking(self) -> Ranking:
        """Return the ranking [q, k], with all copies of a text."""
        return self.plan.page(self.candidates)

    @property
    def vectors(self) -> csr_array:
        """Return the sparse vectors of the queries [q, v]."""
        return (self.encoded.extended or self.encoded).vectors.sparse

    def __len__(self) -> int:
        return len(self.queries)

    def __iter__(self) -> Iterator[Answer]:
        return (self[number] for number in range(len(self)))  # the default would take an IndexError for the end

    def __getitem__(self, number: Any) -> Any:  # an answer; for a slice, a list of answers
        if isinstance(number, slice):
            return [self[i] for i in range(len(self))[number]]
        number = range(len(self))[number]
        if number not in self._made:
            self._made[number] = self._answer(number)
        return self._made[number]

    def _answer(self, number: int) -> Answer:
        """Read the documents of an answer, without copies of one text, and mark what the query has found in them."""
        query, plan, like = self.queries[number], self.plan, self.plan.like is not None
        # Read all candidates if they are grouped by page, else the hits, or as many as facets count.
        k, offset = plan.depths.k, plan.depths.offset
        ranked = self.candidates.hits(number)
        needed = len(ranked) if plan.by_page else max(offset + k, SPARE_HITS if plan.facets else 0)
        documents_of = partial(self.encoded.documents, documents_of=self.collection.documents)
        # If each read is a request, the first answer reads the documents of all queries.
        if not self._made and not self.collection.store.about.cheap_reads:
            firsts = (self.candidates.hits(other)[:needed] for other in range(len(self)))
            documents_of([name for hits in firsts for name, _ in hits])
        # The listed hits, and the pages with their sections. A document in both is made ready once.
        best = merged(ranked, needed, documents_of)
        listed = best[offset : offset + k]
        pages = grouped(best, lambda hit: page_of(hit.document), offset + k)[offset:] if plan.by_page else []
        whole = {hit.document.id: hit for hit in [*listed, *(page[0] for page in pages)]}
        stop_if_cancelled()
        # A hit gets its rank here, since the list and the pages count differently.
        shown = self._shown(number, [*whole.values()])
        hits = tuple(shown[hit.document.id]._replace(rank=rank) for rank, hit in enumerate(listed, start=offset + 1))
        entries = tuple(
            shown[first.document.id]._replace(
                rank=rank, sections=tuple(FurtherSection.of(hit.document, hit.score) for hit in further[:FURTHER])
            )
            for rank, (first, *further) in enumerate(pages, start=offset + 1)
        )
        facets = tuple(facet([hit.document for hit in best[:SPARE_HITS]], name) for name in plan.facets)
        # Notes on the query: another spelling, unknown words, its conditions.
        better = None if like else suggestion(self.collection, query.text)
        guessing, text = "sparse" in plan.weights and bool(hits), self.encoded.texts[number]
        notes = [] if like else [unknown_note(self.collection, text, guessing=guessing)]
        notes += [str(self.encoded.conditions[number])] if number in self.encoded.conditions else []
        note = "; ".join(filter(None, notes)) or None
        return Answer(
            query=query,
            hits=hits,
            suggestion=better,
            missing=self.candidates.missing,
            note=note,
            facets=facets,
            weights=dict(plan.weights),
            pages=entries,
            reranked=None if (counts := self.candidates.reranked) is None else int(counts[number]),
            rerank_ms=None if (times := self.candidates.rerank_ms) is None else float(times[number]),
        )

    def _shown(self, number: int, merged_hits: Sequence[MergedHit]) -> dict[str, Hit]:
        """Return hits with all that is shown of them, by id; a list gives them their ranks."""
        documents = [hit.document for hit in merged_hits]
        units = self.collection.units.shown(documents, lambda: self.vectors[[number]])
        explanations = self._explanations(number, units) if self.explained else [None] * len(units)
        text = "" if self.plan.like is not None else self.encoded.texts[number]
        words = QueryWords(text, self.collection.settings.language)
        all_parts = score_parts(self.candidates, number, documents, words)
        hits, firsts = dict[str, Hit](), self._first_scores(number)
        for row, (hit, unit, why, parts) in enumerate(zip(merged_hits, units, explanations, all_parts, strict=True)):
            document = hit.document
            part = None if unit is document else passage(unit)
            hits[document.id] = Hit(
                rank=row + 1,
                score=hit.score,
                document=document,
                explanation=why,
                passage=part,
                snippet=self._snippet(document, unit.text, words, why, 0 if part is None else part.start),
                first_score=firsts.get(document.id),
                parts=parts,
                copies=tuple(hit.copies),
            )
        return hits

    def _explanations(self, number: int, units: Sequence[Document]) -> list[Explanation]:
        """Return the explanations of a query's scores of documents or passages."""
        names, texts = self.collection.models.terms, [self.encoded.texts[number], *(unit.full for unit in units)]
        query_terms, *terms = text_terms(self.collection.models.loaded, texts)
        stored, vector = self.collection.vectors([unit.id for unit in units]), self.vectors[[number]]
        return explain_hits(vector, stored, names, query_terms, terms, self.wacky)

    def _snippet(
        self, document: Document, text: str, words: QueryWords, why: Explanation | None, start: int
    ) -> Snippet:
        """Return the snippet of a text from `start` of its document on, with `words` or explained terms marked."""
        both = text, document.title
        if why is None:
            marks, title_marks = (word_marks(shown, words.words_of(document.full)) for shown in both)
            return snippet(text, marks, before=start, title_marks=title_marks)
        model = self.collection.models.loaded
        marks, title_marks = (why.marks(term_places(model, shown[:MARKED_CHARACTERS])) for shown in both)
        return snippet(text, marks, why.shares, before=start, title_marks=title_marks)

    def _first_scores(self, number: int) -> dict[str, float]:
        """Return the scores before a reranking by document."""
        scores = self.candidates.first_scores
        return {} if scores is None else dict(replace(self.candidates, scores=scores).hits(number))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the answers as data, without the index."""
        answers = {number: self[number] for number in range(len(self))}
        plan = replace(self.plan, filter=None, idf_filter=None)
        return Answers, (None, self.queries, self.encoded, plan, self.candidates, self.explained, None, answers)

    def __repr__(self) -> str:
        return f"Answers({counted(len(self), 'query', 'queries')}, k={self.plan.depths.k})"

    def __str__(self) -> str:
        shown = [str(answer) for answer in self]
        if len(shown) > 1:
            shown = [
                f"{shortened(query.text, line_width())}\n{text}"
                for query, text in zip(self.queries, shown, strict=True)
            ]
        return "\n\n".join([*shown, ranked_by(self.plan.weights)])

    def _repr_html_(self) -> str:
        return "".join(answer._repr_html_() for answer in self)

    def to_json(self) -> list[dict[str, object]]:
        """Return the answers as JSON values."""
        return [answer.to_json() for answer in self]


def score_parts(
    ranking: Ranking, number: int, documents: Sequence[Document], words: QueryWords
) -> list[ScoreParts | None]:
    """Return the parts of the scores of hits of query `number`; None without parts."""
    if ranking.parts is None:
        return [None] * len(documents)
    scores = {kind: dict(part.hits(number)) for kind, part in ranking.parts.items()}
    return [
        ScoreParts(
            {
                kind: of_kind.get(document.id, 0.0)
                for kind, of_kind in scores.items()
                if kind != VERBATIM_MATCH or document.id in of_kind
            },
            words.typed_in(document.full) if "bm25" in scores else None,
        )
        for document in documents
    ]


@checked
def search(
    index: str | os.PathLike[str] | Collection | Sequence[str | os.PathLike[str] | Collection],
    queries: Texts | None = None,
    k: Count = 10,
    *,
    explain: bool = False,
    wacky: Container[str] | None = None,
    run: str | os.PathLike[str] | None = None,
    allow_changed_model: bool = False,
    device: str | None = None,
    **options: Unpack[OpenedSearchOptions],
) -> Answers:
    """Search an index.

    Args:
        index: a folder made by `vocable index`, or another place of an index; in Python also the result of
            `vocable.open_index`, which loads the model once. Several are searched as one.
        queries: texts; or records, whose ids a run has.
        k: results per query: hits, and of a folder of pages also the pages that are printed.
        explain: show which terms make the score of each hit.
        wacky: the terms whose expansions are marked in an explanation.
        run: file for the hits as a TREC run.
        allow_changed_model: search even if the model has changed since it made the index.
        device: device of the models, such as cpu, cuda or cuda:1; by default the best available.
        options: settings of the search (`vocable.options.SearchOptions`), and `engine_options` of `open_index`.

    Raises:
        ArgumentError: an argument is out of range, or the index does not have the scores to fuse.
        VectorsError: there is no index, it is damaged, or its model has changed.
        ModelError: the model cannot be loaded.
    """
    # The queries, or one query that stands for the liked document.
    like, engine_options = options["like"], options["engine_options"]
    if like is not None and (queries is not None or options["query_idf"] is not None):
        raise ArgumentError("`like` stands in place of queries, and `query_idf` goes with them")
    records = as_queries(cast(Texts, queries)) if like is None else [Query(like, f"like {like}")]
    # Open the collection, and take its last change.
    if isinstance(index, Collection) and engine_options is not None:
        raise ArgumentError("engine_options: the index is open already: give them to open_index")
    collection = index if isinstance(index, Collection) else open_index(index, engine_options=engine_options)
    if device not in (None, collection.models.device) or (allow_changed_model and not collection.models.allow_changed):
        collection = collection.with_model(device=device, allow_changed_model=allow_changed_model)
    collection = collection.current()
    # Plan, encode and rank. The hits are read when an answer is looked at.
    texts = [query.text for query in records] if like is None else collection.texts([like])
    plan = collection.searcher.plan(k, options, facets=options["facets"], sections=options["sections"], spare=True)
    encoded = collection.searcher.queries(plan, texts)
    candidates = collection.searcher.rank(encoded, plan)
    answers = Answers(
        collection=collection,
        queries=tuple(records),
        encoded=encoded,
        plan=plan,
        candidates=candidates,
        explained=explain,
        wacky=wacky,
    )
    if run is not None:
        answers.ranking.write_trec(run, [query.id for query in records])
    return answers
