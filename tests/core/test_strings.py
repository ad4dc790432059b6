"""Strings in two arrays: a sequence as Python's lists are, and ascending strings as a dictionary finds them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.core import arrays as module
from vocable.core.arrays import Strings, order_of
from vocable.errors import ArgumentError, VectorsError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
BEGINNING = st.sampled_from(["", "http://example.org/page/", "ü" * 9, "a"])
LISTS = st.builds(lambda first, rest: [first + text for text in rest], BEGINNING, st.lists(TEXT, max_size=40))
SLICES = st.builds(slice, *[st.none() | st.integers(-45, 45)] * 2, st.sampled_from([None, 1, 2, 3, -1, -2]))


@given(LISTS, SLICES)
def test_strings_are_a_sequence(values: list[str], part: slice) -> None:
    strings = Strings(values)
    assert (len(strings), list(strings), [strings[number] for number in range(-len(values), len(values))]) == (
        len(values),
        values,
        [*values, *values],
    )
    assert list(strings[part]) == values[part]
    assert list(strings[part][::-1]) == values[part][::-1]
    assert strings == values
    assert strings[part] == Strings(values[part])
    assert (strings[part] == strings) == (values[part] == values)
    assert hash(strings) == hash(Strings(iter(values)))
    for number in (len(values), -len(values) - 1):
        with pytest.raises(IndexError):
            strings[number]


@given(LISTS, st.lists(st.integers(0, 39), max_size=50))
def test_rows_are_taken_in_any_order(values: list[str], rows: list[int]) -> None:
    strings, chosen = Strings(["before", *values])[1:], [row for row in rows if row < len(values)]
    assert list(strings.take(np.array(chosen, np.int64))) == [values[row] for row in chosen]
    assert list(Strings.joined([strings, strings[2:5], Strings()])) == [*values, *values[2:5]]


@given(LISTS, st.lists(TEXT, max_size=20), st.sampled_from([0, module.FEW_STRINGS, 1000]))
def test_ascending_strings_are_found(values: list[str], others: list[str], few: int) -> None:
    """By the rows of a dictionary, one by one and with keys of eight bytes."""
    ascending = sorted({*values}, key=str.encode)
    strings, row_of = Strings(["before", *ascending])[1:], {value: row for row, value in enumerate(ascending)}
    wanted = [*others, *values, *(value[:-1] for value in values), *(f"{value}\0" for value in values), "\ud800", ""]
    expected = [row_of.get(value, -1) for value in wanted]
    assert [strings.find(value) for value in wanted] == expected
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "FEW_STRINGS", few)
        assert strings.rows(wanted).tolist() == expected
        assert strings.rows([]).tolist() == []


@given(LISTS)
def test_rows_are_ordered_by_their_bytes_and_a_repeated_string_is_named(values: list[str]) -> None:
    if len({*values}) == len(values):
        order = order_of(Strings(values))
        assert (order.dtype, [values[row] for row in order]) == (np.int32, sorted(values, key=str.encode))
        return
    with pytest.raises(VectorsError) as caught:
        order_of(Strings(values))
    assert any(repr(value) in str(caught.value) for value in values if values.count(value) > 1)


@given(LISTS, st.integers(0, 40), st.integers(0, 40))
def test_strings_come_back_from_stored_arrays(values: list[str], start: int, end: int) -> None:
    arrays = Strings(values)[start:end].arrays("s")
    assert arrays["s_bytes"].tobytes() == "".join(values[start:end]).encode()
    for verified in (True, False):
        assert list(Strings.stored("s", arrays, verified=verified)) == values[start:end]


@given(
    st.lists(st.integers(-2, 12), max_size=6),
    st.binary(max_size=10)
    | st.lists(st.sampled_from(["a", "é", "日", "😀"]), max_size=4).map(lambda t: "".join(t).encode()),
    st.sampled_from([1, 3, 1 << 20]),
)
def test_only_valid_strings_are_taken_from_arrays(offsets: list[int], content: bytes, at_once: int) -> None:
    """As Python decodes each of them."""

    def is_valid() -> bool:
        rising = all(first <= second for first, second in pairwise(offsets))
        if not offsets or not rising or offsets[0] != 0 or offsets[-1] != len(content):
            return False
        try:
            content.decode()
            return all(content[first:end].decode() is not None for first, end in pairwise(offsets))
        except UnicodeDecodeError:
            return False

    arrays = {"s_offsets": np.array(offsets, np.int64), "s_bytes": np.frombuffer(content, np.uint8)}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "CHECKED_BYTES", at_once)
        if is_valid():
            strings = Strings.stored("s", arrays, "place")
            assert list(strings) == [content[i:j].decode() for i, j in pairwise(offsets)]
            assert strings.valid()
        else:
            with pytest.raises(VectorsError):
                Strings.stored("s", arrays, "place")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"s_offsets": np.array([0, 2])}, "s_bytes is missing"),
        ({"s_bytes": np.zeros(2, np.uint8)}, "s_offsets is missing"),
        ({"s_offsets": np.array([0, 2], np.int32), "s_bytes": np.zeros(2, np.uint8)}, "s_offsets is int32"),
        ({"s_offsets": np.array([[0, 2]]), "s_bytes": np.zeros(2, np.uint8)}, "s_offsets is int64"),
        ({"s_offsets": np.array([0, 2]), "s_bytes": np.zeros(2, np.int8)}, "s_bytes is int8"),
        ({"s_offsets": np.array([0, 1]), "s_bytes": np.zeros(2, np.uint8)}, "s_offsets does not fit s_bytes"),
        ({"s_offsets": np.array([1, 2]), "s_bytes": np.zeros(2, np.uint8)}, "s_offsets does not fit s_bytes"),
    ],
)
def test_arrays_that_are_no_strings_are_named(arrays: dict[str, np.ndarray], message: str) -> None:
    for verified in (True, False):
        with pytest.raises(VectorsError, match=f"^place: .*{message}"):
            Strings.stored("s", arrays, "place", verified=verified)


@pytest.mark.parametrize("values", [["a", 7], ["a", None], 7, ["a", "\ud800"]])
def test_other_values_are_refused(values: object) -> None:
    with pytest.raises(ArgumentError):
        Strings(values)  # type: ignore[arg-type]


def test_a_long_sequence_is_shown_by_its_length() -> None:
    assert (repr(Strings(["a"])), repr(Strings(["a"] * 6))) == ("Strings(['a'])", "Strings(6)")
