"""Hidden elements that hold several blocks of Markdown or MDX leave whole, and nothing beside them does."""

from __future__ import annotations

import pytest

from vocable.data.pages.markdown import markdown_page, mdx_page

HIDDEN = {
    "a\n\n<div hidden>secret</div>\n\nb": ["a", "b"],
    "<div hidden>\n\nsecret\n\n</div>\n\nb": ["b"],
    "<div hidden>\n\n# secret\n\nsecret <div>x\n\n</div>\n\n- a\n- b\n\n</div> shown\n\nb": ["shown", "b"],
    "<div hidden>\n\nsecret </div> shown\n\nb": ["shown", "b"],
    "<nav>\n\n- [a](b)\n\n</nav>\n\nb": ["b"],
    "<div hidden>\n\n| a | b |\n|---|---|\n| x | y |\n\n```\ncode\n```\n\n</div>\n\nb": ["b"],
    "- x\n\n  <div hidden>\n\n  secret\n\n  </div>\n\n- b": ["- x\n- b"],
    "> <div style='display:none'>\n>\n> secret\n>\n> </div>\n\nb": ["b"],
    "<div hidden>\n\nnever closed": [],
    "<details>\n\nshown\n\n</details>\n\nb": ["shown", "b"],
    "<aside>\n\nnote\n\n</aside>\n\nb": ["note", "b"],
    "a <b hidden>secret</b> b\n\nc": ["a b", "c"],
}


@pytest.mark.parametrize("text", HIDDEN)
def test_a_hidden_element_leaves_with_all_its_blocks(text: str) -> None:
    for page in (markdown_page, mdx_page):
        assert [block.text for block in page(text).blocks] == HIDDEN[text]


def test_an_item_that_begins_with_a_tag_has_one_mark() -> None:
    for page in (markdown_page, mdx_page):
        assert [block.text for block in page("- x\n- <div>\n\n  s\n\n- b").blocks] == ["- x\n- s\n- b"]


def test_an_item_and_a_paragraph_end_what_is_hidden_in_them() -> None:
    text = "- x\n- <div hidden>\n\n  secret\n\n- b\n\nc"
    assert [block.text for block in markdown_page(text).blocks] == ["- x\n- b", "c"]
    assert [block.text for block in markdown_page("<p hidden>\nsecret\n\nshown").blocks] == ["shown"]


def test_lines_count_what_is_hidden() -> None:
    blocks = markdown_page("a\n\n<div hidden>\n\nsecret\n\nsecret\n</div>\n<p>b</p>\n\nc").blocks
    assert [(block.text, block.line) for block in blocks] == [("a", 1), ("b", 9), ("c", 11)]
