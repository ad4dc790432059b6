from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vocable.core.fingerprint import fingerprint
from vocable.core.folders import files_of, something_else


def make(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name, encoding="utf-8")
    return root


def test_files_in_the_order_of_the_parts_of_their_paths(tmp_path: Path) -> None:
    make(tmp_path, "b.md", "a/c.html", "a.md", "a/b/d.TXT", "a-b/e.rst", "f.png", "g.PNG", "Makefile")
    found = files_of(tmp_path)
    assert found.files == ["a/b/d.TXT", "a/c.html", "a-b/e.rst", "a.md", "b.md"]
    assert found.others == {".png": 2, "": 1}


def test_hidden_ignored_and_made_files_are_left_out(tmp_path: Path) -> None:
    make(
        tmp_path,
        "a.md",
        ".b.md",
        ".git/c.md",
        "build/d.md",
        "e/f.md",
        "e/g.md",
        "_sources/a.rst",
        "_includes/a.md",
        "x/_layouts/a.html",
        "index/page.html",
    )
    (tmp_path / ".gitignore").write_text("build/\nf.md\n", encoding="utf-8")
    (tmp_path / "index/settings.json").write_text(json.dumps({"inputs": ""}), encoding="utf-8")
    make(tmp_path, ".github/h.md", "e/.github/i.md", "e/.j.png", "build/.k/l.md")
    found = files_of(tmp_path)
    assert found.files == ["a.md", "e/g.md"]
    assert +found.hidden == {".b.md": 1, ".github": 2}  # .git has no documents


def test_all_pages_of_a_book_in_one_are_left_out_and_counted(tmp_path: Path) -> None:
    make(
        tmp_path,
        "a.html",
        "en/print.html",
        "de/print.html",
        "singlehtml/index.html",
        "printing/print.html",
        "d/singlehtml",
    )
    for language in ("en", "de"):
        (tmp_path / language / "print.html").write_text("<html>\n<!-- Book generated using mdBook -->", "utf-8")
    found = files_of(tmp_path)
    assert found.files == ["a.html", "printing/print.html"]
    assert found.copies == {"print.html": 2, "singlehtml": 1}
    assert found.others == {"": 1}


@pytest.mark.parametrize("inputs", [["a", "b"], {"text": "a"}, "a file", None, 3])
def test_settings_of_another_program_do_not_leave_out_its_folder(tmp_path: Path, inputs: object) -> None:
    make(tmp_path, "a.md", "tool/b.md", "made/c.md")
    (tmp_path / "tool/settings.json").write_text(json.dumps({"inputs": inputs}), encoding="utf-8")
    (tmp_path / "made/settings.json").write_text(json.dumps({"inputs": "0123456789abcdef"}), encoding="utf-8")
    assert files_of(tmp_path).files == ["a.md", "tool/b.md"]


def test_rules_of_the_repository_above(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "docs/a.md", "docs/_build/b.md", "docs/guide/c.md", "site/d.md")
    (tmp_path / ".gitignore").write_text("docs/_build\n/site\n", encoding="utf-8")
    (tmp_path / "docs/.gitignore").write_text("/guide/*\n", encoding="utf-8")
    assert files_of(tmp_path / "docs").files == ["a.md"]
    assert files_of(tmp_path / "docs/guide").files == []
    assert files_of(tmp_path / "site").files == ["d.md"]  # named, though git ignores it
    assert files_of(tmp_path / "docs/_build").files == ["b.md"]


def test_links_lead_to_files_of_the_folder_only(tmp_path: Path) -> None:
    make(tmp_path, "in/a.md", "in/b/c.md", "out/d.md")
    root = tmp_path / "in"
    for name, target in {
        "e.md": "a.md",
        "f.md": "../out/d.md",
        "g": "b",
        "h": ".",
        "i.md": "i.md",
        "j.md": "no",
    }.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "k.md")
    assert files_of(root).files == ["a.md", "b/c.md", "e.md"]
    (tmp_path / "link").symlink_to(root)
    assert files_of(tmp_path / "link").files == ["a.md", "b/c.md", "e.md"]


@pytest.mark.parametrize(
    ("file", "content", "fact"),
    [
        ("settings.json", '{"inputs": "1"}', "work of vocable"),
        ("corpus.jsonl.gz", "", "beir:"),
        ("modules.json", "[]", "a model"),
        ("model.safetensors", "", "a model"),
        ("part-00000.parquet", "", "tables"),
    ],
)
def test_folders_of_something_else(tmp_path: Path, file: str, content: str, fact: str) -> None:
    make(tmp_path, "README.md")
    (tmp_path / file).write_text(content, encoding="utf-8")
    assert fact in (something_else(tmp_path) or "")


@pytest.mark.parametrize("file", ["settings.json", "corpus.md", "config.json", "queries.txt"])
def test_folders_of_documents(tmp_path: Path, file: str) -> None:
    assert something_else(make(tmp_path, "a.md", file)) is None


class TestFingerprint:
    def test_only_documents_count(self, tmp_path: Path) -> None:
        make(tmp_path, "a.md", "b.png")
        before = fingerprint(tmp_path)
        make(tmp_path, "c.png", ".git/HEAD")
        assert fingerprint(tmp_path) == before == fingerprint(f"cloze:{tmp_path}")
        make(tmp_path, "b.md")
        assert fingerprint(tmp_path) != before

    def test_content_and_ignored_files_count(self, tmp_path: Path) -> None:
        make(tmp_path, "a.md", "b.md")
        before = fingerprint(tmp_path)
        (tmp_path / "b.md").write_text("other", encoding="utf-8")
        changed = fingerprint(tmp_path)
        (tmp_path / ".gitignore").write_text("b.md", encoding="utf-8")
        assert len({before, changed, fingerprint(tmp_path)}) == 3

    def test_all_files_of_another_folder_count(self, tmp_path: Path) -> None:
        make(tmp_path, "README.md", "modules.json", "weights.bin")
        before = fingerprint(tmp_path)
        (tmp_path / "weights.bin").write_text("other", encoding="utf-8")
        assert fingerprint(tmp_path) != before
