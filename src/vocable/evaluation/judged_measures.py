"""Measures of one dataset, for any number of runs: the judgments are taken in once."""

from __future__ import annotations

from collections.abc import Mapping
from subprocess import SubprocessError

import ir_measures
from ir_measures import Measure

from vocable.errors import ArgumentError
from vocable.evaluation.dataset import Dataset


class JudgedMeasures:
    """What `measures` {name: measure} make of answers to the queries of a dataset that `Dataset.judged` gave.

    Raises:
        ArgumentError: a measure cannot be computed for this dataset; also from `per_query`.
    """

    def __init__(self, measures: Mapping[str, Measure], judged: Dataset) -> None:
        self.measures, self._dataset = measures, judged.name
        try:
            self._evaluator = ir_measures.evaluator(list(dict.fromkeys(measures.values())), list(judged.judgments))
        except (ArithmeticError, OSError, SubprocessError, ValueError) as error:
            raise self._impossible(error) from error

    def per_query(self, answers: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
        """{measure: {query id: value}} of the queries in `answers` {query id: {document id: score}}.

        A query without an answer has the measure's default, 0 for most.

        >>> from ir_measures import Qrel, nDCG
        >>> from vocable.data import Query
        >>> toy = Dataset("toy", [], [Query("q1", "lists"), Query("q2", "sets")], [Qrel("q1", "d", 1)])
        >>> JudgedMeasures({"nDCG@10": nDCG @ 10}, toy).per_query({"q1": {"d": 2.0}, "q2": {}})
        {'nDCG@10': {'q1': 1.0, 'q2': 0.0}}
        """
        found: dict[Measure, dict[str, float]] = {measure: {} for measure in self.measures.values()}
        try:
            for metric in self._evaluator.iter_calc(answers):
                found[metric.measure][metric.query_id] = float(metric.value)
        except (ArithmeticError, OSError, SubprocessError, ValueError) as error:
            raise self._impossible(error) from error
        return {
            name: {query: found[measure].get(query, measure.DEFAULT) for query in answers}
            for name, measure in self.measures.items()
        }

    def aggregated(self, per_query: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """The one figure of each measure for all the queries that `per_query` gives it, for most their mean."""
        return {name: _aggregated(self.measures[name], values) for name, values in per_query.items()}

    def _impossible(self, error: Exception) -> ArgumentError:
        return ArgumentError(f"{', '.join(self.measures)} cannot be computed for {self._dataset}: {error}")


def _aggregated(measure: Measure, per_query: Mapping[str, float]) -> float:
    aggregator = measure.aggregator()
    for value in per_query.values():
        aggregator.add(value)
    return float(aggregator.result())
