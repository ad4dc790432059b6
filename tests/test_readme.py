"""The example of the README, as it stands there: it runs, and what it finds is an answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"


def test_the_example_in_python_gives_a_good_answer() -> None:
    [block] = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    found: dict[str, Any] = {}
    # Of the documents a few, so that it takes a second or two.
    block = block.replace('("os.", "shutil.")', '("os.rm", "os.un", "os.list", "shutil.")')
    exec(block, found)
    assert len(found["documents"]) > 20
    assert found["best"].id == "shutil.rmtree"
