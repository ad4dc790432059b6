"""Texts and documents that a Python caller passes."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data import Document, Query, read_corpus, read_examples
from vocable.data.texts import as_documents, as_queries, as_text, as_texts
from vocable.encoding.load import load
from vocable.encoding.text_encoder import TextEncoder
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
    "a pair": (("a", "x"), "must be a Document or a dict with an id, not tuple"),
    "a text": ("x", "must be a Document or a dict with an id, not str"),
    "a dict without an id": ({"text": "x"}, "id"),
    "a dict without a text": ({"id": "a"}, "text"),
    "a dict with an id twice": ({"id": "first", "text": "x"}, "duplicate id 'first'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_document_that_no_reader_gives_is_refused(what: str) -> None:
    document, message = REFUSED[what]
    with pytest.raises(ArgumentError, match=rf"^documents\[1\].*{message}") as caught:
        as_documents([Document("first", "x"), document])
    assert "\n" not in str(caught.value)


def test_documents_are_returned_in_their_order() -> None:
    documents = [Document("b", "", title="T"), Document("a", "été", fields={"n": 1, "tags": ["x", None, {"y": True}]})]
    assert as_documents(iter(documents)) == documents


@pytest.mark.parametrize("text", ["\u200b", "   \u200b ", "\u00a0\u3000", "\u2060\u00ad"])
def test_characters_that_cannot_be_seen_are_no_text_and_no_id(text: str, tmp_path: Path) -> None:
    for document in (Document("d", text), Document(text, "a text")):
        with pytest.raises(ArgumentError, match=r"^documents\[0\]: "):
            as_documents([document])
    (tmp_path / "c.jsonl").write_text(json.dumps({"_id": "d", "text": text}))
    with pytest.raises(DataError, match=r"c\.jsonl:1: .*'d'"):
        list(read_corpus(tmp_path / "c.jsonl"))


@given(st.text())
def test_texts_are_composed_where_they_come_in(text: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert as_texts([decomposed]) == as_texts([composed]) == [composed]
    assert as_text(Document("d", decomposed)) == composed.strip()
    assert [query.text for query in as_queries([Query("q\u0301", decomposed)])] == [composed]


def test_composed_and_decomposed_texts_have_one_vector(backbones: dict[str, Path]) -> None:
    texts = ["Größe, naïve café", "école"]
    for family in ("bert", "roberta"):
        encoder = TextEncoder(load(backbones[family], device="cpu"))
        one, other = (encoder.encode([unicodedata.normalize(form, text) for text in texts]) for form in ("NFC", "NFD"))
        assert (one != other).nnz == 0


def test_ids_and_documents_stay_as_they_are(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "größe")
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"_id": decomposed, "text": decomposed}))
    [document] = read_corpus(tmp_path / "corpus.jsonl")
    assert (document.id, document.text) == (decomposed, decomposed)
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"query": decomposed, "positive": decomposed}))
    [example] = read_examples(tmp_path / "pairs.jsonl")
    assert (example.query, example.positive) == ("größe", "größe")
