"""The small named records that move between the parts."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ir_measures import Qrel, ScoredDoc

__all__ = ["Document", "Example", "MinedNegatives", "Qrel", "Query", "ScoredDoc"]


class Document(NamedTuple):
    """A text to be found.

    >>> Document("d1", "A list is a sequence.", title="Lists").full
    'Lists A list is a sequence.'
    """

    id: str
    text: str
    title: str = ""

    @property
    def full(self) -> str:
        """Title and text joined by a space: what is encoded and indexed."""
        return f"{self.title} {self.text}".strip()


class Query(NamedTuple):
    """A text to search with."""

    id: str
    text: str


class Example(NamedTuple):
    """A training example: a query, a text that answers it, and texts that do not.

    `source` names where it came from (a file's stem), so that a batch can be drawn from one source. `scores` are a
    teacher's, of the positive and then of each negative; there are none where no teacher was asked.
    """

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    source: str = ""
    scores: tuple[float, ...] = ()

    @property
    def line(self) -> bytes:
        """The line of JSON that `read_examples` reads as this example; the source is the file's.

        >>> Example("lists?", "A list is a sequence.", ("A set is not.",)).line
        b'{"query": "lists?", "positive": "A list is a sequence.", "negatives": ["A set is not."]}\\n'
        """
        values: dict[str, Any] = {"query": self.query, "positive": self.positive}
        values |= {name: list(part) for name in ("negatives", "scores") if (part := getattr(self, name))}
        return json.dumps(values, ensure_ascii=False).encode() + b"\n"


class MinedNegatives(NamedTuple):
    """The ids of a query's positives, and for each system that was asked those of its best other documents in order."""

    query_id: str
    positives: tuple[str, ...]
    systems: dict[str, tuple[str, ...]]
