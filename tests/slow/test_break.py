"""A part of the benchmark that breaks things: nothing silently wrong, no traceback, no hang, no crash.

It has all kills at moments that are known to be bad, and of the other groups one case of many.
"""

from __future__ import annotations

from pathlib import Path

from tests.forks import run_script

BENCHMARK = Path(__file__).with_name("break.py")


def test_faults_end_in_one_line_and_leave_no_half_output() -> None:
    status, *printed = run_script(BENCHMARK, "--quick", "--jobs", 2, "--kills", 40, "--cuts", 2, timeout=600)
    assert status == 0, printed
