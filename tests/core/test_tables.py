"""Tables fit a terminal; a pipe gets everything; ids are never cut."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.cli.output import print_json
from vocable.collection.records import Answer, Hit
from vocable.core.tables import Table, line_width, text_width, wrapped
from vocable.data import Document, Query

ID = "collections.abc/" + "a-very-long-name-" * 6 + "end"
TEXT = "one two three four five six seven eight nine ten " * 20 + "last"
HIT = Hit(1, 0.5, Document(ID, TEXT, "a title of its own", {"path": "x/" * 90 + "y"}))
MEASURES = [f"a-measure-{number}" for number in range(20)]
TABLE = Table("", ["system", *MEASURES], [[ID, *("0.1234",) * 20]])


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("url", ["https://x.org/a", "https://x.org/" + "long/" * 40 + "#anchor"])
def test_an_address_stands_first_and_whole(monkeypatch: pytest.MonkeyPatch, columns: int, url: str) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    fields = {"file": "x/" * 90, "url": url, "page": 1}
    address, others = str(Hit(1, 0.5, Document("d", "text", "", fields))).splitlines()[-2:]
    assert address.strip() == url
    assert others.strip().startswith("file: x/x/")
    assert (len(others), others[-1]) == (columns, "…")


def test_a_table_in_a_pipe_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    text = Answer(Query("1", "question"), (HIT,)).printed(full=True)
    assert "…" not in text
    assert f"{ID} a title of its own\n" in text
    assert " ".join(TEXT.split()) in text
    assert str(TABLE).count(ID) == 1
    assert len(str(TABLE).splitlines()) == 3


@pytest.mark.parametrize("columns", [5, 40, 80, 150])
def test_a_terminal_gets_lines_of_its_width_and_whole_ids(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert (line_width(), text_width()) == (columns, min(columns, 80))
    first, *others = str(HIT).splitlines()
    assert ID in first
    assert all(len(line) <= max(columns, 34) for line in others)
    assert "…" in others[0]
    shown = str(TABLE)
    parts = shown.split("\n\n")
    assert all(measure in shown for measure in MEASURES)
    assert all(len(line) <= max(columns, 8 + len(" a-measure-10")) for line in shown.splitlines())
    assert "…" not in shown
    for part in parts:  # names break between lines, and no character is lost
        names = (
            re.split(" +0.1234", line)[0] for line in part.splitlines() if "─" not in line and "system" not in line
        )
        assert ID in "".join(name.strip() for name in names)


def test_the_width_is_that_of_the_terminal() -> None:
    program = "from vocable.core.tables import line_width; print(line_width())"
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 9, 123, 0, 0))
    subprocess.run([sys.executable, "-c", program], stdout=terminal, env=environment, check=True)
    os.close(terminal)
    assert os.read(main, 100).split() == [b"123"]
    os.close(main)
    piped = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
    assert int(piped.stdout) > 100_000


def test_json_has_no_number_that_json_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"score": float("inf"), "p": [float("nan"), -float("inf"), 0.5], "ids": ("a", "b")}
    for indent in (None, 2):
        print_json(values, indent=indent)
        found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        assert found == {"score": None, "p": [None, None, 0.5], "ids": ["a", "b"]}


@given(st.lists(st.tuples(st.text("ab \n…", max_size=5), st.booleans()), max_size=8), st.integers(5, 30))
def test_lines_begin_with_words_and_have_single_blanks(parts: list[tuple[str, bool]], width: int) -> None:
    lines = wrapped(parts, width, 2)
    assert len(lines) <= 2
    assert all(line == " ".join(line.split()) and len(line) <= width for line in lines)
