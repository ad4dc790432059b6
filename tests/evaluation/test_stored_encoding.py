from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SparseEncoder

from vocable.data import Document, Qrel, Query
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.retrieval import encode_dataset


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
    monkeypatch.delattr(TextEncoder, "encode")
    again = encode_dataset(toy_model, dataset, keep=tmp_path, name="toy", dtype="float32")
    assert abs(again.documents - expected.documents).max() == 0


def test_long_documents_are_read_in_windows_and_queries_are_not(toy_model: SparseEncoder, dataset: Dataset) -> None:
    how: dict[str, Any] = {"dtype": "float32", "max_length": 6}
    found = encode_dataset(toy_model, dataset, long_documents="maxpool", **how)
    texts = [document.full for document in dataset.documents]
    assert abs(found.documents - TextEncoder(toy_model, long_documents="maxpool", **how).encode(texts)).max() < 1e-4
    assert abs(found.documents - encode_dataset(toy_model, dataset, **how).documents).max() > 0.01
    assert abs(found.queries - encode_dataset(toy_model, dataset, **how).queries).max() == 0


def test_what_does_not_fit_is_refused(toy_model: SparseEncoder, dataset: Dataset, tmp_path: Path) -> None:
    encode_dataset(toy_model, dataset, keep=tmp_path, name="toy", dtype="float32")
    with pytest.raises(ArgumentError, match="made with other settings"):
        encode_dataset(toy_model, dataset, keep=tmp_path, name="other", dtype="float32")
    empty = Dataset("toy", [], dataset.queries, dataset.judgments)
    with pytest.raises(DataError, match="no documents"):
        encode_dataset(toy_model, empty, keep=tmp_path, name="toy")
