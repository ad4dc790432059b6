"""Calls that are repeated: a noted call is known while its output is as it was, and the settings stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vocable.core.calls import call_digest, made_by, note_call
from vocable.core.storage import finish, finished, resumable

FIRST, SECOND = call_digest({"k": 1}), call_digest({"k": 2})


@pytest.fixture(params=["file", "folder"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A finished output."""
    output = tmp_path / "out"
    with resumable(output, {"a": 1}) as work:
        (work / "result").write_text("as it was", encoding="utf-8")
        finish(work, output, work / "result" if request.param == "file" else work)
    return output


def test_a_noted_call_is_known_and_another_is_not(output: Path) -> None:
    assert not made_by(output, FIRST)
    note_call(output, FIRST)
    assert made_by(output, FIRST)
    assert not made_by(output, SECOND)
    note_call(output, SECOND)
    assert not made_by(output, FIRST)
    assert finished(output, {"a": 1})


def test_a_call_is_noted_once(output: Path) -> None:
    note_call(output, FIRST)
    [file] = [path for path in output.parent.rglob("*settings.json") if "call" in path.read_text(encoding="utf-8")]
    before = file.stat()
    note_call(output, FIRST)
    assert file.stat().st_ino == before.st_ino
    assert json.loads(file.read_text(encoding="utf-8"))["call"] == FIRST


def test_a_changed_or_missing_output_is_not_known(output: Path) -> None:
    note_call(output, FIRST)
    if output.is_file():
        output.write_text("changed", encoding="utf-8")
        assert not made_by(output, FIRST)
    output.rename(output.with_name("elsewhere"))
    assert not made_by(output, FIRST)
