"""Keys of fields decide every comparison as `matches` does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.engines.filter_keys import beyond_64_bits, bound_of, comparison_key, filter_keys, translate
from vocable.engines.filters import ORDERS, Comparison, Every, Filter, Not, Some, matches

NAMES = st.sampled_from(["a", "b", "a.a", "a.b", "two words", ""])
TIMES = st.sampled_from(
    ["2021-05-06", "2021-05-06T00:00:00Z", "2021-05-06T02:00+02:00", "2021-05-06T00:00:01", "2021-W18-4", "no time"]
)
LARGE = st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, float(2**53), 1e300])
FILES = st.text("ab/", max_size=6) | st.just("a/" * 200)
SCALARS = FILES | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -2.5]) | st.booleans() | TIMES | LARGE
FIELDS = st.dictionaries(
    NAMES, SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(NAMES, SCALARS | st.dictionaries(NAMES, SCALARS))
)
PATHS = st.sampled_from(["a", "b", "a.a", "a.b", "a.a.b", "two words", "a.", "b.two words"])
ORDERED = st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 1 - 2**53]) | TIMES.filter(lambda text: text[0] == "2")
COMPARISONS = st.builds(Comparison, PATHS, st.just("="), SCALARS)
COMPARISONS |= st.builds(Comparison, PATHS, st.sampled_from([*ORDERS]), ORDERED)
COMPARISONS |= st.builds(Comparison, PATHS, st.just("^="), FILES.map(lambda file: f"{file[:255]}/"))
FILTERS = st.recursive(
    COMPARISONS,
    lambda part: (
        st.builds(Not, part)
        | st.builds(Every, st.lists(part, min_size=2, max_size=3).map(tuple))
        | st.builds(Some, st.lists(part, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=5,
)


@given(FILTERS, FIELDS)
def test_keys_decide_a_filter_as_matches_does(filter: Filter, fields: dict[str, Any]) -> None:
    keys = filter_keys(fields)

    def passes(comparison: Comparison) -> bool:
        key = comparison_key(comparison)
        if comparison.operator in ("=", "^="):
            return key in keys.equal
        return key in keys.order and ORDERS[comparison.operator](keys.order[key], bound_of(comparison))

    assert translate(filter, passes, all, any, lambda part: not part) == matches(filter, fields)


@pytest.mark.parametrize(
    ("fields", "beyond"),
    [
        ({"a": 2**63 - 1, "b": [-(2**63)]}, False),
        ({"a": {"b": [0, 2**63]}}, True),
        ({"a": -(2**63) - 1}, True),
        ({"a": 1e300, "b": "9" * 30}, False),
    ],
)
def test_whole_numbers_beyond_64_bits_are_found_at_any_depth(fields: dict[str, Any], beyond: bool) -> None:
    assert beyond_64_bits(fields) is beyond
