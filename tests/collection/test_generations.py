"""Numbered collections of a server: kept, listed, chosen and removed, while an open collection goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import vocable as vo
from tests.collection.servers import Corpus, Killed, V, found, served
from vocable.collection.collection import open_index
from vocable.engines import aliases
from vocable.engines.protocols import engine_of
from vocable.errors import ArgumentError, GoneError

QUERY = csr_array(np.ones((1, V), np.float32))


@pytest.fixture(scope="module", params=["opensearch", "qdrant"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    with (
        pytest.MonkeyPatch.context() as patched,
        served(request.param, tmp_path_factory.mktemp("server"), patched) as named,
    ):
        yield named


def listed(place: str) -> list[tuple[str, int, bool]]:
    begin = place.rpartition("/")[2]
    return [(one.name.removeprefix(begin), one.documents, one.in_use) for one in vo.alias(place)]


def test_the_old_model_stays_and_the_name_moves_forth_and_back(
    place: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aliases, "FOLLOW_SECONDS", 0.0)
    here, old, new = place("both"), Corpus(tmp_path, "a", 5), Corpus(tmp_path, "b", 7, model="another")
    old.index(here, replace=True)
    engine, address = engine_of(here)
    store = engine.open(address)
    for _ in range(2):  # the second call finds everything there
        new.index(here, replace=True, keep_old=True)
        assert listed(here) == [("-1", 5, False), ("-2", 7, True)]
    assert found(here) == new.ids
    assert sorted(name for name, _ in store.search(QUERY, 9).hits(0)) == old.ids  # as it was opened
    name = here.rpartition("/")[2]
    assert [one.in_use for one in vo.alias(here, f"{name}-1")] == [True, False]
    assert found(here) == old.ids
    third = Corpus(tmp_path, "c", 3, model="third")
    third.index(here, replace=True, keep_old=True)
    assert listed(here) == [("-1", 5, False), ("-2", 7, False), ("-3", 3, True)]
    with pytest.raises(ArgumentError):
        vo.drop(f"{here}-3")
    with pytest.raises(ArgumentError):
        vo.drop(here)
    vo.drop(f"{here}-1")
    assert listed(here) == [("-2", 7, False), ("-3", 3, True)]
    with pytest.raises(GoneError):
        store.search(QUERY, 9)
    store.close()
    with pytest.raises(ArgumentError):
        vo.alias(here, f"{name}-1")


def test_an_open_collection_moves_to_the_same_model_when_its_own_is_gone(
    place: Callable[[str], str], tmp_path: Path
) -> None:
    here, old, new = place("same"), Corpus(tmp_path, "a", 5), Corpus(tmp_path, "b", 7)
    old.index(here, replace=True)
    engine, address = engine_of(here)
    store = engine.open(address)
    new.index(here, replace=True)
    assert sorted(name for name, _ in store.search(QUERY, 9).hits(0)) == new.ids
    store.close()


def test_a_change_goes_to_the_collection_that_has_the_name(place: Callable[[str], str], tmp_path: Path) -> None:
    here, old, new = place("changed"), Corpus(tmp_path, "a", 5), Corpus(tmp_path, "b", 7)
    old.index(here, replace=True)
    with open_index(here) as writer:
        new.index(here, replace=True, keep_old=True)
        assert writer.delete([new.ids[0], old.ids[0]]).deleted == 1
        assert (found(here), listed(here)) == (new.ids[1:], [("-1", 5, False), ("-2", 6, True)])
        Corpus(tmp_path, "c", 3, model="third").index(here, replace=True, keep_old=True)
        with pytest.raises(GoneError):
            writer.delete([new.ids[1]])
    assert listed(here) == [("-1", 5, False), ("-2", 6, False), ("-3", 3, True)]


def test_a_look_at_a_replacement_does_not_lead_other_threads_there(
    place: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aliases, "FOLLOW_SECONDS", 0.0)
    here, names = place("looked"), list[str]()
    Corpus(tmp_path, "a", 5).index(here, replace=True)
    engine, address = engine_of(here)
    store, read = engine.open(address), engine._read_record
    Corpus(tmp_path, "b", 7, model="another").index(here, replace=True, keep_old=True)
    monkeypatch.setattr(engine, "_read_record", lambda self: names.append(store.name) or read(self))
    store.search(QUERY, 9)
    assert names
    assert {*names} == {engine.named(address, 1)}
    store.close()


def test_what_another_run_left_unfinished_is_removed(
    place: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, begun, other = place("unfinished"), Corpus(tmp_path, "a", 5), Corpus(tmp_path, "b", 7)

    def killed(*given: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(engine_of(here)[0], "finish", killed)
        with pytest.raises(Killed):
            begun.index(here)
    with pytest.raises(ArgumentError) as refused:
        other.index(here)
    assert f"`vocable drop {here}` removes it" in str(refused.value)
    [dropped] = vo.drop(here)
    assert str(dropped).endswith("unfinished")
    other.index(here)
    assert found(here) == other.ids


def test_a_run_resumes_with_other_workers(
    place: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, corpus = place("workers"), Corpus(tmp_path, "a", 5)

    def killed(*given: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(engine_of(here)[0], "finish", killed)
        with pytest.raises(Killed):
            corpus.index(here, engine_options="workers=2")
    with pytest.raises(ArgumentError):
        corpus.index(here, engine_options="shards=2")
    corpus.index(here, engine_options="bulk=2")
    assert found(here) == corpus.ids


def test_places_without_aliases_are_refused(place: Callable[[str], str], tmp_path: Path) -> None:
    corpus, here = Corpus(tmp_path, "a", 2), place("plain")
    corpus.index(str(tmp_path / "folder"))
    for verb in (vo.alias, vo.drop):
        with pytest.raises(ArgumentError):
            verb(tmp_path / "folder")
    with pytest.raises(ArgumentError):
        corpus.index(str(tmp_path / "folder"), keep_old=True)
    with pytest.raises(ArgumentError) as refused:
        corpus.index("postgresql://nowhere.invalid/db", replace=True, keep_old=True)
    assert "the postgresql engine has none" in str(refused.value)
    corpus.index(here)
    with pytest.raises(ArgumentError):  # the name is the collection's own
        Corpus(tmp_path, "b", 2).index(here, replace=True, keep_old=True)
    assert str(vo.alias(here)) == "no collections"
    corpus.index(f"{here}-1")
    with pytest.raises(ArgumentError):
        vo.alias(here, f"{here.rpartition('/')[2]}-1")
    assert found(here) == corpus.ids
