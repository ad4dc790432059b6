"""Printed JSON and text."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_program import error_line
from vocable.cli import main
from vocable.cli.output import print_json, show


def test_numbers_that_json_has_not_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    inf, nan = float("inf"), float("nan")
    print_json({"a": [inf, -inf, (nan, 1.5)], "b": {"c": nan}, "d": True})
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert found == {"a": [None, None, [None, 1.5]], "b": {"c": None}, "d": True}


def test_what_a_terminal_would_obey_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show(["a\x1b[31m\nb\u202e\x9b"])
    print_json({"a": "\x1b\x9b\u202e\U000e0001é"})
    printed = capsys.readouterr().out
    assert printed.splitlines()[:2] == ["a\\x1b[31m", "b\\u202e\\x9b"]
    assert "\\u001b\\u009b\\u202e\\udb40\\udc01é" in printed
    assert json.loads(printed.split("\n", 2)[2]) == {"a": "\x1b\x9b\u202e\U000e0001é"}
    assert main(["explain", "no/\x1b[31mmodel", "q"]) == 2
    assert "no/\\x1b[31mmodel" in error_line(capsys)
