"""Merge hits with the same title and text, such as pages that a site has twice: the best hit stands for its copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vocable.core.tables import counted, shortened
from vocable.data import Document
from vocable.engines.base import Hits

NAMED_COPIES = 3  # copies that are named in a line


@dataclass
class MergedHit:
    """A document with its score, and the ids of lower hits with the same title and text."""

    document: Document
    score: float
    copies: list[str] = field(default_factory=list)


def content_of(document: Document) -> tuple[str, str]:
    """Return the title and the text of a document without differences of white space; copies have the same.

    >>> content_of(Document("a", "two\\n words", title="A")) == content_of(Document("b", " two words ", title="A"))
    True
    """
    return " ".join(document.title.split()), " ".join(document.text.split())


def merged(hits: Hits, k: int, documents_of: Callable[[Sequence[str]], list[Document | None]]) -> list[MergedHit]:
    """Return the k best hits with different contents; lower hits are read until there are k."""
    best: dict[tuple[str, str], MergedHit] = {}
    for start in range(0, len(hits), max(k, 1)):
        if len(best) >= k:
            break
        page = hits[start : start + k]
        for document, (identifier, score) in zip(documents_of([name for name, _ in page]), page, strict=True):
            if document is None:
                continue
            first = best.setdefault(content_of(document), MergedHit(document, score))
            if first.document.id != identifier:
                first.copies.append(identifier)
    return list(best.values())[:k]


def representatives(documents: Iterable[Document]) -> Mapping[str, str]:
    """Return the id of the first document with the same content for the id of each document.

    >>> representatives([Document("a", "fox"), Document("b", "owl"), Document("c", "fox")])
    {'a': 'a', 'b': 'b', 'c': 'a'}
    """
    first: dict[tuple[str, str], str] = {}
    return {document.id: first.setdefault(content_of(document), document.id) for document in documents}


def also_in(copies: Sequence[str], width: int) -> str:
    """Return a line that names the first copies of a hit.

    >>> also_in(["print.html#a", "a.md#a"], 80)
    'also in print.html#a, a.md#a'
    """
    more = f" and {counted(len(copies) - NAMED_COPIES, 'more copy', 'more copies')}" * (len(copies) > NAMED_COPIES)
    return shortened(f"also in {', '.join(copies[:NAMED_COPIES])}{more}", width)
