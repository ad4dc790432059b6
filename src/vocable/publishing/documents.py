"""Write the parts of documents that a page shows, a few documents in a file, and the values of fields for filters.

Letters: n documents.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from vocable.collection.groups import ADDRESS, FILE
from vocable.core.graphemes import boundary
from vocable.data import Document
from vocable.engines.filters import Value, beginnings
from vocable.publishing.files import FileTable, SiteFiles, gaps, varints

MOST_CHOICES = 200  # distinct values of a field that has a filter
FEW_CHOICES = 10  # distinct values of a field whose filter stays although most pages have different values
LONGEST_VALUE = 100  # characters of a value
PATH = "path"  # field of a section: the headings above it
FOLDERS = "folder"  # field for filters: the folders of a page's file


class Shown(NamedTuple):
    """The shown part of a document: its text is cut, `url` and `path` may be "", `facts` has its other fields."""

    id: str
    title: str
    text: str
    url: str
    path: str
    facts: dict[str, Value]

    @classmethod
    def of(cls, document: Document, characters: int) -> Shown:
        """Return the shown part of a document: its first `characters` characters, and fields with a single value."""
        text = document.text
        if len(text) > characters:
            blank = max(text.rfind(" ", characters // 2, characters), text.rfind("\n", characters // 2, characters))
            text = text[: blank if blank > 0 else boundary(text, characters)] + " …"
        url, path = (str(document.fields.get(name) or "") for name in (ADDRESS, PATH))
        facts = {name: value for name, value in document.fields.items() if name not in (ADDRESS, PATH, FILE)}
        kept = {name: value for name, value in facts.items() if _short(value)}
        return cls(document.id, document.title, text, url, path, kept)


def _short(value: object) -> bool:
    return isinstance(value, str | int | float) and 0 < len(str(value)) <= LONGEST_VALUE


def together(documents: int) -> int:
    """Return the number of documents in a file, given the number of all documents.

    >>> [together(n) for n in (100, 10_000, 100_000)]
    [3, 5, 15]
    """
    return max(3, min(16, math.isqrt(documents) // 20))


def write_documents(files: SiteFiles, shown: Sequence[Shown]) -> FileTable:
    """Write the shown parts of n documents into files, and return the table of files, without keys."""
    size = together(len(shown))
    parts = [shown[start : start + size] for start in range(0, len(shown), size)]
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return FileTable([], [files.add(encoder.encode(part).encode()) for part in parts])


def write_groups(files: SiteFiles, keys: Iterable[Hashable]) -> str | None:
    """Write the rows of each group of documents with the same key that is not None; return None without such groups."""
    groups = defaultdict[Hashable, list[int]](list)
    for row, key in enumerate(keys):
        if key is not None:
            groups[key].append(row)
    shared = [rows for rows in groups.values() if len(rows) > 1]
    if not shared:
        return None
    rows = b"".join(varints([len(rows)]) + varints(gaps(np.array(rows))) for rows in shared)
    return files.add(varints([len(shared)]) + rows)


class FieldValues(NamedTuple):
    """A field for filters: its values, the number of documents with each value, and the file with their rows."""

    name: str
    values: list[Value]
    counts: list[int]
    file: str


def write_fields(files: SiteFiles, documents: Iterable[Document]) -> list[FieldValues]:
    """Write for each field of n documents the rows of each value, and return the fields.

    A field is left out if it is no use in a filter: if all documents have the same value, if the field has very many
    values, or if most pages have different values, such as a date or a description. Pages have the field `folder`.
    """
    # Rows by field and value. Values are JSON, since True and 1 are one key of a dict.
    rows: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    pages, count = defaultdict[str, set[object]](set), 0
    for row, document in enumerate(documents):
        count += 1
        for name, value in {FOLDERS: beginnings(document.fields.get(FILE)), **document.fields}.items():
            if name in (ADDRESS, PATH, FILE):
                continue
            pages[name].add(document.fields.get(FILE, row))
            elements = value if isinstance(value, list) else [value]
            for spelling in dict.fromkeys(json.dumps(element) for element in elements if _short(element)):
                rows[name][spelling].append(row)
    # Leave out fields that are no use in a filter.
    fields = []
    for name, spelled in sorted(rows.items()):
        if len(spelled) > MOST_CHOICES or (len(spelled) == 1 and len(next(iter(spelled.values()))) == count):
            continue
        if len(spelled) > FEW_CHOICES and 2 * len(spelled) > len(pages[name]):
            continue
        # A value's rows are sorted, and written as differences.
        ordered = _ordered([(json.loads(value), numbers) for value, numbers in spelled.items()])
        content = b"".join(varints([len(numbers)]) + varints(gaps(np.array(numbers))) for _, numbers in ordered)
        values, counts = [value for value, _ in ordered], [len(numbers) for _, numbers in ordered]
        fields.append(FieldValues(name, values, counts, files.add(content)))
    return fields


def _ordered(values: list[tuple[Value, list[int]]]) -> list[tuple[Value, list[int]]]:
    """Sort values with their rows: numbers in ascending order, other values by decreasing number of documents."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value, _ in values):
        return sorted(values, key=lambda pair: float(pair[0]))
    return sorted(values, key=lambda pair: (-len(pair[1]), str(pair[0])))
