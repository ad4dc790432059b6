"""Records of a collection: documents, queries, examples, and the checks of their ids, texts and fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from unicodedata import category

BETWEEN = " > "  # headings of a path


class Document(NamedTuple):
    """A document; `fields` are JSON values, which a search shows and can filter by.

    >>> Document("d1", "A list is a sequence.", title="Lists").full
    'Lists A list is a sequence.'
    >>> Document("d2", "A list is a sequence.", title="Lists", fields={"path": "Guide > Lists"}).full
    'Guide Lists A list is a sequence.'
    """

    id: str
    text: str
    title: str = ""
    fields: Mapping[str, Any] = {}

    @property
    def heading(self) -> str:
        """The title after the headings above it, if the field `path` has them, as it does for sections of pages."""
        path = self.fields.get("path") if self.title else None
        is_path = isinstance(path, str) and path.endswith(f"{BETWEEN}{self.title}")
        return str(path).replace(BETWEEN, " ") if is_path else self.title

    @property
    def full(self) -> str:
        """Heading and text joined by a space: the text that is encoded and indexed."""
        return f"{self.heading} {self.text}".strip()

    def weighed(self, title_weight: int) -> str:
        """Return the text whose words are counted: the heading repeated `title_weight` times, then the text.

        >>> Document("d1", "A list is a sequence.", title="Lists").weighed(2)
        'Lists Lists A list is a sequence.'
        """
        return f"{f'{self.heading} ' * title_weight}{self.text}".strip()


def same_document(first: Document, second: Document | None) -> bool:
    """Return whether two documents are equal; fields are compared as JSON, where 1 differs from true and 1.0.

    >>> same_document(Document("d1", "A list.", fields={"n": 1}), Document("d1", "A list.", fields={"n": True}))
    False
    """
    if second is None or first != second:
        return False
    return json.dumps(dict(first.fields), sort_keys=True) == json.dumps(dict(second.fields), sort_keys=True)


class Query(NamedTuple):
    """A query."""

    id: str
    text: str


class Qrel(NamedTuple):
    """The judgment of a document for a query, with the fields of ir_measures' record."""

    query_id: str
    doc_id: str
    relevance: int
    iteration: str = "0"


class ScoredDoc(NamedTuple):
    """A hit of a run, with the fields of ir_measures' record."""

    query_id: str
    doc_id: str
    score: float


class Example(NamedTuple):
    """A training example: a query, a relevant text, and negatives.

    `source` is the stem of the file that it came from, so that a batch can be drawn from one source. `scores` are a
    teacher's scores of the positive and of each negative, or ().
    """

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    source: str = ""
    scores: tuple[float, ...] = ()

    @property
    def line(self) -> bytes:
        """The example as a line of JSON for `read_examples`, without its source.

        >>> Example("lists?", "A list is a sequence.", ("A set is not.",)).line
        b'{"query": "lists?", "positive": "A list is a sequence.", "negatives": ["A set is not."]}\\n'
        """
        values = {name: value for name, value in self._asdict().items() if value and name != "source"}
        return json.dumps(values, ensure_ascii=False).encode() + b"\n"


class MinedNegatives(NamedTuple):
    """The ids of a query's positives, and the ids of the best other documents of each system, in order."""

    query_id: str
    positives: tuple[str, ...]
    systems: dict[str, tuple[str, ...]]


class MalformedError(ValueError):
    """A malformed line, row or record; the reader adds source, line and the expected format."""


def check_document(document: Document, *, may_be_empty: bool = False) -> Document:
    """Return `document`; raise `MalformedError` for a document that readers refuse.

    The id has a visible character and neither a tab nor a line end. Title or text has a visible character, unless the
    document `may_be_empty`. The fields are JSON values under names of type str.
    """
    check_id(document.id)
    for name in ("title", "text"):
        value = getattr(document, name)
        if not isinstance(value, str):
            raise MalformedError(f'"{name}" must be a text, not {type(value).__name__}')
        check_characters(value)
    if not (visible(document.full) or may_be_empty):
        raise MalformedError(f"document {document.id!r} has neither text nor title")
    if document.fields:
        _check_fields(document.fields)
    return document


def visible(text: str) -> bool:
    """Return whether a text has a visible character: neither white space nor a format character such as U+200B.

    >>> visible("a"), visible(" \\u200b\\t")
    (True, False)
    """
    return any(not character.isspace() and category(character) != "Cf" for character in text)


def check_characters(text: str) -> None:
    """Raise `MalformedError` for a text that cannot be encoded as UTF-8."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:  # tokenizers and Parquet refuse it
        raise MalformedError("half of a surrogate pair, which is not a character") from error


def check_id(value: object) -> str:
    """Return an id; raise `MalformedError` for an id that tables and runs cannot hold."""
    if not isinstance(value, str):
        raise MalformedError(f"the id must be a text, not {type(value).__name__}")
    if not visible(value):
        raise MalformedError("an empty id")
    if "\t" in value or "\n" in value or "\r" in value:
        raise MalformedError(f"the id {value!r} has a tab or a line end")
    check_characters(value)
    return value


def _check_fields(fields: object) -> None:
    try:
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedError(f"a field is not a JSON value ({error})") from error
    if not isinstance(fields, Mapping) or not _has_named_fields(fields):
        raise MalformedError("the fields are not a dict whose keys are str")


def _has_named_fields(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _has_named_fields(inner) for name, inner in value.items())
    return not isinstance(value, list | tuple) or all(map(_has_named_fields, value))
