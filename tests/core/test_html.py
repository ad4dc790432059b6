"""The page is one file, shows every text as it is, and reads back as what was put in."""

from __future__ import annotations

import re
from base64 import b64decode
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from vocable.core.html import Drawing, Entry, Lists, Section, Words, page
from vocable.core.tables import Table

SVG = '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><text>é</text></svg>'
SHOWN = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]))


class Cells(HTMLParser):
    """Collects the texts by the element they are in, and the elements that there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        self.elements: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.append(tag)
        if tag in ("td", "th", "p", "h1", "h2", "caption"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data


@given(st.lists(SHOWN, min_size=4, max_size=4), SHOWN)
def test_texts_come_back_as_they_are(cells: list[str], paragraph: str) -> None:
    grid = Table("a & b", ["<i>", "n"], [cells[:2], cells[2:]])
    found = Cells(page("T<1>", [Section('"1"', [paragraph, grid]), Section("2", [Words(grid)])]))
    assert found.texts["td"] == cells * 2
    assert found.texts["th"] == ["<i>", "n"] * 2
    assert found.texts["p"] == [paragraph]
    assert found.texts["h1"] == ["T<1>"]
    assert found.texts["h2"] == ['"1"', "2"]
    assert found.texts["caption"] == ["a & b"] * 2
    assert not {"script", "i", "link"} & set(found.elements)


def test_a_drawing_is_inside_the_page() -> None:
    text = page("t", [Section("s", [Drawing(SVG, 'curves "of" two')])])
    [data] = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
    assert b64decode(data).decode() == SVG
    assert 'alt="curves &quot;of&quot; two"' in text
    assert "http" not in text  # nothing is fetched


@given(st.lists(SHOWN, min_size=3, max_size=3))
def test_lists_stand_side_by_side_with_marks_and_links(texts: list[str]) -> None:
    first, second, line = texts
    entries = [Entry(first, "https://example.org/?a=1&b"), Entry(second, "javascript:alert()", marked=True)]
    text = page("t", [Section("s", [Lists("<1>", {"a": (entries, line), "b": ([], "")})])])
    found = Cells(text)
    assert found.texts["th"] == ["a", "b"]
    assert found.texts["td"] == [
        f"{first}https://example.org/?a=1&b{second} ✓javascript:alert(){line}",
        "",
    ]
    assert re.findall(r'href="([^"]*)"', text) == ["https://example.org/?a=1&amp;b"]
    assert found.elements.count("mark") == 1
