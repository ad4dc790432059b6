"""The verb `select`: measurements, kept vectors, figure and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SparseEncoder

import vocable as vo
from tests.toys import killed
from vocable.core.storage import read_record
from vocable.encoding.stream import StreamProgress
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.vectors import PROGRESS
from vocable.errors import ArgumentError
from vocable.evaluation import select as module
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import encode_dataset
from vocable.evaluation.frontier import ModelSelection

MEASURES = ["nDCG@10", "R@3"]
GRID = ["document_max_terms=0,4 query_max_terms=0,2"]


def measured(systems: Any, dataset: Dataset, **more: Any) -> ModelSelection:
    return vo.select(systems, dataset, MEASURES, **{"grid": GRID, "dtype": "float32"} | more)


@pytest.mark.slow
@pytest.mark.usefixtures("all_answers")
def test_each_model_is_measured_whole_and_pruned(toy_model: SparseEncoder, dataset: Dataset) -> None:
    looked_up = vo.make_inference_free(toy_model, weights="ones")
    found = measured({"toy": toy_model, "free": looked_up}, dataset, max_length=16)
    assert [(one.system, str(one.setting)) for one in found.points] == [
        (name, setting)
        for name in ("toy", "free")
        for setting in ("", "query_max_terms=2", "document_max_terms=4", "query_max_terms=2 document_max_terms=4")
    ]
    grid = ["query_max_terms=0", *GRID]
    compared = vo.evaluate(toy_model, dataset, MEASURES, grid=grid, dtype="float32", max_length=16)
    expected = {str(one.setting): one.evaluation.values for one in compared.points}  # type: ignore[union-attr]
    assert {str(one.setting): one.evaluation.values for one in found.points[:4]} == expected
    encoded = encode_dataset(toy_model, dataset, dtype="float32", max_length=16)
    for point in found.points[:4]:
        cost, max_terms = point.evaluation.cost, point.setting.document_max_terms if point.setting else 0
        assert cost is not None
        index = vo.ExactIndex(vo.prune(encoded.documents, max_terms=max_terms or None), encoded.document_ids)
        assert cost.bytes_per_document == index.nbytes / len(dataset.documents)
        times: list[Any] = [cost.search_p50_ms, cost.search_p95_ms, cost.answer_p50_ms, cost.answer_p95_ms]
        assert 0 < times[0] <= times[1]
        assert times[0] < times[2] <= times[3]
        assert cost.documents_per_second == found.points[0].evaluation.cost.documents_per_second  # type: ignore[union-attr]
    toy, free = found.models.values()
    assert (toy.inference_free, free.inference_free) == (False, True)
    assert toy.parameters == sum(weights.numel() for weights in toy_model.parameters()) < free.parameters
    assert (toy.terms, toy.query_length, toy.document_length, toy.licence) == (len(vo.terms(toy_model)), 16, 16, None)
    assert found.answers == 200


def test_the_licence_is_what_the_card_states(backbones: dict[str, Path], dataset: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "carded"
    vo.load(backbones["bert"], device="cpu").save_pretrained(str(folder), create_model_card=False)
    for card, stated in (("---\nlicense: cc-by-4.0\n---\n", "cc-by-4.0"), ("---\nlicense: [\n---\n", None), ("", None)):
        (folder / "README.md").write_text(card, encoding="utf-8")
        assert measured(folder, dataset).models["carded"].licence == stated


@pytest.mark.slow
def test_a_killed_call_goes_on_and_another_budget_measures_nothing(
    backbones: dict[str, Path], dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    output, model = tmp_path / "chosen", backbones["bert"]

    with monkeypatch.context() as patched:
        patched.setattr(module, "answer_times", killed)
        with pytest.raises(KeyboardInterrupt):
            measured(model, dataset, output=output)
    assert not output.exists()
    with monkeypatch.context() as patched:
        patched.setattr("vocable.evaluation.encoded.encode_stream", _only_read)
        first = measured(model, dataset, output=output, max_p95=1e6)
    names = ["frontier.svg", "results.json", "settings.json", "vectors"]
    assert sorted(path.name for path in output.iterdir()) == names
    monkeypatch.setattr(module, "encode_dataset", killed)
    again = measured(model, dataset, output=output, max_p95=1e6)
    assert (again.points, again.recommended()) == (first.points, first.recommended())
    tight = measured(model, dataset, output=output, max_bytes_per_document=1)
    assert tight.recommended() is None
    assert tight.points == first.points
    with pytest.raises(ArgumentError, match=r"\(grid\)"):
        measured(model, dataset, output=output, grid=["document_max_terms=3"])


def _only_read(encoder: TextEncoder, documents: object, folder: Path, **_: object) -> Any:
    """In place of encoding into a folder: what is there already."""
    assert folder.is_dir()
    return read_record(folder / PROGRESS, StreamProgress)


def test_what_does_not_go_together_is_refused(toy_model: SparseEncoder, dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "stored.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ArgumentError):
        vo.compare([tmp_path])
    with pytest.raises(ArgumentError, match=r"stored\.json"):
        vo.select([tmp_path / "stored.json"], dataset)
    with pytest.raises(ArgumentError):
        vo.select("bm25", dataset)
    with pytest.raises(ArgumentError):
        measured(toy_model, dataset, grid=["rescore=100"])
    with pytest.raises(ArgumentError):
        measured([], dataset)
    with pytest.raises(ArgumentError):
        vo.select(toy_model, dataset, ["R@5000"])
