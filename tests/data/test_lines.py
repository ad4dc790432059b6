"""Lines of JSON that are nested too deep, too long or not Unicode."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.test_read import write
from vocable.data import (
    BadLines,
    Document,
    read_corpus,
)
from vocable.errors import DataError


def nested(begin: str, end: str, depth: int) -> str:
    return '{"_id": "1", "text": "a", "f": ' + begin * depth + "1" + end * depth + "}"


ODD = {
    "a field 101 deep": nested("[", "]", 101),
    "a field 900 deep": nested('{"a":', "}", 900),
    "a pair of surrogates 990 deep": nested("[", "]", 990).replace("1]", '"\\ud83d\\ude00"]'),
    "a field 100,000 deep": '{"_id": "1", "text": "a", "f": %s' % ("[" * 100_000),
    "a field of 5,000 digits": '{"_id": "1", "text": "a", "f": %s}' % ("9" * 5000),
    "half a pair in a field": '{"_id": "1", "text": "a", "f": {"\\ud800": 1}}',
    "a key twice": '{"_id": "1", "text": "a", "text": "b"}',
    "a key twice in a field": '{"_id": "1", "text": "a", "f": [{"b": 1, "b": 1}]}',
    "half a pair in a query": '{"_id": "1", "query": "a\\udfff", "positive": "b", "text": "x\\udfff"}',
}


@pytest.mark.parametrize("name", ODD)
def test_odd_json_is_a_bad_line(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "c.jsonl", ODD[name] + '\n{"_id": "2", "text": "b", "f": [NaN, Infinity, 1e999, -0.0]}\n')
    with pytest.raises(DataError, match=r"c\.jsonl:1: ") as caught:
        list(read_corpus(path))
    assert len(str(caught.value).splitlines()) == 1
    [other] = read_corpus(path, bad=BadLines(1))
    assert other == Document("2", "b", "", {"f": ["nan", "inf", "inf", 0.0]})  # what JSON has not, as text


def test_a_field_100_deep_is_kept(tmp_path: Path) -> None:
    value = next(read_corpus(write(tmp_path / "c.jsonl", nested("[", "]", 100)))).fields["f"]
    for _ in range(100):
        [value] = value
    assert value == 1
