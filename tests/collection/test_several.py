"""Several indexes in one search: hit by hit what one index of all documents finds, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command_line import done, refused
from tests.engines.test_stores import qdrant
from vocable.collection.answers import search
from vocable.collection.collection import Collection, open_index
from vocable.collection.index import index
from vocable.collection.several import kinds_apart, together, unique_names
from vocable.collection.verbs import add, delete
from vocable.data import Document
from vocable.errors import ArgumentError
from vocable.indexes.word_counts import K1, B
from vocable.language.words import stemmed

QUERIES = ["the old fox reads", "posting lists at night", "a librarian measures twelve queries"]
SEARCHES: list[dict[str, Any]] = [
    {},
    {"weights": "sparse"},
    {"weights": "bm25"},
    {"weights": "dense"},
    {"weights": "sparse", "query_idf": 1.0},
    {"weights": "sparse,bm25", "fusion": "reciprocal-rank"},
    {"filter": "lang=de"},
    {"filter": "lang=de", "idf_filter": "lang=de"},
    {"minimum_match": 0.4},
    {"sort": "-n", "offset": 3},
    {"max_terms": 4},
]


def same_vectors(part: Collection, whole: Collection) -> Collection:
    """Give documents the vectors that they have in the whole: batches of other sizes are rounded otherwise."""
    ids = [*part.store.ids()]
    for space in part.store.spaces:
        if space != "bm25":
            part.store.replace_vectors(ids, space, whole.store.vectors(ids, space))
    return part


Parts = tuple[Collection, list[Collection]]


@pytest.fixture(scope="module", params=["truncate", "passages"])
def indexes(
    request: pytest.FixtureRequest, model: str, dense: str, documents: list[Document], tmp_path_factory: Any
) -> Parts:
    """One index of all documents, and three of a share each: two folders and one in memory."""
    options: dict[str, Any] = {"dense": dense, "device": "cpu", "long_documents": request.param, "max_length": 16}
    folder = tmp_path_factory.mktemp("several")
    whole = index(model, documents, **options)
    shares = [(documents[:20], folder / "first"), (documents[20:30], None), (documents[30:], folder / "third")]
    return whole, [same_vectors(index(model, share, place, **options), whole) for share, place in shares]


def contents(
    collection: Collection | Sequence[Collection | str], queries: Sequence[str] | None, **options: Any
) -> list[Any]:
    """Return ids, scores, parts, passages and copies of hits."""
    return [
        [(hit.document.id, hit.score, hit.parts, hit.passage, hit.copies, hit.first_score) for hit in answer.hits]
        for answer in search(collection, queries, 12, **options)
    ]


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_hits_are_those_of_one_index(indexes: Parts, options: dict[str, Any]) -> None:
    whole, parts = indexes
    expected = contents(whole, QUERIES, **options)
    assert contents(parts, QUERIES, **options) == expected
    assert any(expected)


def test_other_answers_are_those_of_one_index(indexes: Parts, documents: list[Document], cross: str) -> None:
    whole, parts = indexes
    opened = open_index([parts[0].place, *parts[1:]])
    liked = documents[25].id
    assert contents(opened, None, like=liked) == contents(whole, None, like=liked)
    assert contents(opened, QUERIES, rerank=cross) == contents(whole, QUERIES, rerank=cross)
    required = ['"old fox" reads', "reads -fox"]
    assert contents(opened, required) == contents(whole, required)
    [answer], [expected] = (search(one, [QUERIES[0]], 5, explain=True, facets="lang") for one in (opened, whole))
    assert answer.facets == expected.facets
    assert [hit.explanation for hit in answer.hits] == [hit.explanation for hit in expected.hits]
    [unknown], [wanted] = (search(one, ["libarian"], 5) for one in (opened, whole))
    assert (unknown.suggestion, unknown.note) == (wanted.suggestion, wanted.note)
    assert len(opened) == len(whole)
    assert [hit.document.fields["index"] for hit in answer.hits if hit.document.id == liked] in ([], ["memory"])
    opened.close()
    assert len(parts[1]) == 10  # the index in memory was open before


def test_search_takes_the_newest_commit_of_each_index(model: str, documents: list[Document], tmp_path: Path) -> None:
    for name, share in (("one", documents[:5]), ("two", documents[5:10])):
        index(model, share, tmp_path / name, device="cpu").close()
    opened = open_index([tmp_path / "one", tmp_path / "two"])
    new = Document("new", "a zebra crosses", fields={"index": "of its own", "hoofs": 4})
    assert search(opened, ["zebra"], weights="bm25")[0].note == "no document has the word zebra"
    add(tmp_path / "two", [new], device="cpu")
    [hit] = search(opened, ["zebra"], weights="bm25", filter="hoofs=4 and index=two")[0].hits
    assert hit.document == new._replace(fields={"index": "two", "hoofs": 4})
    add(tmp_path / "one", [new], device="cpu")
    [hit] = search(opened, ["zebra"], weights="bm25")[0].hits
    assert (hit.document.id, hit.copies) == ("one:new", ("two:new",))
    [liked] = search(opened, None, 1, like="two:new", weights="sparse")
    assert liked.hits[0].document.id == "one:new"
    with pytest.raises(ArgumentError) as raised:
        search(opened, None, like="new")
    assert str(raised.value) == "one, two: two indexes have the document 'new': name 'one:new' or 'two:new'"
    delete(tmp_path / "one", ["new"])
    assert [hit.document.id for hit in search(opened, ["zebra"], weights="bm25")[0].hits] == ["new"]


def test_index_that_is_being_made_is_searched_by_its_words(indexes: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = indexes
    store = type(parts[0].store)
    monkeypatch.setattr(store, "encoded_share", property(lambda self: 0.5 if self.place == parts[0].place else 1.0))
    [answer] = search(parts, [QUERIES[0]], 5)
    assert answer.missing == "the index is being made: 75% of the documents have vectors so far"
    assert whole.place


def test_server_beside_a_folder(
    model: str, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with qdrant(tmp_path, monkeypatch) as place:
        here, there = documents[:25], documents[25:]
        index(model, here, tmp_path / "here", device="cpu").close()
        monkeypatch.setattr("warnings.warn", lambda *given, **named: None)  # of the driver without a server
        index(model, there, place(1), bm25=True, device="cpu").close()
        opened = open_index([tmp_path / "here", place(1)])
        whole = index(model, documents, bm25=True, device="cpu")
        for query_idf in (0.0, 1.0):
            options: dict[str, Any] = {"weights": "sparse", "query_idf": query_idf}
            answers, expected = (dict(one.search(QUERIES, 40, **options).hits(0)) for one in (opened, whole))
            assert answers.keys() == expected.keys()
            np.testing.assert_allclose([*answers.values()], [expected[name] for name in answers], rtol=1e-3)
        # BM25: frequencies over all; the weights on the server are for the mean length there.
        words = stemmed([document.full for document in documents])
        lengths = np.array([*map(len, words)])
        means = np.where(np.arange(len(words)) < 25, lengths.mean(), lengths[25:].mean())
        for number, query in enumerate(stemmed(QUERIES)):
            scores = np.zeros(len(words))
            for word in query:
                counts = np.array([one.count(word) for one in words])
                df = np.count_nonzero(counts)
                idf = np.log1p((len(words) - df + 0.5) / (df + 0.5))
                scores += idf * counts / (counts + K1 * (1 - B + B * lengths / means))
            hits = dict(opened.search(QUERIES, 40, weights="bm25").hits(number))
            assert {*hits} == {documents[row].id for row in np.flatnonzero(scores)}
            expected = {document.id: score for document, score in zip(documents, scores.tolist(), strict=True)}
            np.testing.assert_allclose([*hits.values()], [expected[name] for name in hits], rtol=1e-5)
        assert opened.search(QUERIES, 40, filter="index=here").hits(0) != opened.search(QUERIES, 40).hits(0)


def test_kinds_that_indexes_do_not_share_are_left_out(
    model: str, backbones: dict[str, Path], dense: str, documents: list[Document], caplog: pytest.LogCaptureFixture
) -> None:
    one = index(model, documents[:20], dense=dense, device="cpu")
    two = index(str(backbones["distilbert"]), documents[20:], dense=dense, device="cpu")
    opened = open_index([one, two])
    reason = f"memory and memory-2 have different models ({model}, {backbones['distilbert']})"
    assert caplog.messages == [f"memory, memory-2: searched without sparse vectors: {reason}"]
    assert opened.spaces == ("bm25", "dense")
    whole = index(model, documents, dense=dense, device="cpu")
    for options in ({"weights": "bm25"}, {"weights": "dense"}, {}):
        hits = opened.search(QUERIES, 9, **options).hits(0)  # type: ignore[arg-type]
        weights = options or {"weights": "bm25,dense"}
        expected = whole.search(QUERIES, 9, **weights).hits(0)  # type: ignore[arg-type]
        assert [name for name, _ in hits] == [name for name, _ in expected]
    with pytest.raises(ArgumentError) as raised:
        str(search(opened, QUERIES, explain=True))
    assert str(raised.value).endswith("the model's vectors are not searched: the indexes have different models")
    with pytest.raises(ArgumentError) as raised:
        opened.search(QUERIES, weights="sparse")
    assert str(raised.value) == "weights: there is no space 'sparse': the index has bm25, dense"
    none = index(str(backbones["distilbert"]), documents[20:], no_dense=True, language="none", device="cpu")
    with pytest.raises(ArgumentError) as raised:
        open_index([one, none])
    assert str(raised.value) == (
        f"memory, memory-2 cannot be searched together: sparse: {reason}; bm25: memory and memory-2 have different "
        "languages (english, none); dense: memory and memory-2 have not both dense vectors"
    )


def test_refusals(indexes: Parts, model: str, documents: list[Document]) -> None:
    _, (first, second, _) = indexes
    opened = open_index([first, second])
    other = "truncate" if first.settings.limits["long_documents"] == "passages" else "passages"
    third = index(model, documents, long_documents=other, device="cpu")  # type: ignore[arg-type]
    refusals: dict[str, Callable[[], object]] = {
        "first, memory cannot change: change one index at a time": lambda: opened.add([Document("a", "b")]),
        "a list of indexes needs two different indexes, not none": lambda: open_index([]),
        f"a list of indexes needs two different indexes, not {first.place}": lambda: open_index([first]),
        f"a list of indexes needs two different indexes, not {first.place}, {first.place}": lambda: open_index(
            [first, first.place]
        ),
        "first, memory are several indexes already: name each in one list": lambda: open_index([opened, first]),
        "first, memory: one has passages and the other whole documents: index both with the same "
        "long_documents": lambda: open_index([first, third]),
    }
    for message, refuse in refusals.items():
        with pytest.raises(ArgumentError) as raised:
            refuse()
        assert str(raised.value) == message


def test_names_and_settings() -> None:
    places = ["p/a:b", "p/x", "q/x", "m", "m"]
    assert unique_names(["a:b", "x", "x", "m", "m"], places) == ["a_b", "p/x", "q/x", "m", "m-2"]
    meta = {"vocabulary": "v", "size": 3, "fingerprint": {"weights": "f"}}
    one: dict[str, Any] = {
        "model": "m", "meta": meta, "bm25": True, "language": "english", "dense": "m", "dense_fingerprint": None,
        "limits": {"long_documents": "truncate"}, "fields": ["a"], "weights": {"sparse": 1.0},
        "progress": {"coverage": [1, 2, 3, 4]}, "whole": True,
    }  # fmt: skip
    assert kinds_apart({"one": one, "two": one | {"model": "moved"}}) == {}
    unknown = one | {"meta": meta | {"fingerprint": {}}}
    moved = unknown | {"model": "moved", "bm25": False, "fields": None, "whole": False}
    reason = "one and two have different models (m, moved)"
    assert kinds_apart({"one": unknown, "two": unknown}) == {}
    shared = one | {"dense": "d", "dense_fingerprint": {"weights": "g"}}
    assert kinds_apart({"one": shared, "two": shared | {"meta": meta | {"size": 4}}}).keys() == {"sparse"}
    with pytest.raises(ArgumentError):
        kinds_apart({"one": unknown, "two": moved})
    agreed = together({"one": shared, "two": shared | {"model": "moved", "meta": unknown["meta"], "fields": None}})
    assert (agreed["meta"]["size"], agreed["weights"], agreed["fields"]) == (0, None, None)
    assert agreed["progress"]["coverage"] == [2, 4, 6, 8]
    assert kinds_apart({"one": shared, "two": moved | {"dense": "d", "dense_fingerprint": {"weights": "g"}}}) == {
        "sparse": reason, "bm25": "one and two have not both words"
    }  # fmt: skip


def test_command_line(
    model: str, documents: list[Document], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, share in (("one", documents[:20]), ("two", documents[20:])):
        index(model, share, name, device="cpu").close()
    expected = contents(["one", "two"], QUERIES[:2])
    printed = done(capsys, "search", "one", "two", "-k", "12", "--json", "--", *QUERIES[:2])
    answers = [json.loads(line) for line in printed.splitlines()]
    assert [[hit["id"] for hit in one["hits"]] for one in answers] == [[hit[0] for hit in one] for one in expected]
    assert {hit["fields"]["index"] for one in answers for hit in one["hits"]} == {"one", "two"}
    liked = json.loads(done(capsys, "search", "one", "two", "--like", documents[3].id, "--json"))
    [hits] = contents(["one", "two"], None, like=documents[3].id)
    assert [hit["id"] for hit in liked["hits"]] == [hit[0] for hit in hits][:10]
    hint = "vocable: two is an index: several indexes need -- before the query"
    assert refused(capsys, "search", "one", "two") == hint
    assert refused(capsys, "search", "one", "two", "fox") == hint
    missing = "give queries, - for stdin, or --queries SOURCE: one of the three, or --like ID"
    assert refused(capsys, "search", "one", "two", "--") == f"vocable: {missing}"
    assert "'corpus.txt' is one word too many" in refused(capsys, "add", "one", "two", "corpus.txt")
