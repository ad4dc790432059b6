"""Texts by id on disk: what went in comes out, in any order, from another process, and never half of it."""

from __future__ import annotations

import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data import docstore
from vocable.data.docstore import text_store

TEXTS = st.dictionaries(st.text(max_size=8), st.text(max_size=30), max_size=40)


@given(TEXTS, TEXTS)
def test_every_id_gives_its_text_and_no_other_gives_one(texts: dict[str, str], others: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = text_store(Path(folder) / "store", texts.items)
        assert len(store) == len(texts)
        assert {name: store.get(name) for name in texts} == texts
        assert all(store.get(name) is None for name in others.keys() - texts.keys())


def test_a_store_is_made_once_and_whole(tmp_path: Path) -> None:
    def failing():
        yield "a", "one"
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        text_store(tmp_path / "store", failing)
    assert not (tmp_path / "store").exists()
    assert text_store(tmp_path / "store", lambda: [("a", "two")]).get("a") == "two"
    assert text_store(tmp_path / "store", failing).get("a") == "two"


@given(st.lists(st.integers(0, 60).map(str), max_size=300))
def test_ids_that_were_seen_are_known_as_by_a_set(ids: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(docstore, "RECENT", 4)  # so that a few ids go through every stage
        ours, reference = docstore.IdSet(), set[str]()
        for one in ids:
            assert ours.add(one) == (one not in reference)
            reference.add(one)


def test_seen_ids_take_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docstore, "RECENT", 1 << 10)
    ids, count = docstore.IdSet(), 50_000
    tracemalloc.start()
    try:
        for number in range(count):
            ids.add(str(number))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 13 * count  # a set of these strings takes about 90 bytes each
    assert not any(ids.add(str(number)) for number in range(0, count, 997))
