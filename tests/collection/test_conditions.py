"""Phrases and excluded words: a search finds what a filter on a field finds, whose values a regular expression made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.collection.servers import SERVERS
from tests.collection.servers import served as server
from tests.service.conftest import Client
from tests.service.conftest import served as served_index
from vocable.cli import main
from vocable.collection import search as search_module
from vocable.collection.answers import search
from vocable.collection.collection import Collection, open_index
from vocable.collection.index import index
from vocable.collection.standing import Standing, explain
from vocable.data import Document
from vocable.errors import ArgumentError

client_of = served_index
# A query, what the model and BM25 read of it, and independent patterns of a hit: required (+), and excluded (-).
QUERIES = [
    ('librarian "in the rain" books', "librarian in the rain books", [r"+\bin the rain\b"]),
    ('"the" librarian', "the librarian", [r"+\bthe\b"]),
    ("a librarian -night -vector", "a librarian", [r"-\bnights?\b", r"-\bvectors?\b"]),
    ('librarian reads -"the lazy dog"', "librarian reads", [r"-\bthe lazy dog\b"]),
    ('"reads" librarian -night', "reads librarian", [r"+\breads\b", r"-\bnights?\b"]),
    ('"no such phrase" librarian', "no such phrase librarian", [r"+no such phrase"]),
    ('librarian "Chapter 7"', "librarian Chapter 7", [r"+\bchapter 7\b"]),
]
TYPED = 'librarian "in the rain" -books'
WAYS: list[dict[str, Any]] = [{}, {"weights": "sparse"}, {"weights": "bm25"}, {"weights": "dense"}]


def fulfils(document: Document, patterns: list[str]) -> bool:
    """Whether each pattern is in the title or the text, or in neither if it is excluded."""
    found = [
        any(re.search(pattern[1:], part, re.I) for part in (document.title, document.text)) for pattern in patterns
    ]
    return found == [pattern[0] == "+" for pattern in patterns]


@pytest.fixture(scope="module")
def marked(documents: list[Document]) -> list[Document]:
    marks = [
        {f"q{number}": fulfils(document, patterns) for number, (*_, patterns) in enumerate(QUERIES)}
        for document in documents
    ]
    return [one._replace(fields={**one.fields, **of_one}) for one, of_one in zip(documents, marks, strict=True)]


def made(
    place: str | None, backbones: dict[str, Path], dense: str, documents: list[Document], **options: Any
) -> Collection:
    return index(str(backbones["bert"]), documents, place, dense=dense, dtype="float32", device="cpu", **options)


@pytest.fixture(scope="module", params=["folder", "memory", "passages"])
def collection(
    request: pytest.FixtureRequest,
    backbones: dict[str, Path],
    dense: str,
    marked: list[Document],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Collection]:
    place = None if request.param == "memory" else str(tmp_path_factory.mktemp("made") / "index")
    options = {"max_length": 12, "long_documents": "passages"} if request.param == "passages" else {}
    with made(place, backbones, dense, marked, **options) as opened:
        yield opened


def assert_as_filtered(collection: Collection, way: dict[str, Any], k: int) -> None:
    """Assert that hits and scores of each query are those of its words with a filter."""
    for number, (typed, text, _) in enumerate(QUERIES):
        ranking = collection.search([typed, "a librarian"], k, **way)
        expected = collection.search([text], k, filter=f"q{number}=true", idf_filter="all", plain=True, **way)
        assert [name for name, _ in ranking.hits(0)] == [name for name, _ in expected.hits(0)], typed
        assert dict(ranking.hits(0)) == pytest.approx(dict(expected.hits(0)), rel=1e-4)
        other = collection.search(["a librarian"], k, **way)  # the batch's query without conditions
        assert dict(ranking.hits(1)) == pytest.approx(dict(other.hits(0)), rel=1e-4)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("rare", [1, 1000])
@pytest.mark.parametrize("k", [3, 40])
def test_conditions_are_those_of_a_filter(
    collection: Collection, way: dict[str, Any], rare: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "CHECKED_AT_ONCE", rare)  # with 1, candidates are read in growing depth
    monkeypatch.setattr("vocable.indexes.fusion.MIN_DEPTH", 5)
    assert_as_filtered(collection, way, k)


@pytest.mark.parametrize("engine", SERVERS)
def test_conditions_are_those_of_a_filter_on_servers(
    engine: str,
    backbones: dict[str, Path],
    dense: str,
    marked: list[Document],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ExitStack() as stack:
        place = stack.enter_context(server(engine, tmp_path, monkeypatch))("conditions")
        opened = stack.enter_context(made(place, backbones, dense, marked))
        assert_as_filtered(opened, {}, 10)


def test_answers_say_what_was_asked_and_mark_the_words(collection: Collection) -> None:
    [answer] = search(collection, [TYPED], 5, explain=True)
    condition = 'only hits with "in the rain", without books (`plain` takes quotes and hyphens as text)'
    assert answer.note is not None
    assert condition in answer.note
    assert condition in str(answer)
    assert answer.query.text == TYPED
    assert answer.hits
    for hit in answer.hits:
        assert hit.parts is not None
        assert "rain" in (hit.parts.words or ())
        assert "books" not in (hit.parts.words or ())
    assert [hit.document.id for hit in answer.hits] == [name for name, _ in collection.search([TYPED], 5).hits(0)]


def test_no_hits_say_why(collection: Collection) -> None:
    [answer] = search(collection, ['"rain rain rain"'], 5)
    assert answer.hits == ()
    assert answer.note is not None
    assert '"rain rain rain"' in answer.note


def test_plain_queries_are_searched_as_they_are(collection: Collection) -> None:
    same = "librarian in the rain books"
    plain = collection.search([TYPED], 10, weights="bm25", plain=True)
    assert plain.hits(0) == collection.search([same], 10, weights="bm25").hits(0)
    [answer] = search(collection, [TYPED], 3, plain=True)
    assert "only hits" not in (answer.note or "")


def test_an_impossible_query_is_one_error(collection: Collection) -> None:
    with pytest.raises(ArgumentError) as error:
        search(collection, ["-books"], 3)
    assert str(error.value).startswith("the query -books only excludes words")
    assert search(collection, ["-books"], 3, plain=True)[0].hits


def test_a_standing_names_the_condition_that_a_document_lacks(collection: Collection, marked: list[Document]) -> None:
    without = next(document for document in marked if not document.fields["q0"])
    having = next(document for document in marked if document.fields["q0"])
    lacking, met = (explain(collection, QUERIES[0][0], document.id) for document in (without, having))
    assert isinstance(lacking, Standing)
    assert isinstance(met, Standing)
    assert (lacking.unmet, met.unmet) == ('it lacks the phrase "in the rain"', None)
    same = explain(collection, QUERIES[0][1], without.id)
    assert isinstance(same, Standing)
    assert (lacking.rank, lacking.score) == (same.rank, same.score)
    assert f"{without.id} {without.title}: it lacks the phrase" in str(lacking)
    assert met.rank == [name for name, _ in collection.search([QUERIES[0][0]], 40).hits(0)].index(having.id) + 1
    plain = explain(collection, QUERIES[0][0], without.id, plain=True)
    assert isinstance(plain, Standing)
    assert plain.unmet is None


@pytest.fixture(scope="module")
def folder(
    backbones: dict[str, Path], dense: str, marked: list[Document], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    place = tmp_path_factory.mktemp("folder") / "index"
    made(str(place), backbones, dense, marked).close()
    return place


def test_the_service_answers_as_a_search(folder: Path, client_of: Callable[..., Client]) -> None:
    with open_index(folder) as opened:
        expected = {typed: [hit.document.id for hit in search(opened, [typed], 5)[0].hits] for typed, *_ in QUERIES}
    client = client_of(folder)
    for typed, found in expected.items():
        answer = client("POST", "/search", json={"query": typed, "k": 5}).json()
        assert [hit["id"] for hit in answer["hits"]] == found
    plain = client("POST", "/search", json={"query": "-books", "plain": True})
    refused = client("POST", "/search", json={"query": "-books"})
    assert (plain.status_code, refused.status_code) == (200, 422)
    viewed = client("POST", "/view", json={"query": QUERIES[0][0], "show": ["bm25", "hybrid"]}).json()
    assert {document["fields"]["q0"] for document in viewed["documents"]} == {True}


def test_queries_of_a_source_are_plain(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, run = tmp_path / "queries.jsonl", tmp_path / "hits.trec"
    source.write_text(json.dumps({"_id": "q", "text": TYPED}), encoding="utf-8")
    assert main(["search", str(folder), "--queries", str(source), "--run", str(run), "-k", "9"]) == 0
    with open_index(folder) as opened:
        expected = opened.search([TYPED], 9, plain=True).hits(0)
    assert [line.split()[2] for line in run.read_text().splitlines()] == [name for name, _ in expected]
    assert main(["search", str(folder), "-k", "2", "--", "-books"]) == 2
    assert "only excludes words" in capsys.readouterr().err
