"""An index follows the files of its folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

import vocable as vo
from tests.cli.command_line import refused
from tests.service.process import serving
from vocable.collection.collection import Collection
from vocable.collection.records import Changed
from vocable.collection.watching import MOST_ALONE, follow
from vocable.data import read_corpus
from vocable.errors import ArgumentError

pytest.importorskip("watchfiles")


def page(name: str) -> str:
    return f"# {name}\n\nA page about {name}, which foxes read at night.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one", "two", "three"):
        (tmp_path / "docs" / name).mkdir(parents=True)
        (tmp_path / "docs" / name / "page.md").write_text(page(name))
    return tmp_path / "docs"


@pytest.fixture
def opened(folder: Path) -> Iterator[Collection]:
    with vo.index("vocable-mini-doc", folder, folder.parent / "index") as collection:
        yield collection


def assert_follows(opened: Collection, folder: Path) -> None:
    """The index has the documents that reading its folder gives."""
    wanted = {document.id: document for document in read_corpus(folder)}
    assert sorted(opened.store.ids()) == sorted(wanted)
    assert {one.id: one for one in opened.documents([*wanted]) if one is not None} == wanted


def after(changes: Iterator[Changed], *, added: int = 0, replaced: int = 0, deleted: int = 0) -> Changed:
    """Return the next change."""
    changed = next(changes)
    assert (changed.added, changed.replaced, changed.deleted) == (added, replaced, deleted)
    return changed


def test_pages_that_change_are_found_and_pages_that_go_are_not(opened: Collection, folder: Path) -> None:
    with closing(follow(opened, str(folder))) as changes:
        assert after(changes).unchanged == 3
        (folder / "one" / "page.md").write_text(page("ferns"))
        after(changes, added=1, deleted=1)  # the anchor of a section is its heading
        assert vo.search(opened, ["ferns"], 1)[0].hits[0].document.title == "ferns"
        (folder / "new.md").write_text(page("new"))
        (folder / "two" / "page.md").unlink()
        assert after(changes, added=1, deleted=1).documents == 3
        assert_follows(opened, folder)
        (folder / "three").rename(folder / "four")
        after(changes, added=1, deleted=1)
        assert_follows(opened, folder)
        shutil.rmtree(folder / "one")
        after(changes, deleted=1)
        assert_follows(opened, folder)
        # Neither a file of another kind nor a file with the same content changes anything.
        (folder / "picture.png").write_bytes(b"png")
        (folder / "new.md").write_text(page("new"))
        (folder / "last.md").write_text(page("last"))
        after(changes, added=1)
        assert_follows(opened, folder)
    with closing(follow(opened, str(folder))) as changes:  # once more: nothing is done twice
        assert after(changes).unchanged == 3


def test_many_files_are_one_change(opened: Collection, folder: Path) -> None:
    with closing(follow(opened, str(folder))) as changes:
        after(changes)
        for number in range(3 * MOST_ALONE):
            (folder / f"{number}.md").write_text(page(f"number {number}"))
        after(changes, added=3 * MOST_ALONE)
        assert_follows(opened, folder)


def test_notes_that_a_changed_note_links_to_follow_it(opened: Collection, folder: Path) -> None:
    with closing(follow(opened, str(folder))) as changes:
        after(changes)
        (folder / "one" / "page.md").write_text(page("one") + "[[two/page]] [[new]]\n")
        after(changes, replaced=2)
        assert_follows(opened, folder)
        (folder / "new.md").write_text(page("new"))  # which a note has led to before it was there
        after(changes, added=1, replaced=1)
        assert_follows(opened, folder)
        (folder / "one" / "page.md").unlink()
        after(changes, replaced=2, deleted=1)
        assert_follows(opened, folder)


@pytest.mark.parametrize("others", [1, 2 * MOST_ALONE])
def test_a_file_that_cannot_be_read_stays_as_it_was_and_the_others_are_added(
    opened: Collection, folder: Path, others: int, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(follow(opened, str(folder))) as changes:
        after(changes)
        (folder / "one" / "page.md").write_bytes(b"\x00\xff binary \x00")
        for number in range(others):  # the names stand before and after the name of the bad file
            (folder / f"{'az'[number % 2]}{number}.md").write_text(page(f"number {number}"))
        while len(opened) < 3 + others:
            next(changes)
        assert any("page.md" in record.message for record in caplog.records)
        assert "one/page.md#one" in set(opened.store.ids())
        (folder / "one" / "page.md").write_text(page("one"))
        (folder / "better.md").write_text(page("better"))
        while len(opened) < 4 + others:
            next(changes)
        assert_follows(opened, folder)


def test_a_part_of_the_folder_is_followed_until_it_is_stopped(opened: Collection, folder: Path) -> None:
    stop, seen = Event(), list[Changed]()
    with closing(follow(opened, str(folder / "one"), stop)) as changes:
        assert after(changes).unchanged == 1
        (folder / "two" / "page.md").write_text(page("other"))
        (folder / "one" / "more.md").write_text(page("more"))
        assert after(changes, added=1).documents == 4
        thread = Thread(target=lambda: seen.extend(changes))
        thread.start()
        stop.set()
        thread.join()
    assert not seen


def test_another_folder_is_refused(opened: Collection, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "page.md").write_text(page("other"))
    for name in ("other", "none"):
        with pytest.raises(ArgumentError) as error:
            next(follow(opened, str(tmp_path / name)))
        assert "must be the folder that" in str(error.value)


def test_options_that_do_not_go_with_watching(
    opened: Collection, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, "add", opened.place, folder, "--watch", "--replace")
    assert "--watch deletes what is gone" in said


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_follows_its_folder(opened: Collection, folder: Path, workers: int) -> None:
    with (
        serving(Path(opened.place), "--watch", folder, "--workers", workers, fresh=workers > 1) as process,
        httpx.Client(base_url=process.url, timeout=60) as http,
    ):

        def found() -> list[str]:
            return [hit["title"] for hit in http.post("/search", json={"query": "wombats"}).json()["hits"]]

        assert "wombats" not in found()
        (folder / "two" / "page.md").write_text(page("wombats"))
        until = time.monotonic() + 120
        while "wombats" not in found() or http.get("/info").json()["documents"] != 3:  # the old section goes last
            assert time.monotonic() < until
            time.sleep(0.1)
