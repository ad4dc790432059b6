"""Passages of long documents on servers, against the same corpus in a folder, through changes and cut-off changes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.collection import servers
from tests.collection.servers import MODEL, SERVERS, precision, served
from tests.engines.recount import recount
from vocable.collection.answers import search
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.collection.passages import document_of, passages_of
from vocable.collection.records import Changed
from vocable.collection.verbs import delete
from vocable.collection.writer import CollectionWriter
from vocable.data import Document

pytestmark = pytest.mark.slow
QUERIES = ["the old fox reads", "posting lists at night", "twelve queries (see chapter 7)"]
N = 20  # documents of the corpus
SEARCHES: list[dict[str, Any]] = [
    {},
    {"weights": "sparse"},
    {"weights": "sparse", "query_idf": 1.0},
    {"weights": "bm25=1"},
    {"filter": "even=true"},
    {"like": "d7"},
]


@pytest.fixture(scope="module")
def documents(toy_texts: list[str]) -> list[Document]:
    """Of one to twelve sentences, with and without titles."""
    return [
        Document(f"d{i}", " ".join(toy_texts[9 * i : 9 * i + 1 + i % 12]), "My title" * (i % 2), {"even": i % 2 == 0})
        for i in range(N)
    ]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    servers.models_once(monkeypatch)
    servers.small_parts(monkeypatch)


@pytest.fixture(scope="module", params=SERVERS)
def named(request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as monkeypatch,
        served(request.param, Path(folder), monkeypatch) as place,
    ):
        yield place


def make(place: str | Path, documents: Sequence[Document]) -> None:
    how: dict[str, Any] = {"bm25": True, "max_length": 20, "long_documents": "passages"}
    index(MODEL("vocable-mini"), documents, place, **how).close()


def assert_alike(place: str, folder: Path, documents: Sequence[Document]) -> None:
    """A server has the documents, hits, scores and passages of a folder with these documents."""
    make(folder, documents)
    allowed = precision(place)
    with open_index(place) as server, open_index(folder) as local:
        assert not server.units.are_documents
        ids = [document.id for document in documents]
        assert (len(server), sorted(server.units.ids())) == (len(documents), sorted(ids))
        assert sorted(server.store.ids()) == sorted(local.store.ids())
        assert server.documents(ids) == [*documents]
        for options in SEARCHES:
            for number in range(1 if "like" in options else len(QUERIES)):
                hits, wanted = (dict(one.search([QUERIES[number]], N, **options).hits(0)) for one in (server, local))
                # A folder stores dense vectors in 8 bits.
                error = max(2 * allowed, 0 if "weights" in options else 1e-2)
                assert hits == pytest.approx(wanted, rel=error, abs=error)
        [found], [wanted] = (search(one, QUERIES[:1], 3) for one in (server, local))
        assert [(hit.document.id, hit.passage) for hit in found.hits] == [
            (hit.document.id, hit.passage) for hit in wanted.hits
        ]
    counted = recount(place)
    assert counted.wrong == 0


def test_a_server_finds_passages_as_a_folder_does_through_all_changes(
    named: Callable[[str], str], documents: list[Document], tmp_path: Path
) -> None:
    place = named("long")
    make(place, documents[:14])
    assert_alike(place, tmp_path / "first", documents[:14])
    shorter = [one._replace(text=one.text.split(".")[0]) for one in documents[8:12]]
    longer = [one._replace(text=f"{one.text} {documents[11].text}") for one in documents[:3]]
    with open_index(place) as beside, open_index(place) as opened:  # two writers
        assert beside.add(documents[14:]) == Changed(N - 14, 0, 0, 0, N)
        assert opened.add([*shorter, *longer, documents[5]]) == Changed(0, 7, 1, 0, N)
    assert delete(place, ["d13", "no such"]) == Changed(0, 0, 0, 1, N - 1)
    there = {one.id: one for one in [*documents, *shorter, *longer] if one.id != "d13"}
    weighed = tmp_path / "then"  # BM25's weights are for the mean length of the making
    with open_index(place) as opened:
        counted = recount(place)
        assert (counted.documents, counted.wrong) == (len(opened.store), 0)
        passages = [one for document in there.values() for one in passages_of(document, opened.models.documents)]
        assert sorted(opened.store.ids()) == sorted(one.id for one in passages)
    make(weighed, list(there.values()))
    with open_index(place) as server, open_index(weighed) as local:
        for query in QUERIES:
            hits, wanted = (
                dict(one.search([query], N, query_idf=1.0, weights="sparse").hits(0)) for one in (server, local)
            )
            assert hits == pytest.approx(wanted, rel=2 * precision(place))


@pytest.mark.parametrize("call", ["_write", "_delete"])
def test_a_change_that_was_cut_short_is_mended_by_its_repetition(
    named: Callable[[str], str], documents: list[Document], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    place = named(f"cut{call}")
    make(place, documents)
    changed = [documents[11]._replace(text=documents[3].text), documents[6]._replace(text=documents[9].text)]
    with open_index(place) as opened:
        store: Any = opened.store
        carried_out, left = getattr(store, call), [1]

        def cut_short(*given: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise OSError("killed")
            return carried_out(*given)

        monkeypatch.setattr(store, call, cut_short)
        with pytest.raises(OSError, match="killed"):
            opened.add(changed) if call == "_write" else opened.delete(["d7", "d11"])
    with open_index(place) as opened:
        opened.add(changed)
        opened.delete(["d7"])
        there = {one.id: one for one in [*documents, *changed] if one.id != "d7"}
        assert (len(opened), {*opened.units.ids()}) == (len(there), {*there})
        assert opened.documents([*there]) == [*there.values()]
        passages = [one for document in there.values() for one in passages_of(document, opened.models.documents)]
        assert sorted(opened.store.ids()) == sorted(one.id for one in passages)
        assert {document_of(one.id) for one in passages} == {*there}
    counted = recount(place)
    assert (counted.documents, counted.wrong) == (len(passages), 0)


def test_a_making_that_was_cut_short_goes_on(
    named: Callable[[str], str], documents: list[Document], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write, left, place = CollectionWriter._write, [3], named("cutmaking")

    def cut_short(self: CollectionWriter, *given: Any) -> None:
        left[0] -= 1
        write(self, *given)
        if left[0] < 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CollectionWriter, "_write", cut_short)
        with pytest.raises(KeyboardInterrupt):
            make(place, documents)
    make(place, documents)
    assert_alike(place, tmp_path / "folder", documents)
