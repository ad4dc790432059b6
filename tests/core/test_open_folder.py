"""An open folder: known by its inode wherever it is moved, its files whole or absent, and errors that name the file."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.core.conftest import PRECIOUS
from vocable.core.open_folder import FULL, REFUSED, OpenFolder
from vocable.errors import ArgumentError, NoSpaceError, VectorsError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_bytes(b"old")
    return tmp_path / "folder"


def test_a_folder_is_read_wherever_it_is_moved(folder: Path) -> None:
    directory = OpenFolder(folder)
    assert directory.standing() == "in place"
    folder.rename(folder.with_name("moved"))
    assert directory.standing() == "moved"
    directory.replace("a", b"new")
    with directory.writing("b") as file:
        file.write(b"more")
    assert (directory.read("a"), directory.names()) == (b"new", ["a", "b"])
    assert (folder.with_name("moved") / "b").read_bytes() == b"more"
    assert not folder.exists()


def test_a_folder_that_was_replaced_or_removed_is_told_from_the_open_one(folder: Path) -> None:
    directory = OpenFolder(folder)
    folder.rename(folder.with_name("moved"))
    folder.mkdir()
    assert directory.standing() == "replaced"
    assert OpenFolder(folder).identity != directory.identity
    assert directory.read("a") == b"old"
    folder.rmdir()
    folder.symlink_to("moved")
    assert directory.standing() == "in place"  # the same folder behind a link
    folder.unlink()
    shutil.rmtree(folder.with_name("moved"))
    assert directory.standing() == "removed"
    assert (directory.status("a"), directory.names()) == (None, [])
    with pytest.raises(FileNotFoundError):
        directory.open("a")
    with pytest.raises(VectorsError), directory.writing("b"):
        pass


@pytest.mark.parametrize("path", ["none", "file"])
def test_a_path_without_a_folder_is_refused(folder: Path, path: str) -> None:
    (folder.parent / "file").touch()
    with pytest.raises(VectorsError):
        OpenFolder(folder.parent / path)


SPECIAL: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, target: path.symlink_to(target),
    "broken link": lambda path, target: path.symlink_to(target.with_name("nothing")),
    "pipe": lambda path, target: os.mkfifo(path),
    "folder": lambda path, target: path.mkdir(),
}


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT])
@pytest.mark.parametrize("special", SPECIAL)
def test_a_link_pipe_or_folder_is_refused_by_its_name(folder: Path, target: Path, special: str, flags: int) -> None:
    SPECIAL[special](folder / "x", target)
    with pytest.raises((VectorsError, ArgumentError), match="folder/x"):
        os.close(OpenFolder(folder).open("x", flags))
    assert target.read_text() == PRECIOUS
    assert not target.with_name("nothing").exists()


def test_a_new_file_takes_the_place_of_a_leftover_and_writes_through_no_link(folder: Path, target: Path) -> None:
    (folder / "b").symlink_to(target)
    directory = OpenFolder(folder)
    with directory.writing("b") as file:
        file.write(b"new")
    assert (directory.read("b"), target.read_text()) == (b"new", PRECIOUS)
    (folder / "c").symlink_to(target)
    directory.replace("c", b"newer")
    assert (directory.read("c"), target.read_text()) == (b"newer", PRECIOUS)


def test_a_file_whose_writing_failed_is_removed(folder: Path) -> None:
    directory = OpenFolder(folder)

    def fail() -> None:
        with directory.writing("b") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert directory.names() == ["a"]


class FailingCall:
    """A function of `os` that fails at its n-th call, counted from 0."""

    def __init__(self, call: Callable[..., Any], number: int, reason: int) -> None:
        self.call, self.left, self.reason = call, number, reason

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left == -1:
            raise OSError(self.reason, os.strerror(self.reason))
        return self.call(*arguments, **named)


@pytest.mark.parametrize("reason", [*FULL, *REFUSED, errno.EIO])
@pytest.mark.parametrize(("name", "number"), [("open", 0), ("fsync", 0), ("replace", 0)])
def test_an_error_at_any_step_of_a_replacement_leaves_the_old_file_and_names_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, reason: int
) -> None:
    directory = OpenFolder(folder)
    kind = NoSpaceError if reason in FULL else ArgumentError if reason in REFUSED else VectorsError
    with monkeypatch.context() as patched:
        patched.setattr(os, name, FailingCall(getattr(os, name), number, reason))
        with pytest.raises(kind, match=r"folder( |/).*a") as caught:
            directory.replace("a", b"new")
    if kind is NoSpaceError:
        assert str(caught.value).endswith("free some, and repeat the command")
    assert directory.read("a") == b"old"
    directory.replace("a", b"new")
    assert directory.read("a") == b"new"


def test_a_full_disk_while_names_are_forced_to_it_is_said_after_the_replacement(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = OpenFolder(folder)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", FailingCall(os.fsync, 1, errno.ENOSPC))
        with pytest.raises(NoSpaceError):
            directory.replace("a", b"new")
    assert (directory.read("a"), directory.names()) == (b"new", ["a"])


def test_descriptors_are_closed(folder: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    before = count()
    directory = OpenFolder(folder)
    directory.read("a")
    directory.replace("a", b"new")
    with directory.writing("b"):
        pass
    directory.close()
    directory.close()
    assert count() == before
    for _ in range(20):
        OpenFolder(folder)
    assert count() == before
