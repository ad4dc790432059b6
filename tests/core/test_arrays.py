"""Files of arrays: saved whole or not at all, and damage is named."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from vocable.core.arrays import (
    ALIGNMENT,
    MAGIC,
    PREFIX,
    holds_arrays,
    load_arrays,
    read_whole,
    release,
    save_arrays,
    wrong_entries,
)
from vocable.errors import ArgumentError, VectorsError

ARRAYS = {"a": np.arange(1000, dtype=np.int32), "empty": np.empty(0, dtype=np.float32)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A small file of arrays."""
    save_arrays(tmp_path / "x", "toy", {"a": np.arange(40, dtype=np.uint16), "b": np.ones((2, 3))}, {"note": "right"})
    return tmp_path / "x"


def test_arrays_come_back_memory_mapped(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {"note": "ü"})
    loaded, header = load_arrays(tmp_path / "x", "toy")
    np.testing.assert_array_equal(loaded["a"], ARRAYS["a"])
    assert loaded["a"].ctypes.data % ALIGNMENT == 0
    assert not loaded["a"].flags.owndata
    assert (loaded["empty"].shape, loaded["empty"].dtype) == ((0,), np.float32)
    assert header["note"] == "ü"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    with pytest.raises(ValueError, match="read-only"):
        loaded["a"][0] = 1


kinds = st.sampled_from([np.uint8, np.int64, np.float32, np.float64, np.bool_])
shapes = array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)


@given(st.dictionaries(st.text(max_size=3), arrays(kinds, shapes), max_size=4), st.booleans())
def test_arrays_of_any_type_and_shape_come_back(
    tmp_path_factory: pytest.TempPathFactory, given_arrays: dict[str, np.ndarray], verify: bool
) -> None:
    path = tmp_path_factory.mktemp("arrays") / "x"
    turned = {name: array.T for name, array in given_arrays.items()}  # not contiguous
    save_arrays(path, "toy", turned, {"n": [1, None]})
    loaded, header = load_arrays(path, "toy", verify=verify)
    assert (list(loaded), header["n"]) == (list(turned), [1, None])
    for name, array in turned.items():
        assert (loaded[name].dtype, loaded[name].shape) == (array.dtype, array.shape)
        assert loaded[name].tobytes() == array.tobytes()


def test_saving_again_replaces_and_clears_what_a_killed_run_left(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {})
    before, _ = load_arrays(tmp_path / "x", "toy")
    (tmp_path / ".x.0123abcd.part").write_bytes(b"half")
    save_arrays(tmp_path / "x", "toy", {"b": np.ones(3)}, {})
    assert list(load_arrays(tmp_path / "x", "toy")[0]) == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    np.testing.assert_array_equal(before["a"], ARRAYS["a"])  # a reader keeps the file before


def test_other_folders_and_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    (tmp_path / "file").write_text("text")
    for name in ("photos", "file"):
        with pytest.raises(VectorsError):
            save_arrays(tmp_path / name, "toy", ARRAYS, {})
    assert (tmp_path / "photos" / "cat.jpg").read_bytes() == b"cat"
    assert [holds_arrays(tmp_path / name) for name in ("photos", "file", "none")] == [False] * 3


def test_a_failed_save_leaves_the_old_index(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", "toy", ARRAYS, {})
    with pytest.raises(TypeError):
        save_arrays(tmp_path / "x", "toy", {"a": np.ones(3)}, {"note": object()})
    np.testing.assert_array_equal(load_arrays(tmp_path / "x", "toy")[0]["a"], ARRAYS["a"])
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def loaded_or_refused(file: Path, *, verify: bool = True) -> dict[str, np.ndarray] | None:
    """Return the arrays of a file, or None if it is refused by its name."""
    try:
        return load_arrays(file, "toy", verify=verify)[0]
    except VectorsError as error:
        if not str(error).startswith(f"{file}: "):
            raise
        return None


def test_a_file_that_is_cut_at_any_length_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        for verify in (True, False):
            if loaded_or_refused(file, verify=verify) is not None:  # only the zeros after the last array are missing
                assert whole[length:].strip(b"\0") == b""
                assert len(whole) - length < ALIGNMENT
    file.write_bytes(whole)
    load_arrays(file, "toy")


def test_a_changed_bit_is_noticed_anywhere(file: Path) -> None:
    whole, arrays_before = (
        file.read_bytes(),
        {name: array.copy() for name, array in load_arrays(file, "toy")[0].items()},
    )
    header, unnoticed = PREFIX + int.from_bytes(whole[8:12], "little"), 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        if (loaded := loaded_or_refused(file)) is not None:  # a byte between two arrays means nothing
            unnoticed += 1
            assert place >= header
            for name, array in arrays_before.items():
                np.testing.assert_array_equal(loaded[name], array)
    assert unnoticed == sum(-array.nbytes % ALIGNMENT for array in arrays_before.values())


def test_a_damaged_array_is_named(file: Path) -> None:
    whole = file.read_bytes()
    start = PREFIX + int.from_bytes(whole[8:12], "little")
    file.write_bytes(whole[:start] + b"\x01" + whole[start + 1 :])
    with pytest.raises(VectorsError, match=r"x: damaged: a \(its checksum differs\)"):
        load_arrays(file, "toy")
    loaded, _ = load_arrays(file, "toy", verify=False)
    assert loaded["a"][0] == 1
    file.write_bytes(whole[: start + 70])
    with pytest.raises(VectorsError, match="x: damaged: a: it is truncated"):
        load_arrays(file, "toy", verify=False)


def with_header(file: Path, text: bytes) -> None:
    """Write another header, with its checksum, into a file of arrays."""
    whole = file.read_bytes()
    data = whole[PREFIX + int.from_bytes(whole[8:12], "little") :]
    prefix = MAGIC + len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little")
    file.write_bytes(prefix + text + data)


@pytest.mark.parametrize(
    "header",
    [
        "{",
        "[]",
        "[" * 100_000,
        '"toy"',
        '{"kind": "toy"}',
        '{"kind": "other", "format": 2, "arrays": {}}',
        '{"kind": "toy", "format": 1, "arrays": {}}',
        '{"kind": "toy", "format": 2, "arrays": []}',
        '{"kind": "toy", "format": 2, "arrays": {"a": 5}}',
        '{"kind": "toy", "format": 2, "arrays": {"a": []}}',
        "\xff",
    ],
)
def test_a_header_that_is_not_of_this_kind_and_format_is_refused(file: Path, header: str) -> None:
    with_header(file, header.encode("latin-1"))
    with pytest.raises(VectorsError):
        load_arrays(file, "toy")


@pytest.mark.parametrize(
    "changed",
    [
        {"type": "|O"},
        {"type": "<U99999999"},
        {"type": "nothing"},
        {"type": None},
        {"shape": [1000]},
        {"shape": [10**30]},
        {"shape": [-1]},
        {"shape": [2**62, 4]},
        {"shape": "x"},
        {"at": -64},
        {"at": 8},
        {"at": 10**30},
        {"at": None},
        {"crc32": 0},
        {"crc32": None},
    ],
)
@pytest.mark.parametrize("verify", [True, False])
def test_an_array_that_leads_out_of_its_file_is_refused(file: Path, changed: dict[str, Any], verify: bool) -> None:
    _, header = load_arrays(file, "toy")
    content = file.read_bytes()
    header = json.loads(content[PREFIX : PREFIX + int.from_bytes(content[8:12], "little")])
    header["arrays"]["a"] |= changed
    text = json.dumps(header).encode()
    with_header(file, text + b" " * (-(PREFIX + len(text)) % ALIGNMENT))
    if not verify and "crc32" in changed:
        assert load_arrays(file, "toy", verify=False)[0]["a"].tolist() == list(range(40))
        return
    with pytest.raises(VectorsError, match="x: damaged: a"):
        load_arrays(file, "toy", verify=verify)


SPECIAL: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "an empty file": lambda path: path.touch(),
    "another file": lambda path: path.write_bytes(b"text" * 100),
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a link to a pipe": lambda path: (os.mkfifo(path.with_name("pipe")), path.symlink_to("pipe")),
    "a broken link": lambda path: path.symlink_to("nothing"),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "below a file": lambda path: (path.touch(), None),
}


@pytest.mark.parametrize("special", SPECIAL)
def test_anything_but_a_file_of_arrays_is_refused_at_once(tmp_path: Path, special: str) -> None:
    SPECIAL[special](tmp_path / "x")
    path = tmp_path / "x" / "y" if special == "below a file" else tmp_path / "x"
    assert not holds_arrays(path)
    with pytest.raises(VectorsError):
        load_arrays(path, "toy")


def test_a_link_to_a_file_of_arrays_is_followed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    assert load_arrays(tmp_path / "link", "toy")[1]["note"] == "right"
    save_arrays(tmp_path / "link", "toy", {}, {"note": "new"})
    assert load_arrays(file, "toy")[1]["note"] == "new"
    assert (tmp_path / "link").is_symlink()


def test_one_of_several_kinds_is_read(file: Path) -> None:
    assert load_arrays(file, ["other", "toy"])[1]["kind"] == "toy"
    with pytest.raises(VectorsError):
        load_arrays(file, ["one", "other"])


def test_pages_that_were_released_are_read_again(tmp_path: Path) -> None:
    whole = np.arange(100_000, dtype=np.int64)
    save_arrays(tmp_path / "x", "toy", {"first": whole[:7], "a": whole}, {})
    loaded, _ = load_arrays(tmp_path / "x", "toy")
    for array in (loaded["a"], loaded["a"][3:-5], loaded["first"], loaded["first"][:0], whole):
        release(array)
    np.testing.assert_array_equal(loaded["a"], whole)


@pytest.mark.parametrize("step", range(3))
def test_an_index_is_readable_whenever_a_save_over_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    save_arrays(tmp_path / "x", "toy", {"a": np.zeros(3)}, {})
    names, replace = ["write", "rename", "end"], Path.replace

    def move(path: Path, target: Path) -> Path:
        if names[step] == "write":
            raise KeyboardInterrupt
        moved = replace(path, target)
        if names[step] == "rename":
            raise KeyboardInterrupt
        return moved

    with monkeypatch.context() as patched:
        patched.setattr("vocable.core.storage.remove_path", lambda path: None)  # a killed process removes no part
        patched.setattr(Path, "replace", move)
        if step < 2:
            with pytest.raises(KeyboardInterrupt):
                save_arrays(tmp_path / "x", "toy", {"a": np.ones(3)}, {})
        else:
            save_arrays(tmp_path / "x", "toy", {"a": np.ones(3)}, {})
    assert load_arrays(tmp_path / "x", "toy")[0]["a"][0] == min(step, 1)
    save_arrays(tmp_path / "x", "toy", {"a": np.full(3, 2.0)}, {})
    assert load_arrays(tmp_path / "x", "toy")[0]["a"][0] == 2
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
                loaded, _ = load_arrays(tmp_path / "x", "toy", verify=verify)
                assert loaded["a"][0] == loaded["b"][0]
        finally:
            stop.set()
        writing.result()


@pytest.mark.parametrize(
    ("weights", "indices", "fault"),
    [
        ([1, 1, 1], [0, 2, 1], 0),
        ([1, 1, 1], [0, 3, 1], 1),
        ([1, 1, 1], [-1, 2, 1], 1),
        ([1, 1, 1], [2, 2, 1], 2),
        ([1, 1, 1], [2, 0, 1], 2),
        ([1, 0, 1], [0, 2, 1], 3),
        ([1, 1, np.inf], [0, 2, 1], 3),
        ([1, 1, np.nan], [0, 2, 1], 3),
    ],
)
@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_the_first_fault_of_a_matrix_is_found(
    weights: list[float], indices: list[int], fault: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vocable.core.arrays.CHECKED_ENTRIES", at_once)
    matrix = np.array(weights, np.float32), np.array(indices, np.int32), np.array([0, 0, 2, 2, 3])
    assert wrong_entries(matrix, 3) == fault


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
