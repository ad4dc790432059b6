"""Records of verified files in the user's cache: a changed file is verified again, and no record is ever needed."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from vocable.core.verified import Verified, cache_folder, remembered
from vocable.data import Document
from vocable.engines.folder import FolderStore
from vocable.errors import VectorsError

IDENTITY = (7, 8)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of records; the file system of the tests has fine times: files are old enough after a moment."""
    monkeypatch.setattr("vocable.core.verified.SETTLED", 50_000_000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "vocable"
    return tmp_path / "cache" / "vocable" / "verified"


def wait() -> None:
    time.sleep(0.07)


def record(cache: Path) -> Path:
    """Return the only record."""
    [path] = cache.iterdir()
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two files that were verified."""
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        path.write_bytes(b"content")
    wait()
    Verified(IDENTITY).add([(path.name, path.stat()) for path in paths], ["a", "b"])
    assert known(paths) == [True, True]
    return paths


def known(files: list[Path], identity: tuple[int, int] = IDENTITY) -> list[bool]:
    """Return for each file whether a new process would find it among the verified files."""
    verified = Verified(identity)
    return [path.exists() and (path.name, path.stat()) in verified for path in files]


def same_time(path: Path) -> None:
    """Change the content, but neither the size nor the time of modification."""
    status = path.stat()
    path.write_bytes(b"CONTENT")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replaced(path: Path) -> None:
    path.with_name("other").write_bytes(b"CONTENT")
    path.with_name("other").replace(path)


def copied(path: Path) -> None:
    shutil.copy2(path, path.with_name("other"))
    path.with_name("other").replace(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda path: path.write_bytes(b"changed"),
    "content alone": same_time,
    "replaced": replaced,
    "replaced by a copy": copied,
    "time alone": lambda path: os.utime(path, ns=(1, 1)),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_verified_again(files: list[Path], change: str) -> None:
    CHANGES[change](files[0])
    assert known(files) == [False, True]


def test_a_record_belongs_to_one_folder(files: list[Path]) -> None:
    assert known(files, (7, 9)) == [False, False]


def test_files_that_are_not_kept_are_forgotten(files: list[Path], cache: Path) -> None:
    files[0].with_name("c").write_bytes(b"new")
    wait()
    new = files[0].with_name("c")
    Verified(IDENTITY).add([("c", new.stat())], ["b", "c"])
    assert known([*files, new]) == [False, True, True]
    assert sorted(json.loads(record(cache).read_text())) == ["b", "c"]


def test_a_file_that_was_just_written_is_not_recorded(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    Verified(IDENTITY).add([("a", (tmp_path / "a").stat())], ["a"])
    assert not cache.exists()


RECORDS: dict[str, Callable[[Path], object]] = {
    "removed": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "a list": lambda path: path.write_text("[1]"),
    "a number": lambda path: path.write_text('{"a": 7}'),
    "texts": lambda path: path.write_text('{"a": ["x"]}'),
    "nothing": lambda path: path.write_text("null"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "not UTF-8": lambda path: path.write_bytes(b"\xff"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", RECORDS)
def test_a_damaged_record_is_ignored(files: list[Path], cache: Path, damage: str) -> None:
    RECORDS[damage](record(cache))
    assert known(files) == [False, False]
    Verified(IDENTITY).add([(path.name, path.stat()) for path in files], ["a", "b"])
    assert known(files) == ([False] * 2 if damage == "a folder" else [True] * 2)


def test_the_record_of_another_user_is_ignored(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    assert known(files) == [False, False]


def test_a_cache_that_cannot_be_written_is_ignored(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Below a file: for root, too, who may write anywhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(files[0]))
    Verified(IDENTITY).add([("b", files[1].stat())], ["b"])
    assert known(files) == [False, False]
    assert files[0].read_bytes() == b"content"


def test_a_user_without_a_home_has_no_record(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    Verified(IDENTITY).add([("b", files[1].stat())], ["b"])
    assert known(files) == [False, False]


def test_the_cache_is_where_the_system_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder() == tmp_path / ".cache" / "vocable"
    monkeypatch.setattr("vocable.core.verified.sys", SimpleNamespace(platform="win32"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "vocable"


@pytest.fixture
def digested(tmp_path: Path) -> tuple[list[Path], list[int]]:
    """Two files with a recorded digest, and the sizes of all contents that were digested."""
    paths = [tmp_path / "model" / name for name in ("a", "b")]
    paths[0].parent.mkdir()
    for path in paths:
        path.write_bytes(b"content")
    wait()
    sizes = list[int]()
    assert digest(paths, sizes) == digest(paths, sizes) == "content content"
    assert sizes == [14]
    return paths, sizes


def digest(paths: list[Path], sizes: list[int], kind: str = "joined") -> str:
    def compute() -> str:
        contents = [path.read_text() for path in paths if path.exists()]
        sizes.append(sum(map(len, contents)))
        return " ".join(contents)

    return remembered(kind, paths, compute)


@pytest.mark.parametrize("change", CHANGES)
def test_changed_files_are_digested_again(digested: tuple[list[Path], list[int]], change: str) -> None:
    paths, sizes = digested
    CHANGES[change](paths[1])
    expected = " ".join(path.read_text() for path in paths if path.exists())
    assert digest(paths, sizes) == expected
    assert len(sizes) == 2


def test_digests_of_other_kinds_and_files_are_kept_apart(digested: tuple[list[Path], list[int]]) -> None:
    paths, sizes = digested
    paths[1].write_bytes(b"other")
    wait()
    assert [digest([path], sizes) for path in paths] == ["content", "other"]
    assert digest(paths, sizes, "another kind") == digest(paths, sizes) == "content other"
    assert sizes == [14, 7, 5, 12, 12]
    assert [digest([path], sizes) for path in paths] == ["content", "other"]
    assert sizes == [14, 7, 5, 12, 12]


@pytest.mark.parametrize("damage", [*RECORDS, "a digest alone", "no text"])
def test_damaged_records_of_digests_are_ignored(
    digested: tuple[list[Path], list[int]], cache: Path, damage: str
) -> None:
    paths, sizes = digested
    file = record(cache.with_name("digests"))
    [name], [states, _] = json.loads(file.read_text()), next(iter(json.loads(file.read_text()).values()))
    values = {"a digest alone": "content content", "no text": [states, 7]}
    if damage in values:
        file.write_text(json.dumps({name: values[damage]}))
    else:
        RECORDS[damage](file)
    assert digest(paths, sizes) == "content content"
    assert sizes == [14, 14]


def test_files_that_were_just_written_have_no_recorded_digest(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    assert digest([tmp_path / "a"], []) == "content"
    assert not cache.with_name("digests").exists()


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index of two segments."""
    store = FolderStore.create(str(tmp_path / "index"), {"sparse": 5}, {})
    for ids in ("abcdefgh", "z"):
        documents = [Document(name, f"text of {name}") for name in ids]
        store.upsert(documents, {"sparse": csr_array(np.ones((len(ids), 5), np.float32))})
    store.close()
    assert len([*(tmp_path / "index").glob("*.segment")]) == 2
    wait()
    return tmp_path / "index"


def verified_files(index: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Open an index, and return the names of the files whose checksums are compared."""
    from vocable.engines import folder

    names, read = [], folder.read_arrays

    def reading(descriptor: int, kind: str, place: Any, *, verify: bool = True) -> Any:
        if verify:
            names.append(Path(place).name)
        return read(descriptor, kind, place, verify=verify)

    with monkeypatch.context() as patched:
        patched.setattr(folder, "read_arrays", reading)
        FolderStore.open(str(index)).close()
    return names


def test_an_index_is_verified_when_it_is_first_opened_on_a_machine(
    index: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    names = sorted(path.name for path in index.glob("*.segment"))
    assert verified_files(index, monkeypatch) == names
    assert verified_files(index, monkeypatch) == []
    shutil.copytree(index, index.with_name("copy"))
    wait()
    assert verified_files(index.with_name("copy"), monkeypatch) == names
    same_content = (index / names[0]).read_bytes()
    (index / names[0]).write_bytes(same_content)
    wait()
    assert verified_files(index, monkeypatch) == names[:1]
    assert verified_files(index, monkeypatch) == []
    index.rename(index.with_name("moved"))
    assert verified_files(index.with_name("moved"), monkeypatch) == []
    assert sorted(path.name for path in index.with_name("moved").iterdir()) == sorted(["commit.json", "lock", *names])
    assert len([*cache.iterdir()]) == 2


def test_damage_to_a_verified_index_is_found(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        verified_files(index, monkeypatch)
    file = min(index.glob("*.segment"))
    status, content = file.stat(), bytearray(file.read_bytes())
    content[content.index(b"text of a")] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(VectorsError, match=f"{file.name}: damaged: texts_bytes"):
        FolderStore.open(str(index))


def test_a_damaged_file_is_never_recorded(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = min(index.glob("*.segment"))
    content = bytearray(file.read_bytes())
    content[content.index(b"text of a")] ^= 1
    file.write_bytes(content)
    wait()
    for _ in range(2):
        with pytest.raises(VectorsError):
            FolderStore.open(str(index))
