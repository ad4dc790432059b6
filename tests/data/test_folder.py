from __future__ import annotations

import logging
import re
import time
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from vocable.data import BadLines, Document, read_corpus, read_examples, read_judgments, read_queries, read_texts
from vocable.data.folder import with_urls
from vocable.data.pages.reader import READERS
from vocable.errors import ArgumentError, DataError

PAGES = {
    "index.md": "---\ntags: [start, 1]\nauthor: Ann\n---\n# Guide\n\nWelcome.\n\n## Install\n\n" + "On Linux. " * 40,
    "a/page.html": "<title>T</title><nav>Home</nav><main><h1 id=top>Page</h1><p>Text &amp; more.</p></main>",
    "a/readme.rst": "Title\n=====\n\nSome *text*.\n",
    "notes.txt": "First line.\n\nSecond paragraph.\n",
    "picture.png": "\x89PNG",
    ".hidden.md": "# Hidden",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in PAGES.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text, encoding="latin-1")
    return tmp_path / "docs"


def test_documents_of_a_folder(folder: Path) -> None:
    front = {"tags": ["start", 1], "author": "Ann"}
    first = {"path": "Guide", "file": "index.md", "next": "index.md#install", **front}
    install = {"path": "Guide > Install", "file": "index.md", **front}
    assert list(read_corpus(folder)) == [
        Document("a/page.html#top", "Text & more.", "Page", {"path": "Page", "file": "a/page.html"}),
        Document("a/readme.rst#title", "Some text.", "Title", {"path": "Title", "file": "a/readme.rst"}),
        Document("index.md#guide", "Welcome.", "Guide", first),
        Document("index.md#install", ("On Linux. " * 40).strip(), "Install", install),
        Document("notes.txt", "First line.\n\nSecond paragraph.", "notes", {"path": "notes", "file": "notes.txt"}),
    ]


def test_texts_and_examples_of_a_folder(folder: Path) -> None:
    assert next(read_texts(folder)) == "Page Text & more."
    assert [example.source for example in read_examples(f"cloze:{folder}")] == ["cloze-docs"]


def test_files_of_other_kinds_are_counted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "x.bin").touch()
    (folder / "Makefile").touch()
    with caplog.at_level(logging.WARNING):
        list(read_corpus(folder))
    [record] = caplog.records
    found = re.fullmatch(
        r"(.*): 3 files of other kinds \((.*)\) and 1 hidden file or folder \((.*)\) left out", record.msg % record.args
    )
    assert found is not None
    assert (found[1], found[3]) == (str(folder), "1 .hidden.md")
    assert {"1 .bin", "1 .png", "1 without ending"} == {*found[2].split(", ")}


def test_a_folder_of_files_that_an_extra_reads_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("vocable.core.folders", "vocable.data.folder"):
        monkeypatch.setattr(f"{module}.ENDINGS", (".md",))
    (tmp_path / "a.pdf").touch()
    with pytest.raises(DataError) as error:
        list(read_corpus(tmp_path))
    assert "(1 .pdf) (pip install 'vocable[documents]' reads .pdf)" in str(error.value)


def test_front_matter_with_a_fault_is_read_as_text_and_told_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "b.md").write_text("---\ntitle: one: two\n---\n# Page\n\nText.\n", encoding="utf-8")
    (folder / "c.md").write_text("+++\ntitle: one\n+++\nText.\n", encoding="utf-8")
    bad = BadLines()
    for _ in range(2):
        found = {one.id: one.text for one in read_corpus(folder, bad=bad)}
    assert found["b.md#page"] == "title: one: two\n\nText."
    assert found["c.md"] == "title: one\n\nText."
    assert bad.count == 0
    [message] = [one for one in caplog.messages if "front matter" in one]
    assert message.startswith(f"{folder}/b.md:2: front matter is not YAML: ")
    assert message.endswith("read as text (also in 1 other file)")


def test_unreadable_characters_of_web_pages_are_counted_in_a_line(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "a/page.html").write_bytes(b"<meta charset=latin1><title>T</title><h1>caf\xe9 \xad</h1><p>te\xadxt")
    for name in ("b", "c"):
        (folder / f"{name}.html").write_bytes(b"<meta charset=utf-8><h1>caf\xe9</h1>a\0")
    bad = BadLines()
    found = {document.id: document for document in read_corpus(folder, bad=bad)}
    assert (found["a/page.html"].title, found["a/page.html"].text) == ("café", "text")
    assert (found["b.html"].title, found["b.html"].text) == ("caf\ufffd", "a\ufffd")
    assert bad.count == 0
    [message] = [message for message in caplog.messages if "U+FFFD" in message]
    assert message.startswith(f"{folder}/b.html: 2 characters ")
    assert message.endswith("(also in 1 other file)")


def test_repeated_parts_of_generated_pages_are_left_out_and_counted(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repeated = '<h2 id="blanket-implementations">Blanket</h2><div id="blanket-implementations-list">impl Any</div>'
    for name in ("b", "c"):
        (folder / f"{name}.html").write_text(f"<main><h1>{name}</h1>text{repeated}</main>", "utf-8")
    found = {document.id: document.text for document in read_corpus(folder)}
    assert [found[f"{name}.html"] for name in ("b", "c")] == ["text", "text"]
    assert f"{folder}/b.html: blanket implementations left out (also in 1 other file)" in caplog.messages


def test_a_page_title_of_front_matter(folder: Path) -> None:
    (folder / "index.md").write_text("---\ntitle: The page\n---\nText.\n\n## Part\n\n" + "word " * 80, encoding="utf-8")
    found = [(one.id, one.title, one.fields["path"]) for one in read_corpus(folder) if one.id.startswith("index")]
    assert found == [("index.md", "The page", "The page"), ("index.md#part", "Part", "The page > Part")]
    assert all("title" not in one.fields for one in read_corpus(folder))
    for given, title in {"Pag": "Pag", "2024": 2024, "[a]": ["a"]}.items():
        (folder / "index.md").write_text(f"---\ntitle: {given}\npath: x\n---\n# Page\n\nText.", encoding="utf-8")
        [document] = [one for one in read_corpus(folder) if one.id.startswith("index")]
        assert document.fields == {"path": "Page", "file": "index.md", "title": title}


LINKED = {
    "javadoc": '<h2>List</h2><a id="m"></a><ul><li><h3>Method Detail</h3><a id="add(E)"></a><ul><li><h4>add</h4>{}</ul>'
    '<a id="add(int,E)"></a><ul><li><h4>add</h4>{}</ul></ul>',
    "docbook": '<title>grep</title><div class="refsynopsisdiv"><h2>Synopsis</h2>{}</div><h2>Notes &amp; - more</h2>{}',
    "asciidoc": '<div id="header"><h1>git-add(1)</h1><h2>NAME</h2>{}</div><div><h2 id="_options">OPTIONS</h2>{}</div>',
    "doxygen": '<div id="doc-content">{}<a name="groups"></a><h2>Functions</h2>{}<h2>Type</h2>{}<h2>Type</h2>{}</div>',
    "spaces": '<h1>A  long\nheading</h1>{}<h2 id="two words">Two <b>words</b></h2>{}<h2 id=x>X</h2>{}<h2 id=x>Y</h2>{}',
}


@pytest.mark.parametrize("ending", [".md", ".mdx", ".html", ".rst", ".adoc"])
@pytest.mark.parametrize(
    "unit",
    [
        *("{/*\n", "[[", "<<\n", ":::a\n---\n", "`a *b _c ", "* a\n ", "|a |", '<a b="', "....\n"),
        *("image::a[", ":", "a::", "include::a[", "~a"),
    ],
)
def test_a_page_of_repeated_marks_is_read_in_a_second_per_50_kb(ending: str, unit: str) -> None:
    text = unit * (50_000 // len(unit))
    started = time.process_time()
    READERS[ending](text)
    assert time.process_time() - started < 5  # a few tenths on an idle core; what is not linear takes minutes


class TestAddresses:
    @pytest.mark.parametrize("kind", LINKED)
    def test_each_link_leads_to_an_anchor_or_a_text_of_its_page(self, tmp_path: Path, kind: str) -> None:
        (tmp_path / "page.html").write_text(LINKED[kind].replace("{}", "<p>" + "word " * 70), encoding="utf-8")
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        anchors = {unescape(anchor) for anchor in re.findall(r"(?:id|name)=\"?([^\">]+)", page)}
        text = " ".join(unescape(re.sub("<[^>]+>", "", page)).split())
        documents = list(with_urls(read_corpus(tmp_path), str(tmp_path), "https://x.org"))
        assert len({document.id for document in documents}) == len(documents) > 1
        for document in documents:
            address, _, fragment = str(document.fields["url"]).partition("#")
            assert address == "https://x.org/page.html"
            if fragment.startswith(":~:text="):
                assert re.sub(r"-\d+$", "", unquote(fragment.removeprefix(":~:text="))) in text
            else:
                assert not fragment or unquote(fragment) in anchors

    def test_of_pages_and_sections(self, folder: Path) -> None:
        (folder / "a/long page.md").write_text("# Löng\n\n" + "word " * 600, encoding="utf-8")
        found = with_urls(read_corpus(folder), str(folder), "https://x.org/docs/")
        assert {document.id: document.fields["url"] for document in found} == {
            "a/long page.md#löng": "https://x.org/docs/a/long%20page/#l%C3%B6ng",
            "a/long page.md#löng~2": "https://x.org/docs/a/long%20page/#l%C3%B6ng",
            "a/long page.md#löng~3": "https://x.org/docs/a/long%20page/#l%C3%B6ng",
            "a/page.html#top": "https://x.org/docs/a/page.html#top",
            "a/readme.rst#title": "https://x.org/docs/a/readme.html#title",
            "index.md#guide": "https://x.org/docs/#guide",
            "index.md#install": "https://x.org/docs/#install",
            "notes.txt": "https://x.org/docs/notes.txt",
        }

    @pytest.mark.parametrize(("source", "url"), [("pydocs:", "http://x"), (".", "x.org"), (".", "ftp://x")])
    def test_a_base_url_of_another_source_or_scheme_is_refused(self, source: str, url: str) -> None:
        with pytest.raises(ArgumentError, match="base_url"):
            with_urls([], source, url)


class TestErrors:
    def error(self, source: Path | str) -> str:
        with pytest.raises(DataError) as error:
            list(read_corpus(source))
        return str(error.value)

    @pytest.mark.parametrize(
        ("content", "line", "fact"),
        [
            (b"# A\n\ncaf\xe9\n", 3, "0xe9"),
            (b"a\n\0", 2, "zero byte"),
            (b'---\na: "\\ud800"\n---\ntext', 1, "surrogate"),
        ],
    )
    def test_a_file_of_no_text_is_named_with_its_line(self, folder: Path, content: bytes, line: int, fact: str) -> None:
        (folder / "b.md").write_bytes(content)
        message = self.error(folder)
        assert message.startswith(f"{folder}/b.md:{line}: ")
        assert fact in message
        bad = BadLines(limit=1)
        assert len(list(read_corpus(folder, bad=bad))) == 5
        assert bad.count == 1
        assert bad.first == message

    def test_a_file_that_is_too_large(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VOCABLE_MAX_LINE", "1")
        (folder / "b.md").write_bytes(b"a " * (1 << 19))
        list(read_corpus(folder))
        (folder / "b.md").write_bytes(b"a " * (1 << 19) + b"a")
        assert "VOCABLE_MAX_LINE" in self.error(folder)

    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "megabytes"), [("b.md", 4), ("b.rst", 4), ("b.html", 16), ("b.HTM", 16)])
    def test_a_page_that_is_too_large(self, folder: Path, name: str, megabytes: int) -> None:
        (folder / name).write_bytes(b"a " * (megabytes << 19) + b"a")
        assert f"{folder}/{name}:1: a page of more than {megabytes} MB" in self.error(folder)

    @pytest.mark.slow
    def test_a_text_is_larger_than_a_page_can_be(self, folder: Path) -> None:
        words, word = 1 << 18, "a" * 15
        (folder / "b.txt").write_text(f"{word} " * words)
        texts = [document.text for document in read_corpus(folder) if document.id.startswith("b.txt")]
        assert sum(text.count(word) for text in texts) == words

    def test_a_name_that_is_not_utf8(self, folder: Path) -> None:
        (Path(str(folder)) / "b\udce9.md").write_text("text", encoding="utf-8")
        assert "b\\xe9.md:1: the name" in self.error(folder)

    def test_folders_without_documents(self, tmp_path: Path) -> None:
        assert ".md, .markdown, .mdx, .html, .htm, .txt, .rst, .adoc, .asciidoc, .ipynb" in self.error(tmp_path)
        (tmp_path / "a.png").touch()
        (tmp_path / ".git").mkdir()
        assert self.error(tmp_path).endswith("only 1 file of other kinds (1 .png)")
        (tmp_path / ".github").mkdir()
        assert self.error(tmp_path).endswith(
            "only 1 file of other kinds (1 .png) and 1 hidden file or folder (1 .github)"
        )
        (tmp_path / "a.md").write_text("\ufeff \n", encoding="utf-8")
        assert "no text in 1 file" in self.error(tmp_path)

    def test_a_file_that_vanishes(self, folder: Path) -> None:
        documents = read_corpus(folder)
        next(documents)
        (folder / "notes.txt").unlink()
        with pytest.raises(DataError, match=r"notes\.txt"):
            list(documents)

    def test_a_folder_holds_documents_alone(self, folder: Path) -> None:
        for read in (read_queries, read_judgments):
            with pytest.raises(DataError):
                read(folder)
        with pytest.raises(DataError):
            read_examples(folder)

    def test_a_folder_of_something_else(self, folder: Path) -> None:
        (folder / "settings.json").write_text('{"inputs": ""}', encoding="utf-8")
        assert "work of vocable" in self.error(folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "src/a.py": b"# Copyright 2020\n\ndef lamp_on(power):\n    return power + 1\n",
        "src/broken.py": b"def lamp_off(:\n    caf\xe9()\n",
        "src/b_pb2.py": b"# Generated by the protocol buffer compiler.  DO NOT EDIT!\nx = field_of(lamp)\n",
        "src/lamp.h": b"class Lamp { int power_of_lamp; };\n",
        "src/zeros.c": b"\0\1\2",
        "web/app.min.js": b"f();" * 3000,
        "web/huge.js": b"f(1);\n" * 2_000_000,
        "vendor/c.go": b"func lamp() {\n}\n",
        "README.md": b"# Lamps\n\nText.\n",
    }
    for name, content in files.items():
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_bytes(content)
    return tmp_path / "project"


def test_code_and_pages_of_a_folder(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = {document.id: document for document in read_corpus(project)}
    assert {name: document.fields["kind"] for name, document in found.items()} == {
        "README.md#lamps": "page",
        "src/a.py#lamp_on": "code",
        "src/broken.py#lamp_off": "code",
        "src/lamp.h#Lamp": "code",
    }
    assert found["src/lamp.h#Lamp"].fields["language"] == "c++"
    place = {"language": "python", "line": 3, "last_line": 4, "kind": "code"}
    assert found["src/a.py#lamp_on"] == Document(
        "src/a.py#lamp_on",
        "def lamp_on(power):\n    return power + 1",
        "lamp_on",
        {"path": "src.a > lamp_on", "file": "src/a.py", **place},
    )
    assert "caf\u00e9" in found["src/broken.py#lamp_off"].text
    for file, said in (
        ("", "1 file of other people's code (1 vendor/) left out"),
        ("/src/a.py", "licence headers left out"),
        ("/src/b_pb2.py", "generated code left out (`index --all-pages` reads it)"),
        ("/src/zeros.c", "files that are not text left out"),
        ("/web/app.min.js", "minified files left out"),
        ("/web/huge.js", "files of more than 10 MB left out"),
    ):
        assert f"{project}{file}: {said}" in caplog.messages
    generated = {document.id for document in read_corpus(project, folder=project, all_pages=True)}
    assert generated == {*found, "src/b_pb2.py"}


def test_addresses_beside_code_are_files(project: Path) -> None:
    urls = [one.fields["url"] for one in with_urls(read_corpus(project), str(project), "https://host/blob/main/")]
    assert "https://host/blob/main/README.md#lamps" in urls
    assert "https://host/blob/main/src/a.py#L3-L4" in urls


def test_code_beside_more_pages_is_counted(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(8):
        (project / f"{number}.md").write_text("Text.")
    assert {document.fields.get("kind") for document in read_corpus(project)} == {None}
    [message] = [one for one in caplog.messages if "of code" in one]
    assert message.endswith("8 files of code (3 .py, 2 .js, 1 .go, 1 .h, 1 .c; `index --code` reads them) left out")
    assert len({document.id for document in read_corpus(project, folder=project, code=True)}) == 12
