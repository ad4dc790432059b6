"""An index in memory: saved whole or not at all, and what it was opened as."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.engines.reference import SETTINGS, SPACES, LiveDocuments, fill, make_queries
from vocable.engines.filters import parse_filter
from vocable.engines.folder import FolderStore
from vocable.engines.memory import IN_MEMORY, MemoryStore
from vocable.errors import ArgumentError, VocableError

FILTERS = [None, parse_filter("lang=de")]


def make_store() -> tuple[MemoryStore, LiveDocuments]:
    """Return a store of several segments with deletions, and the documents that it has."""
    store, live = MemoryStore.create("", SPACES, {**SETTINGS, "engine": "memory"}), LiveDocuments()
    for number in range(4):
        fill(store, live, [f"d{number}-{row}" for row in range(9 - number)], number)
    store.delete(["d0-1", "d1-2"])
    live.delete(["d0-1", "d1-2"])
    return store, live


@pytest.mark.parametrize("kind", ["new", "empty"])
def test_a_saved_store_answers_as_before_and_changes_alone(tmp_path: Path, kind: str) -> None:
    store, live = make_store()
    folder = tmp_path / "deep" / "index"
    if kind == "empty":
        folder.mkdir(parents=True)
    store.save(folder)
    saved = FolderStore.open(str(folder))
    assert saved.settings == {**SETTINGS, "engine": "folder"}
    live.check(saved, make_queries(1), FILTERS)
    assert saved.check() == len(saved.now().parts)
    saved.delete(["d0-2"])
    live.check(store, make_queries(1), FILTERS)
    live.delete(["d0-2"])
    live.check(saved, make_queries(1), FILTERS)
    assert [path.name for path in folder.parent.iterdir()] == ["index"]
    saved.close()


def test_an_empty_store_is_saved(tmp_path: Path) -> None:
    MemoryStore.create("", SPACES, dict(SETTINGS)).save(tmp_path / "index")
    saved = FolderStore.open(str(tmp_path / "index"))
    LiveDocuments().check(saved, make_queries(1))
    saved.close()


def test_a_folder_that_exists_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "notes.txt").touch()
    store, _ = make_store()
    with pytest.raises(ArgumentError):
        store.save(tmp_path / "index")
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("step", range(8))
def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    store, live = make_store()
    left = step

    def fsync(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        with pytest.raises((VocableError, OSError), match=r"[Nn]o space left"):
            store.save(tmp_path / "index")
    assert list(tmp_path.iterdir()) == []
    store.save(tmp_path / "index")
    saved = FolderStore.open(str(tmp_path / "index"))
    live.check(saved, make_queries(1))
    saved.close()


def test_a_store_in_memory_has_no_place_and_keeps_nothing() -> None:
    store, _ = make_store()
    assert (store.place, store.about.durable, store.about.words_first) == (IN_MEMORY, False, True)
    assert store.nbytes > 0
    store.drop()
    assert len(store) == 0
    assert len(MemoryStore.open("x")) == 0
