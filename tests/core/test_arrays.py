"""Folders of arrays: saved whole or not at all, damage named, and strings as arrays."""

from __future__ import annotations

import json
import os
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

from vocable.core.arrays import Ids, load_arrays, read_whole, save_arrays
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.exact_index import strings_from_arrays, strings_to_arrays


@pytest.mark.parametrize("strings", [[], [""], ["a", "", "héé", "日本"]])
def test_strings_come_back_from_arrays(strings: list[str]) -> None:
    arrays = strings_to_arrays("s", Ids(strings))
    assert strings_from_arrays("s", arrays) == strings
    sliced = strings_to_arrays("s", Ids(["x", *strings, "y"])[1:-1])
    assert sliced["s_bytes"].tobytes() == "".join(strings).encode()
    assert strings_from_arrays("s", sliced) == strings


def test_strings_that_do_not_fit_are_refused() -> None:
    arrays = strings_to_arrays("s", Ids(["ab", "c"]))
    arrays["s_offsets"] = np.array([0, 2, 4])
    with pytest.raises(VectorsError, match=r"s_offsets\.npy"):
        strings_from_arrays("s", arrays)


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
        with pytest.raises(VectorsError, match=name):
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


def test_damaged_arrays_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    save_arrays(folder, "toy", ARRAYS, {})
    file, whole = folder / "a.npy", (folder / "a.npy").read_bytes()
    for length in (0, 40, 128, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(VectorsError, match=r"a\.npy: missing, truncated or damaged"):
            load_arrays(folder, "toy")
    file.write_bytes(whole[:-1] + b"\x01")
    with pytest.raises(VectorsError, match=r"a\.npy: .*checksum"):
        load_arrays(folder, "toy")
    load_arrays(folder, "toy", verify=False)
    np.save(file, np.arange(999, dtype=np.int32))
    with pytest.raises(VectorsError, match=r"a\.npy: holds \(999,\) int32"):
        load_arrays(folder, "toy", verify=False)
    file.unlink()
    with pytest.raises(VectorsError, match=r"a\.npy: missing"):
        load_arrays(folder, "toy")


@pytest.mark.parametrize(
    "header",
    [
        "{",
        "[]",
        '{"kind": "toy"}',
        '{"kind": "other", "format": 1, "arrays": {}}',
        '{"kind": "toy", "format": 2, "arrays": {}}',
        '{"kind": "toy", "format": 1, "arrays": {"a": 5}}',
    ],
)
def test_a_header_that_is_not_ours_is_refused(tmp_path: Path, header: str) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {})
    (tmp_path / "x" / "index.json").write_text(header)
    with pytest.raises(VectorsError):
        load_arrays(tmp_path / "x", "toy")


def test_a_folder_without_arrays_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VectorsError):
        load_arrays(tmp_path, "toy")


def test_a_name_with_a_path_is_refused(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {})
    file = tmp_path / "x" / "index.json"
    header = json.loads(file.read_text())
    header["arrays"]["../a"] = header["arrays"]["a"]
    del header["crc32"]
    header["crc32"] = zlib.crc32(json.dumps(header, sort_keys=True).encode())
    file.write_text(json.dumps(header))
    with pytest.raises(VectorsError, match=r"index\.json: '\.\./a' "):
        load_arrays(tmp_path / "x", "toy")


@pytest.mark.parametrize("name", ["index.json", "a.npy"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {})
    (tmp_path / "x" / name).unlink()
    os.mkfifo(tmp_path / "x" / name)
    with pytest.raises(VectorsError, match=name):
        load_arrays(tmp_path / "x", "toy")


def test_a_changed_bit_of_the_header_is_noticed(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {"note": "right"})
    file = tmp_path / "x" / "index.json"
    whole = file.read_text()
    file.write_text(whole.replace("right", "sight"))
    with pytest.raises(VectorsError, match=r"index\.json: .*checksum"):
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
            with pytest.raises(ArgumentError, match=f"x.partial .*{os.getpid()} "):
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
