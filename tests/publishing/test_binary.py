"""Numbers and texts as bytes: round trips, and what is cut."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.publishing.reading import Cursor, decompressed, from_varints
from vocable.errors import VectorsError
from vocable.publishing.files import compressed, floats, front_coded, gaps, varints

numbers = st.lists(st.integers(0, 2**53))
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]))).map(sorted)


def slow_varint(value: int) -> bytes:
    found = []
    while value > 127:
        found.append(value % 128 + 128)
        value //= 128
    return bytes([*found, value])


@given(numbers)
def test_numbers_round_trip(values: list[int]) -> None:
    content = varints(values)
    assert content == b"".join(map(slow_varint, values))
    assert from_varints(content).tolist() == values
    assert Cursor(content).numbers(len(values)) == values


@given(st.lists(st.integers(0, 2**40)).map(sorted))
def test_gaps_of_rows_add_up_to_the_rows(values: list[int]) -> None:
    assert np.cumsum(gaps(np.array(values, dtype=np.int64))).tolist() == values


@given(TEXTS, st.lists(st.floats(width=32, allow_nan=False)))
def test_texts_and_floats_round_trip(texts: list[str], values: list[float]) -> None:
    cursor = Cursor(front_coded(texts) + floats(values) + b"rest")
    assert cursor.texts() == texts
    assert cursor.floats(len(values)) == values
    assert cursor.take(4) == b"rest"


@given(st.binary(), st.integers(1, 9))
def test_compressed_bytes_round_trip(content: bytes, level: int) -> None:
    packed = compressed(content, level)
    assert decompressed(packed) == content
    assert zlib.decompress(packed, -15) == content


@pytest.mark.parametrize("content", [b"\x80", b"\x01\x80"])
def test_a_cut_number_is_an_error(content: bytes) -> None:
    with pytest.raises(VectorsError):
        from_varints(content)
    with pytest.raises(VectorsError):
        Cursor(content).numbers(2)
    with pytest.raises(VectorsError):
        decompressed(b"\xff" + content)
