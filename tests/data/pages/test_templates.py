from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data.pages.blocks import Block
from vocable.data.pages.markdown import markdown_page
from vocable.data.pages.templates import html_source, without_templates


def texts(text: str) -> list[str]:
    return [block.text for block in markdown_page(text).blocks]


def headings(text: str) -> list[tuple[str, str]]:
    return [(block.text, block.anchor) for block in markdown_page(text).blocks if block.level]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("At {{ site.time | date: '%Y' }} we met.", "At we met."),
        ("{% if page.author %}By {{ page.author }}{% endif %} here", "By here"),
        ("[a page]({% link _docs/a.md %}) and [b]({{ site.url }}/b.html)", "a page and b"),
        ("![a picture]({{ 'x.png' | relative_url }})", "a picture"),
        ('{% include note.html title="Mind the gap" kind="tip" %}', "Mind the gap"),
        ('A {{< glossary_tooltip text="Pod" term_id="pod" >}} runs.', "A Pod runs."),
        ("The {% raw %}{{ page.title }}{% endraw %} of a page", "The {{ page.title }} of a page"),
        ("Write `{{ page.title }}` or ``{% raw %}``.", "Write {{ page.title }} or {% raw %}."),
        ("```\n{{ page.title }}\n{% endif %}\n```", "{{ page.title }}\n{% endif %}"),
        ("    {{ indented }}", "{{ indented }}"),
        ("| a | b |\n|---|---|\n| {{ x }} | {% y %}c |", "a | b\n | c"),
        ("<div>{{ page.title }}<p>text</p>{% endif %}</div>", "text"),
        ("${{ secrets.TOKEN }}, {one}, 100 {%}, \\{{ kept }}", "${{ secrets.TOKEN }}, {one}, 100 {%}, {{ kept }}"),
        ("{% include image.html\n   alt='A map' %}", "A map"),
    ],
)
def test_templates_outside_code_show_their_titles(text: str, shown: str) -> None:
    assert texts(text) == [shown]


@pytest.mark.parametrize(
    "text", ["{% include nav.html %}", "{{ content }}", "{:toc}", "{: .note}", "{::options a='b' /}"]
)
def test_a_paragraph_of_marks_alone_is_no_block(text: str) -> None:
    assert texts(f"a\n\n{text}\n\nb") == ["a", "b"]


def test_highlighted_lines_are_code() -> None:
    text = "Before.\n{% highlight yaml %}\n# no heading\n- a: [1]\n  b: 2\n{% endhighlight %}\nAfter {{ x }}.\n"
    assert markdown_page(text).blocks == [
        Block("Before.", 1),
        Block("# no heading\n- a: [1]\n  b: 2", 2),
        Block("After .", 7),
    ]
    assert texts("- item\n\n  {% highlight sh %}{% raw %}\n  ls {{ a }}\n  {% endraw %}{% endhighlight %}") == [
        "- item\n  ls {{ a }}"
    ]
    assert texts("{% highlight a %}\n{% raw %}\n{{ b }}\n{% endraw %}\n{% endhighlight %}") == ["{{ b }}"]
    assert texts("{% highlight a %}\ntext") == ["text"]


@pytest.mark.parametrize(
    "text",
    [
        "## On Windows {#here}",
        "## On Windows {.class #here}",
        "## On Windows {: #here .class key='a value' }",
        "## On Windows\n{: #here}",
        "## On Windows\n{: .class #here }\nText below.",
        "On Windows\n----------\n{:#here}",
    ],
)
def test_attributes_of_a_heading_are_its_anchor(text: str) -> None:
    assert headings(text) == [("On Windows", "here")]
    assert "here" not in " ".join(texts(text))


def test_attributes_below_a_blank_line_belong_to_no_heading() -> None:
    assert headings("## A\n\n{: #here}\n\n## B {.wide}") == [("A", ""), ("B", "")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[Buy](x){ .button } and ![map](y){width=300 align='left'}.", "Buy and map."),
        ("*word*{: .mark} and `code`{.sh} and {: .x}", "word and code and"),
        ("A paragraph.\n{: .note #there}", "A paragraph."),
        ("A paragraph. {#there}", "A paragraph."),
        ("1. One\n{: .list}\n2. Two", "1. One\n2. Two"),
    ],
)
def test_attributes_are_no_text(text: str, shown: str) -> None:
    assert "\n".join(line.rstrip() for block in texts(text) for line in block.split("\n") if line.strip()) == shown


@pytest.mark.parametrize(
    "text", ["Sets {1, 2} and {a=1} stay, and up {job=x}.", "{}", "{a} b", "Elixir gives {:ok, pid} back."]
)
def test_other_braces_stay(text: str) -> None:
    assert texts(text) == [text]


@pytest.mark.parametrize(
    ("start", "title"),
    [
        (":::tip Mind the *gap*", ["Mind the gap"]),
        ("::: tip Mind the gap", ["Mind the gap"]),
        (":::tip[Mind the gap]", ["Mind the gap"]),
        (":::note[Mind the gap]{.wide}", ["Mind the gap"]),
        (":::{note} Mind the gap", ["Mind the gap"]),
        ('::: {.callout-tip title="Mind the gap"}', ["Mind the gap"]),
        ("::: details Mind the gap {open}", ["Mind the gap"]),
        ("::: warning ::::::", []),
        (":::caution", []),
        ("::: code-group", []),
        ("::card{icon=x title='Mind the gap'}", ["Mind the gap"]),
        ("::: package.module", ["package.module"]),
    ],
)
def test_a_container_is_its_title_and_its_text(start: str, title: list[str]) -> None:
    end = start[: len(start) - len(start.lstrip(":"))]
    assert texts(f"Before.\n{start}\nText with `code`.\n\n- item\n{end}\nAfter.") == [
        "Before.", *title, "Text with code.", "- item", "After."
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("component", "blocks"),
    [
        ("::card\n---\ntitle: Mind the gap\nicon: x\n---\nText.\n::", ["Mind the gap", "Text."]),
        ("::card\n---\nicon: x\n---\n#default\nText.\n::", ["#default\nText."]),
        ("::card\n---\nlabel: A\ntitle: 3\n---\n::", ["A"]),
        (":::card{title='T'}\n---\nto: /x\n---\n:::\nAfter.", ["T", "After."]),
        ("::card\n---\nno end\n::", ["no end"]),
        ("- item\n  ::card\n  ---\n  title: T\n  ---\n  text\n  ::", ["- item\n  T\n  text"]),
        ("::card", []),
    ],
)
def test_yaml_of_a_component_gives_what_it_shows(component: str, blocks: list[str]) -> None:
    assert texts(component) == blocks


def test_headings_in_containers_are_headings_and_containers_nest() -> None:
    text = ":::: tabs\n::: tab Linux\n## Install\napt\n:::\n::: tab macOS\nbrew\n:::\n::::\n"
    assert [(block.level, block.text) for block in markdown_page(text).blocks] == [
        (0, "Linux"), (2, "Install"), (0, "apt"), (0, "macOS"), (0, "brew")
    ]  # fmt: skip
    assert texts("- item\n\n  :::tip T\n  text\n  :::\n") == ["- item\n  T\n  text"]


@pytest.mark.parametrize("text", ["```\n:::tip T\n```", "    :::tip T", "a :::tip b", ":: a", "::std::vector", ":tip"])
def test_other_colons_stay(text: str) -> None:
    assert ":" in texts(text)[0]


WORDS = st.sampled_from(
    [
        "word",
        "{{ x }}",
        "{% y %}",
        "{: .z}",
        "`{{ code }}`",
        "*em*",
        "{",
        "}}",
        "\n",
        "\n\n",
        "\n:::\n",
        "\n::: t\n",
        "\n::: t `{{ code }}`\n",
    ]
)


@given(st.lists(WORDS, max_size=12))
def test_words_and_code_stay_whatever_stands_beside_them(pieces: list[str]) -> None:
    shown = " ".join(texts(" ".join(pieces)))
    for word in ("word", "em"):
        assert shown.count(word) == sum(word in piece for piece in pieces)
    assert shown.count("code") == sum("code" in piece for piece in pieces)


def test_html_without_templates() -> None:
    assert without_templates("<p>{{ a }}b</p>{% raw %}{{ c }}{% endraw %}") == "<p>b</p>{{ c }}"


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("<h1>A</h1>{{ b }}", ([Block("A", 1, 1), Block("{{ b }}", 1)], "", {}, None)),
        (
            "---\ntitle: T\n---\n<h1>A</h1>\n{% if b %}c{% endif %}",
            ([Block("A", 4, 1), Block("c", 4)], "T", {"title": "T"}, None),
        ),
        ("---\nlang: de\n---\n<title>U</title>\n<p>c</p>", ([Block("c", 5)], "U", {"lang": "de"}, None)),
    ],
)
def test_html_with_front_matter_is_a_source(text: str, page: object) -> None:
    assert html_source(text)[:4] == page
