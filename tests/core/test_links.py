"""Links and pipes in folders that are written: refused by name, and their targets stay as they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.conftest import PRECIOUS
from vocable.core.links import open_regular, refuse_links
from vocable.core.storage import LOCK, locked, replacing, resumable, write_record
from vocable.errors import VectorsError


def test_a_link_that_comes_after_the_look_is_refused_by_the_system(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock").symlink_to(target)
    monkeypatch.setattr("vocable.core.links.refuse_link", lambda path: None)
    with pytest.raises(OSError, match="lock"):
        open_regular(tmp_path / "lock", os.O_RDWR | os.O_CREAT)


def test_a_record_is_not_written_through_a_link(tmp_path: Path, target: Path) -> None:
    (tmp_path / "record.json").symlink_to(target)
    with pytest.raises(VectorsError, match=r"record\.json"):
        write_record(tmp_path / "record.json", {"a": 1})
    assert target.read_text() == PRECIOUS
    assert (tmp_path / "record.json").is_symlink()


@pytest.mark.parametrize("name", [LOCK, "settings.json", "lines.jsonl", "part-1/vectors", "progress.json"])
def test_a_link_in_a_work_folder_is_refused_before_anything_is_written(tmp_path: Path, target: Path, name: str) -> None:
    with resumable(tmp_path / "out", {"a": 1}) as work:  # which ends unfinished
        (work / "part-1").mkdir()
        (work / "part-1" / "data").write_text("1")
    (work / name).unlink(missing_ok=True)
    (work / name).symlink_to(target)
    state = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(VectorsError, match=name), resumable(tmp_path / "out", {"a": 1}):
        raise AssertionError
    assert target.read_text() == PRECIOUS
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == state


def test_a_work_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out.partial").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(VectorsError, match=r"out\.partial"), resumable(tmp_path / "out", {}):
        raise AssertionError
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_locked_folder_that_is_a_link_keeps_the_lock_of_another_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / LOCK).write_text(PRECIOUS)
    (tmp_path / "out.partial").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(VectorsError), locked(tmp_path / "out.partial"):
        raise AssertionError
    assert (tmp_path / "elsewhere" / LOCK).read_text() == PRECIOUS


def test_a_file_is_written_into_a_new_part_alone(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vocable.core.storage.uuid4", lambda: type("Number", (), {"hex": "0" * 32}))
    (tmp_path / ".x.00000000.part").symlink_to(target)
    with pytest.raises(OSError, match=r"x\.00000000\.part"), replacing(tmp_path / "x"):
        raise AssertionError
    assert target.read_text() == PRECIOUS


SPECIAL: dict[str, Callable[[Path], object]] = {
    "file": lambda path: path.write_text("1"),
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to("/nowhere"),
    "link to a folder": lambda path: path.symlink_to("/"),
}


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(sorted(SPECIAL))), max_size=6))
def test_any_link_in_a_tree_is_found(tmp_path_factory: pytest.TempPathFactory, tree: list[tuple[int, str]]) -> None:
    root = tmp_path_factory.mktemp("tree")
    for number, (depth, kind) in enumerate(tree):
        folder = root.joinpath(*["inner"] * depth)
        folder.mkdir(parents=True, exist_ok=True)
        SPECIAL[kind](folder / f"{number}")
    if any(kind.startswith("link") for _, kind in tree):
        with pytest.raises(VectorsError):
            refuse_links(root)
    else:
        refuse_links(root)
