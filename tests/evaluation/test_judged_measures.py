from __future__ import annotations

import ir_measures
import numpy as np
import pytest

from vocable.data import Qrel, Query
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.quality import JudgedMeasures, parse_measures

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
        for metric in ir_measures.iter_calc(list(parsed.values()), judgments, answers):
            if metric.query_id in answers:
                assert found[str(metric.measure)][metric.query_id] == pytest.approx(metric.value)
        expected = {name: pytest.approx(np.mean(list(values.values()))) for name, values in found.items()}
        assert measures.aggregated(found) == expected
