"""Seals of folders: every change of a sealed file is noticed, and the name of the file is said."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vocable.core.seal import READ_BYTES, break_seal, check_seal, seal
from vocable.errors import VectorsError


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A sealed folder with a sparse file, a file of JSON and a hidden file in `data`."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "rows").write_bytes(bytes(READ_BYTES) + b"abc" + bytes(2 * READ_BYTES))
    (data / "settings.json").write_text('{"a": 1, "b": [2]}')
    (data / ".part").write_bytes(b"x")
    seal(tmp_path, "data", 7, settled=True)
    return tmp_path


def later(path: Path) -> None:
    """Set the time of a file to one that no seal has."""
    os.utime(path, ns=(1, 1))


def test_an_unchanged_folder_keeps_its_seal(sealed: Path) -> None:
    found = check_seal(sealed, "data")
    assert found is not None
    assert (found.documents, found.settled) == (7, True)
    assert {name: file.size for name, file in found.files.items()} == {
        "rows": 3 * READ_BYTES + 3,
        "settings.json": 18,
    }


def test_files_with_other_times_and_json_with_another_order_of_keys_are_unchanged(sealed: Path) -> None:
    (sealed / "data" / "settings.json").write_text('{"b": [2], "a": 1}')
    later(sealed / "data" / "rows")
    assert check_seal(sealed, "data") is not None


def moved_zeros(data: Path) -> None:
    (data / "rows").write_bytes(bytes(2 * READ_BYTES) + b"abc" + bytes(READ_BYTES))


def changed_json(data: Path) -> None:
    (data / "settings.json").write_text('{"a": 1, "b": [3]}')


def replaced_by_a_link(data: Path) -> None:
    (data / "rows").rename(data.parent / "rows")
    (data / "rows").symlink_to(data.parent / "rows")


@pytest.mark.parametrize(
    ("change", "name", "fault"),
    [
        (moved_zeros, "rows", "has changed"),
        (changed_json, "settings.json", "has changed"),
        (replaced_by_a_link, "rows", "has changed"),
        (lambda data: (data / "rows").unlink(), "rows", "is missing"),
        (lambda data: (data / "more").touch(), "more", "should not be there"),
    ],
)
def test_a_change_names_the_file(sealed: Path, change: Callable[[Path], object], name: str, fault: str) -> None:
    change(sealed / "data")
    if (sealed / "data" / name).is_file() and not (sealed / "data" / name).is_symlink():
        later(sealed / "data" / name)
    with pytest.raises(VectorsError, match=f"data/{name} {fault}"):
        check_seal(sealed, "data")


def test_a_folder_whose_seal_was_broken_has_none(sealed: Path) -> None:
    break_seal(sealed)
    assert check_seal(sealed, "data") is None
    break_seal(sealed)


def test_files_with_the_size_and_time_of_the_earlier_seal_are_not_read_again(sealed: Path) -> None:
    earlier = check_seal(sealed, "data")
    seal(sealed, "data", 8, settled=False, previous=earlier)
    rows = sealed / "data" / "rows"
    status = rows.stat()
    rows.write_bytes(bytes(3 * READ_BYTES + 3))
    os.utime(rows, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert check_seal(sealed, "data") is not None  # same size and time
    later(rows)
    with pytest.raises(VectorsError):
        check_seal(sealed, "data")


def test_a_seal_that_is_no_json_is_refused(sealed: Path) -> None:
    path = sealed / "seal.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"documents": "many"}))
    with pytest.raises(VectorsError, match=r"seal\.json"):
        check_seal(sealed, "data")
