"""Measures of rankings by the names of ir_measures: the common ones here, all others by the package itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import log2
from subprocess import CalledProcessError
from typing import Any, TypeAlias

from vocable.errors import ArgumentError, MissingExtraError, require_extra
from vocable.evaluation.dataset import Dataset
from vocable.indexes.ranking import in_order

MOST_CUTOFF = 100_000  # a search is as deep as the deepest cutoff of its measures
Measures: TypeAlias = Sequence[object]  # names, or measures of ir_measures, whose texts are their names
Grades: TypeAlias = Sequence[int | None]  # judgments of hits, best first; None without a judgment
# Judgments of the hits down to the cutoff, all judgments, cutoff (0 for none), least relevant judgment -> value
MeasureFormula: TypeAlias = Callable[[Grades, Iterable[int], int, int], float]


def _gain(grades: Iterable[int | None]) -> float:
    total = 0.0  # `sum` compensates rounding from Python 3.12 on
    for rank, grade in enumerate(grades, start=1):
        total += max(grade or 0, 0) / log2(rank + 1)
    return total


def _ndcg(hits: Grades, judged: Iterable[int], cutoff: int, level: int) -> float:
    """Return the discounted cumulative gain, as a share of the best (Järvelin and Kekäläinen 2002, section 2.3)."""
    best = _gain(sorted(judged, reverse=True)[: cutoff or None])
    return _gain(hits) / best if best else 0.0


def _average_precision(hits: Grades, judged: Iterable[int], cutoff: int, level: int) -> float:
    """Return the mean precision at the ranks of all relevant documents; a document that is no hit counts 0."""
    ranks = _relevant_ranks(hits, level)
    total = 0.0
    for relevant, rank in enumerate(ranks, start=1):
        total += relevant / rank
    return total / sum(grade >= level for grade in judged) if ranks else 0.0


def _reciprocal_rank(hits: Grades, judged: Iterable[int], cutoff: int, level: int) -> float:
    """Return 1 / rank of the first relevant hit; 0 without one."""
    return 1 / next(iter(_relevant_ranks(hits, level)), float("inf"))


def _recall(hits: Grades, judged: Iterable[int], cutoff: int, level: int) -> float:
    """Return the share of the relevant documents among the hits."""
    return len(_relevant_ranks(hits, level)) / max(1, sum(grade >= level for grade in judged))


def _precision(hits: Grades, judged: Iterable[int], cutoff: int, level: int) -> float:
    """Return the share of relevant hits among `cutoff` ranks, empty ones included."""
    return len(_relevant_ranks(hits, level)) / cutoff


def _success(hits: Grades, judged: Iterable[int], cutoff: int, level: int) -> float:
    """Return 1 with a relevant hit, else 0."""
    return float(bool(_relevant_ranks(hits, level)))


def _judged(hits: Grades, judged: Iterable[int], cutoff: int, level: int) -> float:
    """Return the share of the hits that have a judgment."""
    return sum(grade is not None for grade in hits) / max(1, len(hits))


def _relevant_ranks(hits: Grades, level: int) -> list[int]:
    return [rank for rank, grade in enumerate(hits, start=1) if grade is not None and grade >= level]


MEASURE_FORMULAS: dict[str, MeasureFormula] = {
    "nDCG": _ndcg,
    "RR": _reciprocal_rank,
    "R": _recall,
    "P": _precision,
    "AP": _average_precision,
    "Success": _success,
    "Judged": _judged,
}
SYNONYMS = {"NDCG": "nDCG", "MRR": "RR", "Recall": "R", "Precision": "P", "MAP": "AP"}
WITHOUT_LEVEL, NEED_CUTOFF = {"nDCG", "Judged"}, {"R", "P", "Success"}
MEASURE_NAME = re.compile(r"\s*(\w+)(?:\(rel=([1-9]\d{0,8})\))?(?:@(\d{1,9}))?\s*")


@dataclass(frozen=True)
class Measure:
    """A measure by its name in ir_measures.

    Attributes:
        cutoff: hits that count; 0 for all.
        level: the lowest judgment that counts as relevant; None for a measure without such a level.
        formula: computes the value of a query; None for a measure that ir_measures computes.
        measure: the measure of ir_measures, if this computes the values.
    """

    name: str
    cutoff: int
    level: int | None
    formula: MeasureFormula | None = None
    measure: Any = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.name


def parse_measures(names: Measures) -> dict[str, Measure]:
    """Return measures by the names that the caller uses.

    Raises `ArgumentError` for a name or a parameter that does not exist, and `MissingExtraError` for a measure that
    needs ir_measures.

    >>> {name: str(measure) for name, measure in parse_measures(["nDCG@10", "MRR@10"]).items()}
    {'nDCG@10': 'nDCG@10', 'MRR@10': 'RR@10'}
    """
    if isinstance(names, str) or not names:
        raise ArgumentError(f"measures must be a list of names such as nDCG@10, not {names!r}")
    return {name: _own(name) or _other(name) for name in (str(one).strip() for one in names)}


def _own(name: str) -> Measure | None:
    """Return a measure whose formula is here; None for another name or other parameters."""
    found = MEASURE_NAME.fullmatch(name)
    base = SYNONYMS.get(found[1], found[1]) if found else ""
    if found is None or base not in MEASURE_FORMULAS or (found[2] and base in WITHOUT_LEVEL):
        return None
    if found[3] is None and base in NEED_CUTOFF:
        raise ArgumentError(f"measure {name!r}: it needs a cutoff, as in R@1000")
    cutoff, level = int(found[3] or 0), int(found[2] or 1)
    if found[3] is not None:
        _check_cutoff(name, cutoff)
    full = base + (f"(rel={level})" if level > 1 else "") + (f"@{cutoff}" if cutoff else "")
    return Measure(full, cutoff, None if base in WITHOUT_LEVEL else level, MEASURE_FORMULAS[base])


def _check_cutoff(name: str, cutoff: object) -> None:
    if type(cutoff) is not int or cutoff < 1:  # a cutoff of 0 in trec_eval ends the whole process
        raise ArgumentError(f"measure {name!r}: the cutoff must be a whole number of at least 1, not {cutoff!r}")
    if cutoff > MOST_CUTOFF:
        raise ArgumentError(f"measure {name!r}: the cutoff must be at most {MOST_CUTOFF:,}, not {cutoff:,}")


def _other(name: str) -> Measure:
    """Return a measure of ir_measures."""
    try:
        ir_measures: Any = require_extra("ir_measures", "measures")
    except MissingExtraError as error:
        meant = _near(name, [*SYNONYMS, *MEASURE_FORMULAS], [])
        hint = f"did you mean {meant}? " if meant else ""
        known = ", ".join(MEASURE_FORMULAS)
        raise MissingExtraError(f"measure {name!r}: {hint}Measures beyond {known}: {error}") from error
    try:
        # The name that ir_measures gives may be a measure with a formula here.
        measure = ir_measures.parse_measure(name)
        cutoff = measure.params.get("cutoff", 1)
        _check_cutoff(name, cutoff)
        if (here := _own(str(measure))) is not None:
            return here
        ir_measures.evaluator([measure], [ir_measures.Qrel("q", "d", 1)])  # finds the program, validates parameters
    except NameError as error:
        meant = _near(name, [*reversed(ir_measures.measures.registry)], ["nDCG", "R", "RR", "AP"])
        raise ArgumentError(f"unknown measure {name!r}: did you mean {meant}?") from error
    except KeyError as error:
        raise ArgumentError(f"measure {name!r}: it has no parameter {error}") from error
    except (AssertionError, TypeError, ValueError) as error:
        raise ArgumentError(f"measure {name!r}: {' '.join(str(error).split())}") from error
    # The least level of a relevant document, and the depth of the measure; 0 for all hits.
    level = measure["rel"] if "rel" in measure.SUPPORTED_PARAMS else None
    depth = measure.params.get("cutoff", 0)
    return Measure(str(measure), depth, level if isinstance(level, int) else None, measure=measure)


def _near(name: str, known: Sequence[str], otherwise: Sequence[str]) -> str:
    """Return known names with nearly the spelling of a name, with its cutoff; the first spelling of each is taken."""
    base, at, cutoff = name.partition("@")
    by_lower = {one.lower(): one for one in known}
    near = get_close_matches(re.sub(r"[\W\d]+$", "", base).lower(), by_lower, n=4, cutoff=0.4)
    return ", ".join(f"{one}{at}{cutoff}" for one in [by_lower[word] for word in near] or otherwise)


def _reason(error: Exception) -> str:
    """Return the reason of an error of whichever program, in one line."""
    if isinstance(error, CalledProcessError):
        return f"{error.cmd[0]} ended with status {error.returncode}"
    return " ".join(str(error).split()) or type(error).__name__


class JudgedMeasures:
    """Evaluate rankings of a judged dataset; `measures` is {name: measure}."""

    def __init__(self, measures: Mapping[str, Measure], judged: Dataset) -> None:
        self.measures, self._dataset = measures, judged
        self._grades: dict[str, dict[str, int]] = {}
        for judgment in judged.judgments:
            self._grades.setdefault(judgment.query_id, {})[judgment.doc_id] = judgment.relevance
        self._evaluators: dict[str, Any] = {}

    def per_query(
        self, answers: Mapping[str, Mapping[str, float]], uncomputed: dict[str, str] | None = None
    ) -> dict[str, dict[str, float]]:
        """Return {measure: {query id: value}} of the queries in `answers` {query id: {document id: score}}.

        The value of a query without an answer is the measure's default, usually 0. BEIR's convention (`Dataset`) drops
        the document with the id of the query. Equal scores are in the dataset's order of ties. A measure that cannot be
        computed is an `ArgumentError`; with `uncomputed` it is left out, and its reason is put there.

        >>> from vocable.data import Qrel, Query
        >>> toy = Dataset("toy", [], [Query("q1", "lists"), Query("q2", "sets")], [Qrel("q1", "d", 1)])
        >>> measures = JudgedMeasures(parse_measures(["nDCG@10"]), toy)
        >>> measures.per_query({"q1": {"d": 2.0}, "q2": {}})
        {'nDCG@10': {'q1': 1.0, 'q2': 0.0}}
        """
        # Hits by query, with equal scores in the dataset's order of ties.
        ordered = {query: self._ordered(query, hits) for query, hits in answers.items()}
        values: dict[str, dict[str, float]] = {}
        for name, measure in self.measures.items():
            if measure.formula is not None:
                values[name] = {query: self._value(measure, query, hits) for query, hits in ordered.items()}
                continue
            # A program behind ir_measures may fail in any way.
            try:
                of_measure = self._other_values(measure, ordered)
                values[name] = {query: of_measure.get(query, float(measure.measure.DEFAULT)) for query in answers}
            except Exception as error:
                reason = f"{name} cannot be computed: {_reason(error)}"
                if uncomputed is None:
                    raise ArgumentError(f"{self._dataset.name}: {reason}") from error
                uncomputed[name] = reason
        return values

    def aggregated(self, per_query: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Aggregate each measure over all queries of `per_query`; most measures take the mean."""
        figures = {}
        for name, values in per_query.items():
            if self.measures[name].formula is not None:
                total = 0.0
                for value in values.values():
                    total += value
                figures[name] = total / len(values) if values else float("nan")
            else:
                aggregator = self.measures[name].measure.aggregator()
                for value in values.values():
                    aggregator.add(value)
                figures[name] = float(aggregator.result())
        return figures

    def _value(self, measure: Measure, query: str, ordered: Sequence[str]) -> float:
        assert measure.formula is not None
        grades = self._grades.get(query, {})
        hits = [grades.get(document) for document in ordered[: measure.cutoff or None]]
        return measure.formula(hits, grades.values(), measure.cutoff, measure.level or 1)

    def _other_values(self, measure: Measure, ordered: Mapping[str, Sequence[str]]) -> dict[str, float]:
        """Return the values of a measure that ir_measures computes.

        Several programs compute them, and each orders equal scores differently: so hits get scores n, n - 1, ..., 1.
        A query whose value is a division by zero has none, unless that is true of all queries.
        """
        try:
            return self._computed(measure, ordered)
        except ArithmeticError:
            values = dict[str, float]()
            for query, hits in ordered.items():
                with suppress(ArithmeticError):
                    values |= self._computed(measure, {query: hits})
            if not values:
                raise
            return values

    def _computed(self, measure: Measure, ordered: Mapping[str, Sequence[str]]) -> dict[str, float]:
        if measure.name not in self._evaluators:
            make = require_extra("ir_measures", "measures").evaluator
            self._evaluators[measure.name] = make([measure.measure], list(self._dataset.judgments))
        falling = {
            query: {document: float(len(hits) - rank) for rank, document in enumerate(hits)}
            for query, hits in ordered.items()
        }
        return {metric.query_id: float(metric.value) for metric in self._evaluators[measure.name].iter_calc(falling)}

    def _ordered(self, query: str, hits: Mapping[str, float]) -> list[str]:
        """Return the hits that count, best first."""
        ordered = in_order(hits, self._dataset.ties)
        return [document for document in ordered if self._dataset.convention != "beir" or document != query]
