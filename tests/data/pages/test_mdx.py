from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data.pages.blocks import Block
from vocable.data.pages.markdown import markdown_page, mdx_page


def texts(text: str) -> list[str]:
    return [block.text for block in mdx_page(text).blocks]


def test_a_page_of_mdx_has_blocks() -> None:
    text = """---
title: Tabs
---
import { Tabs, TabItem } from './tabs';
import Preview from '~/preview.astro';

export const rows = [
  { a: 1 },

  { a: 2 },
];

# Tabs <Badge text="New" />

{/* a comment,

in two paragraphs */}

<Tabs syncKey="os" items={['a', "b"]} render={() => <b>no</b>}>
\t<TabItem label="Stars">Sirius, *Vega*</TabItem>
\t<TabItem label="Moons" icon="moon">
\t\tIo, Europa

\t\t```js
\t\timport { x } from 'y';
\t\tif (a < b) { <Tabs>
\t\t```
\t</TabItem>
</Tabs>

## Links {#own}

<LinkCard
\ttitle="Customize"
\tdescription="Make it your own."
\thref="/x/"
/>
"""
    assert mdx_page(text)[:4] == (
        [
            Block("Tabs", 13, 1),
            Block("Stars\nSirius, Vega\nMoons\nIo, Europa", 20),
            Block("import { x } from 'y';\nif (a < b) { <Tabs>", 24),
            Block("Links", 31, 2, "own"),
            Block("Customize\nMake it your own.", 33),
        ],
        "Tabs",
        {"title": "Tabs"},
        None,
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A <Link href={`/a/${b}`}>link</Link>, bold <b>x</b>.", ["A link, bold x."]),
        ("one<br/>two", ["one\ntwo"]),
        ('<img src="x.png" alt="A map" />', ["A map"]),
        ("<Image alt={'A map'} src={map} />", ["A map"]),
        ("{'text'} and {\"more\"} and {`end`}", ["text and more and end"]),
        ("{props.title} stays {count + 1} out", ["stays out"]),
        ("`{code}` and `<Tag>` and \\{brace\\} and \\<Tag>", ["{code} and <Tag> and {brace} and <Tag>"]),
        ("<>\n\ntext\n\n</>", ["text"]),
        ("<Rows content={[{ name: 'model', type: 'X', description: 'Its name.' }]} />", ["model\nIts name."]),
        ("<Card title='One'>a</Card>\n\n<Card title='Two'>b</Card>", ["One\na", "Two\nb"]),
        ('<Snippet text="npm i" dark />', ["npm i"]),
        ("<Steps>\n1. one\n2. two\n</Steps>", ["1. one\n2. two"]),
        ("<Aside>\n    # Heading\n</Aside>", ["Heading"]),
        (":::tip[Read *this*]\nText.\n:::", ["Read this", "Text."]),
        ("a < b and c > d", ["a < b and c > d"]),
        ("<Unclosed attr={", ["<Unclosed attr={"]),
        ("import(x) is a call", ["import(x) is a call"]),
        ("<ul><li>one</li><li>two</li></ul>", ["one\ntwo"]),
        ("| a |\n|---|\n| <Check size={18} /> yes<br/>no |", ["a\nyes no"]),
        ("<X a={{b: {c: {d: {e: {f: {g: {h: {i: {}}}}}}}}}} title='T'/>", ["T"]),
    ],
)
def test_the_text_of_components_is_read(text: str, shown: list[str]) -> None:
    assert texts(text) == shown


@pytest.mark.parametrize("heading", ["## A b {#here}", "## A b {/* #here */}", "## <Icon name='x' /> A b {#here}"])
def test_anchors_of_headings(heading: str) -> None:
    [block] = mdx_page(heading).blocks
    assert (block.text, block.level, block.anchor) == ("A b", 2, "here")


@pytest.mark.parametrize(
    ("start", "is_mdx"),
    [
        ("import Tabs from '@theme/Tabs';", True),
        ('import {\n  a,\n} from "b"', True),
        ("{/* a comment */}", True),
        ("```\nimport Tabs from '@theme/Tabs';\n```", False),
        ("import from 'x' is a word", False),
        ("- import a from 'b'", False),
    ],
)
def test_markdown_with_an_import_is_mdx(start: str, is_mdx: bool) -> None:
    blocks = markdown_page(f"{start}\n\n<Tab label='Linux'>\n\n    apt {{x}}\n\n</Tab>\n").blocks
    assert [block.text for block in blocks][-1] == ("apt" if is_mdx else "apt {x}")


PIECES = [
    "word",
    "<A>",
    "</A>",
    "<B title='t'/>",
    "{x}",
    "{/* no */}",
    "`{code}`",
    "\n",
    "\n\n",
    "- item",
    "{",
    "<",
    "export ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_words_stay_and_lines_are_in_the_page(pieces: list[str]) -> None:
    text = "a " + " ".join(pieces)
    page = mdx_page(text)
    assert all(1 <= block.line <= text.count("\n") + 1 for block in page.blocks)
    if "{" not in pieces and "<" not in pieces and "export " not in pieces:
        shown = " ".join(block.text for block in page.blocks)
        assert shown.count("word") == pieces.count("word")
        assert shown.count("{code}") == pieces.count("`{code}`")
