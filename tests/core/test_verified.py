from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.indexes.test_exact_index import random_vectors
from vocable.core.verified import VERIFIED, verifying
from vocable.errors import VectorsError
from vocable.indexes.exact_index import ExactIndex


def wait() -> None:
    time.sleep(0.15)


@pytest.fixture(autouse=True)
def fine_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system of the tests has fine times: files of a tenth of a second are old enough."""
    monkeypatch.setattr("vocable.core.verified.SETTLED", 100_000_000)


def is_new(folder: Path) -> bool:
    with verifying(folder) as must_be_verified:
        return must_be_verified


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two files that were verified."""
    (tmp_path / "folder").mkdir()
    for name in ("a.npy", "b.json"):
        (tmp_path / "folder" / name).write_bytes(b"content")
    wait()
    assert [is_new(tmp_path / "folder") for _ in range(3)] == [True, False, False]
    return tmp_path / "folder"


def same_time(folder: Path) -> None:
    """Change the content, but neither the size nor the time of modification."""
    status = (folder / "a.npy").stat()
    (folder / "a.npy").write_bytes(b"CONTENT")
    os.utime(folder / "a.npy", ns=(status.st_atime_ns, status.st_mtime_ns))


def replaced(folder: Path) -> None:
    (folder / "other").write_bytes(b"CONTENT")
    (folder / "other").replace(folder / "a.npy")


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda folder: (folder / "a.npy").write_bytes(b"changed"),
    "content alone": same_time,
    "replaced": replaced,
    "removed": lambda folder: (folder / "a.npy").unlink(),
    "added": lambda folder: (folder / "c.npy").touch(),
    "record damaged": lambda folder: (folder / VERIFIED).write_text("{"),
    "record removed": lambda folder: (folder / VERIFIED).unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_files_are_verified_again(folder: Path, change: str) -> None:
    CHANGES[change](folder)
    assert is_new(folder)
    wait()
    assert not [is_new(folder), is_new(folder)][1]


def test_a_change_behind_a_link_is_noticed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "a.npy").symlink_to(folder / "a.npy")
    (tmp_path / "linked" / "gone").symlink_to(folder / "nothing")
    assert [is_new(tmp_path / "linked"), is_new(tmp_path / "linked")] == [True, False]
    same_time(folder)
    assert is_new(tmp_path / "linked")


def test_a_copy_is_verified(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")  # with the record, and with times of modification
    wait()
    assert [is_new(tmp_path / "copy"), is_new(tmp_path / "copy"), is_new(folder)] == [True, False, False]


def test_files_that_were_just_written_are_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"content")
    assert [is_new(tmp_path), is_new(tmp_path)] == [True, True]


def test_a_failed_verification_is_not_recorded(folder: Path) -> None:
    same_time(folder)
    wait()

    def fail() -> None:
        with verifying(folder) as must_be_verified:
            assert must_be_verified
            raise VectorsError("damaged")

    for _ in range(2):
        with pytest.raises(VectorsError, match="damaged"):
            fail()


def test_a_folder_that_cannot_be_written_is_verified_each_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / VERIFIED).unlink()

    def refuse(path: Path, record: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr("vocable.core.verified.write_record", refuse)
    assert [is_new(folder), is_new(folder)] == [True, True]


@pytest.mark.parametrize("name", ["places.npy", "weights.npy", "order.npy", "ids_bytes.npy"])
def test_damage_to_an_index_that_was_opened_before_is_found(tmp_path: Path, name: str) -> None:
    vectors = csr_array(random_vectors(40, 30, 0.3, 11))
    ExactIndex(vectors, [f"{row:02}" for row in range(40, 0, -1)]).save(tmp_path / "index")
    wait()
    for _ in range(2):
        assert len(ExactIndex.load(tmp_path / "index")) == 40
    file = tmp_path / "index" / name
    status = file.stat()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(VectorsError, match=name):
        ExactIndex.load(tmp_path / "index")


def test_later_openings_give_the_same_answers(tmp_path: Path) -> None:
    vectors, queries = csr_array(random_vectors(200, 50, 0.2, 3)), csr_array(random_vectors(9, 50, 0.3, 4))
    expected = ExactIndex(vectors).search(queries, 20)
    ExactIndex(vectors).save(tmp_path / "index")
    wait()
    for _ in range(3):
        ranking = ExactIndex.load(tmp_path / "index").search(queries, 20)
        np.testing.assert_array_equal(ranking.rows, expected.rows)
        np.testing.assert_array_equal(ranking.scores, expected.scores)
