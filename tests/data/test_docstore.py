"""Texts by id on disk: what went in comes out, in any order, from another process, and never half of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data.docstore import text_store

TEXTS = st.dictionaries(st.text(max_size=8), st.text(max_size=30), max_size=40)


@given(TEXTS, TEXTS)
def test_every_id_gives_its_text_and_no_other_gives_one(texts: dict[str, str], others: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = text_store(Path(folder) / "store", texts.items)
        assert len(store) == len(texts)
        assert {name: store.get(name) for name in texts} == texts
        assert all(store.get(name) is None for name in others.keys() - texts.keys())


def test_made_once_and_whole(tmp_path: Path) -> None:
    def failing():
        yield "a", "one"
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        text_store(tmp_path / "store", failing)
    assert not (tmp_path / "store").exists()
    assert text_store(tmp_path / "store", lambda: [("a", "two")]).get("a") == "two"
    assert text_store(tmp_path / "store", failing).get("a") == "two"


def test_the_folder_of_an_older_version_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "keys.npy").touch()
    (tmp_path / "store.partial").mkdir()
    assert text_store(tmp_path / "store", lambda: [("a", "one")]).get("a") == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
