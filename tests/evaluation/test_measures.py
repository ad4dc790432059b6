"""Measures by their definitions and beside ir_measures, which computes them by four programs."""

from __future__ import annotations

import subprocess
import sys

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data import Qrel, Query, ScoredDoc
from vocable.errors import ArgumentError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.measures import MEASURE_FORMULAS, JudgedMeasures, parse_measures

ALL = [
    *("nDCG", "nDCG@1", "nDCG@3", "nDCG@1000", "RR", "RR@2", "RR(rel=2)@10", "R@1", "R@5", "R(rel=2)@5", "P@1", "P@20"),
    *("P(rel=3)@5", "AP", "AP@3", "AP(rel=2)", "AP(rel=2)@4", "Success@1", "Success(rel=2)@3", "Judged", "Judged@3"),
]


@given(seed=st.integers(0, 2**32 - 1), found=st.integers(1, 12), judged=st.integers(1, 12), least=st.integers(-2, 1))
def test_own_formulas_give_the_values_of_ir_measures(seed: int, found: int, judged: int, least: int) -> None:
    generator = np.random.default_rng(seed)
    judgments = [
        Qrel(query, f"d{number}", int(generator.integers(least, 4)))
        for query in ("q1", "q2")
        for number in generator.choice(12, judged, replace=False)
    ]
    answers = {
        query: {f"d{number}": float(found - rank) for rank, number in enumerate(generator.permutation(12)[:found])}
        for query in ("q1", "q2")
    }
    parsed = parse_measures(ALL)
    assert [measure.formula for measure in parsed.values()].count(None) == 0
    dataset = Dataset("toy", [], [Query("q1", ""), Query("q2", "")], judgments)
    measures = JudgedMeasures(parsed, dataset)
    values = measures.per_query(answers)
    peers = [ir_measures.parse_measure(name) for name in ALL]
    grades = [judgment._replace(relevance=max(judgment.relevance, 0)) for judgment in judgments]  # as trec_eval's
    compared = 0
    for metric in ir_measures.iter_calc(peers, grades, answers):
        assert values[str(metric.measure)][metric.query_id] == pytest.approx(metric.value, abs=1e-15), metric
        compared += 1
    assert compared == 2 * len(ALL)
    means = ir_measures.calc_aggregate(peers, grades, answers)
    assert measures.aggregated(values) == pytest.approx({str(one): value for one, value in means.items()}, abs=1e-15)


def test_records_are_those_of_ir_measures() -> None:
    assert Qrel._fields == ir_measures.Qrel._fields
    assert Qrel("q", "d", 1) == ir_measures.Qrel("q", "d", 1)
    assert ScoredDoc._fields == ir_measures.ScoredDoc._fields


def test_names_and_parameters_mean_what_they_mean_in_ir_measures() -> None:
    names = ["MRR@10", "NDCG@10", "Recall@5", "Precision@5", "MAP", "MAP(rel=2)"]
    names += ["nDCG(cutoff=10)", "P(rel=1)@5", "R @ 5"]
    found = {name: str(measure) for name, measure in parse_measures(names).items()}
    assert found == {name: str(ir_measures.parse_measure(name)) for name in names} | {"P(rel=1)@5": "P@5"}
    assert all(measure.formula is not None for measure in parse_measures(names).values())
    cutoffs = [measure.cutoff for measure in parse_measures(["nDCG", "nDCG@7", "ERR@20", "Rprec"]).values()]
    assert cutoffs == [0, 7, 20, 0]
    levels = [measure.level for measure in parse_measures(["nDCG", "R@5", "R(rel=3)@5", "Rprec(rel=2)"]).values()]
    assert levels == [None, 1, 3, 2]


@pytest.mark.parametrize("measure", [ir_measures.nDCG @ 10, ir_measures.R(rel=2) @ 5, ir_measures.Rprec])
def test_a_measure_of_ir_measures_is_taken_by_its_name(measure: ir_measures.Measure) -> None:
    assert {name: str(one) for name, one in parse_measures([measure]).items()} == {str(measure): str(measure)}


WITHOUT = """
import sys
sys.modules["ir_measures"] = None  # as if it were not installed
from vocable.errors import MissingExtraError
from vocable.evaluation.measures import parse_measures
print(len(parse_measures(sys.argv[1].split())))
for name in sys.argv[2:]:
    try:
        parse_measures([name])
    except MissingExtraError as error:
        print(error)
"""


def test_the_measures_here_need_no_further_package() -> None:
    command = [sys.executable, "-c", WITHOUT, " ".join(ALL), "ERR@20", "ndcg@10"]
    count, missing, misspelled = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert int(count) == len(ALL)
    assert "pip install 'vocable[measures]'" in missing
    assert "did you mean nDCG@10" in misspelled
    assert all(name in missing for name in MEASURE_FORMULAS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndcg@10", "'ndcg@10': .*nDCG@10"),
        ("recal@100", "Recall@100"),
        ("mrr@10", "MRR@10"),
        ("ndcg_cut_10", "nDCG"),
        ("zzzzzz", "nDCG, R, RR, AP"),
        ("R", "R@1000"),
        ("R@100001", "100,000, .*100,001"),
        ("R@1000000000", "100,000"),
        ("nDCG@0", " 1, not 0"),
        ("R@1.5", "1.5"),
        ("nDCG(foo=1)@10", "'foo'"),
        ("NumQ@10", "NumQ@10"),
        ("nDCG@", "nDCG@"),
        ("", "''"),
        ("alpha_nDCG@10", "pip install"),
    ],
)
def test_a_measure_that_cannot_be_is_refused_before_anything_slow(name: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        parse_measures(["R@10", name])


@pytest.mark.parametrize("names", ["nDCG@10", []])
def test_measures_are_a_list(names: list[str]) -> None:
    with pytest.raises(ArgumentError):
        parse_measures(names)


NAMES = ["nDCG@10", "RR@3", "R@5", "AP", "P(rel=2)@5"]


def test_each_run_has_the_values_of_ir_measures() -> None:
    rng = np.random.default_rng(0)
    queries = [Query(f"q{i}", "") for i in range(6)]
    judgments = [
        Qrel(q.id, f"d{i}", int(rng.integers(0, 3))) for q in queries for i in rng.choice(20, 4, replace=False)
    ]
    parsed = parse_measures(NAMES)
    measures = JudgedMeasures(parsed, Dataset("toy", [], queries, judgments))
    for some in ([0, 1, 2, 3, 4, 5], [3, 1], [5]):
        answers = {f"q{q}": {f"d{i}": float(rng.random()) for i in rng.choice(20, 8, replace=False)} for q in some}
        found = measures.per_query(answers)
        assert [list(values) for values in found.values()] == [list(answers)] * len(NAMES)
        for metric in ir_measures.iter_calc([ir_measures.parse_measure(name) for name in NAMES], judgments, answers):
            if metric.query_id in answers:
                assert found[str(metric.measure)][metric.query_id] == pytest.approx(metric.value)
        expected = {name: pytest.approx(np.mean(list(values.values()))) for name, values in found.items()}
        assert measures.aggregated(found) == expected
