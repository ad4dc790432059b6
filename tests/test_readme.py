"""The example of the README, as it stands there: it runs, and what it prints is what the README shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"\d+(\.\d+)?")  # weights of an 8-bit graph differ a little by the processor


def test_the_example_in_python_prints_what_the_readme_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    [(block, shown)] = EXAMPLE.findall(README.read_text(encoding="utf-8"))
    monkeypatch.setenv("COLUMNS", "80")
    names: dict[str, Any] = {}
    exec(block, names)
    printed = capsys.readouterr().out
    assert NUMBER.sub("#", printed).split("expansion")[0] == NUMBER.sub("#", shown).split("expansion")[0]
    assert "darkness" in printed
    assert len(names["index"]) == len(names["texts"])


def test_the_readme_shows_how_a_checkout_is_tried_and_tested() -> None:
    text = README.read_text(encoding="utf-8")
    assert re.search(r"^    make demo +# .* a minute of processor time$", text, re.MULTILINE)
    assert re.search(r"^    make test +# .* minutes$", text, re.MULTILINE)
