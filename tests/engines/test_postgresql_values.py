"""Vectors, fields and ids as PostgreSQL takes and gives them."""

from __future__ import annotations

import json

import numpy as np

from vocable.engines.postgresql_values import all_digits, possible, read_row, written


def test_a_row_is_read_as_it_was_written() -> None:
    random = np.random.default_rng(0)
    columns = np.unique(random.integers(0, 30_000, 100))
    weights = random.random(len(columns)).astype(np.float32)
    assert read_row(written((columns, weights), 30_522)) == (columns.tolist(), weights.tolist())
    assert read_row(written((columns[:0], weights[:0]), 9)) == ([], [])
    assert read_row(written(weights, len(weights))) == weights.tolist()


def test_large_numbers_keep_their_digits_as_decimals() -> None:
    fields = {"a": 1e23, "b": [2.5, -1e300], "c": "1e23"}
    assert json.loads(json.dumps(all_digits(fields)), parse_float=str) == {
        "a": int(1e23),
        "b": ["2.5", int(-1e300)],
        "c": "1e23",
    }


def test_no_document_has_an_id_with_nul() -> None:
    assert possible(["a", "b\0", ""]) == ["a", ""]
