"""Hits of one page are one entry: against a grouping of the whole ranking, in Python and in the terminal."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.command_line import done
from vocable.collection.answers import search
from vocable.collection.collection import Collection
from vocable.collection.groups import FURTHER, grouped, page_of, page_on_site
from vocable.collection.index import index
from vocable.collection.records import Hit
from vocable.data import Document
from vocable.indexes.ranking import read_trec

QUERY = "a librarian reads posting lists at night"
WAYS: list[dict[str, Any]] = [
    {},
    {"weights": "sparse"},
    {"weights": "bm25"},
    {"filter": "file^=b/"},
    {"sort": "file"},
    {"min_score": 0.5},
    {"like": "b/0.md#part-1"},
]


def write_pages(folder: Path, texts: Sequence[str], *, copied: bool) -> Path:
    """Write nine pages of up to seven sections with 90 words and more; if `copied`, all pages have one in common."""
    draw = random.Random(7)
    for number in range(9):
        page = folder / ("ab"[number % 2]) / f"{number // 2}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        sections = [f"## Part {part}\n\n{' '.join(draw.sample(texts, 16))}\n" for part in range(1 + number % 6)]
        common = f"## Common\n\n{' '.join(texts[:16] if copied else draw.sample(texts, 16))}\n"
        page.write_text("\n".join([f"# Page {number}\n", *sections, common]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=["folder", "passages"])
def opened(
    request: pytest.FixtureRequest, backbones: dict[str, Path], toy_texts: list[str], tmp_path_factory: Any
) -> Iterator[Collection]:
    folder = write_pages(tmp_path_factory.mktemp("pages") / "docs", toy_texts, copied=True)
    options: dict[str, Any] = {"max_length": 12, "long_documents": "passages"} if request.param == "passages" else {}
    made = index(str(backbones["bert"]), folder, folder.parent / "index", dtype="float32", device="cpu", **options)
    yield made
    made.close()


def expected(hits: Sequence[Hit], k: int) -> list[list[str]]:
    """Return the ids of the first k pages of all hits, each with the hits that are not worse than the last page."""
    pages: dict[str, list[str]] = {}
    for hit in hits:
        file = str(hit.document.fields["file"])
        if file not in pages and len(pages) == k:
            break
        pages.setdefault(file, []).append(hit.document.id)
    return [ids[: 1 + FURTHER] for ids in pages.values()]


def shown(pages: Sequence[Hit]) -> list[list[str]]:
    return [[page.document.id, *(section.id for section in page.sections)] for page in pages]


def asked(way: dict[str, Any]) -> list[str] | None:
    return None if "like" in way else [QUERY]


@pytest.mark.parametrize("k", [1, 3, 9])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_page_is_one_entry_with_its_best_section_first(opened: Collection, way: dict[str, Any], k: int) -> None:
    [flat] = search(opened, asked(way), 100, sections=True, **way)
    [answer] = search(opened, asked(way), k, **way)
    assert flat.pages == ()
    assert shown(answer.pages) == expected(flat.hits, k)
    assert [page.rank for page in answer.pages] == [*range(1, len(answer.pages) + 1)]
    assert answer.hits == flat.hits[:k]  # hits stay by document
    assert answer.to_json()["hits"] == [hit.to_json() for hit in flat.hits[:k]]
    scores = {hit.document.id: hit.score for hit in flat.hits}
    for page in answer.pages:
        assert page.group == page.document.fields["file"] == page.to_json()["group"]
        assert [section.score for section in page.sections] == [scores[section.id] for section in page.sections]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_page_is_on_two_pages_of_results(opened: Collection, way: dict[str, Any]) -> None:
    [whole] = search(opened, asked(way), 9, **way)
    parts = [search(opened, asked(way), 2, offset=offset, **way)[0].pages for offset in range(0, 10, 2)]
    names = [page.document.id for part in parts for page in part]
    assert names == [page.document.id for page in whole.pages]
    assert [page.rank for part in parts for page in part] == [*range(1, len(names) + 1)]
    files = [page.group for part in parts for page in part]
    assert len({*files}) == len(files) > 1


def test_k_pages_are_there_though_many_sections_of_one_are_better(backbones: dict[str, Path]) -> None:
    long = ({"id": f"long.md#{number}", "text": "fox " * 9, "title": str(number)} for number in range(90))
    rows = [{**row, "file": "long.md"} for row in long]
    rows += [{"id": f"{number}.md", "text": f"owl {number} and a fox", "file": f"{number}.md"} for number in range(20)]
    with index(str(backbones["bert"]), rows, dtype="float32", device="cpu") as made:
        [answer] = search(made, ["fox"], 5, weights="bm25")
        assert len({page.document.fields["file"] for page in answer.pages[1:]} - {"long.md"}) == 4
        assert answer.pages[0].group == "long.md"
        assert len(answer.pages[0].sections) == FURTHER
        assert {hit.group for hit in answer.hits} == {"long.md"}


def test_documents_that_are_no_sections_are_not_grouped(backbones: dict[str, Path], corpus: Path) -> None:
    with index(str(backbones["bert"]), corpus, dtype="float32", device="cpu") as made:
        [answer] = search(made, [QUERY], 3, explain=True)
        assert answer.pages == ()
        assert "group" not in answer.hits[0].to_json()


@given(st.lists(st.sampled_from("aaabbcd-"), max_size=30), st.integers(1, 6))
def test_groups_are_the_hits_up_to_the_last_group(pages: list[str], most: int) -> None:
    hits = [*enumerate(pages)]
    groups = grouped(hits, lambda hit: None if hit[1] == "-" else hit[1], most)
    keys = [f"{page}{number}" if page == "-" else page for number, page in hits]
    kept = [*dict.fromkeys(keys)][:most]
    end = next((number for number, key in enumerate(keys) if key not in kept), len(keys))
    assert groups == [[hits[i] for i in range(end) if keys[i] == key] for key in kept]


@pytest.mark.parametrize(
    ("identifier", "fields", "page"),
    [
        ("a.md", {"file": "a.md"}, "a.md"),
        ("a.md~2", {"file": "a.md"}, "a.md"),
        ("a.md#x~2", {"file": "a.md"}, "a.md"),
        ("a.mdx#x", {"file": "a.md"}, None),
        ("d7", {"file": "a.md"}, None),
        ("a.md#x", {"file": 3}, None),
        ("a.md#x", {}, None),
        ("two:a.md#x", {"file": "a.md", "index": "two"}, "two:a.md"),
        ("a.md#x", {"file": "a.md", "index": "two"}, "two:a.md"),
    ],
)
def test_a_section_is_known_by_its_id_and_file(identifier: str, fields: dict[str, object], page: str | None) -> None:
    assert page_of(Document(identifier, "A text.", fields=fields)) == page


def test_the_terminal_shows_pages_and_data_documents(
    opened: Collection, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = opened.place
    [flat] = search(opened, [QUERY], 100, sections=True)
    ids = [hit.document.id for hit in flat.hits]

    def heads(*options: object) -> list[str]:
        lines = done(capsys, "search", place, QUERY, "-k", 4, *options).splitlines()
        return [line.split()[2] for line in lines if line[:3].strip().isdecimal()]

    pages = expected(flat.hits, 4)
    assert heads() == [first for first, *_ in pages]
    assert heads("--sections") == ids[:4]
    monkeypatch.setenv("COLUMNS", "100")
    text = done(capsys, "search", place, QUERY, "-k", 4)
    assert [line.split()[1] for line in text.splitlines() if line.startswith(" " * 14 + "+ ")] == [
        name for _, *further in pages for name in further
    ]
    answer = json.loads(done(capsys, "search", place, QUERY, "-k", 4, "--json"))
    assert [hit["id"] for hit in answer["hits"]] == ids[:4]
    assert [hit["group"] for hit in answer["hits"]] == [hit["fields"]["file"] for hit in answer["hits"]]
    assert "pages" not in answer
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": QUERY}), encoding="utf-8")
    done(capsys, "search", place, "--queries", tmp_path / "queries.jsonl", "-k", 4, "--run", tmp_path / "run")
    assert [hit.doc_id for hit in read_trec(tmp_path / "run")] == [
        name for name, _ in opened.search([QUERY], 4).hits(0)
    ]


@pytest.mark.parametrize("columns", ["", "90"])
def test_a_pipe_has_excerpts_and_full_has_whole_texts(
    opened: Collection, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    command = ["search", opened.place, QUERY, "-k", 1, "--sections"]
    [hit] = json.loads(done(capsys, *command, "--json"))["hits"]
    whole = " ".join((hit.get("passage") or hit)["text"].split())
    short, full = (done(capsys, *command, *more).splitlines()[1:-2] for more in ([], ["--full"]))
    excerpt, text = (" ".join(line.strip() for line in lines) for lines in (short, full))
    assert whole in text
    assert len(short) <= 4  # two lines of text, perhaps, and the fields in one or two
    assert len(whole) < 160 or whole not in excerpt
    if columns:
        assert max(map(len, [*short, *full])) <= 90
        return
    assert max(map(len, short[:2])) <= 80
    assert full[0].strip() == whole  # one line, which `grep` finds


def test_printed_answers_of_python_and_notebooks_are_by_page(opened: Collection) -> None:
    answers, flat = (search(opened, [QUERY], 9, sections=sections) for sections in (False, True))
    [page] = [page for page in answers[0].pages if page.sections][:1]
    for text in (str(answers), answers._repr_html_()):
        assert f"+ {page.sections[0].id}" in text
    assert "+ " not in str(flat)


@pytest.mark.parametrize(
    ("identifier", "fields", "page"),
    [
        ("a.md#b", {"file": "a.md"}, "a.md"),
        ("a.md#b", {"file": "a.md", "url": "https://example.org/a/#b"}, "https://example.org/a/"),
        ("x/a.html#b", {"url": "../x/a.html#:~:text=b"}, "../x/a.html"),
        ("d1", {"file": "a.md"}, None),
        ("d1", {"url": ""}, None),
    ],
)
def test_the_page_of_a_section_is_its_address_or_its_file(
    identifier: str, fields: dict[str, object], page: str | None
) -> None:
    assert page_on_site(Document(identifier, "A text.", fields=fields)) == page


def test_lines_of_code_that_have_no_name_are_named_by_their_file_once() -> None:
    place = {"path": "a.js", "file": "a.js", "line": 3, "last_line": 4}
    for title, head in (("a.js", "a.js:3"), ("lamp", "a.js:3 lamp")):
        [first, *_] = Hit(1, 2.0, Document("a.js~2", "on()", title, place)).printed().splitlines()
        assert first.split(maxsplit=2)[2] == head
