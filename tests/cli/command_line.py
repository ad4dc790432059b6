"""The command line as tests call it."""

from __future__ import annotations

import re

import pytest

from vocable.cli import main


def done(capsys: pytest.CaptureFixture[str], *arguments: object, warning: str = "") -> str:
    """Run a command that succeeds with nothing on stderr but a `warning`, and return what it prints on stdout."""
    capsys.readouterr()
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    # Libraries that were imported before show bars; a training says how long it took and how well it did.
    outcome = r"held.out|train: [\d,]+ steps?, [\d.]+ minutes: loss"
    said = "".join(one for one in captured.err.split("\n") if "\r" not in one and not re.search(outcome, one))
    assert (status, bool(said)) == (0, bool(warning)), captured.err
    assert warning in said
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command that ends with status 2 and nothing on stdout, and return its one line on stderr."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = [line for line in captured.err.splitlines() if "\r" not in line]
    return line
