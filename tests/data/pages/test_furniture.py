from __future__ import annotations

import logging
from pathlib import Path

import pytest

from vocable.data import read_corpus
from vocable.data.pages.blocks import Block, Page
from vocable.data.pages.furniture import COMPARED, FEWEST_FILES, repeated_lines, sample, without_furniture
from vocable.data.sources import folder_stream

MENU = "<ul><li>Site<li>Guide<li>{0}</ul>"
TEXT = "<p>{0} burns.<p>{0} glows.<ul><li>Type: oil</ul><p>{0} ends.<p>{0} is dark."
PAGE = f"<p>Logo</p>{MENU}<h2>{{0}}</h2>{TEXT}<p>Ann<p>Logo"


def test_more_than_ten_files_are_sampled_evenly() -> None:
    files = [str(number) for number in range(1000)]
    assert sample(files[:FEWEST_FILES]) == []
    assert sample(files[: FEWEST_FILES + 1]) == files[: FEWEST_FILES + 1]
    assert len(sample(files)) == COMPARED
    assert sample(files)[:3] == ["0", "25", "50"]


def test_lines_that_more_than_half_of_the_pages_have_are_repeated() -> None:
    pages = [Page([Block(f"{number}\nHome", 1), Block("Half" if number % 2 else "Other", 2, 1)]) for number in range(4)]
    assert repeated_lines([*pages, Page([Block("Half", 1)])]) == {"Home", "Half"}
    assert repeated_lines([]) == frozenset()


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (["M", "a", "M", "b", "M", "c", "M", "d", "M"], ["a", "b", "M", "c", "d"]),
        (["M\n- x\nN", "a\nb"], ["a\nb"]),  # a menu with an item for the page
        (["M\nN\nM\na\nb\nN", "c"], ["a\nb", "c"]),  # a page in a table
        (["M\na\nb\nM\nc\nd\nN"], ["a\nb\nM\nc\nd"]),
        (["#M", "#a", "b", "c"], ["#a", "b", "c"]),  # the title of the site
        (["#M", "b", "c"], ["#M", "b", "c"]),
        (["a", "b", "#M"], ["a", "b", "#M"]),
        (["#a", "M"], ["#a"]),
    ],
)
def test_furniture_stands_above_and_below_the_text(texts: list[str], kept: list[str]) -> None:
    blocks = [Block(text.removeprefix("#"), 1, int(text.startswith("#"))) for text in texts]
    page = without_furniture(Page(blocks), frozenset("MN"))
    assert [f"{'#' * block.level}{block.text}" for block in page.blocks] == kept


def test_a_folder_of_pages_has_no_furniture(tmp_path: Path) -> None:
    for number in range(FEWEST_FILES + 1):
        name = f"Lamp {number}"
        (tmp_path / f"{number:02d}.html").write_text(PAGE.format(name), encoding="utf-8")
    text = "Lamp {0} burns.\n\nLamp {0} glows.\n\n- Type: oil\n\nLamp {0} ends.\n\nLamp {0} is dark."
    assert [document.text for document in read_corpus(tmp_path)] == list(map(text.format, range(FEWEST_FILES + 1)))
    [(_, item)] = folder_stream(tmp_path, inside="03.html").items()
    assert item.row["text"] == text.format(3)
    (tmp_path / "00.html").unlink()
    assert next(read_corpus(tmp_path)).text.startswith("Logo")


def test_redirections_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in "ab":
        page = f'<meta http-equiv="refresh" content="0;URL={name}.html"><p>Redirecting to <a href=x>x</a>...'
        (tmp_path / f"{name}.html").write_text(page, encoding="utf-8")
    (tmp_path / "c.html").write_text('<meta http-equiv=refresh content="300"><p>News', encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert [document.text for document in read_corpus(tmp_path)] == ["News"]
    assert caplog.messages == [f"{tmp_path}/a.html:1: a redirection: left out (also in 1 other file)"]
