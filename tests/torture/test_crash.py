"""A part of the benchmark that kills: what was done is there, nothing is half there, searches are exact."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).with_name("crash.py")


def test_some_kills(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--kills", "20", "--json", str(tmp_path / "figures.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["kills"], figures["lost"], figures["half"], figures["wrong"]) == (20, 0, 0, 0)
    assert figures["acknowledged"] > 20
