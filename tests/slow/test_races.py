"""A part of the races: two real processes on one store lose nothing."""

from __future__ import annotations

import json
from pathlib import Path

from tests.forks import run_script


def test_two_processes_on_one_store_lose_nothing_in_any_pair_of_operations() -> None:
    status, out, err = run_script(Path(__file__).with_name("races.py"), "--trials", 15, "--seconds", 60, timeout=400)
    assert status == 0, out + err
    figures = json.loads(out)
    assert figures["faults"] == 0
    assert figures["trials"] > 3
