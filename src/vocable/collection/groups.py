"""Put the hits of one page together: in a folder of pages each section of a page is a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from vocable.data import Document
from vocable.engines.several import INDEX_FIELD

FILE = "file"  # field of a section: the file of its page
ADDRESS = "url"  # field of a document: its link
FURTHER = 3  # sections of a page that are listed below its best one

T = TypeVar("T")


@dataclass(frozen=True)
class FurtherSection:
    """A further section of a page that has a better hit."""

    id: str
    title: str
    score: float
    url: str | None = None
    place: str | None = None  # of source code: file and line

    @classmethod
    def of(cls, document: Document, score: float) -> FurtherSection:
        """Return a hit as a further section."""
        url = document.fields.get("url")
        place = place_in_code(document) or None
        return cls(document.id, document.title, score, url if isinstance(url, str) else None, place)


def place_in_code(document: Document) -> str:
    """Return the file and line of a document of source code, "" of another document.

    >>> place_in_code(Document("a.py#f", "def f(): ...", fields={"file": "a.py", "line": 3, "last_line": 3}))
    'a.py:3'
    """
    file, line = document.fields.get(FILE), document.fields.get("line")
    is_code = isinstance(file, str) and isinstance(line, int) and "last_line" in document.fields
    return f"{file}:{line}" if is_code else ""


def page_of(document: Document) -> str | None:
    """Return the file of the page that a document is a section of; None for any other document.

    Of several indexes that are searched as one, it is INDEX:FILE.

    >>> page_of(Document("a/b.md#lists~2", "Further lists", fields={"file": "a/b.md"}))
    'a/b.md'
    >>> page_of(Document("d7", "A text.", fields={"file": "a/b.md"}))
    """
    file, index = document.fields.get(FILE), document.fields.get(INDEX_FIELD)
    of_index = f"{index}:" if isinstance(index, str) else ""
    name = document.id.removeprefix(of_index)
    if not isinstance(file, str) or not name.startswith(file):
        return None
    return of_index + file if name[len(file) : len(file) + 1] in ("", "#", "~") else None


def page_on_site(document: Document) -> str | None:
    """Return the page that a document is a section of: its address up to the fragment, or its file.

    >>> page_on_site(Document("d", "A text.", fields={"url": "https://example.org/a/#b"}))
    'https://example.org/a/'
    """
    return str(document.fields.get(ADDRESS) or "").partition("#")[0] or page_of(document)


def grouped(hits: Iterable[T], page: Callable[[T], str | None], most: int) -> list[list[T]]:
    """Return hits, best first, in groups of one `page` each, in the place of its best hit; hits without one are alone.

    The hits end where there would be more than `most` groups, so a group has no hit that is worse than the last group.

    >>> grouped(["a#1", "b#1", "a#2", "c", "c", "a#3"], lambda name: name[0] if "#" in name else None, 3)
    [['a#1', 'a#2'], ['b#1'], ['c']]
    """
    groups, of_page = list[list[T]](), dict[str, list[T]]()
    for hit in hits:
        file = page(hit)
        group = [] if file is None else of_page.setdefault(file, [])
        if not group and len(groups) == most:
            break
        if not group:
            groups.append(group)
        group.append(hit)
    return groups
