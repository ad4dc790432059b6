"""The pages of an index, and a page as one text: for agents, which look around as people do.

In a folder of pages each section is a document. Any other document counts as a page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple
from weakref import WeakKeyDictionary

from vocable.collection.collection import Collection
from vocable.collection.groups import FILE, page_of
from vocable.data import Document
from vocable.data.folder import FOLLOWING
from vocable.errors import ArgumentError

MAX_LISTED = 500_000  # documents of an index that can be listed: names take some 100 MB
SECTION = re.compile(r"[#~].*", re.DOTALL)  # the end of an id that names a section or a part
GAP = "\n\n"  # sections of a page

_known: WeakKeyDictionary[Collection, tuple[object, Mapping[str, Sequence[str]]]] = WeakKeyDictionary()


class WholePage(NamedTuple):
    """A page: its title, its text, and the first character of each of its sections, by their ids."""

    title: str
    text: str
    starts: dict[str, int]


def pages(collection: Collection) -> Mapping[str, Sequence[str]]:
    """Return the ids of the sections of each page, by its name; they are kept until a change.

    Raises `ArgumentError` for an index of more than `MAX_LISTED` documents.
    """
    if (size := len(collection)) > MAX_LISTED:
        raise ArgumentError(f"the index has {size:,} documents, and {MAX_LISTED:,} at most can be listed: search it")
    version = collection.store.version()
    known = _known.get(collection)
    if known is None or version is None or known[0] != version:
        listed = dict[str, list[str]]()
        for identifier in collection.store.ids():
            name = SECTION.sub("", identifier) if collection.searcher.has_pages else ""
            listed.setdefault(name or identifier, []).append(identifier)
        known = _known[collection] = version, {name: listed[name] for name in sorted(listed)}
    return known[1]


def first_sections(collection: Collection, sections: Sequence[Sequence[str]]) -> list[Document | None]:
    """Return the first section of each page, which has its title; None for a page that is gone by now."""
    stored = {one.id: one for one in collection.documents(list(chain(*sections))) if one is not None}
    firsts = list[Document | None]()
    for ids in sections:
        of_page = [stored[one] for one in ids if one in stored]
        name = page_of(of_page[0]) if of_page else None
        firsts.append(in_order(of_page, name)[0] if name else next(iter(of_page), None))
    return firsts


def whole_page(collection: Collection, name: str) -> WholePage | None:
    """Return a page of sections by its name; None if no section names it."""
    ids = pages(collection).get(SECTION.sub("", name), ())  # the name of a file may have the same marks
    sections = [one for one in collection.documents(ids) if one is not None and page_of(one) == name]
    if not sections:
        return None
    text, starts, sections = "", dict[str, int](), in_order(sections, name)
    for section in sections:
        text += GAP * bool(text)
        starts[section.id] = len(text)
        text += f"{section.title}{GAP * bool(section.title)}{section.text}"
    return WholePage(sections[0].title, text, starts)


def in_order(sections: Sequence[Document], name: str) -> list[Document]:
    """Return the sections of a page in their order: each names the section that follows."""
    of_index = name.removesuffix(str(sections[0].fields[FILE]))  # of several indexes that are searched as one
    left = {one.id: one for one in sections}
    following = {one.id: f"{of_index}{one.fields.get(FOLLOWING)}" for one in sections}
    firsts = [name for name in left if name not in {*following.values()}]
    ordered = list[Document]()
    for first in (*firsts, *left):  # there is one first section, unless the page has changed meanwhile
        while (section := left.pop(first, None)) is not None:
            ordered.append(section)
            first = following[section.id]
    return ordered
