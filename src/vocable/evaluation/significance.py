"""The verb `compare`: show evaluations side by side, and test each against the first with a paired test."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import stdtr, stdtrit  # Student's t, without the import time of scipy.stats

from vocable.core.records import WrongRecordError, as_record
from vocable.core.storage import StrPath, regular
from vocable.core.tables import Table, Tabular, counted
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.quality import Evaluation, quality_table


@dataclass(frozen=True)
class ComparedEvaluations(Tabular):
    """Evaluations of the same queries; the first is the baseline.

    For each further evaluation, `p_values` has {measure: p} of the paired two-sided t-test against the baseline. The
    p-values are not corrected for the number of tests.
    """

    evaluations: tuple[Evaluation, ...]
    p_values: tuple[Mapping[str, float], ...]

    def __len__(self) -> int:
        return len(self.evaluations)

    def __getitem__(self, number: int) -> Evaluation:
        return self.evaluations[number]

    def to_json(self) -> dict[str, object]:
        """Return the comparison as JSON values, without the values of single queries."""
        systems = [evaluation.to_json() for evaluation in self.evaluations]
        for system, p in zip(systems, [None, *self.p_values], strict=True):
            del system["per_query"]
            system["p"] = None if p is None else dict(p)
        return {"dataset": self.evaluations[0].dataset, "baseline": self.evaluations[0].name, "systems": systems}

    def table(self) -> Table:
        """Return a table of quality, significance and cost."""
        return quality_table(self.evaluations, self.p_values)


def compare(
    results: Evaluation | StrPath | Sequence[Evaluation | StrPath], *, mixed_conventions: bool = False
) -> ComparedEvaluations:
    """Compare stored evaluations.

    Each evaluation is tested against the first, measure by measure (paired t-test).

    Args:
        results: JSON files of `vocable evaluate`; in Python also evaluations.
        mixed_conventions: allow evaluations whose conventions or orders of ties differ.

    Raises:
        ArgumentError: no evaluations, or evaluations that differ in their dataset, measures, queries or conventions.
        DataError: a file does not contain evaluations.
    """
    evaluations = _distinctly_named([results] if isinstance(results, Evaluation | str | os.PathLike) else results)
    if not evaluations:
        raise ArgumentError("there are no evaluations to compare")
    baseline, *others = evaluations
    # A paired test needs the same data, measures and conventions.
    for other in others:
        if other.dataset != baseline.dataset:
            both = f"{baseline.name} on {baseline.dataset}, {other.name} on {other.dataset}"
            raise ArgumentError(f"evaluations of different datasets cannot be compared: {both}")
        if set(other.measures) != set(baseline.measures):
            both = f"{baseline.name} has {', '.join(baseline.measures)}; {other.name} has {', '.join(other.measures)}"
            raise ArgumentError(f"evaluations with different measures cannot be compared: {both}")
        if (other.convention, other.ties) != (baseline.convention, baseline.ties) and not mixed_conventions:
            both = "; ".join(
                f"{each.name}: convention {each.convention}, ties {each.ties}" for each in (baseline, other)
            )
            raise ArgumentError(f"{both}: evaluate both alike, or pass mixed_conventions")
    # A measure that another evaluation could not compute has no p-value.
    p_values = [
        {
            name: paired_t_test(values, other.per_query[name])
            for name, values in baseline.per_query.items()
            if name in other.per_query
        }
        for other in others
    ]
    return ComparedEvaluations(tuple(evaluations), tuple(p_values))


def _distinctly_named(results: Sequence[Evaluation | StrPath]) -> list[Evaluation]:
    """Return the evaluations; if several have the same name, add their files' names to it."""
    read = [
        (evaluation, "" if isinstance(result, Evaluation) else Path(result).stem)
        for result in results
        for evaluation in ([result] if isinstance(result, Evaluation) else _read(Path(result)))
    ]
    counts = Counter(evaluation.name for evaluation, _ in read)
    return [
        replace(each, name=f"{each.name} ({file})") if file and counts[each.name] > 1 else each for each, file in read
    ]


def _read(path: Path) -> list[Evaluation]:
    if path.is_dir() or (not path.exists() and path.suffix != ".json"):
        raise ArgumentError(f"{path}: not a file of evaluations (models are compared on a dataset by `select`)")
    try:
        values = json.loads(regular(path).read_bytes())
        # `vocable evaluate` writes a list; `Evaluation.to_json` returns a single evaluation.
        return as_record(values if isinstance(values, list) else [values], list[Evaluation], forbid=False)
    except WrongRecordError as error:
        raise DataError(f"not an evaluation as JSON: {error}", source=str(path)) from error
    except ValueError as error:
        raise DataError(f"not JSON: {error}", source=str(path)) from error


def mean_interval(values: Mapping[str, float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean of {query id: value} by Student's t; for one query, its value.

    >>> [round(limit, 3) for limit in mean_interval({"q1": 0.0, "q2": 0.5, "q3": 1.0})]
    [-0.742, 1.742]
    """
    sample = np.array(list(values.values()), dtype=np.float64)
    n, mean = len(sample), float(sample.mean())
    half = float(stdtrit(n - 1, 0.975) * sample.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
    return mean - half, mean + half


def paired_t_test(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return the two-sided p-value of the paired t-test over the values {query id: value} of two systems.

    The test is not defined in two cases: p is 1 if the systems do not differ or there is a single query, and 0 if the
    systems differ by the same amount on every query.

    >>> paired_t_test({"q1": 0.5, "q2": 1.0}, {"q1": 0.5, "q2": 1.0})
    1.0
    """
    apart = sorted(first.keys() ^ second.keys())
    if apart:
        examples = ", ".join(apart[:3]) + (", ..." if len(apart) > 3 else "")
        count = counted(len(apart), "query is", "queries are")
        raise ArgumentError(f"a paired test needs the same queries: {count} in only one of the two ({examples})")
    differences = np.array([first[query] - second[query] for query in first], dtype=np.float64)
    n = len(differences)
    if n < 2 or not differences.any():
        return 1.0
    error = differences.std(ddof=1) / np.sqrt(n)
    if error == 0:
        return 0.0
    return float(2 * stdtr(n - 1, -abs(differences.mean()) / error))
