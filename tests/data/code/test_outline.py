from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vocable.data.code.outline import Definition, nested

SPANS = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 12)), max_size=12)


@given(SPANS)
def test_nested_definitions_enclose_each_other_and_share_no_line_otherwise(spans: list[tuple[int, int]]) -> None:
    def check(definitions: tuple[Definition, ...], first: int, last: int) -> int:
        at, count = first - 1, 0
        for one in definitions:
            assert at < one.first <= one.last <= last
            at = one.last
            count += 1 + check(one.inner, one.first + 1, one.last)
        return count

    given_ones = [Definition(str(number), first, first + more) for number, (first, more) in enumerate(spans)]
    kept = check(nested(given_ones), 1, 99)
    assert kept <= len(spans)
    assert bool(kept) == bool(spans)
