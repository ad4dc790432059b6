"""Indexes of the words and of the dense vectors of a dataset, and the retriever over them."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

from tests.evaluation.rankings import index_ranking
from vocable.data import Document, Qrel, Query
from vocable.encoding.dense_models import document_vectors, load_dense, query_vectors
from vocable.encoding.hub import BUILT_IN_DENSE
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import encode_dataset
from vocable.evaluation.expanders import lexical_search
from vocable.evaluation.retrievers import DatasetRetriever, dense_index, lexical_index
from vocable.indexes.bm25 import RM3, BM25Index

DOCUMENTS = [Document("a", "cats sleep"), Document("b", "dogs bark, cats hiss"), Document("c", "owls fly")]
QUERIES = [Query("q1", "sleeping cat"), Query("q2", "zebra"), Query("q3", "unjudged dogs")]
JUDGMENTS = [Qrel("q1", "a", 1), Qrel("q2", "c", 1)]


def test_ranking_and_cost() -> None:
    dataset = Dataset("toy", DOCUMENTS, QUERIES, JUDGMENTS)
    found = lexical_index(dataset)
    ranking = index_ranking(found, dataset, k=5)
    assert len(ranking) == 2  # q3 has no judgment
    assert [document for document, _ in ranking.hits(0)] == ["a", "b"]
    assert ranking.hits(1) == []
    # q1 has two known terms, q2 none; documents have 2, 4 and 2 terms; "cat" is in 2 of 3, "sleep" in 1 of 3.
    assert found.cost.query_terms == 1.0
    assert found.cost.document_terms == pytest.approx(8 / 3)
    assert found.cost.flops == pytest.approx(np.mean([2 / 3 + 1 / 3, 0]))
    assert found.cost.index_bytes is not None
    assert found.cost.index_bytes > 8 * (4 + 4)  # a document number and a weight for each posting


def test_bm25_with_rm3_searches_the_expanded_queries() -> None:
    dataset = Dataset("toy", DOCUMENTS, QUERIES, JUDGMENTS)
    found, texts = lexical_index(dataset, make=lexical_search("bm25+rm3")), [document.text for document in DOCUMENTS]
    index = BM25Index(texts, ["a", "b", "c"])
    expanded = RM3(index, texts).expand(["sleeping cat", "zebra"])
    np.testing.assert_array_equal(index_ranking(found, dataset, k=5).scores, index.search(expanded, 5).scores)
    # "sleeping cat" finds a and b, and takes all of their words: cat, sleep, dog, bark, hiss.
    assert found.cost.query_terms == 2.5
    # "cat" is in 2 of 3 documents, each of the others in 1.
    assert found.cost.flops == pytest.approx(np.mean([2 / 3 + 4 / 3, 0]))


def test_documents_are_needed() -> None:
    with pytest.raises(DataError):
        lexical_index(Dataset("toy", [], QUERIES, JUDGMENTS))


def test_dense_vectors_of_a_model_beside_rank_the_documents(toy_model: SparseEncoder, dataset: Dataset) -> None:
    encoded, model = encode_dataset(toy_model, dataset, dtype="float32"), load_dense(BUILT_IN_DENSE)
    assert dense_index(encoded) is None
    index = dense_index(encoded, model, time_queries=2)
    assert index is not None
    ranking = index_ranking(index, dataset, k=12)
    queries = query_vectors(model, [query.text for query in encoded.dataset.queries])
    scores = queries @ document_vectors(model, [document.full for document in dataset.documents]).T
    for row in range(2):
        ranked = [int(name.removeprefix("d")) for name, _ in ranking.hits(row)]
        np.testing.assert_allclose(scores[row][ranked], np.sort(scores[row])[::-1], atol=5e-3)  # stored in 8 bits
    assert index.cost.answer_p50_ms is not None


def test_a_retriever_reads_the_texts_of_its_documents() -> None:
    dataset = Dataset("toy", [*DOCUMENTS, Document("d", "a text", title="A title")], QUERIES, JUDGMENTS)
    retriever = DatasetRetriever("toy", dataset, {})
    assert retriever.texts(["d", "a", "d"]) == ["A title a text", "cats sleep", "A title a text"]
    with pytest.raises(ArgumentError):
        retriever.texts(["a", "zebra"])
