"""Compressed files: several members or frames, streams that are cut short or damaged, and Pythons without Zstandard."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from vocable.data import compressed
from vocable.data.compressed import is_packed, opened
from vocable.errors import MissingExtraError

CONTENT = b"".join(b"line %d\n" % number for number in range(100))
PACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstandard.compress}


def read(path: Path, content: bytes) -> bytes:
    """Return what is read of a file with this content."""
    path.write_bytes(content)
    with opened(path) as stream:
        return stream.read()


@pytest.mark.parametrize("ending", PACK)
def test_all_members_or_frames_are_read(tmp_path: Path, ending: str) -> None:
    path, pack = tmp_path / f"c.jsonl{ending.upper()}", PACK[ending]
    assert is_packed(path)
    assert not is_packed(tmp_path / "c.gz.jsonl")
    assert read(path, pack(CONTENT) + pack(b"more")) == CONTENT + b"more"
    assert read(tmp_path / "c.jsonl", CONTENT) == CONTENT


@pytest.mark.parametrize("ending", PACK)
def test_a_stream_that_is_cut_short_is_refused_wherever_the_cut_is(tmp_path: Path, ending: str) -> None:
    whole, path = PACK[ending](CONTENT), tmp_path / f"c{ending}"
    for content in [whole[:length] for length in range(1, len(whole))] + [whole + whole[:-1]]:
        with pytest.raises((EOFError, OSError)):
            read(path, content)


@pytest.mark.parametrize("ending", PACK)
def test_a_damaged_stream_is_refused(tmp_path: Path, ending: str) -> None:
    whole, path = PACK[ending](CONTENT), tmp_path / f"c{ending}"
    for content in (CONTENT, whole + b"junk", whole[:20] + b"\xff" * 20 + whole[40:]):
        with pytest.raises((EOFError, OSError)):
            read(path, content)


def test_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(CONTENT)
    with pytest.raises((EOFError, OSError)):
        read(tmp_path / "c.gz", whole[:-8] + b"\0\0\0\0" + whole[-4:])


def test_zstandard_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "zstd", None)
    assert read(tmp_path / "c.zst", zstandard.compress(CONTENT)) == CONTENT
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert read(tmp_path / "c.gz", gzip.compress(CONTENT)) == CONTENT
    with pytest.raises(MissingExtraError):
        read(tmp_path / "c.zst", zstandard.compress(CONTENT))
