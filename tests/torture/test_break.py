"""A part of the benchmark that breaks things: nothing silently wrong, no traceback, no hang, no crash.

It has all kills at moments that are known to be bad, and of the other groups one case of many.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).with_name("break.py")


def test_a_part_of_what_can_go_wrong() -> None:
    command = [sys.executable, str(BENCHMARK), "--quick", "--jobs", "2", "--kills", "40", "--cuts", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
