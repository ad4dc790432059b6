"""Links between notes: their texts, the pages they lead to, and the pages that lead to a page."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from vocable.data import read_corpus
from vocable.data.pages.markdown import markdown_page
from vocable.data.pages.wiki_links import MOST_LINKED, links_between


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("See [[Roadmap]] now.", "See Roadmap now."),
        ("See [[plans/Roadmap#Next year|the plan]].", "See the plan."),
        ("See [[Roadmap#Next year]].", "See Roadmap > Next year."),
        ("Above [[#Next year]].", "Above Next year."),
        ("Words ![[picture.png|100]] around ![[Roadmap]] them.", "Words around them."),
        ("`[[Roadmap]]` is code.", "[[Roadmap]] is code."),
        ("As in [[paper]](https://example.org/).", "As in [paper]."),
        ("Take `a` or a[[0]] or [[1, 2]].", "Take a or a[[0]] or [[1, 2]]."),
        ("An open [[Road\nmap]].", "An open [[Road\nmap]]."),
        ("| a |\n|--|\n| [[Roadmap\\|the plan]] |", "a\nthe plan"),
        ("# On [[foxes]]\n\nText.", "On foxes"),
    ],
)
def test_a_link_is_its_text(source: str, text: str) -> None:
    assert markdown_page(source).blocks[0].text == text


def write(folder: Path, pages: dict[str, str]) -> None:
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_pages_that_links_lead_to(tmp_path: Path) -> None:
    pages = {
        "Home.md": "[[roadmap]] [[Fox facts]] [[none]] ![[fox.pdf]] [[Home]] [[plans/Roadmap|twice]]",
        "plans/Roadmap.md": "[[2024/Notes]] [[a label|Home]] [[#Own heading]]",
        "plans/2024/Notes.md": "Up: [[/Home#Top]] and to the page beside: [[log]] [[Diary]]",
        "plans/2024/Log.md": "No link.",
        "plans/Log.md": "No link.",
        "plans/2024/Diary.md": "[[log]]",
        "Diary.md": "[[Diary]] [[plans/2024/diary]]",
        "Fox-facts.md": "[[Diary.md]] [text](Home.md)",
        "fox.pdf": "[[Home]]",
        "fox.py": "[[Home]]",
    }
    write(tmp_path, pages)
    fields = links_between(tmp_path, pages)
    assert {file: of["links"] for file, of in fields.items() if "links" in of} == {
        "Home.md": ["Fox-facts.md", "fox.pdf", "plans/Roadmap.md"],
        "plans/Roadmap.md": ["Home.md", "plans/2024/Notes.md"],
        "plans/2024/Notes.md": ["Diary.md", "Home.md", "plans/2024/Log.md"],
        "plans/2024/Diary.md": ["plans/2024/Log.md"],
        "Diary.md": ["plans/2024/Diary.md"],
        "Fox-facts.md": ["Diary.md"],
    }
    assert fields["Home.md"]["linked_from"] == ["plans/2024/Notes.md", "plans/Roadmap.md"]
    assert fields["plans/2024/Log.md"] == {"linked_from": ["plans/2024/Diary.md", "plans/2024/Notes.md"]}
    assert "links" not in fields["fox.pdf"]


def test_both_directions_agree_and_are_bounded(tmp_path: Path) -> None:
    numbers, drawn = range(MOST_LINKED + 100), random.Random(0)
    targets = {number: {0, *drawn.sample(numbers, 3)} - {number} for number in numbers}
    write(tmp_path, {f"n{one}.md": " ".join(f"[[N{to}]]" for to in targets[one]) for one in numbers})
    fields = links_between(tmp_path, [f"n{one}.md" for one in numbers])
    for one in numbers:
        assert fields[f"n{one}.md"].get("links", []) == sorted(f"n{to}.md" for to in targets[one])
        from_others = sorted(f"n{other}.md" for other in numbers if one in targets[other])
        assert fields[f"n{one}.md"].get("linked_from", []) == from_others[:MOST_LINKED]
    assert len([one for one in numbers if 0 in targets[one]]) > MOST_LINKED


def test_sections_of_notes_have_the_links_of_their_page(tmp_path: Path) -> None:
    long = " ".join(["The fox reads at night and sleeps by day in its den."] * 8)
    write(tmp_path, {"a.md": f"# One\n\n{long}\n\n# Two\n\n{long} [[b]]", "b.md": "---\nlinks: mine\n---\nText [[a]]."})
    documents = {one.id: one.fields for one in read_corpus(tmp_path)}
    assert documents["a.md#one"]["links"] == documents["a.md#two"]["links"] == ["b.md"]
    assert documents["b.md"]["links"] == "mine"  # the page's own field stays
    assert documents["b.md"]["linked_from"] == ["a.md"]
