"""Texts and documents that a Python caller passes."""

from __future__ import annotations

from typing import Any

import pytest

from vocable.data import Document
from vocable.data.texts import check_documents
from vocable.errors import ArgumentError

DEEP: Any = []
for _ in range(100_000):
    DEEP = [DEEP]

REFUSED: dict[str, tuple[Any, str]] = {
    "a blank id": (Document(" ", "x"), "an empty id"),
    "a tab": (Document("a\tb", "x"), r"'a\\tb' has a tab or a line end"),
    "a line feed": (Document("a\n", "x"), "has a tab or a line end"),
    "a carriage return": (Document("a\rb", "x"), "has a tab or a line end"),
    "an int id": (Document(7, "x"), "the id is a int"),  # type: ignore[arg-type]
    "no words": (Document("a", " ", title="\n"), "'a' has neither text nor title"),
    "no text": (Document("a", None), '"text" is a NoneType'),  # type: ignore[arg-type]
    "half a pair": (Document("a", "x\ud800"), "half of a surrogate pair"),
    "half a pair in the id": (Document("a\udfff", "x"), "half of a surrogate pair"),
    "int keys": (Document("a", "x", fields={1: "y"}), "keys are str"),  # type: ignore[dict-item]
    "int keys within": (Document("a", "x", fields={"y": [{1: "z"}]}), "keys are str"),
    "a field of bytes": (Document("a", "x", fields={"y": b"z"}), "not a JSON value"),
    "half a pair in a field": (Document("a", "x", fields={"y": "\ud800"}), "not a JSON value"),
    "infinity": (Document("a", "x", fields={"y": float("inf")}), "not a JSON value"),
    "a number of 5,000 digits": (Document("a", "x", fields={"y": 10**5000}), "not a JSON value"),
    "fields too deep": (Document("a", "x", fields={"y": DEEP}), "not a JSON value"),
    "no fields": (Document("a", "x", fields=["y"]), "keys are str"),  # type: ignore[arg-type]
    "an id twice": (Document("first", "x"), "the id 'first' is there already"),
    "a pair": (("a", "x"), "must be a Document, not tuple"),
    "a dict": ({"id": "a", "text": "x"}, "must be a Document, not dict"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_document_that_no_reader_gives_is_refused(what: str) -> None:
    document, message = REFUSED[what]
    with pytest.raises(ArgumentError, match=rf"^documents\[1\].*{message}") as caught:
        check_documents([Document("first", "x"), document])
    assert "\n" not in str(caught.value)


def test_documents_are_returned_in_their_order() -> None:
    documents = [Document("b", "", title="T"), Document("a", "été", fields={"n": 1, "tags": ["x", None, {"y": True}]})]
    assert check_documents(iter(documents)) == documents
