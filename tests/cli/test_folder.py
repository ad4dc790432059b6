"""Commands that read a folder of documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree

import pytest

from tests.cli.command_line import done, refused
from vocable.cli import main
from vocable.collection import writer
from vocable.collection.collection import open_index
from vocable.encoding.text_encoder import TextEncoder
from vocable.engines.folder import FolderStore


@pytest.fixture
def folder(tmp_path: Path, toy_texts: list[str]) -> Path:
    """A folder of pages, each with two sections of its own."""
    root = tmp_path / "site"
    (root / "guide").mkdir(parents=True)
    for number, name in enumerate(["index.md", "guide/a.md", "guide/b.md"]):
        first, second = (" ".join(toy_texts[20 * at : 20 * at + 20]) for at in (2 * number, 2 * number + 1))
        (root / name).write_text(
            f"---\npage: {number}\n---\n# Page {number}\n\n{first}\n\n## More\n\n{second}\n", "utf-8"
        )
    return root


def documents(index: Path) -> dict[str, dict[str, object]]:
    with open_index(index) as opened:
        return {one.id: dict(one.fields) for one in opened.documents(list(opened.store.ids())) if one is not None}


@pytest.mark.slow
def test_a_folder_becomes_an_index_inside_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: str, folder: Path
) -> None:
    monkeypatch.chdir(folder)
    command = ["index", model, ".", "-o", "index", "--bm25", "--base-url", "https://x.org"]
    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))  # the last commit
        assert main(command) == 130
        patched.undo()
    with monkeypatch.context() as patched:
        patched.setattr(TextEncoder, "encode_both", None)  # what is encoded is not encoded again
        done(capsys, *command)
    assert "already there" in done(capsys, *command)
    found = documents(Path("index"))
    assert found["guide/a.md#more"]["url"] == "https://x.org/guide/a/#more"
    [answer] = map(json.loads, done(capsys, "search", "index", "More", "--filter", "page=1", "--json").splitlines())
    assert {hit["fields"]["file"] for hit in answer["hits"]} == {"guide/a.md"}
    Path("guide/a.md").write_text("# Other\n\nAnother text.\n", encoding="utf-8")
    assert "changed" in refused(capsys, *command)
    assert main(["add", "index", "."]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("1 added, ")
    assert "index: 2 documents, such as 'guide/a.md#" in said.err
    assert "--replace" in said.err
    after = documents(Path("index"))
    assert after["guide/a.md#other"]["url"] == "https://x.org/guide/a/#other"
    assert "guide/a.md#more" in after  # a section that is gone stays
    Path("guide/b.md").unlink()
    assert done(capsys, "add", "index", ".", "--replace").startswith("3 unchanged, 4 deleted; now 3 documents")
    assert {*documents(Path("index"))} == {"index.md#page-0", "index.md#more", "guide/a.md#other"}
    main(["add", "index", "."])
    assert "no longer" not in capsys.readouterr().err
    assert "work of vocable" in refused(capsys, "index", model, "index", "-o", "second")


def test_vectors_in_shards_and_texts_of_a_folder(capsys: pytest.CaptureFixture[str], model: str, folder: Path) -> None:
    output = folder / "vectors"
    assert "in 2 shards" in done(capsys, "encode", model, folder, "-o", output, "--shards", 2)
    assert "already there" in done(capsys, "encode", model, folder, "-o", output, "--shards", 2)
    done(capsys, "index", output, folder, "-o", folder.parent / "index")
    assert len(documents(folder.parent / "index")) == 6
    assert "Traceback" not in done(capsys, "inspect", model, "--texts", folder)


def test_bad_files_are_skipped_by_number(capsys: pytest.CaptureFixture[str], model: str, folder: Path) -> None:
    (folder / "bad.md").write_bytes(b"text \xff")
    output = folder.parent / "index"
    assert "bad.md:1: not UTF-8" in refused(capsys, "index", model, folder, "-o", output)
    assert not output.exists()
    (folder / "picture.png").touch()
    main(["index", model, str(folder), "-o", str(output), "--skip-bad", "1"])
    said = capsys.readouterr()
    assert "1 bad line skipped" in said.out
    assert "1 file of other kinds (1 .png) left out" in said.err


def test_lists_of_generators_are_read_by_a_flag_that_add_keeps(
    capsys: pytest.CaptureFixture[str], model: str, folder: Path
) -> None:
    whole, short = folder.parent / "a", folder.parent / "b"
    text = "<title>{0}</title><!-- DocBook XSL --><h1>{0}</h1>{0} of words"
    (folder / "bookindex.html").write_text(text.format("Index"), encoding="utf-8")
    main(["index", model, str(folder), "-o", str(short)])
    said = capsys.readouterr().err
    assert "1 page of lists and sources (by 1 DocBook; `index --all-pages` reads them) left out" in said
    done(capsys, "index", model, folder, "-o", whole, "--all-pages")
    assert {*documents(whole)} - {*documents(short)} == {"bookindex.html"}
    assert "(all_pages)" in refused(capsys, "index", model, folder, "-o", whole)
    (folder / "ix01.html").write_text(text.format("Names"), encoding="utf-8")
    assert done(capsys, "add", whole, folder / "ix01.html").startswith("1 added; now 8 documents")
    assert done(capsys, "add", whole, folder).startswith("8 unchanged; now 8 documents")
    assert done(capsys, "add", short, folder, warning="2 pages of lists").startswith("6 unchanged; now 6 documents")
    assert "ix01.html: no such page" in refused(capsys, "add", short, folder / "ix01.html")
    (folder / "file.txt").touch()
    assert "--all-pages is for" in refused(capsys, "index", model, folder / "file.txt", "-o", "c", "--all-pages")


def test_a_changed_folder_names_the_command_that_updates_its_index(
    capsys: pytest.CaptureFixture[str], model: str, folder: Path
) -> None:
    output = folder.parent / "index"
    done(capsys, "index", model, folder, "-o", output)
    (folder / "index.md").write_text("# Other\n\nAnother text.\n", encoding="utf-8")
    assert f"vocable add {output} {folder} --replace" in refused(capsys, "index", model, folder, "-o", output)
    said = refused(capsys, "index", model, folder, "-o", output, "--max-terms", 3)
    assert "made with other settings (inputs, limits.max_terms)" in said
    assert said.rstrip().endswith("--replace brings it up to date, with its own settings")


def test_a_page_that_is_gone_is_counted(capsys: pytest.CaptureFixture[str], model: str, folder: Path) -> None:
    output = folder.parent / "index"
    done(capsys, "index", model, folder, "-o", output)
    (folder / "guide/b.md").rename(folder / "guide/c.md")
    main(["add", str(output), str(folder)])
    said = capsys.readouterr()
    assert said.out.startswith("2 added, 4 unchanged; now 8 documents")
    assert "2 documents, such as 'guide/b.md#" in said.err


def test_one_page_of_the_folder_is_added(capsys: pytest.CaptureFixture[str], model: str, folder: Path) -> None:
    output = folder.parent / "index"
    done(capsys, "index", model, folder, "-o", output, "--base-url", "https://x.org")
    page = folder / "guide/a.md"
    page.write_text(page.read_text("utf-8").replace("## More", "## Less"), encoding="utf-8")
    (folder / "new.txt").write_text("Lines of\na text.\n", encoding="utf-8")
    main(["add", str(output), str(page)])
    said = capsys.readouterr()
    assert said.out.startswith("1 added, 1 replaced; now 7 documents")  # the section before names the one that follows
    assert "1 document, such as 'guide/a.md#more'" in said.err
    assert documents(output)["guide/a.md#less"]["url"] == "https://x.org/guide/a/#less"
    assert done(capsys, "add", output, folder / "new.txt").startswith("1 added; now 8 documents")
    assert done(capsys, "add", output, page, "--replace").startswith("2 unchanged, 1 deleted; now 7 documents")
    assert "guide/a.md#more" not in documents(output)
    (folder / ".gitignore").write_text("new.txt\n", encoding="utf-8")
    assert "new.txt: no such page" in refused(capsys, "add", output, folder / "new.txt")
    other = Path(__file__).parents[2] / "README.md"
    assert f"{other}: not in {folder}, the folder that" in refused(capsys, "add", output, other)


@pytest.mark.parametrize("way", ["absolute", "relative", "inside", "by a link", "moved", "copied"])
def test_a_part_of_the_folder_has_its_ids_and_is_replaced_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: str, folder: Path, way: str
) -> None:
    output, part = folder.parent / "index", folder / "guide"
    (folder / "guide.md").write_text("# Beside\n\nA text beside the folder.\n", "utf-8")
    monkeypatch.chdir(folder.parent)
    done(capsys, "index", model, folder.name, "-o", output)  # a relative place
    kept = documents(output).keys()
    if way == "moved":
        (folder.parent / "new").mkdir()
        part = folder.rename(folder.parent / "new" / folder.name) / "guide"
    elif way == "copied":
        part = copytree(folder, folder.parent / "backup" / "old") / "guide"
    (part / "b.md").unlink()
    (part / "c.md").write_text("# Further\n\nA further text.\n", "utf-8")
    given: Path | str = part
    if way == "relative":
        given = f"{folder.name}/guide/"
    elif way == "inside":
        monkeypatch.chdir(part)
        given = "."
    elif way == "by a link":
        given = folder.parent / "link"
        given.symlink_to(part)
    main(["add", str(output), str(given)])
    said = capsys.readouterr()
    assert said.out.startswith("1 added, 2 unchanged; now 8 documents")
    assert "2 documents, such as 'guide/b.md#" in said.err
    assert documents(output).keys() - kept == {"guide/c.md#further"}
    assert done(capsys, "add", output, given, "--replace").startswith("3 unchanged, 2 deleted; now 6 documents")
    gone = {name for name in kept if name.startswith("guide/b.md")}
    assert documents(output).keys() == (kept | {"guide/c.md#further"}) - gone
    if way == "moved":
        assert done(capsys, "add", output, part / "c.md").startswith("1 unchanged; now 6 documents")


def test_another_folder_has_ids_of_its_own(capsys: pytest.CaptureFixture[str], model: str, folder: Path) -> None:
    output, other = folder.parent / "index", folder.parent / "other"
    done(capsys, "index", model, folder, "-o", output)
    other.mkdir()
    (other / "d.md").write_text("# Other\n\nAnother text.\n", "utf-8")
    assert done(capsys, "add", output, other).startswith("1 added; now 7 documents")
    assert "d.md#other" in documents(output)
    assert done(capsys, "add", output, other, "--replace").startswith("1 unchanged, 6 deleted; now 1 document")
    assert f"{folder.parent}: holds {folder}, whose pages" in refused(capsys, "add", output, folder.parent)
    part = other / folder.name / "guide"
    part.mkdir(parents=True)
    (part / "a.md").write_text("# Other\n\nAnother text.\n", "utf-8")
    refusal = f"{part}: not a part of {folder}, the folder of the index: name that part, or {part.parent}"
    assert refusal in refused(capsys, "add", output, part)
    assert done(capsys, "add", output, part.parent).startswith("1 added; now 2 documents")


def test_all_unreadable_files_are_named_at_once(capsys: pytest.CaptureFixture[str], model: str, folder: Path) -> None:
    for name in ("bad.md", "guide/b.rst", "z.txt"):
        (folder / name).write_bytes(b"\n\0")
    said = refused(capsys, "index", model, folder, "-o", folder.parent / "index")
    assert "bad.md:2: " in said
    assert "2 other files (guide/b.rst, z.txt)" in said


def test_the_progress_of_a_folder_has_a_total(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: str, folder: Path
) -> None:
    totals = list[tuple[str, int | None]]()

    @contextmanager
    def noted(title: str, total: int | None = None, *, begun: int = 0) -> Iterator[Callable[..., None]]:
        totals.append((title, total))
        yield lambda done, more="": None

    monkeypatch.setattr(writer, "progress", noted)
    done(capsys, "index", model, folder, "-o", folder.parent / "index")
    assert totals == [("words", 6), ("index", 6)]
