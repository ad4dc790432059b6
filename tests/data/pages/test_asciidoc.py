from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data.pages.asciidoc import asciidoc_page
from vocable.data.pages.blocks import PageError
from vocable.data.pages.sections import parts

PAGE = """// a comment
= The _Guide_
Ann Author <ann@example.org>
v1.0, 2024-01-01
:product: Vox {empty}2

{product} reads *pages*.
// dropped
ifdef::x[]
Both +
sides.
endif::[]
include::part.adoc[]

[[install,Install it]]
== Install ==
:icons: font

[source,sh]
----
= no title
*run* {product}
----

.Options
* `-a`:: first
** <<other,another>> kbd:[Ctrl+C]
+
continued link:x.html[page, window=_blank]

 literal *text*

== What's new? [[news]]

[NOTE]
====
Inside a note.
====

////
hidden
////

|===
|Key |Value

|a a|b 2+|`c`
|===

Older title
-----------
image::x.png["A picture", 200]

=== Install

Text footnote:[A note.] and linkgit:git-gc[1], C++ https://a.org.

== Install

[#last.wide]
More (((hidden))) ((shown)).
"""


def test_blocks_of_a_page() -> None:
    assert [block[:4] for block in asciidoc_page(PAGE).blocks] == [
        ("The Guide", 2, 1, ""),
        ("Vox 2 reads pages.", 7, 0, ""),
        ("Both\nsides.", 10, 0, ""),
        ("Install", 16, 2, "install"),
        ("= no title\n*run* {product}", 21, 0, ""),
        ("Options\n* -a: first\n** another Ctrl+C", 25, 0, ""),
        ("continued page", 29, 0, ""),
        ("literal text", 31, 0, ""),
        ("What's new?", 33, 2, "news"),
        ("Inside a note.", 37, 0, ""),
        ("Key | Value\na | b | c", 45, 0, ""),
        ("Older title", 50, 2, "_older_title"),
        ("A picture", 52, 0, ""),
        ("Install", 54, 3, "_install"),
        ("Text A note. and git-gc(1), C++ https://a.org.", 56, 0, ""),
        ("Install", 58, 2, "_install_2"),
        ("More  shown.", 61, 0, ""),
    ]


@pytest.mark.parametrize(
    ("text", "text_of_page"),
    [
        ("**C**reate a__b__c ``d``e", "Create abc de"),
        ("2 * 3 * 4 and snake_case_name `a * b`", "2 * 3 * 4 and snake_case_name a * b"),
        (r"\*kept* \{kept} {unknown}", "*kept* {kept} {unknown}"),
        ("xref:a#b[] mailto:a@b.c[] https://x.org[The site^]", "a#b mailto:a@b.c The site"),
        ("a&#8217;b &amp; c", "a’b & c"),
        ("term::\n  description;; end", "term:\ndescription: end"),
        (" indented *literal*\n   more", " indented *literal*\n   more"),
        ("....\nopen literal", "open literal"),
        ("++++\n<b>passed</b>\n++++\n\n'''\n\nafter", "after"),
        ("```python\n# no title\n```", "# no title"),
        ("[quote#id, Ann]\n____\nWords.\n____", "Words."),
        (":!a:\n:b-c: x\n{b-c}", "x"),
        ("icon:flag[] toc::[]", ""),
        ("ifndef::no[One line.]\nifdef::a[*Two*.]", "One line.\nTwo."),
        (":v: 2\n\n[source,subs=attributes+]\n----\nrun {v}\n----\n\n----\n{v}\n----", "run 2\n{v}"),
        ('[source,bash,subs="verbatim,attributes"]\n----\n{empty}a\n----', "a"),
        ("|===\n|a\na|\n!===\n!b !c\n!===\n|d\n|===", "a\n\nb | c\nd"),
        (":a: one \\\n  two\n{a}", "one two"),
        ("x^2^ and H~2~O", "x2 and H2O"),
        ("menu:File[Save as] btn:[OK]", "File > Save as OK"),
    ],
)
def test_text_of_marks(text: str, text_of_page: str) -> None:
    assert "\n".join(block.text for block in asciidoc_page(text).blocks) == text_of_page


def test_attributes_that_multiply_are_cut_and_counted() -> None:
    laughs = ":a0: xxxxxxxxxx\n" + "".join(f":a{n + 1}: {f'{{a{n}}}' * 10}\n" for n in range(7))
    assert [len(block.text) for block in asciidoc_page(f"{laughs}\n{{a7}}").blocks] == [4096]
    with pytest.raises(PageError):
        asciidoc_page(f"{laughs}\n" + "{a7}" * 100)


def test_anchors_follow_the_attributes_and_the_title_links_to_the_page() -> None:
    page = (
        "---\ntitle: T\ntags: [a]\n---\n= Top\n:idprefix:\n:idseparator: -\n\nText.\n\n== A long.title\n\n"
        + "word " * 70
    )
    read = asciidoc_page(page)
    assert read.fields == {"title": "T", "tags": ["a"]}
    assert [(part.anchor, part.path) for part in parts(read, "x")] == [
        (None, "Top"),
        ("a-long-title", "Top > A long.title"),
    ]


@given(st.text(alphabet="=-*_`|[]{}<>:.+/# \nab1", max_size=300))
def test_any_text_is_read_with_lines_in_order(text: str) -> None:
    lines = [block.line for block in asciidoc_page(text).blocks]
    assert lines == sorted(lines)
    assert not lines or lines[-1] <= text.count("\n") + 1
