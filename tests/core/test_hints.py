"""Values that type hints allow: what passes, what is refused, and the words for both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from annotated_types import Ge, Gt, Le
from hypothesis import given
from hypothesis import strategies as st

from vocable.core.hints import Values
from vocable.errors import ArgumentError

SHARE = Annotated[float, Gt(0), Le(1)]
COUNT = Annotated[int, Ge(1)]


@given(st.floats() | st.integers())
def test_numbers_pass_if_and_only_if_they_are_within_the_limits(value: float) -> None:
    values = Values.of(SHARE)
    assert values is not None
    if 0 < value <= 1:
        assert values.check("share", value) == value
    else:
        with pytest.raises(ArgumentError):
            values.check("share", value)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (COUNT, 3),
        (COUNT | None, None),
        (COUNT | Literal["all"], "all"),
        (bool, False),
        (Literal["a", "b"], "b"),
        (SHARE | Sequence[SHARE], [0.5, 1.0]),
    ],
)
def test_values_of_a_hint_pass(hint: Any, value: object) -> None:
    values = Values.of(hint)
    assert values is not None
    assert values.check("x", value) == value


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (COUNT, 0),
        (COUNT, 1.5),
        (COUNT, True),
        (COUNT, "1"),
        (COUNT, None),
        (COUNT | Literal["all"], "none"),
        (bool, "yes"),
        (Literal["a", "b"], "c"),
        (SHARE | Sequence[SHARE], [0.5, 2.0]),
    ],
)
def test_other_values_are_refused_with_the_name_of_the_argument(hint: Any, value: object) -> None:
    values = Values.of(hint)
    assert values is not None
    with pytest.raises(ArgumentError, match=r"^top_terms must be "):
        values.check("top_terms", value)


@pytest.mark.parametrize(("number", "kind"), [(np.int64(4), int), (np.float32(0.5), float), (np.array(4), int)])
def test_numbers_of_numpy_become_numbers_of_python(number: Any, kind: type) -> None:
    values = Values.of(kind)
    assert values is not None
    assert type(values.check("x", number)) is kind


@pytest.mark.parametrize("hint", [str, object, list[str], str | int, Sequence[int]])
def test_hints_without_limits_or_words_are_not_checked(hint: object) -> None:
    assert Values.of(hint) is None
