from __future__ import annotations

import re
import time
from html import escape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data.pages.blocks import Block
from vocable.data.pages.tags import tags
from vocable.data.pages.webpage import web_page

TEXT = st.text("ab &<>\"'é\n", max_size=8).map(escape)
NODES = st.recursive(
    TEXT,
    lambda inner: st.builds(
        lambda name, value, content: f'<{name} title="{escape(value)}">{"".join(content)}</{name}>',
        st.sampled_from(["p", "div", "b", "a", "td", "section", "blockquote", "span", "em"]),
        st.text("ab >'\"", max_size=4),
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)


class Events(HTMLParser):
    """The tags and texts of a page as Python's parser finds them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, dict[str, str]]] = []

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "text":
            data = self.found.pop()[1] + data
        self.found.append(("text", data, {}))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(("start", tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("end", tag, {}))


def events(page: str) -> list[tuple[str, str, dict[str, str]]]:
    found: list[tuple[str, str, dict[str, str]]] = []
    for tag in tags(page):
        if tag.name:
            found.append(("end" if tag.is_end else "start", tag.name, tag.attributes))
        elif tag.text:
            text = found.pop()[1] + tag.text if found and found[-1][0] == "text" else tag.text
            found.append(("text", text, {}))
    return found


@given(st.lists(NODES, max_size=4).map("".join))
def test_tags_of_well_formed_pages_are_those_of_python(page: str) -> None:
    parser = Events()
    parser.feed(page)
    parser.close()
    assert events(page) == parser.found


@given(st.lists(NODES, max_size=4).map("".join))
def test_every_word_stays(page: str) -> None:
    parser = Events()
    parser.feed(page)
    parser.close()
    wanted = "".join(text for kind, text, _ in parser.found if kind == "text")
    found = "".join(block.text for block in web_page(page).blocks)
    assert re.sub(r"[\s|]", "", found) == re.sub(r"[\s|]", "", wanted)


@given(st.text("<>/!-ab='\" &;#x[]?", max_size=60))
def test_any_text_can_be_read(page: str) -> None:
    web_page(page)


def test_a_page_of_html_has_blocks() -> None:
    page = """<!DOCTYPE html><html><head><title>The &amp; page</title><style>p{}</style></head><body>
<header>Logo</header><nav><ul><li>Home</li></ul></nav>
<main><h1>Title<a class="headerlink" href="#t">¶</a></h1>
<p>Some <b>bold</b> text
 and <img src=x alt="a picture">.<p>Second<br>line
<section id="sec"><h2>Section</h2><ul><li>one<li><p>two</p></ul>
<pre>a
  b
</pre><table><tr><th>A<th>B<tr><td>1</td><td>2</td></tr></table></section>
<h2 id=own>Own</h2>5 < 6 &copy;<h2><a name="old">Old</a></h2>
</main><footer>Foot</footer><script>if (a<b) "</p>"</script></body></html>"""
    found = web_page(page)
    assert found.title == "The & page"
    assert found.blocks == [
        Block("Title", 3, 1),
        Block("Some bold text and a picture.", 4),
        Block("Second\nline", 5),
        Block("Section", 6, 2, "sec"),
        Block("- one\n- two", 6),
        Block("a\n  b", 7),
        Block("A | B\n1 | 2", 9),
        Block("Own", 10, 2, "own"),
        Block("5 < 6 ©", 10),
        Block("Old", 10, 2, "old"),
    ]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>a</p><article><p>b</p></article>", "b"),
        ("<div role=main>a<header>h</header></div><article>b</article>", "ah"),
        ("<header>a</header>b<aside>c</aside><div role=navigation>d</div>", "b"),
        ("<nav>only</nav>", "only"),
        ("<div hidden>a</div>b<span aria-hidden=true>c</span>", "b"),
        ("<head><title>t</title>body without tags", "body without tags"),
        ("<p>a<!-- no end", "a"),
        ("<p>a<![CDATA[x]]>b<?php y ?>c", "a]]>bc".replace("]]>", "")),
        ("a <b unfinished", "a <b unfinished"),
        ("<div class=navheader>a</div>b<div id=footer>c</div>", "b"),
        ("<main>a<div class='toctree-wrapper compound'>b</div></main>", "a"),
        ("<a href='>'>x</a>", "x"),
        ("<noscript>a</noscript>b<svg><title>c</title></svg>", "b"),
    ],
)
def test_parts_of_a_page(page: str, text: str) -> None:
    assert "".join(block.text for block in web_page(page).blocks).replace("\n", "") == text


@pytest.mark.parametrize(
    "piece",
    ["<", "<!--", "<![CDATA[", "<a ", "<a x='", "</", "&#9", "<div>", "<script>", "<h1>a", "<td>", "<ul><li>", "<?"],
)
def test_hostile_pages_take_no_longer_than_others(piece: str) -> None:
    started = time.process_time()
    web_page(piece * 30_000)
    assert time.process_time() - started < 10  # html.parser takes minutes for some


def test_the_heading_of_a_note_begins_no_section() -> None:
    page = "<h2>A</h2><div class='admonition note'><h3>Note</h3><p>b</p></div><h3>C</h3>"
    assert [(block.text, block.level) for block in web_page(page).blocks] == [("A", 2), ("Note", 0), ("b", 0), ("C", 3)]


def test_a_title_of_doxygen_is_a_heading() -> None:
    title = '<div class="headertitle"><div class="title">A&lt; T &gt; Class<div class="ingroups">G</div></div></div>'
    page = f'<div class="header"><div class="summary">List</div>{title}</div><div class="contents">text<h2>B</h2>'
    assert [(block.text, block.level) for block in web_page(page).blocks] == [
        ("List", 0),
        ("A< T > Class", 1),
        ("text", 0),
        ("B", 2),
    ]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<ul><li>a<li><h3>b</h3></ul>", "- a\nb"),
        ("<ul><li><dl><dt>Since:<dd>1.2</dl></li><li><section><h3>next</h3>", "- Since:\n1.2\nnext"),
        ("<ul><li><pre>a\n - b</pre></li><li></li></ul>", "- a\n - b"),
        ("<table><tr><td>-<td>|<tr><td>a<td>-</table>", "- | |\na | -"),
    ],
)
def test_a_mark_without_text_is_no_line(page: str, text: str) -> None:
    assert "\n".join(block.text for block in web_page(page).blocks) == text


@pytest.mark.parametrize(
    ("page", "anchor"),
    [
        (
            'a<li>b<a id="b"></a><ul><li><a name="add(E)"><!-- --></a><ul><li><h4>add</h4>',
            "add(E)",
        ),  # Javadoc 8
        ('<ul><li>b<section class="detail" id="add(E)"><h3>add</h3>', "add(E)"),  # Javadoc 17
        ('<p>a</p><a id="a0" name="a0"></a><h2><span class="permalink"><a href="#a0">x</a></span>add</h2>', "a0"),
        ('<div id=all>a<section id="method.add"><span>source</span><h4>fn add</h4>', "method.add"),  # rustdoc
        ('<div id="refsynopsis"><div><h2>Synopsis</h2>', "refsynopsis"),  # DocBook
        ('<p>a</p><div class="section"><span id="Name"></span><h2>b</h2>', "Name"),  # Texinfo
        ("<nav id=menu></nav><p id=a>a</p><h2>b</h2>", ""),
        ("<p>a</p><h2 id=own><a name=other></a>b</h2>", "own"),
        ("<p>a</p><h2><a name=inner></a>b</h2>", "inner"),
        ("<p>a</p><h2>b<a name=after></a></h2>", ""),
        ("<div id=all><p>a</p><a name=groups></a><h2><a name=pub-types></a>Types</h2>", "pub-types"),  # Doxygen
        ("<div id=all><h1>a</h1><h2><a name=b></a>b</h2><h3>c</h3>", ""),
        ("<h1 id=x>a</h1><h2>b</h2>", ""),
    ],
)
def test_the_anchor_of_a_heading_is_the_nearest_id_before_it(page: str, anchor: str) -> None:
    *_, heading = [block for block in web_page(page).blocks if block.level]
    assert heading.anchor == anchor


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<ruby>漢<rt>かん</rt>字<rp>(</rp><rt>じ</rt><rp>)</rp></ruby>を", "漢字を"),
        ("co&shy;op\u00aderate&#8203;(\u200bint\u2060)\ufeff", "cooperate(int)"),
        ("a<dialog open>b</dialog>c<video>d</video>e<audio>f</audio>g<legend>h</legend>i", "a|b|c|e|g|h|i"),
        ("<label>a</label><label>b</label>", "a|b"),
    ],
)
def test_texts_of_elements_are_apart_and_words_whole(page: str, text: str) -> None:
    assert "|".join(block.text for block in web_page(page).blocks) == text


@pytest.mark.parametrize("title", ["Lists | Site", "Lists — Site 1.0", "Lists (Site 2.11 API)", "Lists - Rust"])
def test_a_title_lacks_the_name_of_the_site(title: str) -> None:
    assert web_page(f"<title>{title}</title>").title == "Lists"


def test_a_number_of_a_character_that_is_too_large() -> None:
    assert web_page("a&#" + "9" * 6000 + ";b").blocks[0].text == "a\ufffdb"
