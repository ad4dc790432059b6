"""Arguments are checked by their type hints, options of a record among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack, get_type_hints

import numpy as np
import pytest
from annotated_types import Gt, Lt
from typing_extensions import TypedDict

import vocable as vo
from vocable import options as shared
from vocable.engines.protocols import OpenedSearchOptions
from vocable.errors import ArgumentError
from vocable.integrations.embedder import EmbedderOptions
from vocable.language.languages import ENGLISH
from vocable.options import (
    RECORD_RULES,
    Count,
    CountOrZero,
    Default,
    SearchOptions,
    changed,
    check,
    check_arguments,
    check_fields,
    checked,
    defaults,
    values_of,
)
from vocable.service import ServiceOptions
from vocable.training_options import NegativeOptions, PretrainOptions, WackinessOptions

if TYPE_CHECKING:
    from torch import Tensor


@checked
def verb(
    model: Tensor | str,
    k: Count = 10,
    *,
    seed: CountOrZero = 0,
    rate: Annotated[float, Gt(0), Lt(1)] | None = None,
    factor: float | Literal["auto"] = 1.0,
    sizes: Count | Sequence[Count | None] = (),
    kind: Literal["a", "b", "c"] = "a",
    flag: bool = False,
    **options: Unpack[SearchOptions],
) -> dict[str, Any]:
    return {"k": k, "flag": flag, **options}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k must be at least 1, not 0"),
        ({"k": 2.0}, "k must be a whole number, not 2.0"),
        ({"k": True}, "k must be a whole number, not True"),
        ({"k": None}, "k must be a whole number, not None"),
        ({"k": np.float32(2)}, "k must be a whole number, not 2.0"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"rate": 1}, "rate must be above 0 and below 1, not 1"),
        ({"rate": float("nan")}, "rate must be a finite number, not nan"),
        ({"rate": "0.5"}, "rate must be a number, not '0.5'"),
        ({"factor": "most"}, "factor must be auto or a number, not 'most'"),
        ({"sizes": [5, 0]}, "sizes must be at least 1, not 0"),
        ({"sizes": 0}, "sizes must be at least 1, not 0"),
        ({"kind": "d"}, "kind must be one of a, b, c, not 'd'"),
        ({"flag": "yes"}, "flag must be True or False, not 'yes'"),
        ({"minimum_match": 1.5}, "minimum_match must be at least 0 and at most 1, not 1.5"),
        ({"sort_hits": 5}, "`sort_hits` needs `sort`"),
        ({"rerank_ms": 5.0}, "`rerank_ms` needs `rerank`"),
        ({"fusion": "max"}, "fusion must be weighted or reciprocal-rank, not 'max'"),
        ({"depth": 3}, "depth: no such option"),
    ],
)
def test_what_a_hint_does_not_allow_is_refused(arguments: dict[str, Any], message: str) -> None:
    for call in (lambda: verb("m", **arguments), lambda: check_arguments(verb, arguments)):
        with pytest.raises(ArgumentError) as caught:
            call()
        assert str(caught.value) == message


def test_numbers_of_numpy_become_those_of_python() -> None:
    found = verb("m", np.int64(3), flag=np.True_, mass=np.float64(0.5), rate=None, factor="auto", sizes=[None, 2])
    given = {name: found[name] for name in ("k", "flag", "mass")}
    assert given == {"k": 3, "flag": True, "mass": 0.5}
    assert [type(value) for value in given.values()] == [int, bool, float]


def test_limits_have_a_short_form() -> None:
    assert {name: values.short for name, values in values_of(verb).items() if values.limits}["rate"] == "> 0, < 1"


def test_fields_of_a_dataclass_are_checked() -> None:
    @dataclass
    class Settings:
        size: Count = 0

    with pytest.raises(ArgumentError):
        check_fields(Settings())


def test_missing_options_have_the_defaults_of_their_hints() -> None:
    assert check(NegativeOptions, {"to_rank": np.int64(50)}) == {
        "negatives": 8,
        "from_rank": 1,
        "to_rank": 50,
        "margin": None,
        "relative_margin": None,
    }


@pytest.mark.parametrize(
    "record",
    [
        EmbedderOptions,
        NegativeOptions,
        OpenedSearchOptions,
        PretrainOptions,
        ServiceOptions,
        WackinessOptions,
        shared.EvaluationOptions,
        shared.IndexOptions,
        shared.SelectionOptions,
        shared.StandingOptions,
        shared.TestsetOptions,
    ],
)
def test_each_default_is_within_its_limits(record: Any) -> None:
    usual = defaults(record)
    assert usual.keys() == get_type_hints(record).keys()
    assert check(record, usual) == check(record, {}) == usual


def test_a_rule_gets_the_options_that_differ_from_their_defaults() -> None:
    class Sizes(TypedDict, total=False):
        size: Annotated[int, Default(3)]
        half: bool

    rules: list[dict[str, object]] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(RECORD_RULES, Sizes, lambda options: rules.append({**options}))
        assert check(Sizes, {"size": 3, "half": True}) == {"size": 3, "half": True}
        assert check(Sizes, {"half": False}) == {"size": 3, "half": False}
    assert rules == [{"half": True}, {}]


def test_a_rule_also_holds_for_records_that_extend_its_record() -> None:
    class Further(SearchOptions, total=False):
        run: str

    with pytest.raises(ArgumentError):
        check(Further, {"run": "x", "rerank_depth": 5})


def test_the_language_of_words_is_english_by_default() -> None:
    assert defaults(shared.EvaluationOptions)["language"] == ENGLISH
    with vo.index("vocable-mini-doc", ["A text."], no_dense=True) as index:
        assert index.settings.language == ENGLISH


@pytest.mark.parametrize(
    ("options", "differing"),
    [
        ({}, {}),
        ({"weights": None, "offset": 0, "fusion": "weighted"}, {}),
        ({"weights": "sparse", "offset": 0}, {"weights": "sparse"}),
        ({"weights": {"sparse": 1.0}, "plain": True}, {"weights": {"sparse": 1.0}, "plain": True}),
    ],
)
def test_options_that_differ_from_the_defaults(options: dict[str, Any], differing: dict[str, Any]) -> None:
    assert changed(SearchOptions, check(SearchOptions, options)) == differing
