"""Hits in the order of a field: numbers, dates, texts, lists, missing values, pages and filters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.collection.collection import Collection
from vocable.collection.index import index
from vocable.collection.sorting import sorted_by
from vocable.errors import ArgumentError
from vocable.indexes.ranking import ranking_of

QUERY = ["the old fox reads"]
MIXED: list[Any] = [3, -1.5, "2024-01-02", "2023-05-01T12:00:00", "Berlin", "aachen", None, {}, [9, 1], [], True]


@pytest.fixture(scope="module", params=["folder", "memory"])
def opened(
    request: pytest.FixtureRequest, backbones: dict[str, Path], toy_texts: list[str], tmp_path_factory: Any
) -> Iterator[Collection]:
    folder = tmp_path_factory.mktemp("sorting")
    rows = [
        {"_id": f"d{i}", "text": text, "value": MIXED[i % len(MIXED)], "n": i % 7, "made": {"in": 2000 + i}}
        for i, text in enumerate(sorted(set(toy_texts))[:40])
    ]
    rows[5].pop("value")
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    place = folder / "index" if request.param == "folder" else None
    made = index(str(backbones["bert"]), folder / "corpus.jsonl", place, dtype="float32", device="cpu")
    yield made
    made.close()


def values(opened: Collection, field: str, k: int = 40, **options: Any) -> list[Any]:
    names = [name for name, _ in opened.search(QUERY, k, sort=field, **options).hits(0)]
    return [one.fields.get("value") for one in opened.documents(names) if one is not None]


def test_numbers_then_dates_then_texts_and_missing_values_last(opened: Collection) -> None:
    order = [-1.5, True, [9, 1], 3, "2023-05-01T12:00:00", "2024-01-02", "aachen", "Berlin"]
    up = list(dict.fromkeys(json.dumps(one) for one in values(opened, "value") if one not in (None, {}, [])))
    assert [one for one in up if one not in ("true", "[9, 1]")] == [
        json.dumps(one) for one in order if one is not True and one != [9, 1]
    ]
    down = [json.dumps(one) for one in values(opened, "-value")]
    known = [one for one in down if one not in ("null", "{}", "[]")]
    assert down[len(known) :] == [one for one in down if one in ("null", "{}", "[]")]
    assert list(dict.fromkeys(known))[:3] == ['"Berlin"', '"aachen"', '"2024-01-02"']
    assert known.index("[9, 1]") < known.index("3")  # its largest value
    nested = [one.fields["made"]["in"] for one in _documents(opened, "-made.in")]
    assert nested == sorted(nested, reverse=True)


def _documents(opened: Collection, field: str) -> list[Any]:
    return opened.documents([name for name, _ in opened.search(QUERY, 40, sort=field).hits(0)])


def test_only_the_best_hits_are_sorted_and_equals_keep_their_order(opened: Collection) -> None:
    best = [name for name, _ in opened.search(QUERY, 12).hits(0)]
    number = {one.id: one.fields["n"] for one in opened.documents(best) if one is not None}
    expected = sorted(best, key=lambda name: number[name])
    pages = []
    for offset in (0, 5, 10):
        page = opened.search(QUERY, 5 if offset < 10 else 2, sort="n", sort_hits=12, offset=offset)
        assert page.offset == offset
        pages += [name for name, _ in page.hits(0)]
    assert pages == expected
    filtered = opened.search(QUERY, 12, sort="-n", filter="n>=3").hits(0)
    numbers = [one.fields["n"] for one in opened.documents([name for name, _ in filtered]) if one is not None]
    assert numbers == sorted(numbers, reverse=True)
    assert min(numbers) >= 3


def test_hits_below_the_least_score_are_not_sorted(opened: Collection) -> None:
    plain = opened.search(QUERY, 10).hits(0)
    least = plain[4][1]
    found = opened.search(QUERY, 10, sort="n", min_score=least).hits(0)
    assert {name for name, _ in found} == {name for name, score in plain if score >= least}
    assert dict(found) == pytest.approx({name: score for name, score in plain if score >= least})


def test_an_unknown_field_and_sort_hits_without_sort_are_refused(opened: Collection) -> None:
    with pytest.raises(ArgumentError, match="'valeu'"):
        opened.search(QUERY, sort="-valeu")
    with pytest.raises(ArgumentError):
        opened.search(QUERY, sort_hits=5)


def test_pages_end_with_the_hits_that_are_sorted(opened: Collection) -> None:
    whole = opened.search(QUERY, 10, sort="n", sort_hits=5).hits(0)
    assert len(whole) == 5
    assert sorted(whole) == sorted(opened.search(QUERY, 5).hits(0))
    assert opened.search(QUERY, 10, sort="n", sort_hits=5, offset=3).hits(0) == whole[3:]
    assert opened.search(QUERY, 10, sort="n", sort_hits=5, offset=9).hits(0) == []
    assert opened.search(QUERY, 20, sort="n", offset=100).hits(0) == []


@given(st.lists(st.one_of(st.none(), st.integers(-5, 5), st.floats(-5, 5)), max_size=12), st.booleans())
def test_numbers_are_sorted_as_python_sorts(numbers: list[float | None], reverse: bool) -> None:
    names = [f"d{i:02}" for i in range(len(numbers))]
    ranking = ranking_of([[(name, 100.0 - i) for i, name in enumerate(names)]], len(names))
    fields = {name: {} if one is None else {"n": one} for name, one in zip(names, numbers, strict=True)}
    found = sorted_by(ranking, "-n" if reverse else "n", lambda ids: [fields[one] for one in ids])
    known = [name for name in names if "n" in fields[name]]
    expected = sorted(known, key=lambda name: fields[name]["n"], reverse=reverse)
    assert [name for name, _ in found.hits(0)] == expected + [name for name in names if name not in known]


def test_large_numbers_are_sorted_by_all_their_digits() -> None:
    numbers = {"a": 2**53 + 1, "b": 2**53, "c": 10**400, "d": float(2**53), "e": -(10**400)}
    ranking = ranking_of([[(name, 1.0) for name in numbers]], 5)
    ranked = sorted_by(ranking, "n", lambda ids: [{"n": numbers[name]} for name in ids])
    assert [name for name, _ in ranked.hits(0)] == ["e", "b", "d", "a", "c"]
