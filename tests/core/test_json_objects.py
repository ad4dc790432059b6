"""A key twice in an object of JSON is refused, wherever it stands; all else is read as json.loads reads it."""

from __future__ import annotations

import json

import pytest

from vocable.core.json_objects import RepeatedKeyError, parse_json


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"b": {"c": 1, "\\u0063": 2}}]', b'{"x": 0, "a": 1, "a": 2}'])
def test_a_key_twice_is_refused(text: str | bytes) -> None:
    with pytest.raises(RepeatedKeyError):
        parse_json(text)


@pytest.mark.parametrize("text", ['{"a": {"a": [1, {"a": null}]}}', "[]", '"a"', "1e400", ' {"": "\\ud800"} '])
def test_other_json_is_read(text: str) -> None:
    for spelled in (text, text.encode(), text.encode("utf-16")):
        assert parse_json(spelled) == json.loads(text)


@pytest.mark.parametrize("text", ["", "{", b"\xff\xfe\xff", "[" * 100_000])
def test_what_is_no_json_is_an_error_as_elsewhere(text: str | bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        parse_json(text)
