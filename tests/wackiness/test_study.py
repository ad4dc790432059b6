"""Findings of toy models and RM3, from texts to W-AUC, against the steps taken one by one; and what reports say."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.encoding.encode import encode
from vocable.encoding.terms import input_terms, special_terms, terms
from vocable.errors import ArgumentError, MissingExtraError
from vocable.indexes.exact_index import ExactIndex
from vocable.options import check
from vocable.training_options import WackinessOptions
from vocable.wackiness.expansions import ExpansionData, expansion_data, word_surfaces
from vocable.wackiness.measure import (
    ExpanderWackiness,
    WackinessRecord,
    area_difference,
    bootstrap_areas,
    wackiness_of,
)
from vocable.wackiness.report import areas_table, curves_figure, sensitivity_table, wackiest_table, write_report
from vocable.wackiness.score import area, curve, expansions, importance, lexical_importance, variants, wackiness


@pytest.fixture
def measured() -> ExpansionData:
    """20 inputs, 60 documents and 50 terms, of which a document has the more, the higher the column."""
    rng = np.random.default_rng(0)

    def sparse(rows: int, share: float) -> csr_array:
        return csr_array(np.where(rng.random((rows, 50)) < share, rng.integers(1, 4, (rows, 50)), 0))

    vectors, own, documents = sparse(20, 0.4), sparse(20, 0.1), sparse(60, 0.3)
    counts = csr_array(np.floor(rng.random((60, 50)) * np.arange(50) / 10))
    words = [f"w{column}" for column in range(50)]
    rows = ExactIndex(documents).search(vectors, 50).rows
    return ExpansionData("random", vectors, own, rows, counts, word_surfaces(words), words, np.array([1, 5]))


def test_a_model_is_measured_by_its_own_ranking(toy_model: SparseEncoder, toy_texts: list[str]) -> None:
    documents = sorted(set(toy_texts))[:60]
    queries = [text[:20] for text in documents[::7]]
    found = expansion_data(toy_model, queries, documents, k=5)
    asked, stored = encode(toy_model, queries, role="query"), encode(toy_model, documents)
    np.testing.assert_array_equal(found.rows, ExactIndex(stored).search(asked, 5).rows)
    assert (found.vectors != asked).nnz == 0
    assert (found.input_counts != input_terms(toy_model, queries)).nnz == 0
    assert (found.counts != input_terms(toy_model, documents)).nnz == 0
    assert list(found.terms) == terms(toy_model)
    np.testing.assert_array_equal(found.special, special_terms(toy_model))
    with pytest.raises(ArgumentError):
        expansion_data(toy_model, queries, documents, k=0)


def test_a_finding_is_the_steps_one_by_one(measured: ExpansionData) -> None:
    settings = check(WackinessOptions, {"k": 5, "bins": 10, "bootstrap": 8, "seed": 2})
    found = wackiness_of(measured, settings, sensitivity=True)
    arrays = measured.vectors, measured.input_counts, measured.rows[:, :5], measured.counts
    scores, _, inputs = wackiness(*arrays)
    np.testing.assert_array_equal(found.wackiness.scores, scores)
    record = found.record
    assert record["w_auc"] == area(curve(scores, 10))
    assert 0 < record["w_auc"] < 1
    std = record["std"]
    assert std is not None
    assert std > 0
    assert record["scored_terms"] == (inputs > 0).sum()
    assert record["absent_terms"] == ((inputs > 0) & (measured.counts.toarray().sum(axis=0) == 0)).sum()
    added = np.asarray(measured.vectors.toarray() > 0) & np.asarray(measured.input_counts.toarray() == 0)
    assert record["expansions"] == added.sum(axis=1).mean()
    assert record["active_terms"] == (measured.vectors.toarray() > 0).sum(axis=1).mean()
    assert {one["setting"]: one["w_auc"] for one in record["sensitivity"]} == {
        "k = 1": area(curve(wackiness(*arrays[:2], measured.rows[:, :1], measured.counts).scores, 10)),
        "k = 50": area(curve(wackiness(*arrays[:2], measured.rows, measured.counts).scores, 10)),
        "idf = bm25": area(curve(wackiness(*arrays, idf="bm25").scores, 10)),
        "bins = 1": area(curve(scores, 1)),
        "bins = 100": area(curve(scores, 100)),
        "no special tokens": area(curve(wackiness(*arrays, special=measured.special).scores, 10)),
        "whole vocabulary": area(curve(scores, 10, whole_vocabulary=True)),
    }
    without = wackiness_of(measured, {**settings, "bootstrap": 0}).record
    assert (without["std"], without["w_auc"], without["sensitivity"]) == (None, record["w_auc"], [])


def test_the_bootstrap_is_its_standard_deviation(measured: ExpansionData) -> None:
    importance = lexical_importance(expansions(measured.vectors, measured.input_counts), measured.rows, measured.counts)
    settings = check(WackinessOptions, {"k": 50, "bootstrap": 8, "seed": 2})
    std = wackiness_of(measured, settings).record["std"]
    assert std == pytest.approx(bootstrap_areas(importance, settings).std(ddof=1))


def test_differences_are_paired_draw_by_draw(measured: ExpansionData) -> None:
    few, many = (check(WackinessOptions, {"k": k, "bootstrap": 40, "seed": 2}) for k in (5, 50))
    one, other = wackiness_of(measured, few), wackiness_of(measured, many)
    found = area_difference(other, one)
    drawn = [bootstrap_areas(importance(measured, settings), settings) for settings in (many, few)]
    low, high = np.quantile(drawn[0] - drawn[1], [0.025, 0.975])
    w_aucs = [finding.record["w_auc"] or 0 for finding in (other, one)]
    assert found == {"to": "random", "value": w_aucs[0] - w_aucs[1], "low": low, "high": high}
    assert area_difference(one, one) == {"to": "random", "value": 0, "low": 0, "high": 0}
    assert area_difference(other._replace(areas=np.empty(0)), one._replace(areas=np.empty(0))) is None
    rows = areas_table([one.record, {**other.record, "difference": found}]).rows
    assert {row[2] for row in rows} == {"–", f"{found['value']:+.3f} [{low:+.3f}, {high:+.3f}]"}


def test_as_many_expansions_of_each_input(measured: ExpansionData) -> None:
    limited = wackiness_of(measured, check(WackinessOptions, {"k": 5, "expansions": 3, "bootstrap": 0}))
    vectors, own = measured.vectors.toarray(), measured.input_counts.toarray()
    heaviest = np.where(own > 0, 0, vectors)
    for row in heaviest:
        row[np.argsort(-row, kind="stable")[3:]] = 0
    scores = wackiness(csr_array(heaviest), measured.input_counts, measured.rows[:, :5], measured.counts).scores
    np.testing.assert_array_equal(limited.wackiness.scores, scores)
    assert limited.record["expansions"] == 3


def test_variants_differ_in_one_setting() -> None:
    settings = check(WackinessOptions, {"k": 3, "idf": "bm25", "special": False, "whole_vocabulary": True})
    changed = variants(settings)
    assert list(changed)[:5] == ["k = 1", "k = 30", "idf = log", "bins = 10", "bins = 1000"]
    assert list(changed)[5:] == ["special tokens", "scored terms only"]
    for other in changed.values():
        assert len(dict(other).items() - dict(settings).items()) == 1


def by_hand(name: str, scores: list[float]) -> ExpanderWackiness:
    """A finding of six words, by three inputs that find one document of two; a word below 0 stands in the inputs."""
    words = ["the", "Mira", "б", "1985", ",", "fox"]
    expanding = np.array(scores) >= 0
    frequencies = np.where(expanding, 1 - np.array(scores), 0)
    measured = ExpansionData(
        name,
        csr_array(np.ones((3, 6))),
        csr_array(np.tile(~expanding, (3, 1)).astype(np.float32)),
        np.zeros((3, 1), np.int32),
        csr_array(np.array([frequencies, np.zeros(6)])),
        word_surfaces(words),
        words,
    )
    return wackiness_of(measured, check(WackinessOptions, {"bootstrap": 0}), names={"mira"})


def test_tables_put_models_side_by_side() -> None:
    one = by_hand("one", [0.5, 1.0, 0.9, 0.0, -1, -1]).record
    one["std"] = 0.01234
    two = by_hand("two", [-1, 0.3, -1, 0.2, 0.1, 0.0]).record
    none = by_hand("none", [-1] * 6).record
    assert wackiest_table([one, two]).rows == [
        ["proper name", "Mira", "Mira"],
        ["stop word", "the", ""],
        ["punctuation", "", ","],
        ["non-Latin", "б", ""],
        ["number", "1985", "1985"],
        ["other word", "", "fox"],
    ]
    assert [entry["score"] for entry in one["wackiest"]] == pytest.approx([1.0, 0.9, 0.5, 0.0])
    rows = areas_table([none, one, two]).rows
    assert [row[0] for row in rows] == ["none", "one", "two"]
    assert rows[2][1] == f"{two['w_auc']:.3f}"
    assert rows[1][1:] == [f"{one['w_auc']:.3f} ± 0.012", "4 of 6", "6.0", "4.0"]
    assert rows[0][1:3] == ["–", "0 of 6"]
    for record, w_auc in ((one, 0.25), (none, None)):
        record["sensitivity"] = [{"setting": "k = 1", "w_auc": w_auc}]
    assert sensitivity_table([one, none]).rows == [
        ["unchanged", f"{one['w_auc']:.3f}", "–"],
        ["k = 1", "0.250", "–"],
    ]


def shaped(name: str, heights: list[float]) -> WackinessRecord:
    """The record of a finding with this curve."""
    record = by_hand(name, [1.0] * 6).record
    record["curve"], record["w_auc"] = heights or None, area(np.array(heights)) if heights else None
    return record


def test_curves_are_drawn_in_the_order_of_the_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = {"high": [1.0, 1.0, 0.8], "low": [1.0, 0.2, 0.0], "none": list[float]()}
    drawn = [shaped(name, heights) for name, heights in curves.items()]
    [axes] = curves_figure(drawn).axes
    assert [line.get_label() for line in axes.get_lines()] == ["high (0.950)", "low (0.350)"]
    for line, name in zip(axes.get_lines(), ("high", "low"), strict=True):
        np.testing.assert_allclose(line.get_xydata(), np.column_stack([[0, 50, 100], curves[name]]))
    [point] = curves_figure([shaped("one", [0.5])]).axes[0].get_lines()
    assert point.get_xydata().tolist() == [[50, 0.5]]
    with pytest.raises(ArgumentError):
        curves_figure(drawn[2:])
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError):
        curves_figure(drawn)


def test_the_files_of_a_report(tmp_path: Path) -> None:
    findings = [by_hand("one", [0.5, 1.0, 0.9, 0.0, -1, -1]), by_hand("a/two:b", [-1, 0.3, -1, 0.2, 0.1, 0.0])]
    settings = {"models": ["m", "n"], "role": "query", "queries": "q", "corpus": "<c>"}
    write_report(tmp_path, findings, settings)
    names = ["curves.png", "curves.svg", "index.html", "results.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    results = json.loads((tmp_path / "results.json").read_text())
    assert results == {"settings": settings, "models": [one.record for one in findings]}
    [first, _] = results["models"]
    assert [entry["term"] for entry in first["wackiest"]] == ["Mira", "б", "the", "1985"]
    assert all(a >= b for a, b in pairwise(first["curve"]))
    page = (tmp_path / "index.html").read_text()
    assert "<title>Wackiness of one, a/two:b on &lt;c&gt;</title>" in page
    assert "prefers-color-scheme: dark" in page
    for shown in ("Mira", "non-Latin", "&lt;c&gt;", "data:image/svg+xml", f"{findings[0].record['w_auc']:.3f}"):
        assert shown in page
