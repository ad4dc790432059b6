"""A part of the benchmark that kills: what was done is there, nothing is half there, searches are exact."""

from __future__ import annotations

import json
from pathlib import Path

from tests.forks import run_script

BENCHMARK = Path(__file__).with_name("crash.py")


def test_killed_changes_lose_no_acknowledged_document(tmp_path: Path) -> None:
    status, *printed = run_script(BENCHMARK, "--kills", 20, "--json", tmp_path / "figures.json")
    assert status == 0, printed
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["kills"], figures["lost"], figures["half"], figures["wrong"]) == (20, 0, 0, 0)
    assert figures["acknowledged"] > 20
