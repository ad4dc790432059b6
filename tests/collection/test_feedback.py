"""Feedback: the queries of the second search, against NumPy, and the search against two searches by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from vocable.collection.answers import search
from vocable.collection.collection import Collection
from vocable.collection.feedback import HIT_TERMS, HIT_WEIGHT, fed_back
from vocable.collection.index import index
from vocable.data import Document, Qrel, Query
from vocable.errors import ArgumentError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.evaluate import evaluate
from vocable.evaluation.quality import evaluate_run

V = 80  # terms of the toys, more than are kept of a hit
weights = arrays(np.float32, (4, V), elements=st.sampled_from([0, 0, 0.5, 1, 2.25]))
TEXTS = [
    *(
        "A fox reads at night.",
        "Foxes sleep in a den by day.",
        "A den of foxes in the wood.",
        "Owls forget the lazy dog.",
    ),
    *("Sparse vectors have few terms.", "A librarian indexes sparse vectors.", "The wood is dark at night."),
]


@given(weights, weights, st.lists(st.lists(st.integers(0, 3), max_size=3, unique=True), min_size=4, max_size=4))
def test_a_query_gets_the_mean_of_its_hits(queries: np.ndarray, stored: np.ndarray, hits: list[list[int]]) -> None:
    found = fed_back(
        csr_array(queries),
        [[f"d{row}" for row in rows] for rows in hits],
        lambda ids: csr_array(stored[[int(name[1:]) for name in ids]]),
    )
    for query, rows, extended in zip(queries.astype(float), hits, found.toarray(), strict=True):
        expected, length = query.copy(), np.linalg.norm(query) or 1
        for row in rows:
            largest = np.argsort(-stored[row], kind="stable")[:HIT_TERMS]  # of equal weights the first columns
            kept = np.zeros(V)
            kept[largest] = stored[row, largest]
            expected += HIT_WEIGHT * length * kept / (np.linalg.norm(kept) or 1) / len(rows)
        np.testing.assert_allclose(extended, expected, rtol=1e-5, atol=1e-7)


@pytest.fixture(scope="module")
def foxes() -> Collection:
    return index("vocable-mini", [Document(f"d{number}", text) for number, text in enumerate(TEXTS)])


def test_a_search_with_feedback_is_two_searches(foxes: Collection) -> None:
    queries = ["where do foxes sleep", "vectors"]
    first = search(foxes, queries, 3)
    hits = [[name for name, _ in first.ranking.hits(number)[:2]] for number in range(2)]
    extended = fed_back(first.vectors, hits, lambda ids: foxes.vectors(ids))
    found = search(foxes, queries, 5, feedback=2, explain=True)
    np.testing.assert_allclose(found.vectors.toarray(), extended.toarray(), rtol=1e-6)
    expected = foxes.search(queries, 5, vectors=extended)
    for number in range(2):
        assert dict(found.ranking.hits(number)) == pytest.approx(dict(expected.hits(number)))
    [hit, *_] = search(foxes, queries, 5, feedback=2, weights="sparse", explain=True)[0].hits
    assert sum(match.contribution for match in hit.explanation.matches) == pytest.approx(hit.score, rel=1e-4)


def test_a_verbatim_match_stays_first(foxes: Collection) -> None:
    query = "lazy dog"
    assert search(foxes, [query], 3, feedback=5)[0].hits[0].document.id == "d3"
    assert search(foxes, ["the wood is dark"], 3, feedback=5)[0].hits[0].document.id == "d6"


def test_documents_alone_and_words_alone_need_no_feedback(foxes: Collection) -> None:
    for options in ({"like": "d1"}, {"weights": "bm25"}):
        queries = None if "like" in options else ["foxes"]
        once, again = (search(foxes, queries, 3, feedback=count, **options) for count in (0, 5))
        assert once.ranking.hits(0) == again.ranking.hits(0)


def test_feedback_is_evaluated_as_it_is_searched(foxes: Collection) -> None:
    queries = [Query("q1", "where do foxes sleep"), Query("q2", "sparse vectors")]
    judged = Dataset(
        "toy", foxes.documents(list(foxes.store.ids())), queries, [Qrel("q1", "d2", 1), Qrel("q2", "d4", 1)]
    )
    measured = evaluate(foxes, judged, ["RR@3"], feedback=3)[0]
    run = foxes.search([query.text for query in queries], 3, feedback=3).to_run(["q1", "q2"])
    assert measured.per_query == evaluate_run("search", run, judged, ["RR@3"]).per_query
    with pytest.raises(ArgumentError):
        evaluate("vocable-mini", judged, ["RR@3"], feedback=3)
