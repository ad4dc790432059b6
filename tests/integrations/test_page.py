"""The examples of the page run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from vocable.retrieval.collection import Collection

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
PACKAGES = {"langchain": "langchain_core", "llama_index": "llama_index.core"}


@pytest.mark.parametrize("name", ["langchain", "llama_index", "haystack", "pyterrier"])
def test_an_example_runs(
    name: str,
    collection: Collection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip(PACKAGES.get(name, name))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    [block] = [block for block in blocks if f"vocable.integrations.{name} " in block]
    (tmp_path / "my-index").symlink_to(collection.place.removeprefix("exact:"), target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block, names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
