"""Content of the page: a query's terms, its documents by each ranking with explanations, and a term's postings.

Letters: v output vocabulary, k results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.collection import Collection
from vocable.collection.copies import merged, representatives
from vocable.collection.facets import Facet, facet
from vocable.collection.groups import FURTHER, FurtherSection, grouped, page_of
from vocable.collection.plan import SPARE_HITS
from vocable.collection.suggestion import suggestion, unknown_note
from vocable.core.cancelling import stop_if_cancelled
from vocable.data import Document
from vocable.encoding.protocol import EncodedTexts
from vocable.encoding.pruning import prune
from vocable.encoding.terms import term_places
from vocable.engines.base import Hits
from vocable.errors import ArgumentError
from vocable.explanation.explain import (
    MARKED,
    ExpansionTerm,
    MatchedTerm,
    expand_vector,
    explain_vectors,
    text_terms,
)
from vocable.explanation.highlights import TextPart, excerpt, parts
from vocable.indexes.ranking import Ranking
from vocable.language.query_syntax import TypedQuery, parse_query
from vocable.options import Pruning, RerankOptions, SearchOptions
from vocable.service.schemas import ViewRequest

HYBRID, RERANKED, UNPRUNED = "hybrid", "reranked", "unpruned"  # rankings besides the rankings of single spaces
QUERY_TERMS = 200  # listed terms of a query
MAX_CHARACTERS = 5000  # shown characters of a document
MAX_POSTINGS = 10_000  # postings whose weights are read
BINS = 24
SHOWN_DOCUMENTS = 10  # listed documents of a term
MAX_FACETS, MAX_VALUES = 5, 30  # facets of an answer, and values of a field that is a facet


@dataclass(frozen=True)
class ViewedTerm(ExpansionTerm):
    """A term of a query's vector; `kept` if pruning leaves it."""

    kept: bool = True


@dataclass(frozen=True)
class ViewedDocument:
    """A document with its ranks and scores by ranking, and its `shared` terms by number and by largest contribution.

    `sparse` is the score of the explanation. `cut` is true if only a part of the text is shown, such as a passage.
    `copies` are the ids of documents with the same title and text. A document that is a section of a page has the
    page's ranks; `sections` has the further sections of its page by each ranking in whose first k it is the best one.
    """

    id: str
    fields: dict[str, object]
    title: list[TextPart]
    text: list[TextPart]
    cut: bool
    matches: list[MatchedTerm]
    sparse: float
    shared: int
    ranks: dict[str, int]
    scores: dict[str, float]
    copies: list[str]
    sections: dict[str, list[FurtherSection]]


@dataclass(frozen=True)
class VectorCost:
    """The cost of a search with a query's vector; `postings` is None if the index does not count them."""

    terms: int
    postings: int | None = None


@dataclass(frozen=True)
class View:
    """A query's heaviest terms, the costs of its searches, and the documents of all rankings that are shown.

    `milliseconds` passed from the arrival of the request to the answer, in the queue and for the encoding, too.
    `suggestion`, `missing` and `note` are as in `Answer`. `facets` count the values of the fields that have several
    among the best hits of the first ranking.
    """

    active: int
    kept: int
    terms: list[ViewedTerm]
    rankings: list[str]
    costs: dict[str, VectorCost]
    documents: list[ViewedDocument]
    suggestion: str | None = None
    missing: str | None = None
    note: str | None = None
    facets: list[Facet] = field(default_factory=list)
    milliseconds: float = 0.0


@dataclass(frozen=True)
class TermDocument:
    """A document, and the weight of a term in it."""

    id: str
    title: str
    weight: float


@dataclass(frozen=True)
class TermPostings:
    """The number of `documents` with a term, a lower bound if `more`, among all `of` documents.

    `counts` is a histogram of the `weighed` largest weights, from 0 to `largest`.
    """

    term: str
    documents: int
    of: int
    more: bool
    weighed: int
    largest: float
    counts: list[int]
    heaviest: list[TermDocument]


def view(
    collection: Collection,
    request: ViewRequest,
    vector: csr_array,
    wacky: frozenset[str] | None = None,
    rerank: RerankOptions | None = None,
    dense: np.ndarray | None = None,
) -> View:
    """Return the view of a query with its `vector` [1, v] and, if it is known, its `dense` vector [1, d].

    If the request prunes the vector, the view also has the ranking of the whole vector. `wacky` is as in `explain`.
    """
    # All rankings of the query, by name.
    kept = prune(vector, **request.options(Pruning))
    rankings, costs = _rankings(collection, request, vector, kept, dense, rerank)
    if unknown := set(request.show) - rankings.keys():
        raise ArgumentError(f"show: there is no ranking {min(unknown)!r}: there are {', '.join(rankings)}")
    show = [*request.show, *([UNPRUNED] if "sparse" in request.show and UNPRUNED in rankings else [])]
    hits = {name: ranking.hits(0) for name, ranking in rankings.items()}
    # Documents that may be shown: the first hits of each ranking; some are copies.
    depth = max(SPARE_HITS, (1 + FURTHER) * request.k) if collection.searcher.has_pages else 2 * request.k
    usual_first = sorted(hits, key=lambda name: name != HYBRID)  # of copies, the one that a search shows stands for all
    near = dict.fromkeys(name for ranking in usual_first for name, _ in hits[ranking][:depth])
    known = {document.id: document for document in collection.documents(list(near)) if document is not None}
    stands_for = representatives(known.values())
    entries = {name: _entries(ranked, stands_for, known, request.k) for name, ranked in hits.items()}
    ids = dict.fromkeys(best for name in show for best in entries[name].best)
    # The text whose terms are explained: of the query without its syntax, or of the liked document.
    if request.like is not None:
        typed = TypedQuery("")
    else:
        typed = TypedQuery(request.query) if request.plain else parse_query(request.query)
    [asked] = [typed.text] if request.like is None else collection.texts([request.like])
    names, stored_units = collection.models.terms, [*_stored(collection, list(ids), kept)]
    texts = [asked, *(shown.full for _, shown, _ in stored_units)]
    tokens, *terms_of = text_terms(collection.models.loaded, texts)
    # Each shown document: why it matches, its marked text, its ranks and scores.
    documents = []
    for (document, shown, stored), document_terms in zip(stored_units, terms_of, strict=True):
        stop_if_cancelled()
        explained = explain_vectors(kept, stored, names, tokens, document_terms, wacky)
        title, text = document.title[:MAX_CHARACTERS], shown.text[:MAX_CHARACTERS]
        terms_in = partial(term_places, collection.models.loaded)
        marks = explained.marks(terms_in(text))
        listed = {name: of_name for name, of_name in entries.items() if document.id in of_name.ranks}
        documents.append(
            ViewedDocument(
                id=document.id,
                fields=dict(document.fields),
                title=parts(title, explained.marks(terms_in(title))),
                text=parts(text, marks, excerpt(text, marks, explained.shares)),
                cut=len(text) < len(document.text),
                matches=list(explained.matches[:MARKED]),
                sparse=explained.score,
                shared=len(explained.matches),
                ranks={name: of_name.ranks[document.id] for name, of_name in listed.items()},
                scores={name: of_name.scores[document.id] for name, of_name in listed.items()},
                copies=[name for name, first in stands_for.items() if first == document.id != name],
                sections={name: one.best[document.id] for name, one in entries.items() if document.id in one.best},
            )
        )
    # Terms of the whole query, and whether pruning keeps them.
    expanded = expand_vector(vector, names, tokens, QUERY_TERMS, wacky)
    left = {names[column] for column in kept.indices.tolist()}
    terms = [ViewedTerm(**asdict(term), kept=term.term in left) for term in expanded.terms]
    # What the searcher should know.
    better = None if request.like is not None else suggestion(collection, request.query)
    missing = next((ranking.missing for ranking in rankings.values() if ranking.missing), None)
    note = None if request.like is not None else unknown_note(collection, typed.text, guessing=bool(documents))
    note = "; ".join(filter(None, [note, str(typed)])) or None
    facets = _facets(collection, hits[request.show[0]]) if request.show else []
    return View(
        active=expanded.active,
        kept=kept.nnz,
        terms=terms,
        rankings=list(rankings),
        costs=costs,
        documents=documents,
        suggestion=better,
        missing=missing,
        note=note,
        facets=facets,
    )


class _Entries(NamedTuple):
    """The scores of the hits of a ranking, the ranks of their pages, and the `best` k with their further sections."""

    scores: dict[str, float]
    ranks: dict[str, int]
    best: dict[str, list[FurtherSection]]


def _entries(hits: Hits, stands_for: Mapping[str, str], known: Mapping[str, Document], k: int) -> _Entries:
    """Return the entries of a ranking: copies have the place of the best, and so have `known` sections of a page."""
    scores: dict[str, float] = {}
    for identifier, score in hits:
        scores.setdefault(stands_for.get(identifier, identifier), score)

    def page(identifier: str) -> str | None:
        return page_of(known[identifier]) if identifier in known else None

    pages = grouped(scores, page, len(scores))
    ranks = {identifier: rank for rank, group in enumerate(pages, start=1) for identifier in group}
    best = {
        first: [FurtherSection.of(known[identifier], scores[identifier]) for identifier in further[:FURTHER]]
        for first, *further in grouped(scores, page, k)
    }
    return _Entries(scores, ranks, best)


def _facets(collection: Collection, hits: Hits) -> list[Facet]:
    """Return the facets of the best hits that divide them: of a field with a few values, or of the folders of files."""
    documents = [hit.document for hit in merged(hits[:SPARE_HITS], SPARE_HITS, collection.documents)]
    names = dict.fromkeys(name for document in documents for name in document.fields)
    facets = (facet(documents, "file/" if name == "file" else name) for name in names)
    return [one for one in facets if 2 <= len(one.counts) <= MAX_VALUES and one.counts[0].count > 1][:MAX_FACETS]


def _rankings(
    collection: Collection,
    request: ViewRequest,
    vector: csr_array,
    kept: csr_array,
    dense: np.ndarray | None,
    rerank: RerankOptions | None,
) -> tuple[dict[str, Ranking], dict[str, VectorCost]]:
    """Return each ranking by its name, and the costs of the rankings by the query's vectors.

    There is a ranking of each space, of a search by default and of its reranking, and of the whole vector if the
    request prunes it.
    """
    searcher, conditions = collection.searcher, request.options(SearchOptions)
    usual = searcher.weighting(conditions)
    # The options of each ranking.
    spaces = list(collection.models.query_spaces) if request.like is None else [*usual]
    options: dict[str, SearchOptions] = {space: {**conditions, "weights": {space: 1.0}} for space in spaces}
    if len(usual) > 1:
        options[HYBRID] = {**conditions, "weights": usual}
    if RERANKED in request.show and rerank is not None and rerank["rerank"]:
        options[RERANKED] = {**conditions, "weights": usual, **rerank}
    # Rankings of the same vectors share their searches.
    queries_of = partial(searcher.queries, searcher.plan(request.k, {**conditions, "weights": usual}), [request.query])
    asked = dict.fromkeys(options, queries_of(EncodedTexts(kept, dense)))
    if kept.nnz < vector.nnz:
        options[UNPRUNED], asked[UNPRUNED] = options["sparse"], queries_of(EncodedTexts(vector, dense))
    rankings, costs = {}, {}
    for name, of_name in options.items():
        rankings[name] = searcher.rank(asked[name], searcher.plan(request.k, of_name, spare=True))
        if name in ("sparse", UNPRUNED):
            searched = asked[name].vectors.sparse
            costs[name] = VectorCost(searched.nnz, _postings_of(collection, searched.indices))
    return rankings, costs


def _postings_of(collection: Collection, terms: np.ndarray) -> int | None:
    """Count the postings of terms; None if a server would have to be asked."""
    store = collection.store
    return int(store.count_terms(terms)[0].sum()) if store.about.cheap_reads else None


def _stored(
    collection: Collection, ids: Sequence[str], query: csr_array
) -> Iterator[tuple[Document, Document, csr_array]]:
    """Iterate over the known documents, the texts to show for them (documents or passages), and their vectors."""
    documents = [document for document in collection.documents(ids) if document is not None]
    shown = collection.units.shown(documents, lambda: query)
    vectors = collection.vectors([unit.id for unit in shown])
    return ((document, unit, vectors[[row]]) for row, (document, unit) in enumerate(zip(documents, shown, strict=True)))


def term_postings(collection: Collection, term: str) -> TermPostings | None:
    """Count the documents of a term and their weights; None for an unknown term.

    Weights come from the `MAX_POSTINGS` heaviest documents; an approximate engine may miss some of these documents.
    """
    names = collection.models.terms
    if term not in names:
        return None
    # A query of the term alone has the weights of its documents as scores.
    column = np.array([names.index(term)], np.int32)
    vector = csr_array((np.ones(1, np.float32), column, np.array([0, 1], np.int32)), shape=(1, len(names)))
    hits = collection.searcher.search_space(vector, collection.searcher.reachable(MAX_POSTINGS)).hits(0)
    weights = np.array([weight for _, weight in hits], dtype=np.float64)
    largest = float(weights.max(initial=0.0))
    counted = _postings_of(collection, column)
    heaviest = collection.documents([identifier for identifier, _ in hits[:SHOWN_DOCUMENTS]])
    return TermPostings(
        term,
        documents=len(hits) if counted is None else counted,
        of=len(collection),
        more=counted is None and len(hits) == MAX_POSTINGS,
        weighed=len(hits),
        largest=largest,
        counts=np.histogram(weights, BINS, (0.0, largest or 1.0))[0].tolist(),
        heaviest=[
            TermDocument(identifier, "" if document is None else document.title, weight)
            for (identifier, weight), document in zip(hits[:SHOWN_DOCUMENTS], heaviest, strict=True)
        ],
    )
