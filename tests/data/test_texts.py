"""Texts and documents that a Python caller passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vocable.data import Document, read_corpus
from vocable.data.texts import check_documents
from vocable.errors import ArgumentError, DataError

DEEP: Any = []
for _ in range(100_000):
    DEEP = [DEEP]

REFUSED: dict[str, tuple[Any, str]] = {
    "a blank id": (Document(" ", "x"), "an empty id"),
    "a tab": (Document("a\tb", "x"), r"'a\\tb' has a tab or a line end"),
    "a line feed": (Document("a\n", "x"), "has a tab or a line end"),
    "a carriage return": (Document("a\rb", "x"), "has a tab or a line end"),
    "an int id": (Document(7, "x"), "the id must be a text, not int"),  # type: ignore[arg-type]
    "no words": (Document("a", " ", title="\n"), "'a' has neither text nor title"),
    "no text": (Document("a", None), '"text" must be a text, not NoneType'),  # type: ignore[arg-type]
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
    "an id twice": (Document("first", "x"), "duplicate id 'first'"),
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


@pytest.mark.parametrize("text", ["\u200b", "   \u200b ", "\u00a0\u3000", "\u2060\u00ad"])
def test_what_cannot_be_seen_is_no_text_and_no_id(text: str, tmp_path: Path) -> None:
    for document in (Document("d", text), Document(text, "a text")):
        with pytest.raises(ArgumentError, match=r"^documents\[0\]: "):
            check_documents([document])
    (tmp_path / "c.jsonl").write_text(json.dumps({"_id": "d", "text": text}))
    with pytest.raises(DataError, match=r"c\.jsonl:1: document 'd' has neither text nor title"):
        list(read_corpus(tmp_path / "c.jsonl"))
