"""Rerankings in the tables of `evaluate` and `select`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder, SparseEncoder

import vocable as vo
from tests.evaluation.rankings import sparse_ranking
from vocable.errors import ArgumentError, ModelError
from vocable.evaluation.cost import timed_rows
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import encode_dataset
from vocable.evaluation.quality import evaluate_run
from vocable.indexes.ranking import ranking_of

MEASURES = ["nDCG@3", "R@3"]
DEPTH = 5


def expected(cross: str, dataset: Dataset, toy_model: SparseEncoder) -> dict[str, dict[str, float]]:
    """The figures of a reranking by `predict` itself."""
    encoded = encode_dataset(toy_model, dataset, dtype="float32")
    ranking = sparse_ranking(encoded)
    model, texts = CrossEncoder(cross, device="cpu"), {one.id: one.full for one in dataset.documents}
    hits = []
    for number, query in enumerate(dataset.judged().queries):
        first = [name for name, _ in ranking.hits(number)][:DEPTH]
        scores = 10 + model.predict([(query.text, texts[name]) for name in first])  # above 0, as hits are
        hits.append(list(zip(first, scores.tolist(), strict=True)))
    run = ranking_of(hits, DEPTH).to_run(encoded.query_ids)
    return dict(evaluate_run("by hand", run, dataset, MEASURES).per_query)  # type: ignore[arg-type]


def test_evaluate_has_a_row_for_each_reranking(
    toy_model: SparseEncoder, dataset: Dataset, cross: str, tmp_path: Path
) -> None:
    index = vo.index(toy_model, dataset.documents, tmp_path / "index", bm25=True, dtype="float32")
    encoded = encode_dataset(toy_model, dataset, dtype="float32")
    sparse_ranking(encoded).write_trec(tmp_path / "toy.run", encoded.query_ids)
    systems = {"model": toy_model, "run": tmp_path / "toy.run"}
    options: Any = {"rerank": cross, "rerank_depth": DEPTH}
    systems_and_index: Any = {**systems, "index": index}
    compared = vo.evaluate(systems_and_index, dataset, MEASURES, dtype="float32", weights="sparse", **options)
    values = {one.name: one for one in compared.evaluations}
    by_hand = expected(cross, dataset, toy_model)
    for name in ("model reranked", "run reranked", "index: sparse reranked"):
        assert values[name].per_query == by_hand
        cost = values[name].cost
        assert cost is not None
        assert 0 < (cost.rerank_p50_ms or 0) <= (cost.rerank_p95_ms or 0)
        assert cost.answer_p50_ms is None
    assert "rerank" in str(compared)
    assert len(compared.p_values) == len(values) - 1
    both = vo.evaluate(index, dataset, MEASURES, **options)
    assert [one.name for one in both.evaluations[:2]] == [
        "search (sparse=1,bm25=1)",
        "search (sparse=1,bm25=1) reranked",
    ]
    texts, ids = [query.text for query in dataset.judged().queries], [query.id for query in dataset.judged().queries]
    run = index.search(texts, 3, **options).to_run(ids)
    assert both[1].per_query == evaluate_run("search", run, dataset, MEASURES).per_query


def test_select_measures_rerankings(toy_model: SparseEncoder, dataset: Dataset, cross: str) -> None:
    grid = ["document_max_terms=0,4", "document_max_terms=4 rerank=2"]
    found = vo.select(
        {"toy": toy_model}, dataset, MEASURES, grid=grid, dtype="float32", rerank=cross, rerank_depth=DEPTH
    )
    points = {str(one.setting): one for one in found.points}
    assert list(points) == ["", "document_max_terms=4", "document_max_terms=4 rerank=2", f"rerank={DEPTH}"]
    assert points[f"rerank={DEPTH}"].evaluation.per_query == expected(cross, dataset, toy_model)
    costs = {name: point.evaluation.cost for name, point in points.items()}
    whole, again = costs[""], costs[f"rerank={DEPTH}"]
    assert whole is not None
    assert again is not None
    assert whole.rerank_p50_ms is None
    assert (again.answer_p95_ms or 0) > (again.rerank_p50_ms or 0) > 0
    assert f"toy rerank={DEPTH}" in str(found)
    assert json.loads(json.dumps(found.to_json()))["settings"][-1]["setting"]["rerank"] == DEPTH


def test_rerankings_that_do_not_go_with_evaluate_are_refused(
    toy_model: SparseEncoder, dataset: Dataset, cross: str, backbones: dict[str, Path]
) -> None:
    with pytest.raises(ArgumentError):
        vo.select(toy_model, dataset, MEASURES, grid=["rerank=5"])
    with pytest.raises(ArgumentError):
        vo.evaluate(toy_model, dataset, ["R@3"], grid=["rerank=5"])
    with pytest.raises(ArgumentError):
        vo.evaluate(toy_model, dataset, ["R@3"], grid=["query_max_terms=5"], rerank=cross)
    with pytest.raises(ModelError):
        vo.evaluate(toy_model, dataset, MEASURES, rerank=str(backbones["bert"]))


def test_timed_rows_are_spread_and_repeat_in_turn() -> None:
    assert timed_rows(3, 5) == [0, 1, 2, 0, 1, 2]
    assert timed_rows(10, 4) == [0, 2, 5, 7]
    np.testing.assert_array_equal(timed_rows(4, 4), np.arange(4))
