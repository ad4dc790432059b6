"""Filters of documents as queries of Elasticsearch and OpenSearch."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from vocable.engines.filter_keys import bound_of, comparison_key, translate
from vocable.engines.filters import Comparison, Filter

RANGES = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


def sortable(number: float) -> str:
    """Return 16 hexadecimal digits that sort as numbers do.

    >>> sorted([2.5, -1.0, 0.0, -3.0], key=sortable)
    [-3.0, -1.0, 0.0, 2.5]
    """
    [bits] = struct.unpack(">Q", struct.pack(">d", number + 0.0))
    return f"{bits ^ (0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63):016x}"


def condition_of(filter: Filter) -> Mapping[str, object]:
    """Return the query of the documents that pass a filter."""

    def leaf(comparison: Comparison) -> Mapping[str, object]:
        key = comparison_key(comparison)
        if comparison.keyed:
            return {"term": {"equal": key}}
        other = {"gte": key} if "<" in comparison.operator else {"lt": f"{key}g"}  # the other end of the key's range
        bound = {RANGES[comparison.operator]: f"{key}{sortable(bound_of(comparison))}"}
        return {"range": {"order": bound | other}}

    return translate(
        filter,
        leaf,
        lambda parts: {"bool": {"filter": parts}},
        lambda parts: {"bool": {"should": parts, "minimum_should_match": 1}},
        lambda part: {"bool": {"must_not": [part]}},
    )
