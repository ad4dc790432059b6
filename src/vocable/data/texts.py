"""Checks of texts, ids and documents that Python callers pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, TypeAlias
from unicodedata import normalize

from vocable.data.kinds import DOCUMENT
from vocable.data.records import Document, MalformedError, Query, check_characters, check_document, check_id
from vocable.errors import ArgumentError

Text: TypeAlias = str | Query | Document  # a query's text; a document's title and text
Texts: TypeAlias = Iterable[Text]
Documents: TypeAlias = Iterable[str | Document | Mapping[str, Any]]  # a dict has the fields of a line of a file


def as_text(text: object, name: str = "text") -> str:
    """Return the text of a str, query or document (with its title) as a str; raise `ArgumentError` for another type.

    All texts that are encoded or counted pass through this function, which makes them NFC, Unicode's composed form: a
    single character "é" then matches "e" with a combining accent. Ids and stored documents stay as they are.

    >>> as_text(Document("d1", "A list.", title="Lists"))
    'Lists A list.'
    """
    parts = (text.title, text.text) if isinstance(text, Document) else text[1:] if isinstance(text, Query) else (text,)
    for part in parts:
        _str(part, name, "a text")
    return normalize("NFC", str(text.full if isinstance(text, Document) else parts[-1]))


def as_texts(texts: object, name: str = "texts") -> list[str]:
    """Return texts as a list of str, from any iterable, including NumPy and Arrow arrays and pandas Series.

    Raises `ArgumentError` for a single text, a table, or an item that is not a text; the message names its position,
    counted from 0.

    >>> as_texts([Query("q1", "lists?"), "sets?"])
    ['lists?', 'sets?']
    >>> as_texts(["lists?", None])
    Traceback (most recent call last):
    vocable.errors.ArgumentError: texts[1] must be a text, not NoneType
    """
    return list(iter_texts(texts, name))


def iter_texts(texts: object, name: str = "texts") -> Iterator[str]:
    """Yield the texts of `as_texts` one at a time; refuse anything but an iterable at once."""
    items = enumerate(_items(texts, name, "texts", "text"))
    return (item if type(item) is str and item.isascii() else as_text(item, f"{name}[{at}]") for at, item in items)


def as_queries(queries: object) -> list[Query]:
    """Return texts as queries; the id of a plain text is its number, counted from 1."""
    checked = []
    for position, item in enumerate(_items(queries, "queries", "texts", "text")):
        text, identifier = as_text(item, f"queries[{position}]"), str(position + 1)
        if isinstance(item, Query | Document):
            try:
                identifier = check_id(item.id)
            except MalformedError as error:
                raise ArgumentError(f"queries[{position}]: {error}") from error
        checked.append(Query(identifier, text))
    return checked


def as_ids(ids: object) -> list[str]:
    """Return ids as a list of str; raise `ArgumentError` for a single id, and for an item that is not a str."""
    return [_str(item, f"ids[{position}]", "an id") for position, item in enumerate(_items(ids, "ids", "ids", "id"))]


def as_documents(documents: object, name: str = "documents", *, texts: bool = False) -> list[Document]:
    """Return documents, given as `Document`s or as dicts of their fields, as a list.

    With `texts`, an item may also be a text, whose id is its position, counted from 0. Raises `ArgumentError`, with the
    position and the fault, for a document that readers would refuse.

    >>> as_documents(["A list.", {"id": "d2", "text": "A set."}], texts=True)
    [Document(id='0', text='A list.', title='', fields={}), Document(id='d2', text='A set.', title='', fields={})]
    >>> as_documents([Document("d1", "A list."), Document("d1", "A set.")])
    Traceback (most recent call last):
    vocable.errors.ArgumentError: documents[1]: duplicate id 'd1'
    """
    checked, ids = list[Document](), set[str]()
    for position, item in enumerate(_items(documents, name, "documents", "document")):
        # Each kind of item passes the checks that readers make.
        try:
            if isinstance(item, Mapping):
                document = DOCUMENT.record(dict(item))
            elif isinstance(item, str) and texts:
                document = check_document(Document(str(position), item))
            elif isinstance(item, Document):
                document = check_document(item)
            else:
                wanted = "a text, a Document or a dict" if texts else "a Document or a dict with an id"
                raise ArgumentError(f"{name}[{position}] must be {wanted}, not {type(item).__name__}")
        except MalformedError as error:
            raise ArgumentError(f"{name}[{position}]: {error}") from error
        if document.id in ids:
            raise ArgumentError(f"{name}[{position}]: {DOCUMENT.duplicate(document)}")
        ids.add(document.id)
        checked.append(document)
    return checked


def _items(several: Any, name: str, what: str, item: str) -> Iterable[object]:
    """Return the items of a sequence, array, Series or iterator as Python objects.

    `what` names the items in messages, `item` a single item.
    """
    kind = type(several).__name__
    if hasattr(several, "columns") or hasattr(several, "column_names"):  # iterating yields names or columns
        raise ArgumentError(f"{name} must be a list of {what}, not a {kind}: name one of its columns")
    for method in ("to_pylist", "tolist"):  # of Arrow; of NumPy and pandas
        if hasattr(several, method):
            several = getattr(several, method)()
            break
    if isinstance(several, str | Query | Document):
        raise ArgumentError(f"{name} must be a list of {what}, not one {type(several).__name__}: write [{item}]")
    if isinstance(several, bytes | bytearray | Mapping | Set):  # no texts, or no order
        raise ArgumentError(f"{name} must be a list of {what}, not {kind}")
    try:
        iter(several)
    except TypeError as error:
        raise ArgumentError(f"{name} must be a list of {what}, not {kind}") from error
    return several


def _str(value: object, name: str, what: str) -> str:
    if not isinstance(value, str):
        raise ArgumentError(f"{name} must be {what}, not {type(value).__name__}")
    try:
        check_characters(value)
    except MalformedError as error:
        raise ArgumentError(f"{name} has {error}") from error
    return value
