from __future__ import annotations

from vocable.data.code.indentation import indentation_outline
from vocable.data.code.outline import Definition


def shown(definitions: tuple[Definition, ...]) -> list[object]:
    return [(one.name, one.first, one.last, *([shown(one.inner)] if one.inner else [])) for one in definitions]


def outline(text: str) -> list[object]:
    return shown(indentation_outline(text).definitions)


def test_blocks_in_braces() -> None:
    text = """package lamps

/* On. */
static struct lamp *
on(struct lamp *one)
{
    if (one) {
        light(one);
    }
}

int count = 3;

public class Lamp {
    int power;

    public void off() {
        stop();
    }
}
"""
    assert outline(text) == [("on", 3, 10), ("Lamp", 14, 20, [("off", 17, 19)])]


def test_blocks_that_end_with_a_word_or_without() -> None:
    text = """module Lamps
  class Lamp
    def on
      light
    end
  end
end
"""
    assert outline(text) == [("Lamps", 1, 7, [("Lamp", 2, 6, [("on", 3, 5)])])]
    assert outline("class Lamp:\n    def on(self):\n        print 1\n    def off(self):\n        print 2\n") == [
        ("Lamp", 1, 5, [("on", 2, 3), ("off", 4, 5)])
    ]


def test_statements_of_sql() -> None:
    text = "CREATE TABLE IF NOT EXISTS lamps (\n  id int\n);\n\ncreate or replace function on_all()\n  returns int;\n"
    assert outline(text) == [("lamps", 1, 3), ("on_all", 5, 6)]


def test_a_text_without_definitions() -> None:
    assert outline("") == outline("\n\n") == outline("one\n\n  two\n") == []
    assert indentation_outline("a\n\n}\nb").starts == {1, 4}
