"""Measures by their ir_measures names, checked before anything slow begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

import ir_measures
from ir_measures import Measure, Qrel
from ir_measures.measures import registry

from vocable.errors import ArgumentError


def parse_measures(names: Sequence[str | Measure]) -> dict[str, Measure]:
    """The ir_measures measures under the names they were asked by.

    >>> {name: str(measure) for name, measure in parse_measures(["nDCG@10", "MRR@10"]).items()}
    {'nDCG@10': 'nDCG@10', 'MRR@10': 'RR@10'}

    Raises:
        ArgumentError: no measure is named, one is unknown (the message lists near matches), lacks a parameter or has
            one out of its range, or needs software that is not installed.
    """
    if isinstance(names, str) or not names:
        raise ArgumentError(f"measures must be a list of names such as nDCG@10, not {names!r}")
    return {str(name).strip(): _parse(str(name).strip()) for name in names}


def depth(measure: Measure) -> int:
    """The number of results that `measure` looks at; 0 where it has no cutoff."""
    cutoff = measure.params.get("cutoff")
    return cutoff if isinstance(cutoff, int) else 0


def _parse(name: str) -> Measure:
    try:
        measure = ir_measures.parse_measure(name)
        _check_cutoff(measure)
        ir_measures.evaluator([measure], [Qrel("q", "d", 1)])  # finds the software, and validates the parameters
    except NameError as error:
        raise ArgumentError(f"unknown measure {name!r}: did you mean {_near(name)}?") from error
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"measure {name!r}: {_reason(error)}") from error
    return measure


def _check_cutoff(measure: Measure) -> None:
    """trec_eval ends the whole process at a cutoff of 0."""
    cutoff = measure.params.get("cutoff", 1)
    if type(cutoff) is not int or cutoff < 1:
        raise ValueError(f"the cutoff must be a whole number of at least 1, not {cutoff!r}")


def _near(name: str) -> str:
    base, at, cutoff = name.partition("@")
    by_lower = {known.lower(): known for known in reversed(registry)}  # of two the first, which ir_measures documents
    words = re.sub(r"[\W\d]+$", "", base).lower()
    near = [by_lower[word] for word in get_close_matches(words, by_lower, n=4, cutoff=0.4)] or ["nDCG", "R", "RR", "AP"]
    return ", ".join(f"{known}{at}{cutoff}" for known in near)


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"it has no parameter {error}"
    if "cutoff=<object" in str(error):
        return "it needs a cutoff, as in R@1000"
    return " ".join(str(error).split())
