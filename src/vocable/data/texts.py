"""Check the texts and documents that a Python caller passes."""

from __future__ import annotations

from collections.abc import Iterable

from vocable.data.schemas import DOCUMENT, Document, MalformedError, check_document
from vocable.errors import ArgumentError


def check_documents(documents: Iterable[Document], name: str = "documents") -> list[Document]:
    """Return the documents as a list; raise `ArgumentError` unless each is one that a reader would give.

    The message names the position, counted from 0, and what is wrong, in the readers' words.

    >>> check_documents([Document("d1", "A list."), Document("d1", "A set.")])
    Traceback (most recent call last):
    vocable.errors.ArgumentError: documents[1]: the id 'd1' is there already
    """
    checked, ids = list[Document](), set[str]()
    for position, document in enumerate(documents):
        if not isinstance(document, Document):
            raise ArgumentError(f"{name}[{position}] is a {type(document).__name__}, not a Document")
        try:
            checked.append(check_document(document))
        except MalformedError as error:
            raise ArgumentError(f"{name}[{position}]: {error}") from error
        if document.id in ids:
            raise ArgumentError(f"{name}[{position}]: {DOCUMENT.repeated(document)}")
        ids.add(document.id)
    return checked
