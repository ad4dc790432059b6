"""What the page shows: a query's terms, the best documents by each kind of vector and why they are, a term's postings.

Letters: v output vocabulary, k results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document
from vocable.encoder.terms import term_places
from vocable.errors import ArgumentError
from vocable.pruning import prune
from vocable.retrieval.collection import Collection
from vocable.retrieval.explain import MARKED, Explanation, expand_vector, explain_vectors, json_values, text_terms
from vocable.retrieval.filters import Filter
from vocable.retrieval.fusion import aligned, fused, fusion_depth
from vocable.retrieval.ranking import Ranking

T = TypeVar("T")
HYBRID, UNPRUNED = "hybrid", "unpruned"  # rankings beside those by one kind of vector
TERMS = 200  # of a query that are listed
LONGEST = 5000  # characters of a document
MOST_POSTINGS = 10_000  # whose weights are looked at
BINS = 24
HEAVIEST = 10  # documents of a term


class Wanted(NamedTuple):
    """What is to be seen: k documents of each ranking of `show`; the query's vector is cut as in `vocable.prune`."""

    k: int
    show: tuple[str, ...]
    filter: Filter | None
    max_terms: int | None
    min_weight: float


def view(
    collection: Collection, query: str, vector: csr_array, wanted: Wanted, wacky: frozenset[str] | None = None
) -> dict[str, Any]:
    """A query with its `vector` [1, v], and its documents with their ranks in every ranking, as JSON values.

    Where the limits cut the vector, there is the ranking of the whole one, too. `wacky` is as in `explain`.
    """
    kept = prune(vector, wanted.max_terms, wanted.min_weight)
    vectors = {"sparse": kept} | ({UNPRUNED: vector} if kept.nnz < vector.nnz else {})
    rankings, costs = _rankings(collection, query, vectors, wanted)
    if unknown := set(wanted.show) - rankings.keys():
        raise ArgumentError(f"show: there is no ranking {min(unknown)!r}: there are {', '.join(rankings)}")
    places = {
        name: {identifier: (rank, score) for rank, (identifier, score) in enumerate(ranking.hits(0), start=1)}
        for name, ranking in rankings.items()
    }
    show = [*wanted.show, *([UNPRUNED] if "sparse" in wanted.show and UNPRUNED in rankings else [])]
    ids = dict.fromkeys(one for name in show for one, (rank, _) in places[name].items() if rank <= wanted.k)
    own, names = text_terms(collection.loaded_model, query), collection.terms
    documents = []
    for document, one, stored in _stored(collection, list(ids), kept):
        there = text_terms(collection.loaded_model, one.full)
        explained = explain_vectors(kept, stored, names, own, there, wacky)
        found = {name: hits[document.id] for name, hits in places.items() if document.id in hits}
        documents.append(
            {"id": document.id, "fields": dict(document.fields)}
            | _shown(collection, document, one.text, explained)
            | {"sparse": explained.score, "shared": len(explained.matches)}
            | {"ranks": {name: rank for name, (rank, _) in found.items()}}
            | {"scores": {name: score for name, (_, score) in found.items()}}
        )
    terms, left = expand_vector(vector, names, own, TERMS, wacky), {names[column] for column in kept.indices.tolist()}
    listed = [term | {"kept": term["term"] in left} for term in terms.to_json()["terms"]]
    query_terms = {"active": terms.active, "kept": kept.nnz, "terms": listed}
    return {**query_terms, "rankings": list(rankings), "costs": costs, "documents": documents}


def _rankings(
    collection: Collection, query: str, vectors: dict[str, csr_array], wanted: Wanted
) -> tuple[dict[str, Ranking], dict[str, Any]]:
    """Each ranking by its name; of those by the query's vectors what they cost."""
    depth = min(fusion_depth(wanted.k), max(1, len(collection)))
    index = getattr(collection, "postings", None)  # where the postings can be counted
    rankings: dict[str, Ranking] = {}
    costs = {}
    for name, vector in vectors.items():
        rankings[name], seconds = _timed(partial(collection.rank, vector, depth, filter=wanted.filter))
        read = None if index is None else int(index.document_frequency[vector.indices].sum())
        costs[name] = {"terms": vector.nnz, "postings": read, "milliseconds": 1000 * seconds}
    others = [space for space in collection.spaces if space != "sparse"]
    rankings |= collection.rankings([query], depth, others, filter=wanted.filter) if others else {}
    if others:
        spaces = dict(zip(collection.spaces, aligned([rankings[space] for space in collection.spaces]), strict=True))
        rankings[HYBRID] = fused(spaces, dict.fromkeys(spaces, 1.0), "weighted", depth)
    return rankings, costs


def _timed(search: Callable[[], T]) -> tuple[T, float]:
    """What a search finds, and the seconds of the fastest of three: others work on the machine, too."""
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        found = search()
        seconds.append(time.perf_counter() - started)
    return found, min(seconds)


def _stored(
    collection: Collection, ids: Sequence[str], query: csr_array
) -> Iterator[tuple[Document, Document, csr_array]]:
    """The documents that are there, what is shown of them (a passage, where these are searched), and its vectors."""
    documents = [document for document in collection.documents(ids) if document is not None]
    shown = collection.shown(documents, lambda: query)
    vectors = collection.vectors([one.id for one in shown])
    return ((document, one, vectors[[row]]) for row, (document, one) in enumerate(zip(documents, shown, strict=True)))


def _shown(collection: Collection, document: Document, text: str, explained: Explanation) -> dict[str, Any]:
    """The matching terms of a document, and its title and `text`, in which they are marked."""
    listed = [
        {"term": match.term, "kind": match.kind, "share": match.share, "in_document": match.in_document}
        | {"query_weight": match.query_weight, "document_weight": match.document_weight}
        for match in explained.matches[:MARKED]
    ]
    marked = {
        name: json_values(explained.marked(value, term_places(collection.loaded_model, value)))
        for name, value in (("title", document.title[:LONGEST]), ("text", text[:LONGEST]))
    }
    return {**marked, "cut": len(text[:LONGEST]) < len(document.text), "matches": listed}


def term_postings(collection: Collection, term: str) -> dict[str, Any] | None:
    """How many documents have a term and how much it weighs there, as JSON values; None if there is no such term.

    Weights are those of the `MOST_POSTINGS` heaviest; an engine that is not exact may miss some of these.
    """
    names = collection.terms
    if term not in names:
        return None
    column = np.array([names.index(term)], np.int32)
    vector = csr_array((np.ones(1, np.float32), column, np.array([0, 1], np.int32)), shape=(1, len(names)))
    hits = collection.rank(vector, min(MOST_POSTINGS, max(1, len(collection)))).hits(0)
    weights = np.array([weight for _, weight in hits], dtype=np.float64)
    largest = float(weights.max(initial=0.0))
    counts = np.histogram(weights, BINS, (0.0, largest or 1.0))[0].tolist()
    index = getattr(collection, "postings", None)
    there = len(hits) if index is None else int(index.document_frequency[column[0]])
    heaviest = collection.documents([identifier for identifier, _ in hits[:HEAVIEST]])
    titles = ["" if document is None else document.title for document in heaviest]
    listed = [
        {"id": identifier, "title": title, "weight": weight}
        for (identifier, weight), title in zip(hits[:HEAVIEST], titles, strict=True)
    ]
    return {
        "term": term,
        "documents": there,
        "of": len(collection),
        "more": index is None and len(hits) == MOST_POSTINGS,
        "weighed": len(hits),
        "largest": largest,
        "counts": counts,
        "heaviest": listed,
    }
