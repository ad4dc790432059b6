"""The progress bar: nothing for quick work, nothing where nobody looks, and the counts where somebody does."""

from __future__ import annotations

from io import StringIO
from time import sleep

import pytest
from rich.console import Console

from vocable import progress as module
from vocable.progress import progress


def shown(patience: float, total: int | None, monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True) -> str:
    monkeypatch.setattr(module, "PATIENCE", patience)
    screen = StringIO()
    console = Console(file=screen, force_terminal=terminal, width=80, color_system=None)
    with progress("encode", total, console=console) as advance:
        advance(3)
        sleep(0.3 if patience < 1 else 0)
        advance(4)
    return screen.getvalue()


def test_quick_work_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(60, 10, monkeypatch) == ""


def test_a_bar_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = shown(0.01, 10, monkeypatch)
    assert "encode" in bar
    assert "3/10" in bar
    assert "7/10" in bar


def test_an_unknown_total_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "7/?" in shown(0.01, None, monkeypatch)


def test_a_file_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(0.01, 10, monkeypatch, terminal=False) == ""


def test_an_error_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError), progress("encode", console=Console(file=StringIO(), force_terminal=True)):
        raise KeyError
