"""The situations of an open index, and the states that a loss of power may leave."""

from __future__ import annotations

import json
from pathlib import Path

from tests.forks import run_script

HERE = Path(__file__).parent


def test_every_situation_of_an_open_index_ends_right() -> None:
    status, out, err = run_script(HERE / "situations.py", "--quick", timeout=600)
    assert status == 0, out + err


def test_power_failures_leave_a_commit_before_or_after(tmp_path: Path) -> None:
    options = ("--states", 6, "--kills", 4, "--json", tmp_path / "figures.json")
    status, out, err = run_script(HERE / "power_states.py", *options, timeout=600)
    assert status == 0, out + err
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["faults"] == 0
    assert figures["distinct states"] > 400


def test_readers_beside_a_writer_answer_by_one_commit(tmp_path: Path) -> None:
    options = ("--seconds", 12, "--readers", 3, "--documents", 1_000, "--json", tmp_path / "figures.json")
    status, out, err = run_script(HERE / "living.py", *options, timeout=600)
    assert status == 0, out + err
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["searches while the writer was stopped"] > 0
    assert figures["commits searched"] > 3
