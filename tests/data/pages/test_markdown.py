from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from vocable.data.pages.blocks import Block, Page
from vocable.data.pages.markdown import markdown_page
from vocable.data.pages.webpage import web_page

PIECES = [
    "word",
    "*em*",
    "**bold**",
    "`code`",
    "[link](to.md)",
    "# A",
    "## B `c`",
    "T\n=",
    "S\n-",
    "- item",
    "1. one",
    "> quote",
]
PIECES += [
    "```\n# no heading\n```",
    "    # code",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "---",
    "a\\\nb",
    "![alt](x.png)",
    "&amp; <b>x</b>",
]
TEXTS = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(["\n", "\n\n"])), max_size=12)


def blocks(text: str) -> list[tuple[int, str]]:
    return [(block.level, block.text) for block in markdown_page(text).blocks]


class TextOnly(HTMLParser):
    """The text of a page, and the levels of its headings."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.levels: list[int] = []

    def handle_data(self, data: str) -> None:
        self.words += data.split()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if len(tag) == 2 and tag[0] == "h" and tag[1].isdecimal():
            self.levels.append(int(tag[1]))
        self.words += [word for name, value in attrs if name == "alt" for word in (value or "").split()]


@given(TEXTS)
def test_words_and_headings_are_those_of_the_html(pieces: list[tuple[str, str]]) -> None:
    text = "".join(piece + end for piece, end in pieces)
    if text.startswith("---"):
        text = f"word\n\n{text}"  # no front matter
    html = TextOnly()
    html.feed(MarkdownIt("commonmark").enable("table").render(text))
    marks = {"-", "|", "1.", "2.", "3.", "4."}
    for page in (markdown_page(text), web_page(MarkdownIt("commonmark").enable("table").render(text))):
        found = " ".join(block.text for block in page.blocks).split()
        assert sorted(word for word in found if word not in marks) == sorted(w for w in html.words if w not in marks)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    top = [line for line in tokens if line.type == "heading_open" and line.level == 0]
    assert [block.level for block in markdown_page(text).blocks if block.level] == [int(one.tag[1]) for one in top]


def test_a_page_of_markdown_has_blocks() -> None:
    text = """# Title #

Text with *emphasis*,
a [link](x.md) and ![a picture](y.png).<br>

Setext
------

```python
# no heading
```

- one
  - two

    more
- three

| a | b |
|---|---|
| `1` | 2 |

## Own `id` {#here}
"""
    assert markdown_page(text).blocks == [
        Block("Title", 1, 1),
        Block("Text with emphasis,\na link and a picture.", 3),
        Block("Setext", 6, 2),
        Block("# no heading", 9),
        Block("- one\n  - two\n    more\n- three", 13),
        Block("a | b\n1 | 2", 19),
        Block("Own id", 23, 2, "here"),
    ]


def test_front_matter_is_no_text() -> None:
    page = markdown_page("---\ntitle: The  title\ntags: [a]\n---\n\ntext\n")
    assert page == Page([Block("text", 6)], "The title", {"title": "The  title", "tags": ["a"]})


def test_front_matter_with_a_fault_is_text_and_no_heading() -> None:
    page = markdown_page("---\ntitle: one: two\ntags: [a]\n---\n# Head\n\ntext\n")
    assert page.blocks == [Block("title: one: two\ntags: [a]", 2), Block("Head", 5, 1), Block("text", 7)]
    assert page[1:3] == ("", {})
    assert page.remark is not None


def test_marks_of_github_are_no_text() -> None:
    assert blocks("# A ~~b~~ c\n\n~~struck~~ through, a ~ b") == [(1, "A b c"), (0, "struck through, a ~ b")]
    tasks = "- [x] done\n- [ ] to do\n  1. [X] inner\n\n     [ ] not a box\n- [x]\n- [link](x)\n"
    assert blocks(tasks) == [(0, "- done\n- to do\n  1. inner\n     [ ] not a box\n- [x]\n- link")]
    assert blocks("[x] no task") == [(0, "[x] no task")]


def test_html_in_markdown() -> None:
    text = '<h1 align="center">Name</h1>\n\n<!-- hidden -->\n\n<details>\n<summary>More</summary>\n\nInner *text*'
    assert blocks(text) == [(1, "Name"), (0, "More"), (0, "Inner text")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("alpha<br>beta", ["alpha\nbeta"]),
        ("alpha<br />beta<BR>gamma", ["alpha\nbeta\ngamma"]),
        ("# alpha<br>beta", ["alpha beta"]),
        ("| a |\n|---|\n| alpha<br>beta<p>gamma</p>delta |", ["a\nalpha beta gamma delta"]),
        ("| a |\n|---|\n| <ul><li>one</li><li>two</li></ul> |", ["a\none two"]),
        ("See <img src='x.png' alt='the map'> and H<sub>2</sub>O, <kbd>Q</kbd>.", ["See the map and H2O, Q."]),
        ("<table><tr><td><p>one</p><p>two</p></td><td>three</td></tr></table>", ["one two | three"]),
        ("- alpha<br>beta", ["- alpha\n  beta"]),
        ("alpha<!-- hidden -->beta <span title='no'>gamma</span>", ["alphabeta gamma"]),
    ],
)
def test_html_in_a_paragraph_separates_as_on_a_page(text: str, shown: list[str]) -> None:
    assert [block.text for block in markdown_page(text).blocks] == shown


def test_headings_in_quotes_and_lists_are_text() -> None:
    assert blocks("> # a\n> b\n\n- # c\n") == [(0, "a\nb"), (0, "- c")]


def test_deep_nesting() -> None:
    assert blocks("> " * 90 + "a") == [(0, "a")]
    assert blocks("> " * 3000 + "a\n\nb")[-1] == (0, "b")
    assert blocks("[" * 3000 + "a") == [(0, "[" * 3000 + "a")]


def test_paragraphs_with_more_than_16_open_brackets_are_plain_text() -> None:
    assert blocks("[" * 15 + "[a](b)" + "]" * 15 + " *c*") == [(0, "[" * 15 + "a" + "]" * 15 + " c")]
    plain = "[" * 16 + "[a](b)" + "]" * 16 + " *c*"
    assert blocks(plain) == [(0, plain)]
    assert blocks(f"# {plain}\n\n|{plain}|x|\n|-|-|\n\n- [a](b)") == [(1, plain), (0, f"{plain} | x"), (0, "- a")]
    assert blocks("[a](b) " * 100) == [(0, " ".join("a" * 100))]
    assert blocks("![" * 100_000) == [(0, "![" * 100_000)]
