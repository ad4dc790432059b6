"""Vectors, fields and filters in the forms of PostgreSQL and pgvector."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vocable.engines.base import VectorRow
from vocable.engines.filter_keys import bound_of, comparison_key, translate
from vocable.engines.filters import EXACT, Comparison, Filter


def written(row: VectorRow, columns: int) -> str:
    """Return a row of a space with `columns` as pgvector writes it: pgvector counts columns from 1.

    >>> written((np.array([0, 6]), np.array([0.5, 2.0])), 9)
    '{1:0.5,7:2.0}/9'
    """
    if isinstance(row, np.ndarray):
        return json.dumps(row.tolist())
    pairs = zip((row[0] + 1).tolist(), row[1].tolist(), strict=True)
    return f"{{{','.join(f'{column}:{weight}' for column, weight in pairs)}}}/{columns}"


def all_digits(value: Any) -> Any:
    """Return the value with large floats as integers: jsonb stores decimals, where 1e23 is not the float 1e23."""
    if isinstance(value, Mapping):
        return {name: all_digits(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [all_digits(inner) for inner in value]
    return int(value) if isinstance(value, float) and abs(value) >= EXACT else value


def possible(ids: Sequence[str]) -> list[str]:
    """Return the ids that a document may have."""
    return [identifier for identifier in ids if "\0" not in identifier]


def read_row(text: str) -> VectorRow:
    """Parse a row as pgvector writes it."""
    if text.startswith("["):
        return json.loads(text)
    pairs = [pair.split(":") for pair in text[1 : text.index("}")].split(",") if pair]
    return [int(column) - 1 for column, _ in pairs], [float(weight) for _, weight in pairs]


def condition_of(filter: Filter) -> tuple[str, list[object]]:
    """Return the filter as an SQL condition, and the values of its placeholders."""

    def leaf(comparison: Comparison) -> tuple[str, list[object]]:
        key = comparison_key(comparison)
        if comparison.keyed:
            return "(keys -> 'equal' @> to_jsonb(%s::text))", [key]
        condition = f"coalesce((keys -> 'order' ->> %s)::float8 {comparison.operator} %s::float8, false)"
        return condition, [key, bound_of(comparison)]

    def joined(word: str) -> Callable[[list[tuple[str, list[object]]]], tuple[str, list[object]]]:
        return lambda parts: (
            "(" + f" {word} ".join(condition for condition, _ in parts) + ")",
            [value for _, values in parts for value in values],
        )

    return translate(filter, leaf, joined("AND"), joined("OR"), lambda part: (f"NOT {part[0]}", part[1]))
