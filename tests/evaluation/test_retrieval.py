from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

from vocable.data import Document, Qrel, Query
from vocable.encoding.dense_models import document_vectors, load_dense, query_vectors
from vocable.encoding.hub import BUILT_IN_DENSE
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.expanders import lexical_search
from vocable.evaluation.retrieval import encode_dataset, retrieve_densely, retrieve_lexically
from vocable.indexes.bm25 import RM3, BM25Index


@pytest.fixture
def dataset(toy_texts: list[str]) -> Dataset:
    documents = [Document(f"d{i}", text, title="A title") for i, text in enumerate(toy_texts[:12])]
    queries = [Query(f"q{i}", text) for i, text in enumerate(toy_texts[12:15])]
    return Dataset("toy", documents, queries, [Qrel("q0", "d0", 1), Qrel("q2", "d5", 1)])


def test_vectors_are_those_of_memory_and_made_once(
    toy_model: SparseEncoder, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = encode_dataset(toy_model, dataset, dtype="float32")
    found = encode_dataset(toy_model, dataset, keep=tmp_path, name="toy", dtype="float32")
    assert abs(found.queries - expected.queries).max() == 0
    assert abs(found.documents - expected.documents).max() == 0
    assert (found.dataset, found.query_ids) == (expected.dataset, ["q0", "q2"])
    monkeypatch.delattr(TextEncoder, "encode_both")
    again = encode_dataset(toy_model, dataset, keep=tmp_path, name="toy", dtype="float32")
    assert abs(again.documents - expected.documents).max() == 0


def test_long_documents_are_read_in_windows_and_queries_are_not(toy_model: SparseEncoder, dataset: Dataset) -> None:
    how: dict[str, Any] = {"dtype": "float32", "max_length": 6}
    found = encode_dataset(toy_model, dataset, long_documents="maxpool", **how)
    texts = [document.full for document in dataset.documents]
    assert abs(found.documents - TextEncoder(toy_model, long_documents="maxpool", **how).encode(texts)).max() < 1e-4
    assert abs(found.documents - encode_dataset(toy_model, dataset, **how).documents).max() > 0.01
    assert abs(found.queries - encode_dataset(toy_model, dataset, **how).queries).max() == 0


def test_vectors_and_settings_that_do_not_fit_are_refused(
    toy_model: SparseEncoder, dataset: Dataset, tmp_path: Path
) -> None:
    encode_dataset(toy_model, dataset, keep=tmp_path, name="toy", dtype="float32")
    with pytest.raises(ArgumentError):
        encode_dataset(toy_model, dataset, keep=tmp_path, name="other", dtype="float32")
    empty = Dataset("toy", [], dataset.queries, dataset.judgments)
    with pytest.raises(DataError):
        encode_dataset(toy_model, empty, keep=tmp_path, name="toy")


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


def test_bm25_with_rm3_searches_the_expanded_queries() -> None:
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


def test_a_retrieval_without_documents_is_refused() -> None:
    with pytest.raises(DataError):
        retrieve_lexically(Dataset("toy", [], QUERIES, JUDGMENTS))


def test_dense_vectors_of_a_model_beside_rank_the_documents(toy_model: SparseEncoder, dataset: Dataset) -> None:
    encoded, model = encode_dataset(toy_model, dataset, dtype="float32"), load_dense(BUILT_IN_DENSE)
    assert retrieve_densely(encoded) is None
    retrieval = retrieve_densely(encoded, model, k=12, time_queries=2)
    assert retrieval is not None
    queries = query_vectors(model, [query.text for query in encoded.dataset.queries])
    scores = queries @ document_vectors(model, [document.full for document in dataset.documents]).T
    for row in range(2):
        ranked = [int(name.removeprefix("d")) for name, _ in retrieval.ranking.hits(row)]
        np.testing.assert_allclose(scores[row][ranked], np.sort(scores[row])[::-1], atol=5e-3)  # stored in 8 bits
    assert retrieval.cost.answer_p50_ms is not None
