from __future__ import annotations

import itertools
from textwrap import dedent

from hypothesis import given
from hypothesis import strategies as st

from vocable.data.code.documents import code_parts
from vocable.data.code.indentation import indentation_outline
from vocable.data.code.python import python_outline
from vocable.data.pages.blocks import Part
from vocable.data.pages.sections import MOST_WORDS, size_of

LAMPS = '''#!/usr/bin/env python
# Copyright 2020 by the makers of lamps
#
# Licensed under some terms.

"""Lamps that burn oil, and lamps that burn light, of all sizes and powers."""

import os


# The main lamp.
class Lamp(Thing):
    """A lamp of any kind, in any room of any house, with a switch and a cable."""

    @property
    def power(self):
        return 1

    unit = "W"

    def off(self):
        pass


class Small:
    def on(self):
        light()
'''


def of_python(text: str) -> list[Part]:
    return code_parts(text, python_outline(text))[0]


def test_documents_of_a_module() -> None:
    parts, has_licence = code_parts(LAMPS, python_outline(LAMPS))
    assert has_licence
    assert [(part.anchor, part.path, part.line, part.last_line) for part in parts] == [
        (None, "", 6, 8),
        ("Lamp", "Lamp", 11, 13),
        ("Lamp.power", "Lamp > power", 15, 19),
        ("Lamp.off", "Lamp > off", 21, 22),
        ("Small.on", "Small > on", 25, 27),
    ]
    assert parts[1].text.startswith("# The main lamp.\nclass Lamp(Thing):")
    assert parts[2].text == '@property\ndef power(self):\n    return 1\n\nunit = "W"'
    assert parts[4].text == "class Small:\n    def on(self):\n        light()"
    assert "Copyright" not in "".join(part.text for part in parts)


def test_a_long_function_is_cut_between_statements() -> None:
    body = "".join(f"    if lamps[{number}]:\n        light(lamps[{number}], power={number})\n" for number in range(90))
    text = f"def on(lamps):\n{body}"
    parts = of_python(text)
    assert len(parts) > 2
    assert all(size_of(part.text) <= MOST_WORDS for part in parts)
    assert [(part.anchor, part.number) for part in parts] == [("on", number + 1) for number in range(len(parts))]
    lines = text.split("\n")
    for part, following in itertools.pairwise(parts):
        assert following.line == part.last_line + 1
        assert part.text == dedent("\n".join(lines[part.line - 1 : part.last_line]))


def test_of_a_table_of_numbers_the_first_part_stays() -> None:
    text = "TABLE = [\n" + "    1, 22, 333, 4444, 55555,\n" * 500 + "]\n"
    [part] = of_python(text)
    assert part.text.startswith("TABLE")


@given(st.lists(st.sampled_from(["def f():", "  x = 1", "    call(y)", "class C:", "}", "", "# word", "int g() {"])))
def test_each_line_with_words_is_in_a_document(lines: list[str]) -> None:
    text = "\n".join(lines)
    parts, _ = code_parts(text, indentation_outline(text))
    covered = {number for part in parts for number in range(part.line, part.last_line + 1)}
    assert {at for at, line in enumerate(lines, start=1) if "call" in line or "x =" in line} <= covered
    assert len({(part.anchor, part.number) for part in parts}) == len(parts)
