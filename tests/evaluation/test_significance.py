from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp, ttest_rel

from vocable.errors import ArgumentError
from vocable.evaluation.cost import Cost
from vocable.evaluation.quality import Evaluation
from vocable.evaluation.significance import compare, mean_interval, paired_t_test


def evaluation(
    name: str, *values: float, measure: str = "R@10", cost: Cost | None = None, dataset: str = "toy", **how: Any
) -> Evaluation:
    per_query = {f"q{row}": value for row, value in enumerate(values)}
    how = {"convention": "trec_eval", "ties": "search"} | how
    return Evaluation(name, dataset, {measure: float(np.mean(values))}, {measure: per_query}, cost, **how)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=40))
def test_p_is_scipys_wherever_scipys_is_sound(pairs: list[tuple[float, float]]) -> None:
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    p = paired_t_test(dict(enumerate(first)), dict(enumerate(second)))
    assert 0 <= p <= 1
    assert p == paired_t_test(dict(enumerate(second)), dict(enumerate(first)))
    if (first - second).std() > 1e-6:
        assert p == pytest.approx(ttest_rel(first, second).pvalue, rel=1e-6)


def test_the_interval_of_a_mean_is_scipys() -> None:
    values = [0.2, 0.9, 0.4, 0.0, 1.0]
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    assert mean_interval(dict(zip("abcde", values, strict=True))) == pytest.approx(tuple(expected))
    assert mean_interval({"only": 0.5}) == (0.5, 0.5)


def test_queries_are_paired_by_id_not_by_order() -> None:
    first, second = {"a": 0.1, "b": 0.9, "c": 0.4}, {"c": 0.5, "a": 0.3, "b": 0.8}
    assert paired_t_test(first, second) == pytest.approx(ttest_rel([0.1, 0.9, 0.4], [0.3, 0.8, 0.5]).pvalue)


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([0.5, 1.0, 0.2], [0.5, 1.0, 0.2], 1.0),
        ([0.5, 1.0, 0.25], [0.25, 0.75, 0.0], 0.0),
        ([0.5], [0.1], 1.0),
        ([], [], 1.0),
    ],
)
def test_where_t_is_undefined_p_is_settled(first: list[float], second: list[float], p: float) -> None:
    assert paired_t_test(dict(enumerate(first)), dict(enumerate(second))) == p


def test_other_queries_are_refused_with_their_number() -> None:
    with pytest.raises(ArgumentError, match=r"1 .*\(b\)"):
        paired_t_test({"a": 1.0, "b": 1.0}, {"a": 1.0})
    with pytest.raises(ArgumentError, match=r"6 .*\(q0, q1, q2, "):
        paired_t_test({f"q{row}": 1.0 for row in range(6)}, {})


def test_each_system_is_tested_against_the_first() -> None:
    base, better, same = [0.1, 0.4, 0.3, 0.2], [0.6, 0.5, 0.9, 0.8], [0.1, 0.4, 0.3, 0.2]
    found = compare([evaluation("base", *base), evaluation("better", *better), evaluation("same", *same)])
    p = ttest_rel(base, better).pvalue
    assert [dict(row) for row in found.p_values] == [{"R@10": pytest.approx(p)}, {"R@10": 1.0}]
    written = json.loads(json.dumps(found.to_json()))
    assert (written["dataset"], written["baseline"]) == ("toy", "base")
    assert [system["p"] for system in written["systems"]] == [None, {"R@10": pytest.approx(p)}, {"R@10": 1.0}]
    assert [system["values"] for system in written["systems"]] == [e.values for e in found.evaluations]
    assert all("per_query" not in system for system in written["systems"])
    assert found.evaluations[0].per_query["R@10"] == {"q0": 0.1, "q1": 0.4, "q2": 0.3, "q3": 0.2}


def test_quality_significance_and_cost_stand_in_one_table() -> None:
    better = evaluation("model", 0.6, 0.5, 0.9, cost=Cost(flops=1.5, index_bytes=2_000_000))
    found = compare([evaluation("BM25", 0.1, 0.4, 0.3), better])
    p = ttest_rel([0.1, 0.4, 0.3], [0.6, 0.5, 0.9]).pvalue
    assert found.markdown().splitlines() == [
        "| system | R@10 | p | FLOPS | index MB |",
        "|:--|--:|--:|--:|--:|",
        "| BM25 | 0.2667 | – | – | – |",
        f"| model | 0.6667 | {p:.3f} | 1.50 | 2.00 |",
        "",
        "convention trec_eval; equal scores by id",
    ]
    assert f"{p:.3f}" in str(found.table())


def test_one_evaluation_needs_no_test() -> None:
    found = compare([evaluation("only", 0.5, 1.0)])
    assert found.p_values == ()
    assert found.markdown() == evaluation("only", 0.5, 1.0).markdown()


def test_evaluations_that_do_not_match_are_refused() -> None:
    with pytest.raises(ArgumentError):
        compare([])
    with pytest.raises(ArgumentError):
        compare([evaluation("a", 1.0), evaluation("b", 1.0, dataset="other")])
    with pytest.raises(ArgumentError):
        compare([evaluation("a", 1.0), evaluation("b", 1.0, measure="AP")])
    for how in ({"convention": "beir"}, {"ties": "trec_eval"}):
        pair = [evaluation("a", 1.0, 0.0), evaluation("b", 1.0, 0.5, **how)]
        [(_, other)] = how.items()
        with pytest.raises(ArgumentError, match=rf"a: convention trec_eval, ties search; b: .*{other}.*mixed_conv"):
            compare(pair)
        assert f"b: convention {pair[1].convention}; equal scores by" in str(compare(pair, mixed_conventions=True))
    with pytest.raises(ArgumentError):
        compare([evaluation("a", 1.0, 0.5, 0.5), evaluation("b", 1.0)])


def test_stored_evaluations_of_one_name_are_named_with_their_files(tmp_path: Path) -> None:
    one = evaluation("system", 0.1, 0.2, 0.5)
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps([one.to_json()]))
    found = compare([tmp_path / "a.json", tmp_path / "b.json"])
    assert [one.name for one in found.evaluations] == ["system (a)", "system (b)"]
