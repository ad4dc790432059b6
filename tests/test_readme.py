"""The example of the README, as it stands there: it runs, and what it finds is an answer."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from vocable import read_corpus

README = Path(__file__).parents[1] / "README.md"


def test_the_example_in_python_gives_a_good_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    few = [one for one in read_corpus("pydocs:") if one.id.startswith(("shutil.", "zipfile."))]
    rows = (json.dumps({"id": one.id, "title": one.title, "text": one.text}) for one in islice(few, 100))
    (tmp_path / "few.jsonl").write_text("\n".join(rows))
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(block.replace('"pydocs:"', '"few.jsonl"'), found)
    best = found["answers"][0].hits[0]
    assert best.document.id == "shutil.unpack_archive"
    assert best.explanation is not None
