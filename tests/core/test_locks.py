"""Locks on files: a link or a pipe in their place is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.core.conftest import PRECIOUS
from vocable.core.locks import holding, lock_file, unlock_file
from vocable.core.storage import replacing
from vocable.errors import VectorsError


def test_a_lock_that_is_a_link_is_refused_and_its_target_stays(tmp_path: Path, target: Path) -> None:
    (tmp_path / "lock").symlink_to(target)
    with pytest.raises(VectorsError, match=r"notes\.txt"):
        lock_file(tmp_path / "lock", "wait")
    assert target.read_text() == PRECIOUS


def test_a_lock_that_is_a_link_to_nothing_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "new")
    with pytest.raises(VectorsError):
        lock_file(tmp_path / "lock", "wait")
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_blocks_neither_a_lock_nor_a_look_at_a_leftover(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(VectorsError):
        lock_file(tmp_path / "lock", "wait")
    os.mkfifo(tmp_path / ".x.0.part")
    with holding(tmp_path / ".x.0.part"):
        pass
    with replacing(tmp_path / "x") as file:
        file.write(b"1")
    assert (tmp_path / "x").read_bytes() == b"1"


def test_a_lock_on_a_regular_file_holds(tmp_path: Path) -> None:
    descriptor = lock_file(tmp_path / "lock", "wait")
    assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} ")
    unlock_file(descriptor)
    assert (tmp_path / "lock").read_text() == ""
