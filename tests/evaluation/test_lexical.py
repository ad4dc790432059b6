"""BM25 on a dataset, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from vocable.data import Document, Qrel, Query
from vocable.errors import DataError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.expanders import lexical_search
from vocable.evaluation.retrieval import retrieve_lexically
from vocable.retrieval.bm25 import RM3, BM25Index

DOCUMENTS = [Document("a", "cats sleep"), Document("b", "dogs bark, cats hiss"), Document("c", "owls fly")]
QUERIES = [Query("q1", "sleeping cat"), Query("q2", "zebra"), Query("q3", "unjudged dogs")]
JUDGMENTS = [Qrel("q1", "a", 1), Qrel("q2", "c", 1)]


def test_ranking_and_cost() -> None:
    found = retrieve_lexically(Dataset("toy", DOCUMENTS, QUERIES, JUDGMENTS), k=5)
    assert found.query_ids == ["q1", "q2"]
    assert [document for document, _ in found.ranking.hits(0)] == ["a", "b"]
    assert found.ranking.hits(1) == []
    # q1 has two known terms, q2 none; documents have 2, 4 and 2 terms; "cat" is in 2 of 3, "sleep" in 1 of 3.
    assert found.cost.query_terms == 1.0
    assert found.cost.document_terms == pytest.approx(8 / 3)
    assert found.cost.flops == pytest.approx(np.mean([2 / 3 + 1 / 3, 0]))
    assert found.cost.index_bytes is not None
    assert found.cost.index_bytes > 8 * (4 + 4)  # a document number and a weight for each posting


def test_feedback() -> None:
    dataset = Dataset("toy", DOCUMENTS, QUERIES, JUDGMENTS)
    found, texts = (
        retrieve_lexically(dataset, k=5, make=lexical_search("bm25+rm3")),
        [document.text for document in DOCUMENTS],
    )
    index = BM25Index(texts, ["a", "b", "c"])
    expanded = RM3(index, texts).expand(["sleeping cat", "zebra"])
    np.testing.assert_array_equal(found.ranking.scores, index.search(expanded, 5).scores)
    # "sleeping cat" finds a and b, and takes all of their words: cat, sleep, dog, bark, hiss.
    assert found.cost.query_terms == 2.5
    # "cat" is in 2 of 3 documents, each of the others in 1.
    assert found.cost.flops == pytest.approx(np.mean([2 / 3 + 4 / 3, 0]))


def test_no_documents() -> None:
    with pytest.raises(DataError, match="there are no documents to search"):
        retrieve_lexically(Dataset("toy", [], QUERIES, JUDGMENTS))
