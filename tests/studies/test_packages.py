"""Passages of made-up packages: readers, cutting, near duplicates, resuming, questions."""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.packages import corpus, debian
from studies.packages.__main__ import main
from studies.packages.corpus import Line, all_lines, description_page, read
from studies.packages.debian import Package, is_documentation, licences, parse
from studies.packages.man import man_page
from studies.packages.passages import ENOUGH, FEWEST, MOST, Unseen, is_english, passages
from studies.packages.questions import known_items, pairs, question_of
from studies.packages.texts import docstring_page, format_of, read_file, text_page
from vocable.core.processes import worker_pool
from vocable.data.pages.blocks import Block, Page

MAN = r"""'\" t
.TH FROB 1 "2026-01-01"
.SH NAME
frob \- change the format of a list
.SH SYNOPSIS
.B frob
[\fB\-v\fR]
.SH DESCRIPTION
\fBfrob\fR reads the \(lqlist\(rq of
.IR names ,
and writes it.
.nf
code \-x
.fi
.PP
It never stops.
.SS "Further options"
.TP
.BR \-v , " \-\-verbose"
Say more.
"""
VOCABULARY = [f"{first}{second}o" for first in "bcdfghjklmnpqrstvwxz" for second in "aeiouaeiou"]


def prose(seed: int, sentences: int = 9) -> str:
    """Return sentences of 14 words, of which every other one is "the"."""
    rng = random.Random(seed)
    return " ".join(" ".join(f"the {rng.choice(VOCABULARY)}" for _ in range(7)) + "." for _ in range(sentences))


def test_a_manual_page_has_its_summary_as_title_and_no_code() -> None:
    page = man_page(MAN)
    assert page.title == "frob - change the format of a list"
    assert [(block.text, block.level) for block in page.blocks] == [
        ("NAME", 2),
        ("SYNOPSIS", 2),
        ("frob [-v]", 0),
        ("DESCRIPTION", 2),
        ('frob reads the "list" of names, and writes it.', 0),
        ("It never stops.", 0),
        ("Further options", 3),
        ("-v, --verbose Say more.", 0),
    ]


def test_a_manual_page_of_mdoc_is_read_without_its_macros() -> None:
    page = man_page(".Dd May 1\n.Dt FROB 1\n.Sh NAME\n.Nm frob\n.Nd change lists\n.Sh DESCRIPTION\nSee\n.Xr ls 1 .\n")
    assert page.title == "frob - change lists"
    assert page.blocks[-1].text == "See ls 1 ."


def test_docstrings_are_sections_below_their_first_sentence() -> None:
    page = docstring_page('def f():\n    """Add two numbers.\n\n    Both are whole.\n\n    >>> f()\n    """\n')
    assert page.blocks == [Block("Add two numbers.", 1, 2), Block("Both are whole.", 1)]
    assert docstring_page("def f(:").blocks == []


def test_short_lines_of_plain_text_are_headings() -> None:
    page = text_page("Installing\n\nUnpack it\nand run it.\n\nIt works.\n")
    assert page.blocks == [Block("Installing", 1, 2), Block("Unpack it and run it.", 3), Block("It works.", 6)]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("./usr/share/man/man3/frob.3pm", "manual pages"),
        ("./usr/share/man/fr/man3/frob.3pm", None),
        ("./usr/share/doc/frob/html/index.html", "HTML"),
        ("./usr/share/doc/frob/html/genindex.html", None),
        ("./usr/share/doc/frob/README", "plain text"),
        ("./usr/share/doc/frob/changelog.txt", None),
        ("./usr/share/doc/frob/guide.md", "Markdown"),
        ("./usr/lib/python3/dist-packages/frob/core.py", "docstrings"),
        ("./usr/lib/python3/dist-packages/frob/tests/core.py", None),
        ("./usr/bin/frob", None),
    ],
)
def test_the_format_of_a_file_is_told_by_its_path(path: str, name: str | None) -> None:
    kind = format_of(path)
    assert (kind and kind.name) == name


def test_html_that_doxygen_made_is_not_read() -> None:
    path, body = "./usr/share/doc/frob/index.html", b"<body><h1>A</h1><p>text</p></body>"
    assert [block.text for block in read_file(path, body)[1].blocks] == ["A", "text"]
    assert read_file(path, b'<meta name="generator" content="Doxygen 1.9"/>' + body)[1].blocks == []


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 120)), max_size=30))
def test_passages_are_whole_sentences_of_one_section(units: list[tuple[bool, int]]) -> None:
    blocks, section = [Block("0", 1, 2)], 0
    for number, (begins, size) in enumerate(units):
        section += begins
        blocks += [Block(str(section), 1, 2)] * begins
        blocks.append(Block(" ".join(["the"] * (size - 1) + [f"s{'x' * section}e{'y' * number}."]), 1))
    texts = {block.text for block in blocks}
    for passage in passages(Page(blocks)):
        sentences = [f"{part}." for part in passage.text.removesuffix(".").split(". ")]
        assert texts.issuperset(sentences)
        assert {sentence.split()[-1].count("x") for sentence in sentences} == {int(passage.heading)}
        assert FEWEST <= len(passage.text.split()) <= MOST
        assert sum(len(sentence.split()) for sentence in sentences[:-1]) < ENOUGH


@pytest.mark.parametrize(
    "text",
    [
        "Die Liste der Dateien ist in einem Ordner, und wir lesen sie mit dem Programm.",
        "int main void return printf include stdio char buffer static const unsigned",
        "",
    ],
)
def test_other_languages_and_code_are_not_english(text: str) -> None:
    assert not is_english(text)


def jaccard(first: str, second: str) -> float:
    one, two = (
        {tuple(words[at : at + 4]) for at in range(len(words) - 3)} for words in (first.split(), second.split())
    )
    return len(one & two) / len(one | two)


def test_near_duplicates_are_met_as_often_as_their_similarity_says() -> None:
    rng, vocabulary = random.Random(3), [f"w{a}{b}" for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmnopqrst"]
    seen, expected, total = 0, 0.0, 400
    for _ in range(total):
        words = [rng.choice(vocabulary) for _ in range(60)]
        other = [rng.choice(vocabulary) if rng.random() < 0.04 else word for word in words]
        unseen = Unseen()
        unseen.add(" ".join(words))
        seen += not unseen.add(" ".join(other))
        expected += 1 - (1 - jaccard(" ".join(words), " ".join(other)) ** 2) ** 3  # three bands of two rows
    assert seen / total == pytest.approx(expected / total, abs=0.06)


def test_numbers_case_and_punctuation_make_no_new_text() -> None:
    unseen = Unseen()
    assert unseen.add(f"Version 1. {prose(1)}")
    assert not unseen.add(f"version 2: {prose(1)}")
    assert unseen.add(prose(2))


def test_packages_are_read_with_descriptions_and_chosen() -> None:
    control = "Package: frob\nSection: perl\nVersion: 2\nSize: 10\n\nPackage: frob\nVersion: 1\nSize: 9\n\n"
    control += "Package: b-doc-de\nSection: doc\nVersion: 1\nSize: 5\n"
    found = parse(control, "Package: frob\nDescription-en: list tool\n It lists.\n .\n More.\n")
    by_name = {package.name: package for package in found}
    assert by_name["frob"] == Package("frob", "2", "perl", 10, "list tool\n It lists.\n .\n More.")
    assert [name for name, package in by_name.items() if is_documentation(package)] == ["frob"]
    assert description_page(by_name["frob"].description).blocks[1:] == [Block("It lists.", 2), Block("More.", 2)]
    assert licences("License: MIT\nLicense: GPL-2+\nLicense: MIT\n") == ["GPL-2+", "MIT"]
    assert licences("Copyright: me") == ["other"]


def archive(files: dict[str, bytes]) -> tarfile.TarFile:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return tarfile.open(fileobj=io.BytesIO(stream.getvalue()), mode="r|")


def test_files_are_unpacked_and_damaged_or_large_files_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "LARGEST_FILE", 1000)
    contents = {
        "./usr/share/man/man1/a.1.gz": gzip.compress(b"a"),
        "./usr/share/man/man1/b.1.gz": b"damaged",
        "./usr/share/doc/a/big.txt": b"x" * 1001,
        "./usr/share/doc/a/copyright": b"License: MIT",
        "./usr/bin/a": b"binary",
    }
    assert list(debian.members(archive(contents))) == [
        ("./usr/share/man/man1/a.1", b"a"),
        ("./usr/share/doc/a/copyright", b"License: MIT"),
    ]


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Packages of a text each in place of a distribution's; returns the names of those that are downloaded."""
    if not shutil.which("dpkg-deb"):
        pytest.skip("needs dpkg-deb")
    downloaded, names = list[str](), [f"frob{number}-doc" for number in range(3)]
    for number, name in enumerate(names):
        root = tmp_path / name
        documents = root / "usr/share/doc" / name
        documents.mkdir(parents=True)
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: 1:2\nArchitecture: all\nMaintainer: me\nDescription: a\n"
        )
        text = f"How do I frob number {'abc'[number]}?\n\n{prose(number)}\n\nAgain\n\n{prose(0)}\n"
        (documents / "guide.txt").write_text(text)
        (documents / "copyright").write_text("License: MIT\n")
        target = tmp_path / f"{name}_1%3a2_all.deb"
        subprocess.run(["dpkg-deb", "--build", str(root), str(target)], check=True, capture_output=True)

    class Mirror:
        def __init__(self, folder: Path) -> None:
            assert folder.name == "lists"

        def packages(self) -> list[Package]:
            return [Package(name, "1:2", "doc", 10, f"frob tool {name}\n{prose(9, 3)}") for name in names]

        def download(self, wanted: Sequence[str], folder: Path) -> list[Path]:
            downloaded.extend(wanted)
            return [Path(shutil.copy(next(tmp_path.glob(f"{name}_*.deb")), folder)) for name in wanted]

    monkeypatch.setattr(corpus, "Apt", Mirror)
    monkeypatch.setattr(corpus, "GROUP", 1)
    monkeypatch.setattr(corpus, "worker_pool", lambda *start: nullcontext(SimpleNamespace(map=map)))
    return downloaded


def test_a_corpus_has_each_text_once_and_goes_on_where_it_ended(
    tmp_path: Path, mirror: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert main([str(output), "--processes", "1"]) == 0
    files = sorted(output.glob("passages-*"))
    assert [file.name[9:14] for file in files] == ["00000", "00001", "00002", "00003"]
    lines = list(all_lines(output))
    assert len({line["_id"] for line in lines}) == len(lines)
    assert {line["format"] for line in lines} == {"descriptions", "plain text"}
    assert [line["_id"] for line in lines if "/description/" in line["_id"]] == ["frob0-doc/description/1"]
    assert [line["heading"] for line in read(files[2]) if line["heading"] == "Again"] == []  # prose(0) is known
    [source] = json.loads((output / "sources-00002.json").read_text())
    assert source == {
        "package": "frob1-doc",
        "version": "1:2",
        "licences": ["MIT"],
        "passages": {"plain text": sum(1 for _ in read(files[2]))},
    }
    assert (
        f"| plain text | {sum(line['format'] == 'plain text' for line in lines)} | 3 | MIT |" in capsys.readouterr().out
    )
    content = files[2].read_bytes()
    files[2].unlink()
    mirror.clear()
    assert main([str(output), "--processes", "1"]) == 0
    assert mirror == ["frob1-doc"]
    assert gzip.decompress(files[2].read_bytes()) == gzip.decompress(content)


def test_a_corpus_of_a_pool_of_processes_ends_at_its_number_of_passages(
    tmp_path: Path, mirror: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "worker_pool", worker_pool)
    assert main([str(tmp_path / "out"), "--count", "3", "--processes", "1"]) == 0
    assert mirror == ["frob0-doc"]


def test_pairs_and_known_items_are_written(
    tmp_path: Path, mirror: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "KNOWN_ITEMS", 1)
    output = tmp_path / "out"
    main([str(output), "--processes", "1"])
    assert main([str(output), "--pairs"]) == 0
    counts = json.loads(capsys.readouterr().out.splitlines()[-1])
    written = list(read(output / "pairs.jsonl.gz"))
    assert counts == {"summary": 1, "question": sum(pair["kind"] == "question" for pair in written)}
    assert {pair["query"] for pair in written} == {
        "frob tool frob0-doc",
        *(f"How do I frob number {x}?" for x in "abc"),
    }
    assert main([str(output), "--queries", "4"]) == 0
    judged = [row.split("\t")[1] for row in (output / "qrels.tsv").read_text().splitlines()[1:]]
    texts = {line["_id"]: line["text"] for line in all_lines(output)}
    queries = [json.loads(row)["text"] for row in (output / "queries.jsonl").read_text().splitlines()]
    assert len(queries) == 4
    assert not [query for query, document in zip(queries, judged, strict=True) if query in texts[document]]


def line(number: int, heading: str, text: str = "text", page: str = "frob - lists", part: int = 1) -> Line:
    fields = {"page": page, "heading": heading, "part": part, "format": "manual pages"}
    return {"_id": f"frob/{number}", "text": text, **fields}


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("DESCRIPTION", ("synopsis", "frob - lists")),
        ("Options", ("heading", "frob Options")),
        ("3.2. The life of a list", ("heading", "The life of a list")),
        ("Lists¶ ↑", ("synopsis", "frob - lists")),
        ("How to list", ("question", "How to list")),
        ("Is it fast?", ("question", "Is it fast?")),
        ("SEE ALSO", ("", "")),
        ("{[(0, 1)], [(2, 3)]} = 4", ("", "")),
    ],
)
def test_the_question_of_a_section(heading: str, expected: tuple[str, str]) -> None:
    assert question_of(line(1, heading)) == expected


def test_a_question_is_asked_of_one_section_and_at_most_five_passages() -> None:
    lines = [line(part, "How to list", str(part), part=part) for part in range(1, 7)]
    lines.append(line(7, "How to list", "of another page", page="other"))
    assert [pair["positive"] for pair in pairs(lines)] == ["1", "2", "3", "4", "5"]


def test_headings_that_are_not_unique_or_stand_in_the_text_are_no_known_items() -> None:
    lines = [
        line(1, "The life of lists"),
        line(2, "The death of lists", "It is the death of lists."),
        line(3, "SEE ALSO"),
    ]
    lines += [
        line(4, "The long list", "a"),
        line(5, "The long list", "b"),
        line(6, "Options") | {"sentence": "It is so."},
    ]
    assert [tuple(item) for item in known_items(lines)] == [
        ("It is so.", "frob/6", True),
        ("The life of lists", "frob/1", False),
        ("frob Options", "frob/6", False),
    ]
