"""Signals and interrupts: the line and the exit status of a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_program import error_line, raising
from vocable.cli import main


def test_an_interrupt_says_whether_one_can_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("vocable.encoding.load.load_encoder", raising(KeyboardInterrupt()))
    monkeypatch.setattr("vocable.collection.index.load_encoder", raising(KeyboardInterrupt()))
    (tmp_path / "corpus.txt").touch()
    assert main(["index", "m", str(tmp_path / "corpus.txt"), "-o", str(tmp_path / "out")]) == 130
    assert error_line(capsys) == "vocable: interrupted; the same command resumes"
    assert main(["explain", "m", "q"]) == 130
    assert error_line(capsys) == "vocable: interrupted"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_interrupt_as_the_keyboard_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # it may be ignored here, and then it is by a command, too
    monkeypatch.setattr("vocable.encoding.load.load_encoder", lambda *_: os.kill(os.getpid(), number))
    try:
        assert main(["explain", "m", "q"]) == status
        assert error_line(capsys) == "vocable: interrupted"
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_an_interrupt_that_python_drops_comes_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def __del__(self) -> None:
            raise KeyboardInterrupt(signal.SIGINT)

    def load(*_: object) -> None:
        Interrupted()  # it is gone at once, and what its end raises is no exception here
        time.sleep(10)

    monkeypatch.setattr("vocable.encoding.load.load_encoder", load)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
    try:
        assert main(["explain", "m", "q"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert error_line(capsys) == "vocable: interrupted"


WITHIN_EXEC = """
import sys, vocable.cli, vocable.__main__

def run():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return 143

vocable.cli.main = run
sys.exit(vocable.__main__.main())
"""


def test_an_interrupt_within_an_exec_is_not_the_status(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(WITHIN_EXEC, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    assert subprocess.run([sys.executable, "-m", "program"], env=environment, check=False).returncode == 143
