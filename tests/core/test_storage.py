from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from vocable.core.storage import check_file, finish, part_of, replacing, replacing_folder, resumable
from vocable.errors import ArgumentError

FULL = ["Error while serializing: I/O error: No space left on device (os error 28)"]  # of safetensors; of PyTorch:
FULL += [
    "[enforce fail at inline_container.cc:603] . unexpected pos 704 vs 598",
    "PytorchStreamWriter failed writing file",
    "basic_ios::clear: iostream error",
]


def test_a_block_that_fails_writes_nothing(tmp_path: Path) -> None:
    def fail_half_way() -> None:
        with replacing(tmp_path / "f") as file:
            file.write(b"half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert list(tmp_path.iterdir()) == []
    with replacing(tmp_path / "f") as file:
        file.write(json.dumps(1).encode())
    assert (tmp_path / "f").read_bytes() == b"1"


def test_a_replaced_file_keeps_its_mode_and_a_link_its_target(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "f", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["f"]


def test_a_file_is_forced_to_disk_and_then_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: forced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    with replacing(tmp_path / "f") as file:
        file.write(b"new")
    part, folder_of_it = [Path(path).name for path in forced]
    assert part.startswith(".f.")
    assert folder_of_it == tmp_path.name
    forced.clear()
    with replacing_folder(tmp_path / "deep" / "x") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "a").write_bytes(b"a")
    assert Path(forced[0]) == tmp_path  # which has got a new folder
    assert sorted(Path(path).name for path in forced[1:4]) == sorted([folder.name, "sub", "a"])
    assert [Path(path).name for path in forced[4:]] == ["deep"]


def test_a_folder_is_there_when_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with replacing_folder(tmp_path / "x") as folder:
        (folder / "a").write_bytes(b"a")
        assert folder.parent == tmp_path
        assert folder.name.startswith(".x.")
        assert not any((tmp_path / "x").iterdir())
        (tmp_path / "other").mkdir()
        assert folder.stat().st_mode == (tmp_path / "other").stat().st_mode
    assert (tmp_path / "x" / "a").read_bytes() == b"a"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "x"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_files_of_a_folder_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    weights = {"a": np.zeros(3)}
    before = os.umask(umask)
    try:
        with replacing_folder(tmp_path / "model") as folder:
            (folder / "inner").mkdir()
            save_file(weights, folder / "inner/model.safetensors")  # which writes it for the owner alone
            (folder / "run").touch(0o700)
        for name, result in {"work": ".", "part": "inner", "file": "inner/model.safetensors"}.items():
            with resumable(tmp_path / name, {}) as work:
                (work / "inner").mkdir()
                save_file(weights, work / "inner/model.safetensors")
                finish(work, tmp_path / name, work / result)
    finally:
        os.umask(before)
    files = [*tmp_path.rglob("*.safetensors"), tmp_path / "file"]
    assert len(files) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {mode}
    assert stat.S_IMODE((tmp_path / "model/run").stat().st_mode) == 0o700 | mode


def test_a_folder_whose_block_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail_half_way() -> None:
        with replacing_folder(tmp_path / "x") as folder:
            (folder / "a").write_bytes(b"half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_place_of_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ArgumentError), replacing_folder(tmp_path):
        pass
    with pytest.raises(ArgumentError), replacing_folder(tmp_path / "thesis.tex"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_checked_before_the_work_that_fills_it(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "far" / "away")
    os.mkfifo(tmp_path / "pipe")
    for name, said in {
        "": "is a folder: name a file",
        "dangling": "is a link to .*away, which does not exist",
        "pipe": "is a device: name a file",
        "no/file": "there is no folder .*no: make it",
    }.items():
        with pytest.raises(ArgumentError, match=said):
            check_file(tmp_path / name)
    for name in ("", ".", ".."):
        with pytest.raises(ArgumentError), replacing(name):
            pass
    with pytest.raises(ArgumentError), replacing_folder(tmp_path / "dangling"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "pipe"]


def test_a_folder_at_the_end_of_a_link_is_filled(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far")
    with replacing_folder(tmp_path / "link") as folder:
        (folder / "a").touch()
    assert (tmp_path / "link").is_symlink()
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["a"]


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    killed = tmp_path / ".x.0123abcd.part"
    with replacing_folder(tmp_path / "x") as other:
        (killed / "sub").mkdir(parents=True)
        with replacing(tmp_path / "x") as file:
            file.write(b"x")
            assert not killed.exists()
            assert other.exists()
        (tmp_path / "x").unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), *map(RuntimeError, FULL)])
def test_a_full_disk_is_named(tmp_path: Path, error: Exception) -> None:
    def fill() -> None:
        with replacing_folder(tmp_path / "x"):
            raise error

    with pytest.raises(OSError, match="No space left on device") as caught:
        fill()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "x"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_a_part_just_made_is_not_taken_for_one_of_a_killed_process(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    made = list[Path]()

    def overtaken(part: Path) -> None:
        make(part)
        made.append(part)
        if len(made) == 1:  # another writer begins before this one has its lock
            with part_of(tmp_path / "x", make):
                assert not part.exists()

    with part_of(tmp_path / "x", overtaken) as part:
        assert part.exists()
        assert made[1:] == [part]
    assert not list(tmp_path.iterdir())
