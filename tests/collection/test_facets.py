"""Facets: counts of values among the best hits."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from vocable.collection.answers import search
from vocable.collection.facets import Facet, FacetCount, facet
from vocable.collection.index import index
from vocable.data import Document
from vocable.engines.filters import parse_filter
from vocable.errors import ArgumentError


def counts(fields: list[dict[str, Any]], name: str) -> list[tuple[object, int]]:
    documents = [Document(str(number), "", fields=value) for number, value in enumerate(fields)]
    return [(one.value, one.count) for one in facet(documents, name).counts]


@pytest.mark.parametrize(
    ("fields", "name", "expected"),
    [
        ([{"a": "x"}, {"a": "y"}, {"a": "y"}, {}, {"a": None}], "a", [("y", 2), ("x", 1)]),
        ([{"a": [1, 1, "1"]}, {"a": True}, {"a": 1.0}], "a", [("1", 1), (1, 1), (1.0, 1), (True, 1)]),
        ([{"a": {"b": "x"}}, {"a": [{"b": "x"}]}], "a.b", [("x", 1)]),
        ([{"f": "a/b/c"}, {"f": "a/b/"}, {"f": "a/c"}, {"f": "top"}, {"f": 7}], "f/", [("a/b/", 2), ("a/", 1)]),
        ([], "a", []),
    ],
)
def test_values_are_counted(fields: list[dict[str, Any]], name: str, expected: list[tuple[object, int]]) -> None:
    assert counts(fields, name) == expected


def test_a_line_names_the_most_frequent_values() -> None:
    many = Facet("year", 60, [FacetCount(2000 + number, 20 - number) for number in range(12)])
    assert many.line(200).startswith("year of the best 60 hits: 2000 20, 2001 19, ")
    assert many.line(200).endswith("2009 11, …")
    assert Facet("x", 2, []).line(80) == "x of the best 2 hits: no value"


def test_a_search_counts_fields_of_its_best_hits(backbones: dict[str, Path], documents: Any, corpus: Path) -> None:
    with index(str(backbones["bert"]), corpus, corpus.parent / "facets", bm25=True, device="cpu") as made:
        [answer] = search(made, ["the old fox reads"], 3, facets="lang, lang/")
        assert search(made, ["the old fox reads"], 3, facets=["lang", "lang/", "lang"])[0].facets == answer.facets
        assert len(answer.hits) == 3
        first, second = answer.facets
        every = search(made, ["the old fox reads"], 100)[0].hits
        expected = Counter(hit.document.fields["lang"] for hit in every if "lang" in hit.document.fields)
        assert {one.value: one.count for one in first.counts} == dict(expected)
        assert first.hits == len(every) > 3
        assert second.counts == []
        assert answer.to_json()["facets"][0]["field"] == "lang"  # type: ignore[index]
        assert first.line(1000) in str(answer)
        most = first.counts[0]
        [filtered] = search(made, ["the old fox reads"], 100, filter=f"lang={most.value}")
        assert len(filtered.hits) >= most.count
        assert parse_filter(f"lang={most.value}")
        with pytest.raises(ArgumentError):
            search(made, ["fox"], facets="lung")
        assert "facets" not in json.dumps(search(made, ["fox"])[0].to_json())
