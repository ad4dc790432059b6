"""Datasets as vectors, in memory and in folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SparseEncoder

from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import encode_dataset


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
