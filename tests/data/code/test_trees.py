from __future__ import annotations

import pytest

from vocable.data.code.outline import Definition
from vocable.data.code.trees import GRAMMARS, has_grammar, tree_outline

pytest.importorskip("tree_sitter")

SOURCES = {
    "a.c": (
        "struct lamp { int a;\n};\n#define ON(x) \\\n  (x)\nstatic struct lamp *\non(struct lamp *l)\n{\n}\n",
        "lamp ON on",
    ),
    "a.cpp": (
        "namespace n {\ntemplate <class T>\nclass Lamp {\n  void on() {}\n};\nint &Lamp::off() {\n}\n}\n",
        "n n.Lamp n.Lamp.on n.Lamp::off",
    ),
    "a.cs": ("namespace N {\nclass Lamp {\n  public int On() {\n  }\n}\n}\n", "N N.Lamp N.Lamp.On"),
    "a.go": ("type Lamp struct {\n  a int\n}\n// On.\nfunc (l *Lamp) On() {\n}\nfunc off() {\n}\n", "Lamp Lamp.On off"),
    "a.java": ("class Lamp {\n  @Override\n  int on() {\n  }\n  Lamp() {\n  }\n}\n", "Lamp Lamp.on Lamp.Lamp"),
    "a.js": (
        "(function () {\nfunction on() {\n}\nexports.off = () => {\n};\n})();\nexport class Lamp {\n on() {}\n}\n",
        "on off Lamp Lamp.on",
    ),
    "a.php": ("<?php\nfunction on() {\n}\nclass Lamp {\n  function off() {\n  }\n}\n", "on Lamp Lamp.off"),
    "a.rb": (
        "module M\n  class Lamp\n    def on\n    end\n    def self.off\n    end\n  end\nend\n",
        "M M.Lamp M.Lamp.on M.Lamp.off",
    ),
    "a.rs": (
        "struct Lamp {\n}\n#[inline]\nfn off() {\n}\nimpl Drop for Lamp {\n  fn drop(&mut self) {\n  }\n}\n",
        "Lamp off Drop for Lamp Drop for Lamp.drop",
    ),
    "a.sh": ("on() {\n  echo 1\n}\nfunction off {\n  echo 0\n}\n", "on off"),
    "a.tsx": ("export const On = (a: A) => {\n  return <b/>;\n};\ninterface I {\n  a: number;\n}\n", "On I"),
}


def names(definitions: tuple[Definition, ...], above: str = "") -> list[str]:
    return [name for one in definitions for name in (above + one.name, *names(one.inner, f"{above}{one.name}."))]


def test_each_language_has_a_case() -> None:
    assert len(SOURCES) == len(GRAMMARS)


@pytest.mark.parametrize("file", SOURCES)
def test_definitions_of_a_language(file: str) -> None:
    text, expected = SOURCES[file]
    assert has_grammar(file)
    assert " ".join(names(tree_outline(text, file).definitions)) == expected


@pytest.mark.parametrize(
    ("text", "file", "expected"),
    [
        ("API lamp_t lamp(void)\n{\n}\n", "a.c", "lamp"),
        ("API lamp_t on (const void* l, int a)\n{\n}\n", "a.c", "on"),
        ("API lamp_t *on(ESCAPE const void* l)\n{\n}\n", "a.c", "on"),
        ("END_THREADS\nif (on) {\n  off();\n}\n", "a.c", ""),
        ("int (on)(int a)\n{\n}\n", "a.c", "on"),
        ("static int ON(int a)\n{\n}\n", "a.c", "ON"),
        ("TEST(Lamp, on) {\n  f();\n}\n", "a.cpp", "TEST(Lamp, on)"),
        ("class L {\n  operator bool() {\n    return a;\n  }\n};\n", "a.h", "L L.operator bool()"),
    ],
)
def test_names_between_the_words_of_macros(text: str, file: str, expected: str) -> None:
    assert " ".join(names(tree_outline(text, file).definitions)) == expected


def test_lines_of_definitions_and_of_statements() -> None:
    found = tree_outline("export const on = (a) => {\n  if (a) {\n    b();\n  }\n};\n", "a.js")
    assert found.definitions == (Definition("on", 1, 5),)
    assert found.starts == {1, 2, 3}
    assert tree_outline("int f( {{{ \n", "a.c") is not None  # a tree of errors


def test_languages_without_a_grammar() -> None:
    assert not has_grammar("a.sql")
    assert not has_grammar("a.py")
