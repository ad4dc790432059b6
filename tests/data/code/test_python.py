from __future__ import annotations

import pytest

from vocable.data.code.outline import Definition
from vocable.data.code.python import python_outline

SOURCE = """import os

if os.name == "nt":
    def slash(): return "/"
else:
    @cache
    def slash():
        return "\\\\"

class Lamp:
    kind = "oil"

    async def on(self) -> None:
        def inner():
            pass
"""


def test_definitions_with_decorators_and_below_conditions() -> None:
    found = python_outline(SOURCE)
    inner = Definition("inner", 14, 15)
    assert found.definitions == (
        Definition("slash", 4, 4),
        Definition("slash", 6, 8),
        Definition("Lamp", 10, 15, (Definition("on", 13, 15, (inner,)),), holds=True),
    )
    assert found.starts == {1, 3, 4, 7, 8, 10, 11, 13, 14, 15}


@pytest.mark.parametrize("text", ["def f(:\n", "print 1\n", "a = '\0'\n"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        python_outline(text)
