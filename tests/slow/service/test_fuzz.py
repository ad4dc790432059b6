"""A part of the benchmark that fuzzes: no answer of the service is an error of its own, or other than described."""

from __future__ import annotations

import json
from pathlib import Path

from tests.forks import run_script

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "fuzz.py"


def test_random_requests_get_documented_answers_and_no_internal_error(tmp_path: Path) -> None:
    status, *printed = run_script(BENCHMARK, "--requests", 1000, "--json", tmp_path / "figures.json", timeout=600)
    assert status == 0, printed
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["requests"] >= 1000
    assert {"200", "422"} <= figures["by status"].keys()
