"""The verb `evaluate`: several systems of several kinds on one dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SparseEncoder

import vocable as vo
from tests.evaluation.test_stored_encoding import dataset as dataset
from vocable.data import Document, Qrel, Query
from vocable.encoder.stream import encode_stream
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ArgumentError
from vocable.evaluation import retrieval
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.expanders import lexical_search
from vocable.evaluation.quality import evaluate_run
from vocable.evaluation.retrieval import encode_dataset, evaluate_system, retrieve, retrieve_lexically, unexpanded
from vocable.retrieval.folder import build_collection

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
    with pytest.raises(ArgumentError, match="long_documents is for encoding"):
        vo.evaluate(parent, dataset, MEASURES, long_documents="maxpool")


def test_a_grid_is_searched(toy_model: SparseEncoder, dataset: Dataset, tmp_path: Path) -> None:
    found = vo.evaluate(
        toy_model, dataset, ["R@3"], grid=["query_max_terms=0,3"], bm25=True, output=tmp_path / "grid.json"
    )
    assert [point.setting and point.setting.query_max_terms for point in found.points] == [0, 3, None]
    assert len(vo.compare([tmp_path / "grid.json"])) == 3


def test_arguments_that_exclude_each_other(toy_model: SparseEncoder, dataset: Dataset) -> None:
    with pytest.raises(ArgumentError, match="--figure goes with --grid"):
        vo.evaluate(toy_model, dataset, figure="x.png")
    with pytest.raises(ArgumentError, match="--grid goes with models"):
        vo.evaluate(toy_model, dataset, grid=["query_max_terms=3"], hybrid=True)
    with pytest.raises(ArgumentError, match="no system"):
        vo.evaluate([], dataset)


def test_bm25_is_a_system_that_asks_for_no_model(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(*names: object, **options: object) -> None:
        raise AssertionError(f"{names} was loaded")

    for place in (
        "vocable.encoder.load.load",
        "vocable.evaluation.evaluate.load",
        "vocable.evaluation.evaluate.check_length",
    ):
        monkeypatch.setattr(place, loaded)
    found = vo.evaluate("bm25", dataset, MEASURES, bm25=True)
    assert [one.name for one in found.evaluations] == ["bm25", "BM25"]
    assert found[0].per_query == found[1].per_query
    assert found[0].query_idf is None
    with pytest.raises(ArgumentError, match="bm25 is no model"):
        vo.compare("bm25", dataset)
    with pytest.raises(ArgumentError, match="bm25 expands nothing"):
        vo.measure_wackiness("bm25", output="never", queries=["a"], corpus=["b"])


def test_answers_are_timed_as_often_as_asked(
    toy_model: SparseEncoder, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[int] = []
    original = retrieval.answer_times

    def counted(*arguments: Any, answers: int) -> Any:
        timed.append(answers)
        return original(*arguments, answers=answers)

    monkeypatch.setattr(retrieval, "answer_times", counted)
    systems = {"model": toy_model, "feedback": "bm25+rm3"}
    for time_queries, expected in ((None, [200, 200, 20]), (7, [7, 7, 7]), (0, [])):
        options = {} if time_queries is None else {"time_queries": time_queries}
        found = vo.evaluate(systems, dataset, MEASURES, bm25=True, dtype="float32", **options)
        assert timed == expected
        timed.clear()
        assert ("answer p50 ms" in found.table().header) == bool(expected)
        assert "FLOPS" in found.table().header
    with pytest.raises(ArgumentError, match="time_queries must be at least 0, not -1"):
        vo.evaluate(toy_model, dataset, time_queries=-1)


def test_a_hybrid_is_the_search_for_as_many_results_as_a_measure_looks_at(
    toy_model: SparseEncoder, toy_texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model, a run and an index alike, whatever else is measured."""
    monkeypatch.setattr("vocable.retrieval.fusion.DEPTH", 5)
    documents = [Document(f"d{i}", text) for i, text in enumerate(sorted(set(toy_texts))[:40])]
    queries = [Query(f"q{i}", text) for i, text in enumerate(toy_texts[3:9])]
    judgments = [Qrel(query.id, f"d{7 * i + j}", 1) for i, query in enumerate(queries) for j in range(3)]
    dataset, measures = Dataset("toy", documents, queries, judgments), ["nDCG@3", "R@20", "AP"]
    encoder = TextEncoder(toy_model, "document", dtype="float32")
    build_collection(encoder, documents, tmp_path / "my-index", model="toy", bm25=True)
    collection = vo.open_index(tmp_path / "my-index")
    vars(collection)["loaded_model"] = toy_model
    retrieve(encode_dataset(toy_model, dataset, dtype="float32")).ranking.write_trec(
        tmp_path / "toy.run", [query.id for query in queries]
    )
    how: dict[str, Any] = {"hybrid": True, "dtype": "float32", "time_queries": 0}
    of_model = vo.evaluate({"toy": toy_model, "run": tmp_path / "toy.run"}, dataset, measures, **how)
    of_index = vo.evaluate(collection, dataset, measures, hybrid=True, folds=3)
    by_name = {one.name: one.per_query for one in [*of_model.evaluations, *of_index.evaluations]}
    ids, texts = [query.id for query in queries], [query.text for query in queries]
    for measure, k in (("nDCG@3", 3), ("R@20", 20), ("AP", 40)):
        run = collection.search(texts, k, hybrid=True).to_run(ids)
        expected = evaluate_run("search", run, dataset, [measure]).per_query[measure]
        for name in ("toy + BM25", "run + BM25", "sparse=1,bm25=1"):
            assert by_name[name][measure] == expected, (name, measure)
        alone = vo.evaluate(collection, dataset, [measure], hybrid=True)
        assert {one.name: one.per_query for one in alone.evaluations}["sparse=1,bm25=1"][measure] == expected
