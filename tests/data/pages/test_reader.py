from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from vocable.core.processes import limited, worker_pool
from vocable.data import BadLines, read_corpus
from vocable.data.pages.blocks import PageError
from vocable.data.pages.reader import SMALL, PageReader, _get_ready

PAGE = "# Lamps\n\nThey burn."
LARGE = "river mountain " * (SMALL // 10)


@pytest.fixture
def reader() -> Iterator[PageReader]:
    with PageReader() as opened:
        yield opened


def test_large_files_are_read_as_small_ones(tmp_path: Path, reader: PageReader) -> None:
    (tmp_path / "a.md").write_text(f"---\ndate: 2024-03-01\n---\n{PAGE}\n\n{LARGE}", encoding="utf-8")
    (tmp_path / "b.md").write_text(f"---\ndate: 2024-03-01\n---\n{PAGE}\n\nEnd", encoding="utf-8")
    large, small = reader.page(tmp_path / "a.md"), reader.page(tmp_path / "b.md")
    assert large.blocks[:2] == small.blocks[:2]
    assert large.blocks[2].text == LARGE.strip()
    assert large.fields == small.fields


def test_a_fault_of_a_large_file_has_its_line(tmp_path: Path, reader: PageReader) -> None:
    (tmp_path / "a.md").write_bytes(f"{PAGE}\n\n{LARGE}\n".encode() + b"\xff")
    with pytest.raises(PageError) as caught:
        reader.page(tmp_path / "a.md")
    assert (caught.value.line, str(caught.value)) == (6, "not UTF-8 (a byte is 0xff)")


def test_a_file_that_cannot_be_opened_is_an_error_of_its_own(tmp_path: Path, reader: PageReader) -> None:
    with pytest.raises(FileNotFoundError):
        reader.page(tmp_path / "a.pdf")


def test_whatever_a_reader_raises_is_a_bad_file(
    tmp_path: Path, reader: PageReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(text: str) -> None:
        raise ZeroDivisionError(text)

    monkeypatch.setitem(sys.modules["vocable.data.pages.reader"].READERS, ".md", fail)
    (tmp_path / "a.md").write_text(PAGE, encoding="utf-8")
    (tmp_path / "b.txt").write_text("Text.", encoding="utf-8")
    with pytest.raises(PageError):
        reader.page(tmp_path / "a.md")
    bad = BadLines(limit=1)
    assert [document.id for document in read_corpus(tmp_path, bad=bad)] == ["b.txt"]
    assert bad.first == f"{tmp_path}/a.md:1: not readable as .md (ZeroDivisionError); expected a readable page; " + (
        "--skip-bad N leaves out N such files"
    )


def test_fields_count_for_each_document_of_a_page(tmp_path: Path) -> None:
    fields, section = f"---\na: {'x' * 15_000}\n---\n", "## Part\n\n" + "a " * 60 + "\n\n"
    (tmp_path / "a.md").write_text(fields + section * 400, encoding="utf-8")
    size = (tmp_path / "a.md").stat().st_size
    document = len("Part" * 2 + "a " * 60) - 1 + len(str({"a": "x" * 15_000}))
    bad = BadLines(limit=1)
    assert len(list(read_corpus(tmp_path, bad=bad))) == (200_000 + 50 * size) // document < 400
    assert bad.count == 1


def _spin() -> None:
    while True:
        pass


def _allocate() -> int:
    return int(np.ones(1 << 27, dtype=np.float64).sum())


def _crash(path: Path, size: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _within(seconds: float, memory: int, name: str) -> str:
    try:
        with limited(seconds, memory):
            return str(globals()[name]())
    except (TimeoutError, MemoryError) as error:
        return type(error).__name__


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_a_worker_stops_at_its_limits_and_goes_on() -> None:
    with worker_pool(1, _get_ready) as pool:
        outcomes = [
            pool.submit(_within, *case).result(60)
            for case in ((0.1, 1 << 30, "_spin"), (10, 1 << 28, "_allocate"), (10, 1 << 31, "_allocate"))
        ]
    assert outcomes == ["TimeoutError", "MemoryError", str(1 << 27)]


def test_a_file_that_ends_its_process_does_not_end_the_folder(
    tmp_path: Path, reader: PageReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").write_text(LARGE, encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr("vocable.data.pages.reader._page_within", _crash)
        with pytest.raises(PageError):
            reader.page(tmp_path / "a.md")
    assert reader.page(tmp_path / "a.md").blocks[0].text == LARGE.strip()
