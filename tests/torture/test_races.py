"""A minute of races: two real processes on one store lose nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_a_minute_of_races() -> None:
    command = [sys.executable, str(Path(__file__).with_name("races.py")), "--trials", "45", "--seconds", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["faults"] == 0
    assert figures["trials"] > 3
