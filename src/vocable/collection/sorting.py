"""Sort hits by a field of their documents instead of their scores.

A search finds by resemblance, so that almost every document matches a little: only the best hits are sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from vocable.engines.filters import time_of, values_of_field
from vocable.indexes.ranking import Ranking

FieldsOf: TypeAlias = Callable[[Sequence[str]], Sequence[Mapping[str, object]]]  # ids of documents -> their fields
Key: TypeAlias = tuple[int, Any, str]  # the kind of value, a value that is ordered among its kind, and its spelling


def sorted_by(ranking: Ranking, field: str, fields_of: FieldsOf) -> Ranking:
    """Return the ranking in the order of a field, or of `-field` in the reverse order; equals keep their order.

    Numbers come before dates (ISO 8601), dates before other texts; hits without such a value are last in both orders.
    A list counts as its first value in the order.
    """
    reverse, name = field.startswith("-"), field.removeprefix("-")
    rows, scores = ranking.rows.copy(), ranking.scores.copy()
    first = None if ranking.first_scores is None else ranking.first_scores.copy()
    for number in range(len(ranking)):
        fields = fields_of([identifier for identifier, _ in ranking.hits(number)])
        keys = [_key(document_fields, name, reverse) for document_fields in fields]
        known = [place for place, key in enumerate(keys) if key is not None]
        order = sorted(known, key=lambda place: keys[place] or (0, 0, ""), reverse=reverse)  # stable either way
        order += [place for place, key in enumerate(keys) if key is None]
        for values in (rows, scores, *([] if first is None else [first])):
            values[number, : len(order)] = values[number, order]
    return replace(ranking, rows=rows, scores=scores, first_scores=first)


def _key(fields: Mapping[str, object], name: str, reverse: bool) -> Key | None:
    """Return what a document is sorted by; None without a value that has an order."""
    keys = [key for value in values_of_field(fields, name) if (key := _key_of(value)) is not None]
    return (max if reverse else min)(keys, default=None)


def _key_of(value: object) -> Key | None:
    if isinstance(value, bool | int | float):
        return 0, value, ""
    if isinstance(value, str):
        time = time_of(value)
        return (2, value.casefold(), value) if time is None else (1, time, "")
    return None
