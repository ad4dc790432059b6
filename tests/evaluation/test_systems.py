"""The verb `evaluate`: several systems of several kinds on one dataset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sentence_transformers import SparseEncoder

import vocable as vo
from tests.evaluation.test_stored_encoding import dataset as dataset
from vocable.analysis.expanders import lexical_search
from vocable.encoder.encode import TextEncoder
from vocable.encoder.stream import encode_stream
from vocable.errors import ArgumentError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.retrieval import encode_dataset, evaluate_system, retrieve, retrieve_lexically, unexpanded

MEASURES = ["nDCG@10", "R@3"]


def test_models_runs_and_baselines_stand_side_by_side(
    toy_model: SparseEncoder, dataset: Dataset, tmp_path: Path
) -> None:
    found = retrieve(encode_dataset(toy_model, dataset, dtype="float32"))
    found.ranking.write_trec(tmp_path / "toy.run", found.query_ids)
    compared = vo.evaluate(
        {"model": toy_model, "run": tmp_path / "toy.run", "feedback": "bm25+rm3"},
        dataset,
        MEASURES,
        bm25=True,
        hybrid=True,
        dtype="float32",
        output=tmp_path / "results.json",
        per_query=tmp_path / "values.tsv",
    )
    names = [evaluation.name for evaluation in compared.evaluations]
    assert names == ["model", "model + BM25", "run", "run + BM25", "feedback", "feedback + BM25", "BM25"]
    alone = evaluate_system(toy_model, dataset, MEASURES, dtype="float32")
    assert compared[0].per_query == compared[2].per_query == alone.per_query
    assert compared[1].values == compared[3].values
    for place, make in ((4, lexical_search("bm25+rm3")), (6, unexpanded)):
        cost = compared[place].cost
        assert cost is not None
        assert cost.flops == retrieve_lexically(dataset, make=make).cost.flops
    again = vo.compare([tmp_path / "results.json"])
    assert [one.values for one in again.evaluations] == [one.values for one in compared.evaluations]
    assert len((tmp_path / "values.tsv").read_text().splitlines()) == 1 + 7 * 2 * 2
    assert "BM25" in str(compared)
    assert compared._repr_html_().count("<tr>") == 8


def test_stored_vectors_are_a_system(backbones: dict[str, Path], dataset: Dataset, tmp_path: Path) -> None:
    model = vo.load(backbones["bert"], device="cpu")
    folders = [tmp_path / "one", tmp_path / "two"]
    for number, folder in enumerate(folders, start=1):
        encoder = TextEncoder(model, dtype="float32")
        half = list(dataset.documents)[number - 1 :: 2]
        encode_stream(encoder, half, folder, model=str(backbones["bert"]))
    parent = tmp_path / "one"
    for shard in folders[1].glob("part-*.parquet"):
        shard.rename(parent / "part-00001.parquet")
    stored = vo.evaluate(parent, dataset, MEASURES, dtype="float32")
    assert stored[0].values == vo.evaluate(model, dataset, MEASURES, dtype="float32")[0].values
    assert json.loads(json.dumps(stored.to_json()))["systems"][0]["cost"]["documents_per_second"] is None
    with pytest.raises(ArgumentError, match="long is for encoding"):
        vo.evaluate(parent, dataset, MEASURES, long="max")


def test_a_grid_is_searched(toy_model: SparseEncoder, dataset: Dataset, tmp_path: Path) -> None:
    found = vo.evaluate(toy_model, dataset, ["R@3"], grid=["query_top_k=0,3"], bm25=True, output=tmp_path / "grid.json")
    assert [point.setting and point.setting.query_top_k for point in found.points] == [0, 3, None]
    assert len(vo.compare([tmp_path / "grid.json"])) == 3


def test_arguments_that_exclude_each_other(toy_model: SparseEncoder, dataset: Dataset) -> None:
    with pytest.raises(ArgumentError, match="--figure goes with --grid"):
        vo.evaluate(toy_model, dataset, figure="x.png")
    with pytest.raises(ArgumentError, match="--grid goes with models"):
        vo.evaluate(toy_model, dataset, grid=["query_top_k=3"], hybrid=True)
    with pytest.raises(ArgumentError, match="no system"):
        vo.evaluate([], dataset)
