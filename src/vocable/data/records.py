"""The small named records that move between the parts."""

from __future__ import annotations

from typing import NamedTuple

from ir_measures import Qrel

__all__ = ["Document", "Example", "Qrel", "Query"]


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

    `source` names where it came from (a file's stem), so that a batch can be drawn from one source.
    """

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    source: str = ""
