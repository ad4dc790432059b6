"""Faults that pydantic finds, in our words: no message of its own is left for the kinds of fields that we have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vocable.core.faults import described


class Below(BaseModel):
    name: Literal["info_nce"] = "info_nce"


class Other(BaseModel):
    name: Literal["margin_mse"] = "margin_mse"


class Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    whole: int = 1
    number: float = 1
    flag: bool = True
    text: str = Field("ab", min_length=2, max_length=3)
    kind: Literal["one", "two", "three"] = "one"
    limited: Annotated[int, Field(ge=1, lt=9)] = 1
    listed: list[int] = Field([1], max_length=2)
    mapped: dict[str, int] = {}
    below: Annotated[Below | Other, Field(discriminator="name")] = Below()
    section: Below = Below()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"whole": "sixteen"}, "whole must be a whole number, not 'sixteen'"),
        ({"whole": 1.5}, "whole must be a whole number, not 1.5"),
        ({"number": "x"}, "number must be a number, not 'x'"),
        ({"number": float("nan")}, "number must be a finite number, not nan"),
        ({"flag": "perhaps"}, "flag must be true or false, not 'perhaps'"),
        ({"text": 1}, "text must be text, not 1"),
        ({"text": "abcd"}, "text must have at most 3 characters"),
        ({"text": ""}, "text must have at least 2 characters"),
        ({"kind": "thre"}, "kind must be 'one', 'two' or 'three', not 'thre'; did you mean three?"),
        ({"limited": 0}, "limited must be at least 1, not 0"),
        ({"limited": 9}, "limited must be below 9, not 9"),
        ({"listed": 1}, "listed must be a list, not 1"),
        ({"listed": [1, 2, 3]}, "listed must have at most 2 items"),
        ({"mapped": [1]}, "mapped must be a mapping of keys"),
        ({"section": 5}, "section must be a mapping of keys, not 5"),
        (
            {"below": {"name": "infonce"}},
            "below must be 'info_nce' or 'margin_mse', not 'infonce'; did you mean info_nce?",
        ),
        ({"below": {}}, "below needs the key 'name'"),
        ({"below": 3}, "below must be a mapping of keys, not 3"),
        ({"more": 1}, "more: unknown key"),
        ({"whole": "9" * 5000}, f"whole must be a whole number, not '{'9' * 70}"),
    ],
)
def test_each_kind_of_fault_has_our_words(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Fields.model_validate(values)
    first = caught.value.errors()[0]
    assert described(str(first["loc"][0]), first).startswith(message)
