"""Sparse and dense vectors of one pass, in files, indexes, evaluations and selections; the model is a toy BGE-M3."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.data import Document, Qrel, Query, read_corpus
from vocable.encoding import stream
from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.encoding.stream import encode_stream
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.vectors import read_vectors
from vocable.errors import ArgumentError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.evaluate import evaluate
from vocable.evaluation.select import select
from vocable.evaluation.significance import ComparedEvaluations
from vocable.torch_models.torch_model import TorchEncoder

TEXTS = ["The quick fox jumps.", "A lazy dog", "fox fox fox, and a much longer text about the brown dog", "", "fox"]


def test_a_model_of_masked_words_is_sparse_alone(toy_model: SparseEncoder) -> None:
    encoder = TextEncoder(toy_model)
    assert encoder.dimensions is None
    assert encoder.encode_both(TEXTS).dense is None


def test_batches_in_threads_keep_their_own_vectors(m3: str) -> None:
    model, texts = load(m3, device="cpu"), [f"fox {'dog ' * (i % 40)}{i}" for i in range(400)]
    encoder = TextEncoder(model, "document", dtype="float32")
    encoder.batch_tokens = 64
    _, together = encoder.encode_both(texts)
    single = [encoder.encode_both([text]).dense for text in texts[:50]]
    np.testing.assert_allclose(together[:50], np.concatenate(single), atol=1e-5)  # type: ignore[arg-type, index]


def test_windows_are_averaged(m3: str) -> None:
    text = " ".join(["The quick brown fox.", "A lazy dog sleeps."] * 20)
    encoder = TextEncoder(load(m3, device="cpu"), max_length=24, long_documents="maxpool", dtype="float32")
    spans = encoder.windows(text)
    assert len(spans) > 2
    plain = TextEncoder(load(m3, device="cpu"), max_length=24, dtype="float32")
    parts = plain.encode_both([text[start:end] for start, end in spans]).dense
    assert parts is not None
    mean = parts.mean(axis=0)
    [found] = encoder.encode_both([text]).dense  # type: ignore[misc]
    np.testing.assert_allclose(found, mean / np.linalg.norm(mean), atol=1e-5)


@pytest.mark.parametrize("shards", [None, 2])
def test_files_have_the_vectors_of_one_pass(m3: str, corpus: Path, tmp_path: Path, shards: int | None) -> None:
    options: Any = {"dtype": "float32", "device": "cpu"}
    encode(m3, corpus, output=tmp_path / "vectors", shards=shards, **options)
    stored, encoder = read_vectors(tmp_path / "vectors"), TextEncoder(load(m3, device="cpu"), dtype="float32")
    sparse, dense = encoder.encode_both([document.full for document in read_corpus(corpus)])
    assert dense is not None
    assert stored.dense is not None
    np.testing.assert_allclose(stored.dense, dense, atol=1e-5)
    np.testing.assert_allclose(stored.matrix.toarray(), sparse.toarray(), atol=1e-5)
    encode(m3, corpus, output=tmp_path / "sparse", shards=shards, no_dense=True, **options)
    assert read_vectors(tmp_path / "sparse").dense is None


def test_a_begun_part_keeps_both(m3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Document(str(number), f"fox {'dog ' * (number % 30)}{number}") for number in range(60)]
    encoder = TextEncoder(load(m3, device="cpu"), dtype="float32")
    encoder.batch_tokens = 256
    expected = encoder.encode_both([document.full for document in documents]).dense
    monkeypatch.setattr(stream, "PART_SECONDS", 0.0)
    original, calls = TorchEncoder.encode, []

    def stopping(self: TorchEncoder, texts: list[str], *others: Any) -> object:
        calls.append(texts)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, texts, *others)

    monkeypatch.setattr(TorchEncoder, "encode", stopping)
    for _ in range(2):
        with suppress(KeyboardInterrupt):
            encode_stream(encoder, documents, tmp_path / "vectors", model="m", dense=True)
    found = read_vectors(tmp_path / "vectors").dense
    assert found is not None
    np.testing.assert_allclose(found, expected, atol=1e-5)  # type: ignore[arg-type]


def test_an_index_of_files_has_their_dense_vectors(m3: str, corpus: Path, tmp_path: Path) -> None:
    options: Any = {"dtype": "float32", "device": "cpu"}
    encode(m3, corpus, output=tmp_path / "vectors", **options)
    made = tmp_path / "index"
    with index(tmp_path / "vectors", corpus, made, bm25=True) as collection:
        assert collection.spaces == ("sparse", "bm25", "dense")
    with (
        open_index(made, device="cpu") as collection,
        index(m3, corpus, tmp_path / "other", bm25=True, **options) as other,
    ):
        found, expected = (one.search(["the fox"], 5) for one in (collection, other))
        assert found.hits(0) == [(name, pytest.approx(score, abs=1e-3)) for name, score in expected.hits(0)]
    with index(tmp_path / "vectors", corpus, tmp_path / "third", no_dense=True) as third:
        assert third.spaces == ("sparse", "bm25")


@pytest.fixture
def dataset(documents: list[Document]) -> Dataset:
    queries = [Query(f"q{row}", " ".join(one.text.split()[:3])) for row, one in enumerate(documents[:6])]
    judgments = [Qrel(query.id, one.id, 1) for query, one in zip(queries, documents, strict=False)]
    return Dataset("toy", documents, queries, judgments)


def test_an_evaluation_tells_what_each_part_adds(m3: str, dataset: Dataset) -> None:
    found = evaluate(load(m3, device="cpu"), dataset, ["nDCG@10"], hybrid=True, bm25=True, time_queries=6)
    assert isinstance(found, ComparedEvaluations)
    costs = {one.name: one.cost for one in found.evaluations}
    sparse, dense, bm25 = (costs[name] for name in ("model", "model: dense", "BM25"))
    assert dense is not None
    assert sparse is not None
    assert bm25 is not None
    assert dense.index_bytes == len(dataset.documents) * (32 + 4)
    assert (dense.answer_p50_ms or 0) > 0
    fused = {
        "model + dense": (sparse, dense),
        "dense + BM25": (dense, bm25),
        "model + dense + BM25": (sparse, dense, bm25),
    }
    for name, parts in fused.items():
        together = costs[name]
        assert together is not None
        assert together.index_bytes == sum(one.index_bytes or 0 for one in parts)


@pytest.mark.slow
def test_a_selection_has_what_each_part_adds_to_whole_vectors(
    m3: str, model: str, dataset: Dataset, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    models: dict[str, Any] = {"both": m3, "sparse": model}
    how: dict[str, Any] = {"hybrid": True, "dtype": "float32", "device": "cpu"}
    expected = evaluate(models, dataset, ["nDCG@10"], bm25=True, time_queries=0, **how)
    assert isinstance(expected, ComparedEvaluations)
    kept: dict[str, Any] = {"grid": ["document_max_terms=0,4"], "output": tmp_path / "chosen"}
    found = select(models, dataset, ["nDCG@10"], max_p95=1e6, **kept, **how)
    of_evaluate = {one.name: one for one in expected.evaluations if one.name not in models}
    assert [one.system for one in found.fusions] == list(of_evaluate)
    for point in found.fusions:
        one, cost = of_evaluate[point.system], point.evaluation.cost
        assert point.evaluation.per_query == one.per_query
        assert cost is not None
        assert one.cost is not None
        assert cost.bytes_per_document == (one.cost.index_bytes or 0) / len(dataset.documents)
        assert ((cost.answer_p50_ms or 0) > 0) == (point.system in ("both: dense", "BM25"))
    assert {point.system for point in found.points} == {*models}
    shown: Any = found.table()[0]
    assert [row[0] for row in shown.rows] == [*models, *of_evaluate]
    told: Any = found.to_json()
    assert [row["system"] for row in told["fusions"]] == list(of_evaluate)
    low, high = told["fusions"][0]["intervals"]["nDCG@10"]
    assert low <= of_evaluate["both: dense"].values["nDCG@10"] <= high
    again = select(models, dataset, ["nDCG@10"], max_p95=2e6, **kept, **how)
    assert again.fusions == found.fusions
    with pytest.raises(ArgumentError, match=r"other settings \(hybrid\)"):
        select(models, dataset, ["nDCG@10"], **kept, **(how | {"hybrid": False}))
    assert select(models["sparse"], dataset, ["nDCG@10"], grid=kept["grid"], device="cpu").fusions == []
