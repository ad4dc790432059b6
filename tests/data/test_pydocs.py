from __future__ import annotations

import hashlib
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data import Document, Example, pydocs, read_corpus, read_examples, read_judgments, read_queries
from vocable.errors import DataError


@pytest.fixture(scope="module")
def whole() -> dict[str, Document]:
    return {document.id: document for document in pydocs.documents()}


def digest() -> str:
    records = chain(pydocs.documents(), pydocs.known_items())
    return hashlib.sha256(repr(list(records)).encode()).hexdigest()


def normalized(text: str) -> str:
    return " ".join(text.lower().split())


def test_the_corpus_has_thousands_of_documents_and_queries(whole: dict[str, Document]) -> None:
    assert 5_000 < len(whole) < 9_000
    counts = [sum(1 for _ in pydocs.queries(split)) for split in pydocs.SPLITS]
    assert sum(counts) == len(pydocs.known_items())
    assert min(counts) > 1_000


def test_documents(whole: dict[str, Document]) -> None:
    assert list(whole) == sorted(whole)
    assert len({normalized(document.text) for document in whole.values()}) == len(whole)
    assert all(document.text.strip() == document.text != "" for document in whole.values())
    # One of each: module, class, function, method; written in Python and in C.
    assert {"json", "json.JSONDecoder", "json.dumps", "json.JSONEncoder.encode"} <= {
        name.replace("json.decoder.", "json.").replace("json.encoder.", "json.") for name in whole
    }
    assert {"builtins.dict", "builtins.len", "builtins.str.split", "itertools.chain", "math.sqrt"} <= set(whole)
    assert whole["math.sqrt"] == Document("math.sqrt", "Return the square root of x.", "math.sqrt")
    assert whole["json.dumps"].text.startswith("Serialize ``obj`` to a JSON formatted ``str``.")
    assert not any(name.split(".")[0] in pydocs.LEFT_OUT for name in whole)
    assert not any(part.startswith("_") for name in whole for part in name.split("."))


@pytest.mark.slow
def test_a_fresh_interpreter_finds_the_same_without_a_word() -> None:
    """Another hash seed, warnings as errors; nothing is printed, and modules written in Python stay unimported."""
    program = (
        "import hashlib, sys; from itertools import chain; from vocable.data import pydocs\n"
        "records = chain(pydocs.documents(), pydocs.known_items())\n"
        "print(hashlib.sha256(repr(list(records)).encode()).hexdigest())\n"
        "print(sorted({'this', 'antigravity', 'turtle', 'tkinter', 'nntplib', 'idlelib'} & set(sys.modules)))"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(pydocs.__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.stdout, done.stderr) == (f"{digest()}\n[]\n", "")


def test_known_items_are_a_sentence_and_the_rest_of_a_document(whole: dict[str, Document]) -> None:
    items = pydocs.known_items()
    for item in items:
        text = normalized(whole[item.id].text)
        assert text.endswith(normalized(f"{item.sentence} {item.rest}"))
        assert len(item.rest.split()) > 0
        assert pydocs.split_of(item.id) == item.split
    assert len({normalized(item.sentence) for item in items}) == len(items)
    assert len({normalized(item.rest) for item in items}) == len(items)
    by_name = {item.id: item for item in items}
    assert by_name["threading.enumerate"].sentence == "Return a list of all Thread objects currently alive."
    assert by_name["threading.enumerate"].rest.startswith("The list includes daemonic threads")


def test_the_splits_share_nothing() -> None:
    train, test = ([item for item in pydocs.known_items() if item.split == split] for split in pydocs.SPLITS)
    assert {item.id for item in train}.isdisjoint(item.id for item in test)
    for part in (lambda item: normalized(item.sentence), lambda item: normalized(item.rest)):
        assert set(map(part, train)).isdisjoint(map(part, test))
    examples = list(read_examples("pydocs:#train"))
    assert examples == [Example(item.sentence, item.rest, (), "pydocs") for item in train]
    assert list(read_examples("pydocs:")) == examples


def test_splits_of_pydocs_are_chosen_after_a_number_sign(whole: dict[str, Document]) -> None:
    assert list(read_corpus("pydocs:")) == list(whole.values())
    corpus = {document.id: document for document in read_corpus("pydocs:#test")}
    assert list(corpus.values()) == list(read_corpus("pydocs:#train"))
    assert list(corpus) == list(whole)
    assert {document.title for document in corpus.values()} == {""}
    queries, judgments = list(read_queries("pydocs:#test")), list(read_judgments("pydocs:#test"))
    assert [query.id for query in queries] == [judgment.query_id for judgment in judgments]
    assert {judgment.relevance for judgment in judgments} == {1}
    for query, judgment in zip(queries, judgments, strict=True):
        assert normalized(query.text) in normalized(whole[judgment.doc_id].text)
        assert not normalized(corpus[judgment.doc_id].text).startswith(normalized(query.text))
    assert list(read_queries("pydocs:")) == queries
    assert list(read_judgments("pydocs:")) == judgments
    for place in ("pydocs:#dev", "pydocs:json"):
        with pytest.raises(
            DataError, match=rf"^{place}: the built-in sources are pydocs:, pydocs:#train, pydocs:#test$"
        ):
            read_corpus(place)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Return x. Never y.", ("Return x.", "Never y.")),
        ("Return x (i.e. 1.5\nof y)! And", ("Return x (i.e. 1.5 of y)!", "And")),
        ('Say "hello." Then go.', ('Say "hello."', "Then go.")),
        ("No stop\n\n  Rest.", ("No stop", "Rest.")),
        ("range(stop) -> range object\nrange(start, stop) -> range object\n\nReturn it. So.", ("Return it.", "So.")),
        ("S.count(sub[, start]) -> int", ("", "")),
    ],
)
def test_a_text_is_divided_after_its_first_sentence(text: str, expected: tuple[str, str]) -> None:
    assert pydocs.divide(text) == expected


@given(st.text("ab.!? \n()->", max_size=80).map(str.strip))
def test_divide_loses_nothing_but_signatures(text: str) -> None:
    sentence, rest = pydocs.divide(text)
    assert normalized(text).endswith(normalized(f"{sentence} {rest}"))
    assert "\n" not in sentence
