from __future__ import annotations

import errno
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from shutil import rmtree
from threading import Event
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from vocable.core.arrays import load_arrays, read_whole, save_arrays
from vocable.core.storage import check_file, finish, part_of, replacing, replacing_folder, resumable
from vocable.errors import ArgumentError, VectorsError

FULL = ["Error while serializing: I/O error: No space left on device (os error 28)"]  # of safetensors; of PyTorch:
FULL += [
    "[enforce fail at inline_container.cc:603] . unexpected pos 704 vs 598",
    "PytorchStreamWriter failed writing file",
    "basic_ios::clear: iostream error",
]
ARRAYS = {"a": np.arange(1000, dtype=np.int32), "empty": np.empty(0, dtype=np.float32)}


def test_arrays_come_back_memory_mapped(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {"note": "ü"})
    arrays, header = load_arrays(tmp_path / "x", "toy")
    np.testing.assert_array_equal(arrays["a"], ARRAYS["a"])
    assert isinstance(arrays["a"].base, np.memmap)
    assert arrays["empty"].shape == (0,)
    assert header["note"] == "ü"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_saving_again_replaces_and_clears_what_a_killed_run_left(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {})
    (tmp_path / ".x.0123abcd.part").mkdir()
    (tmp_path / ".x.0123abcd.part" / "a.npy").write_bytes(b"half")
    save_arrays(tmp_path / "x", "toy", {"b": np.ones(3)}, {})
    assert list(load_arrays(tmp_path / "x", "toy")[0]) == ["b"]
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["b.npy", "index.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_other_folders_and_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    (tmp_path / "file").write_text("text")
    for name in ("photos", "file"):
        with pytest.raises(VectorsError, match=f"{name}: exists and is not an index"):
            save_arrays(tmp_path / name, "toy", ARRAYS, {})
    assert (tmp_path / "photos" / "cat.jpg").read_bytes() == b"cat"
    (tmp_path / "empty").mkdir()
    save_arrays(tmp_path / "empty", "toy", ARRAYS, {})


def test_a_failed_save_leaves_the_old_index(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {})
    with pytest.raises(ValueError, match="allow_pickle"):
        save_arrays(tmp_path / "x", "toy", {"a": np.array([object()])}, {})
    np.testing.assert_array_equal(load_arrays(tmp_path / "x", "toy")[0]["a"], ARRAYS["a"])
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_damage_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    save_arrays(folder, "toy", ARRAYS, {})
    file, whole = folder / "a.npy", (folder / "a.npy").read_bytes()
    for length in (0, 40, 128, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(VectorsError, match=r"a\.npy: missing, truncated or damaged"):
            load_arrays(folder, "toy")
    file.write_bytes(whole[:-1] + b"\x01")
    with pytest.raises(VectorsError, match=r"a\.npy: damaged \(its checksum differs\)"):
        load_arrays(folder, "toy")
    load_arrays(folder, "toy", verify=False)
    np.save(file, np.arange(999, dtype=np.int32))
    with pytest.raises(VectorsError, match=r"a\.npy: holds \(999,\) int32"):
        load_arrays(folder, "toy", verify=False)
    file.unlink()
    with pytest.raises(VectorsError, match=r"a\.npy: missing"):
        load_arrays(folder, "toy")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{", "truncated or damaged"),
        ("[]", "does not describe an index"),
        ('{"kind": "toy"}', "does not describe an index"),
        ('{"kind": "other", "format": 1, "arrays": {}}', "kind 'toy', format 1, not kind 'other'"),
        ('{"kind": "toy", "format": 2, "arrays": {}}', "not kind 'toy', format 2"),
        ('{"kind": "toy", "format": 1, "arrays": {"a": 5}}', "does not describe an index"),
    ],
)
def test_a_header_that_is_not_ours_is_refused(tmp_path: Path, header: str, message: str) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {})
    (tmp_path / "x" / "index.json").write_text(header)
    with pytest.raises(VectorsError, match=message):
        load_arrays(tmp_path / "x", "toy")


def test_no_index_there(tmp_path: Path) -> None:
    with pytest.raises(VectorsError, match=r"not an index \(no index\.json\)"):
        load_arrays(tmp_path, "toy")


def test_a_block_that_fails_writes_nothing(tmp_path: Path) -> None:
    def fail_half_way() -> None:
        with replacing(tmp_path / "f") as file:
            file.write(b"half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
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

    with pytest.raises(RuntimeError, match="stop"):
        fail_half_way()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_place_of_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ArgumentError, match="already exists"), replacing_folder(tmp_path):
        pass
    with pytest.raises(ArgumentError, match="already exists"), replacing_folder(tmp_path / "thesis.tex"):
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
        with pytest.raises(ArgumentError, match="cannot be an output"), replacing(name):
            pass
    with pytest.raises(ArgumentError, match="is a link to"), replacing_folder(tmp_path / "dangling"):
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


def test_a_name_with_a_path_is_refused(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {})
    file = tmp_path / "x" / "index.json"
    header = json.loads(file.read_text())
    header["arrays"]["../a"] = header["arrays"]["a"]
    del header["crc32"]
    header["crc32"] = zlib.crc32(json.dumps(header, sort_keys=True).encode())
    file.write_text(json.dumps(header))
    with pytest.raises(VectorsError, match=r"index\.json: '\.\./a' is not the name of an array"):
        load_arrays(tmp_path / "x", "toy")


@pytest.mark.parametrize("name", ["index.json", "a.npy"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {})
    (tmp_path / "x" / name).unlink()
    os.mkfifo(tmp_path / "x" / name)
    with pytest.raises(VectorsError, match=f"{name}.*not a regular file"):
        load_arrays(tmp_path / "x", "toy")


def test_a_changed_bit_of_the_header_is_noticed(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {"note": "right"})
    file = tmp_path / "x" / "index.json"
    whole = file.read_text()
    file.write_text(whole.replace("right", "sight"))
    with pytest.raises(VectorsError, match=r"index\.json: damaged \(its checksum differs\)"):
        load_arrays(tmp_path / "x", "toy")


@pytest.mark.parametrize("platform", ["linux", "darwin"])  # with and without one step that exchanges two folders
def test_an_index_is_readable_whenever_a_save_over_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    one, other = {"a": np.zeros(3)}, {"a": np.ones(3)}
    save_arrays(tmp_path / "x", "toy", one, {})
    rename, replace, seen = Path.rename, Path.replace, set()
    for step in range(9):
        steps = iter(range(step))

        def until(move: Callable[..., Path], steps: Iterator[int] = steps) -> Callable[..., Path]:
            def moved(path: Path, target: Path) -> Path:
                if next(steps, None) is None:
                    raise KeyboardInterrupt
                return move(path, target)

            return moved

        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr("sys.platform", platform)
            # A process that is killed removes no part.
            patched.setattr(
                "vocable.core.storage.remove_path", lambda path: path.suffix == ".part" or rmtree(path, True)
            )
            patched.setattr(Path, "rename", until(rename))
            patched.setattr(Path, "replace", until(replace))
            save_arrays(tmp_path / "x", "toy", other, {})
        seen.add(float(load_arrays(tmp_path / "x", "toy")[0]["a"][0]))
    assert seen == {0.0, 1.0}
    save_arrays(tmp_path / "x", "toy", one, {})
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_two_writers_of_one_index_do_not_meet(tmp_path: Path) -> None:
    class Slow(dict[str, np.ndarray]):
        def items(self) -> Any:
            with pytest.raises(ArgumentError, match=f"x.partial is in use by process {os.getpid()} since "):
                save_arrays(tmp_path / "x", "toy", {"a": np.ones(1)}, {})
            return super().items()

    save_arrays(tmp_path / "x", "toy", Slow(a=np.zeros(1)), {})
    assert load_arrays(tmp_path / "x", "toy")[0]["a"].tolist() == [0]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_an_index_is_whole_for_readers_while_it_is_replaced(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", "toy", {"a": np.zeros(9), "b": np.zeros(9)}, {})
    stop = Event()

    def write() -> None:
        for number in count(1):
            if stop.is_set():
                return
            save_arrays(tmp_path / "x", "toy", {name: np.full(9, float(number)) for name in "ab"}, {})

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            for verify in [True, False] * 60:
                arrays, _ = load_arrays(tmp_path / "x", "toy", verify=verify)
                assert arrays["a"][0] == arrays["b"][0]
        finally:
            stop.set()
        writing.result()


def test_a_folder_whose_place_was_taken_is_read_again(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        for part in ("one", "other"):
            (tmp_path / name / part).write_text(name)
    link, calls = tmp_path / "link", 0
    link.symlink_to("a")

    def read() -> list[str]:
        nonlocal calls
        calls += 1
        first = (link / "one").read_text()
        if calls == 1:
            link.unlink()
            link.symlink_to("b")
        return [first, (link / "other").read_text()]

    assert read_whole(read, link) == ["b", "b"]
    with pytest.raises(ZeroDivisionError):
        read_whole(lambda: 1 // 0, link)


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
