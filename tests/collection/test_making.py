"""Re-indexing on a server beside the collection that is searched: kept until the swap, resumed, and tidied up."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

import vocable as vo
from tests.collection.servers import MODEL, SERVERS, Corpus, Killed, V, found, served
from vocable.collection.collection import open_index
from vocable.data import Document
from vocable.encoding.hub import BUILT_IN_DENSE, BUILT_IN_MODEL
from vocable.engines import aliases, kept_counts
from vocable.engines.protocols import engine_of
from vocable.errors import ArgumentError, DataError, GoneError, VectorsError


@pytest.fixture(scope="module", params=SERVERS)
def place(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """New places."""
    numbers = count()
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patched,
        served(request.param, Path(folder), patched) as named,
    ):
        yield lambda: named(f"documents{next(numbers)}")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Corpus, Corpus]:
    folder = tmp_path_factory.mktemp("corpora")
    return Corpus(folder, "a", 5), Corpus(folder, "b", 7), Corpus(folder, "c", 3)


def collections(place: str) -> list[int]:
    """The numbers of the collections with this name that exist beside it."""
    engine, address = engine_of(place)
    there = []
    for number in range(6):
        try:
            engine.open(engine.numbered(address, number)).close()
            there.append(number)
        except VectorsError:
            continue
    return there


@pytest.mark.slow
def test_a_collection_is_replaced_and_the_earlier_one_removed(
    place: Callable[[], str], corpora: tuple[Corpus, ...], caplog: pytest.LogCaptureFixture
) -> None:
    here = place()
    aliased = not here.startswith("postgresql")
    corpora[0].index(here)
    with pytest.raises(ArgumentError):
        corpora[1].index(here)
    with caplog.at_level(logging.INFO, logger="vocable"):
        for number, corpus in enumerate((corpora[1], corpora[2], corpora[0]), 1):
            corpus.index(here, replace=True)
            assert found(here) == corpus.ids
            assert collections(here) == ([number] if aliased else [])
    if aliased:
        assert any("3" in line and "searches find the new" in line for line in caplog.messages)
        assert any("2" in line and "removed" in line for line in caplog.messages)
    corpora[0].index(here, replace=True)
    corpora[0].index(here)
    assert (found(here), collections(here)) == (corpora[0].ids, [3] if aliased else [])
    with vo.open_index(here) as opened:
        assert opened.making_counts().texts == 5


def test_a_new_place_can_be_made_by_replace(place: Callable[[], str], corpora: tuple[Corpus, ...]) -> None:
    here = place()
    corpora[0].index(here, replace=True)
    corpora[1].index(here, replace=True)
    assert found(here) == corpora[1].ids


@pytest.mark.slow
def test_an_open_collection_follows_a_replacement_by_the_same_model(
    place: Callable[[], str], corpora: tuple[Corpus, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aliases, "FOLLOW_SECONDS", 0.0)
    monkeypatch.setattr(kept_counts, "RECORD_SECONDS", 0.0)
    here, query = place(), csr_array(np.ones((1, V), np.float32))
    corpora[0].index(here, replace=True)
    engine, address = engine_of(here)
    store = engine.open(address)
    try:
        assert len(store.search(query, 9).hits(0)) == 5
        corpora[1].index(here, replace=True)
        assert len(store.search(query, 9).hits(0)) == 7
        Corpus(tmp_path, "x", 2, model="another").index(here, replace=True)
        with pytest.raises(VectorsError):
            store.search(query)
    finally:
        store.close()


@pytest.mark.parametrize("number", [0, 1])
def test_an_open_collection_refuses_the_vectors_of_another_model(
    place: Callable[[], str], corpora: tuple[Corpus, ...], tmp_path: Path, number: int
) -> None:
    here, query = place(), csr_array(np.ones((1, V), np.float32))
    corpora[0].index(here)  # the name is its own
    for corpus in corpora[1 : 1 + number]:
        corpus.index(here, replace=True)
    engine, address = engine_of(here)
    store = engine.open(address)
    assert len(store.search(query, 9).hits(0)) == (5, 7)[number]
    Corpus(tmp_path, "x", 2, model="another").index(here, replace=True)
    for _ in range(2):  # nobody has looked at the name since
        with pytest.raises(GoneError):
            store.search(query, 9)
    store.close()


def test_an_open_collection_moves_at_once_when_the_same_model_takes_its_name(
    place: Callable[[], str], corpora: tuple[Corpus, ...]
) -> None:
    here, query = place(), csr_array(np.ones((1, V), np.float32))
    corpora[0].index(here)
    engine, address = engine_of(here)
    store = engine.open(address)
    corpora[1].index(here, replace=True)
    assert len(store.search(query, 9).hits(0)) == 7
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["filling", "swap", "removal"])
def test_an_interrupted_replacement_resumes(
    place: Callable[[], str], corpora: tuple[Corpus, ...], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    here = place()
    engine, _ = engine_of(here)
    corpora[0].index(here, replace=True)

    def killed(*given: Any, **named: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patched:
        if moment == "filling":
            patched.setattr(engine, "finish", killed)
        else:
            patched.setattr(engine, "take_name" if moment == "swap" else "drop", killed)
        if engine.about.engine == "postgresql" and moment == "removal":
            pytest.skip("the table before is removed in the transaction of the swap")
        with pytest.raises(Killed):
            corpora[1].index(here, replace=True)
    assert found(here) == (corpora[1] if moment == "removal" else corpora[0]).ids
    corpora[1].index(here, replace=True)
    assert found(here) == corpora[1].ids
    assert len(collections(here)) == (0 if engine.about.engine == "postgresql" else 1)


@pytest.mark.slow
def test_a_replacement_that_another_call_began_is_left_alone(
    place: Callable[[], str], corpora: tuple[Corpus, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = place()
    corpora[0].index(here, replace=True)

    def killed(*given: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(engine_of(here)[0], "finish", killed)
        with pytest.raises(Killed):
            corpora[1].index(here, replace=True)
    with pytest.raises(ArgumentError):
        corpora[2].index(here, replace=True)
    assert found(here) == corpora[0].ids
    corpora[1].index(here, replace=True)
    corpora[2].index(here, replace=True)
    assert found(here) == corpora[2].ids


def test_a_folder_is_not_replaced(corpora: tuple[Corpus, ...], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        corpora[0].index(str(tmp_path / "folder"), replace=True)
    with pytest.raises(ArgumentError):
        corpora[0].index(f"milvus:{tmp_path / 'lite.db'}", replace=True)


def test_a_corpus_without_documents_leaves_the_name_free(corpora: tuple[Corpus, ...], tmp_path: Path) -> None:
    empty, place = tmp_path / "empty.jsonl", tmp_path / "folder"
    empty.write_text("")
    with pytest.raises(ArgumentError):
        vo.index("vocable-mini", empty, place)
    assert [*tmp_path.iterdir()] == [empty]
    corpora[0].index(str(place))
    assert found(str(place)) == corpora[0].ids


@pytest.mark.slow
def test_a_corpus_that_cannot_be_read_leaves_nothing_on_a_server(place: Callable[[], str], tmp_path: Path) -> None:
    corpus, there = tmp_path / "corpus.jsonl", place()
    corpus.write_text('{"_id": "no text"}\n')
    with pytest.raises(DataError, match=r"corpus\.jsonl:1"):
        vo.index("vocable-mini", corpus, there, device="cpu")
    with pytest.raises(VectorsError):
        engine_of(there)[0].open(engine_of(there)[1])
    corpus.write_text('{"_id": "a", "text": "fox"}\n')
    vo.index("vocable-mini", corpus, there, device="cpu").close()


@pytest.mark.slow
def test_a_misspelt_field_is_said_and_a_field_of_another_writer_is_known(
    place: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    there = place()
    vo.index(MODEL("vocable-mini"), [Document("a", "old fox", "", {"lang": "en"})], there).close()
    with open_index(there) as reader, open_index(there) as writer:
        assert [name for name, _ in reader.search(["fox"], filter="lang=en").hits(0)] == ["a"]
        assert not reader.search(["fox"], filter="lnag=en").hits(0)
        assert "did you mean lang" in caplog.text
        caplog.clear()
        writer.add([Document("b", "old fox", "", {"year": 7})])
        assert [name for name, _ in reader.search(["fox"], filter="year=7").hits(0)] == ["b"]
        assert not caplog.text


@pytest.mark.parametrize(
    ("options", "place", "spaces"),
    [
        ({}, "index", ("sparse", "bm25", "dense")),
        ({"no_dense": True}, "index", ("sparse", "bm25")),
        ({"bm25": False}, "index", ("sparse", "dense")),
        ({"bm25": False, "no_dense": True}, "index", ("sparse",)),
        ({}, "seismic:index", ("sparse", "bm25")),
    ],
)
def test_an_index_of_the_built_in_model_has_three_kinds_of_vectors_by_default(
    corpus: Path, tmp_path: Path, options: dict[str, Any], place: str, spaces: tuple[str, ...]
) -> None:
    engine, _, name = place.rpartition(":")
    if engine:
        pytest.importorskip("seismic")
    output = f"{engine}:{tmp_path / name}" if engine else str(tmp_path / name)
    with vo.index(BUILT_IN_MODEL, corpus, output, **options) as collection:
        assert collection.spaces == spaces
        assert collection.settings.dense == (BUILT_IN_DENSE if "dense" in spaces else None)
    with open_index(output) as collection:
        query = collection.documents(["d0"])[0].text
        hits = vo.search(collection, [query], 3)[0].hits
        assert hits


def test_another_model_and_stored_vectors_have_no_dense_vectors_beside_them(
    toy_model: SparseEncoder, corpus: Path, tmp_path: Path
) -> None:
    with vo.index(toy_model, corpus, tmp_path / "toy") as collection:
        assert collection.spaces == ("sparse", "bm25")
    vo.encode(BUILT_IN_MODEL, corpus, output=tmp_path / "vectors")
    with vo.index(str(tmp_path / "vectors"), corpus, tmp_path / "stored") as collection:
        assert collection.spaces == ("sparse", "bm25")


def test_a_document_that_a_server_cannot_store_is_refused_before_any_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served("opensearch", tmp_path, monkeypatch) as named:
        corpus, here = Corpus(tmp_path, "a", 9), named("refused")
        rows = [{"_id": "x" * 40_000 if row == 8 else f"a{row}", "text": "text"} for row in range(9)]
        Path(corpus.file).write_text("\n".join(map(json.dumps, rows)))
        engine, address = engine_of(here)
        monkeypatch.setattr(engine, "upsert", lambda *given: pytest.fail("a document is written"))
        with pytest.raises(DataError):
            corpus.index(here)
        assert engine.find(address) is None


def test_the_rate_is_that_of_the_run(corpora: tuple[Corpus, ...], tmp_path: Path) -> None:
    here, corpus = tmp_path / "folder", corpora[0]
    made = vo.index(corpus.vectors, corpus.file, here)
    assert made.built is not None
    assert (made.built.of_run, made.built.texts) == (5, 5)
    assert made.built.texts_per_second == pytest.approx(5 / made.built.seconds)
    made.close()
    again = vo.index(corpus.vectors, corpus.file, here)
    assert again.built is not None
    assert (again.built.of_run, again.built.texts, again.built.texts_per_second) == (0, 5, 0)
    again.close()
