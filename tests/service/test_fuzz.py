"""A part of the benchmark that fuzzes: no answer of the service is an error of its own, or other than described."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"


def test_some_requests(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--requests", "2000", "--json", str(tmp_path / "figures.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["requests"] >= 2000
    assert {"200", "422"} <= figures["by status"].keys()
