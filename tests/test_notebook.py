"""The notebooks: each runs without a network, and shows what its cells give now."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
PNG = b"\x89PNG\r\n"


def runner() -> Any:
    """Return the module docs/notebook.py."""
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "docs" / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(notebook: dict[str, Any]) -> list[tuple[str, str]]:
    """Return kind and text of each output; figures of the machine or the moment are left out, and weak expansions."""
    kept = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            text = "".join(output.get("text", output.get("data", {}).get("text/plain", [])))
            text = re.sub(r"\d[\d,.]*", "#", text.partition("shared: expansion")[0])
            kept.append((output["output_type"], " ".join(re.sub("─+", "─", text).split())))
    return kept


def test_outputs_are_text_and_figures() -> None:
    pytest.importorskip("matplotlib").use("agg")
    source = "import matplotlib.pyplot as plt\nprint(1)\nplt.plot([1, 2])\n3"
    printed, value, figure = runner().outputs(source, {}, 5)
    assert printed == {"output_type": "stream", "name": "stdout", "text": ["1\n"]}
    assert (value["execution_count"], value["data"]) == (5, {"text/plain": ["3"]})
    assert base64.b64decode(figure["data"]["image/png"]).startswith(PNG)
    assert runner().outputs("a = 1", {}, 1) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_its_cells_give(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "90")
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert shown(runner().renewed(stored)) == shown(stored), f"python docs/notebook.py {path.relative_to(ROOT)}"
    numbers = [cell["execution_count"] for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert "display_data" in dict(shown(stored))
