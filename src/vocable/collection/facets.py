"""Facets: the values of a field among the best hits, with the number of hits that have each value."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vocable.core.tables import shortened
from vocable.data import Document
from vocable.engines.filters import values_of_field

SHOWN_VALUES = 10  # values of a facet in a line
FacetValue: TypeAlias = str | int | float | bool


@dataclass(frozen=True)
class FacetCount:
    """A value, and the number of hits with it."""

    value: FacetValue
    count: int


@dataclass(frozen=True)
class Facet:
    """The values of a field among the best `hits`, the most frequent first."""

    field: str
    hits: int
    counts: list[FacetCount]

    def line(self, width: int) -> str:
        """Return the facet in a line.

        >>> Facet("lang", 3, [FacetCount("en", 2), FacetCount("de", 1)]).line(80)
        'lang of the best 3 hits: en 2, de 1'
        """
        more = ", …" * (len(self.counts) > SHOWN_VALUES)
        shown = (f"{_spelled(one.value)} {one.count:,}" for one in self.counts[:SHOWN_VALUES])
        return shortened(f"{self.field} of the best {self.hits:,} hits: {', '.join(shown) or 'no value'}{more}", width)


def facet(documents: Sequence[Document], field: str) -> Facet:
    """Count the values of a field; a field with a slash at its end counts the folders of its values.

    >>> pages = [Document(name, "", fields={"file": name}) for name in ("a/x.md", "a/y.md", "a/b/z.md", "top.md")]
    >>> [(folder.value, folder.count) for folder in facet(pages, "file/").counts]
    [('a/', 2), ('a/b/', 1)]
    """
    counts: Counter[str] = Counter()  # by JSON, where 1 and true differ
    for document in documents:
        values = values_of_field(document.fields, field.removesuffix("/"))
        if field.endswith("/"):
            values = [folder for value in values if (folder := _folder(value))]
        counts.update({json.dumps(value) for value in values if isinstance(value, str | int | float)})
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return Facet(field, len(documents), [FacetCount(json.loads(value), count) for value, count in ordered])


def _folder(value: object) -> str:
    return value[: value.rindex("/") + 1] if isinstance(value, str) and "/" in value else ""


def _spelled(value: FacetValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)
