from __future__ import annotations

import pytest

from vocable.data.pages.blocks import Page
from vocable.data.pages.markdown import markdown_page, mdx_page
from vocable.data.pages.webpage import web_page

SHOWN = {  # pieces of HTML and what a reader sees of them, alike in a page of HTML, in Markdown and in MDX
    "a <button>Copy</button> b": "a b",
    "a <script>x</script> b": "a b",
    "a <style>x</style> b": "a b",
    "a <select><option>x</option></select> b": "a b",
    "a <svg><text>x</text></svg> b": "a b",
    "a <template>x</template> b": "a b",
    "a <noscript>x</noscript> b": "a b",
    "a <iframe>x</iframe> b": "a b",
    "a <textarea>x</textarea> b": "a b",
    "a <object>x</object> b": "a b",
    "a <span hidden>x</span> b": "a b",
    'a <span hidden="">x <b>y</b></span> b': "a b",
    'a <span aria-hidden="true">x</span> b': "a b",
    'a <span style="color: red; display: none">x</span> b': "a b",
    'a <span class="sr-only">x</span> b': "a b",
    'a <span role="navigation">x</span> b': "a b",
    'a <a class="headerlink" href="#x">Link</a> b': "a b",
    'a <a href="#top">§</a> b': "a b",
    'a <a href="#top">see §2</a> b': "a see §2 b",
    'a <a href="/edit/y">Edit this page</a> b': "a b",
    'a <a href="/y">[source]</a> b': "a b",
    'a <a href="/y">edit this pagefile</a> b': "a edit this pagefile b",
    "<ruby>漢<rt>かん</rt>字<rp>(</rp><rt>じ</rt><rp>)</rp></ruby>を書く": "漢字を書く",
    'copper<sup><a href="#n">1</a></sup> wire': "copper wire",
    'copper<sup>[<a href="a.html#n">1</a>]</sup> wire': "copper wire",
    'copper<a href="#n"><sup>[1]</sup></a> wire': "copper wire",
    'copper<a href="#n" class="footnote-ref" role="doc-noteref">1</a> wire': "copper wire",
    "x<sup>2</sup> H<sub>2</sub>O": "x2 H2O",
    '<a href="/x">x<sup>2</sup></a>': "x2",
    'E<sup>m<a href="/c">c</a></sup>': "Emc",
    "<del>old</del><ins>new</ins>": "old new",
    "<kbd>Ctrl</kbd><kbd>C</kbd>": "Ctrl C",
    '<img alt="Logo" src="a"><img alt="W3C" src="b">word': "Logo W3C word",
    "<b>un</b><i>broken</i>": "unbroken",
    "co&shy;op&#8203;erate": "cooperate",
    "<math><mfrac><mi>x</mi><mn>12</mn></mfrac><annotation>x</annotation></math>": "x/12",
}


def _text(page: Page) -> str:
    return " ".join("\n".join(block.text for block in page.blocks).split())


@pytest.mark.parametrize("piece", SHOWN)
def test_html_shows_the_same_wherever_it_stands(piece: str) -> None:
    texts = [
        _text(web_page(f"<p>{piece}</p>")),
        _text(markdown_page(piece)),
        _text(markdown_page(f"<div>{piece}</div>")),
        _text(markdown_page(f"- {piece}")).removeprefix("- "),
        _text(markdown_page(f"| h |\n|---|\n| {piece} |")).removeprefix("h "),
        _text(mdx_page(piece)),
    ]
    assert texts == [SHOWN[piece]] * len(texts)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a<div hidden>b</div>c", "a|c"),
        ("a<ul><li hidden>b<li>c</ul>", "a|- c"),
        ("<div role=tabpanel hidden>apt</div>", "apt"),
        ('<td class="rouge-gutter gl"><pre class="lineno">1</pre></td><td>x</td>', "x"),
        ('<table><tr><td class=lntd><pre><span class="lnt">1</span></pre><td><pre>x</table>', "x"),
        ('<body class="toc"><p>a<div class="toc">b</div>', "a"),
        ("<ul class=breadcrumb><li>Home</ul>a", "a"),
        ("<main><pre class='src src-sh'>ls</pre><a class=src href=x>Source</a></main>", "ls"),
        ("<h1>A</h1><h2>Contents</h2><p>1. <a href=#a>a</a> <a href='#b'>b</a> <a href='#c'>c</a></p><p>d", "A|d"),
        ("<h1>A</h1><ul><li><a href='b.html'>a</a><li><a href=#b>b</a><li><a href=#c>c</a></ul>", "A|- a\n- b\n- c"),
        (
            '<main>a<h2 id="blanket-implementations">Blanket Implementations</h2>'
            '<div id="blanket-implementations-list"><section id="impl-Any">impl Any for T</section></div><p>b</main>',
            "a|b",
        ),
        (
            "<table><tr><td><p>a</p><p>b</p></td><td><p>c</td></tr><tr><td>d<br>e</td><td>f</td></tr></table>",
            "a b | c\nd e | f",
        ),
        ("<dialog>s</dialog>a<dialog id=x>s</dialog><dialog open>b</dialog>", "a|b"),
        ("<p aria-hidden=TRUE>s</p>a<video>s</video><audio controls>s</audio><canvas>s</canvas>", "a"),
        ("a <xmp><b>&amp;</b></xmp> c", "a <b>&amp;</b> c"),
        ("<table><tr><td><ul><li>a<li>b</ul></td></tr><tr><td><p>c<td>d</table>", "- a\n- b\nc | d"),
        ("<table><tr class=inherit_header><td>Members inherited from A<tr><td>b</table>", "b"),
    ],
)
def test_parts_of_pages_that_are_not_seen(page: str, text: str) -> None:
    assert "|".join(block.text for block in web_page(page).blocks) == text


@pytest.mark.parametrize("mark", ["[TOC]", "[[_TOC_]]", "- [A](#a)\n  1. [B](#b)\n- [C](#c)"])
def test_tables_of_contents_leave_with_their_heading(mark: str) -> None:
    for page in (markdown_page, mdx_page):
        blocks = page(f"# T\n\n## On this page\n\n{mark}\n\n## A\n\n- [A](a.md)\n- [B](b.md)\n- [C](c.md)").blocks
        assert [block.text for block in blocks] == ["T", "A", "- A\n- B\n- C"]


def test_footnotes_are_texts_without_their_marks() -> None:
    text = "The copper[^1] wire[^n], [^a-z].\n\n[^1]: A *note*\n    of two lines.\n[^n]: Note\n\nAfter."
    for page in (markdown_page, mdx_page):
        texts = [(block.text, block.line) for block in page(text).blocks]
        assert texts == [
            ("The copper wire, [^a-z].", 1),
            ("A note\nof two lines.", 3),
            ("Note", 5),
            ("After.", 7),
        ]


def test_comments_in_mdx_are_no_text() -> None:
    text = "# T\n\nOne\n\n<!-- truncate -->\n\n<!--\n\n# no heading\n\n-->\n\ntwo <!-- y --> three <!-- open"
    blocks = mdx_page(text).blocks
    assert [(block.text, block.line) for block in blocks] == [("T", 1), ("One", 3), ("two three <!-- open", 13)]
