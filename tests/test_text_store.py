"""Texts by id on disk: what went in comes out, in any order, from another process, and never half of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vocable.data import docstore as module
from vocable.data.docstore import text_store

TEXTS = st.dictionaries(st.text(max_size=8), st.text(max_size=30), max_size=40)


@settings(max_examples=40, deadline=None)
@given(TEXTS, TEXTS)
def test_every_id_gives_its_text_and_no_other_gives_one(texts: dict[str, str], others: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = text_store(Path(folder) / "store", texts.items)
        assert len(store) == len(texts)
        assert {name: store.get(name) for name in texts} == texts
        assert all(store.get(name) is None for name in others.keys() - texts.keys())


def test_ids_with_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_key", lambda identifier: 7)
    store = text_store(tmp_path / "store", lambda: [("a", "one"), ("b", "two")])
    assert [store.get(name) for name in ("a", "b", "c")] == ["one", "two", None]


def test_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 3)
    texts = {str(number): f"text {number}" for number in range(10)}
    store = text_store(tmp_path / "store", texts.items)
    assert {name: store.get(name) for name in texts} == texts


def test_made_once_and_whole(tmp_path: Path) -> None:
    def failing():
        yield "a", "one"
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        text_store(tmp_path / "store", failing)
    assert not (tmp_path / "store").exists()
    assert text_store(tmp_path / "store", lambda: [("a", "two")]).get("a") == "two"
    assert text_store(tmp_path / "store", failing).get("a") == "two"
