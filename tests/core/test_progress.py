"""Progress: nothing for quick work, a bar with the counts on a terminal, and lines of a log elsewhere."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from io import StringIO
from time import sleep

import pytest
from rich.console import Console

from vocable.core import progress as module
from vocable.core.progress import StagedProgress, _Clock, progress, without_progress


def shown(patience: float, total: int | None, monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True) -> str:
    monkeypatch.setattr(module, "BAR_DELAY", patience)
    screen = StringIO()
    console = Console(file=screen, force_terminal=terminal, width=80, color_system=None)
    with progress("encode", total, console=console) as advance:
        advance(3)
        sleep(0.3 if patience < 1 else 0)
        advance(4)
    return screen.getvalue()


def test_quick_work_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(60, 10, monkeypatch) == ""


def test_a_bar_counts_the_items(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = shown(0.01, 10, monkeypatch)
    assert "encode" in bar
    assert "3/10" in bar
    assert "7/10" in bar


@pytest.mark.parametrize("figures", ["loss 0.5", "loss 0.5 grad_norm 12.5 learning_rate 1.2e-05 document_terms 123.4"])
def test_a_narrow_terminal_cuts_figures_but_not_step_total_and_time(
    figures: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BAR_DELAY", 0.01)
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    with progress("train", 1600, console=console) as advance:
        advance(1200, more=figures)
        sleep(0.3)
    lines = [line for line in re.split(r"[\r\n]|\x1b\[[0-9?]*[A-Za-z]", screen.getvalue()) if "train" in line]
    assert lines
    assert all("1200/1600" in line and re.search(r"\d:\d\d:\d\d|-:--:--", line) for line in lines)
    assert max(map(len, lines)) <= 80
    assert all(figures[:8] in line for line in lines)
    assert any(line.rstrip().endswith("…") for line in lines) == (len(figures) > 30)


def test_an_unknown_total_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "7/?" in shown(0.01, None, monkeypatch)


def test_a_file_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(0.01, 10, monkeypatch, terminal=False) == ""


def test_an_error_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError), progress("encode", console=Console(file=StringIO(), force_terminal=True)):
        raise KeyError


def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, total: int | None) -> list[str]:
    monkeypatch.setattr(module, "INTERVAL", 0.05)
    with caplog.at_level(logging.INFO), progress("encode", total, console=Console(file=StringIO())) as advance:
        advance(1000, more="loss 0.5")
        with progress("inner", 10, console=Console(file=StringIO())) as inner:
            inner(1)
            sleep(0.3)
    sleep(0.1)
    return caplog.messages


def test_a_file_gets_a_line_from_time_to_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = logged(caplog, monkeypatch, 4000)
    assert 2 <= len(lines) <= 6
    assert all(line.startswith("encode: 1,000 of 4,000 (25%)") for line in lines)
    assert "less than a minute left, loss 0.5" in lines[0]


def test_the_time_that_is_left_follows_the_rate_of_this_run(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier run did 9,000 steps; this run did 1 in 0.3 seconds or more, and 999 are left."""
    monkeypatch.setattr(module, "INTERVAL", 0.5)
    with caplog.at_level(logging.INFO), progress("index", 10_000, begun=9_000, console=Console(file=StringIO())) as go:
        sleep(0.3)
        go(1)
        sleep(0.4)
    assert re.fullmatch(r"index: 9,001 of 10,000 \(90%\) after \d s, ([5-9]|1\d) minutes left", caplog.messages[0])


def later(stages: StagedProgress, stage: str, seconds: float, share: float) -> float:
    stages.begin(stage)
    return stages.later(seconds, share)


def test_later_stages_take_their_time_at_the_rate_of_this_run() -> None:
    """A machine twice as slow as planned: half of the training took 300 s, so the other 50 planned seconds take 100."""
    stages = StagedProgress({"train": 300.0, "export": 20.0, "after": 30.0})
    assert later(stages, "train", 300.0, 0.5) == pytest.approx(100.0)
    stages.add(600.0, 1.0)
    assert later(stages, "export", 0.0, 0.0) == pytest.approx(60.0)
    stages.add(40.0, 1.0)
    assert later(stages, "after", 10.0, 0.5) == 0.0
    assert stages.title("encode") == "encode (stage 3 of 3)"


def test_a_stage_of_several_progresses_is_done_once() -> None:
    """Its queries took 100 s and its documents 500: the same for the 10 planned seconds of the later stage."""
    stages = StagedProgress({"before": 10.0, "after": 10.0})
    stages.begin("before")
    stages.add(100.0, 1.0)
    assert later(stages, "before", 500.0, 1.0) == pytest.approx(600.0)
    stages.add(500.0, 1.0)
    assert later(stages, "after", 0.0, 0.0) == 0.0
    assert stages.from_here(0.0) == pytest.approx(600.0)


def test_a_stage_that_has_just_begun_takes_its_planned_time_at_the_rate_of_this_run() -> None:
    stages = StagedProgress({"train": 300.0, "export": 20.0, "after": 30.0})
    stages.begin("train")
    assert stages.from_here(10.0) is None  # nothing is known yet
    stages.add(600.0, 1.0)
    stages.begin("export")
    assert stages.from_here(10.0) == pytest.approx(90.0)
    assert stages.from_here(200.0) == 0.0


def test_a_stage_that_an_earlier_run_did_does_not_count_for_the_rate() -> None:
    stages = StagedProgress({"train": 300.0, "export": 20.0, "after": 30.0})
    stages.begin("train")  # it is finished, and shows no progress
    assert later(stages, "export", 0.0, 0.0) == 0.0  # nothing is known yet
    assert later(stages, "export", 30.0, 1.0) == pytest.approx(45.0)


def test_the_time_that_is_left_falls_within_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of ten steps took 20 seconds each: 140 are left, fewer each second, and more if the fourth takes longer."""
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    clock = _Clock(10, 0)
    for seconds in (20.0, 40.0, 60.0):
        now = seconds
        clock.advance(1, None)
    found = list[float | None]()
    for seconds in (60.0, 65.0, 80.0, 100.0):
        now = seconds
        found.append(clock.left)
    # At 100 seconds the fourth step takes 40, and a step 25 at least: six more are left when it ends.
    assert found == [140.0, 135.0, 120.0, 150.0]


def test_the_time_left_is_never_longer_than_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    with StagedProgress({"train": 100.0, "after": 10.0}, limit=300.0) as stages:
        stages.begin("train")
        clock = _Clock(10, 0)
        now = 50.0
        clock.advance(1, None)
        assert clock.left == 250.0  # of 450 and 50
        now = 299.0
        assert clock.left == 1.0
        now = 301.0  # there is no limit any more
        assert clock.left is not None
        assert clock.left > 1000


def test_the_time_left_is_of_the_whole_command(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.2)
    with (
        caplog.at_level(logging.INFO),
        StagedProgress({"train": 1.0, "after": 999.0}) as stages,
        StagedProgress({"a": 1, "b": 1}),
    ):
        stages.begin("train")
        with progress("train", 10, console=Console(file=StringIO())) as advance:
            sleep(0.1)
            advance(5)
            sleep(0.3)
    # Half of a stage that has a thousandth of the work took a tenth of a second or more: 200 s or more in all.
    assert re.fullmatch(
        r"train \(stage 1 of 2\): 5 of 10 \(50%\) after 0 s, ([3-9]|1\d) minutes left in all", caplog.messages[0]
    )
    assert StagedProgress._current is None


def test_a_total_may_change(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.1)
    with caplog.at_level(logging.INFO), progress("train", 40, console=Console(file=StringIO())) as advance:
        advance(5, total=10)
        sleep(0.25)
    assert caplog.messages[0].startswith("train: 5 of 10 (50%)")


def test_a_bar_begins_at_the_steps_of_an_earlier_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BAR_DELAY", 0.01)
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    with progress("index", 10, begun=6, console=console) as advance:
        advance(1)
        sleep(0.3)
    assert "7/10" in screen.getvalue()


def test_lines_without_a_total(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert logged(caplog, monkeypatch, None)[0].startswith("encode: 1,000 after ")


def test_no_line_for_quick_work_nor_within_without_progress(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.INFO):
        assert shown(60, 10, monkeypatch, terminal=False) == ""
        with without_progress():
            assert logged(caplog, monkeypatch, 4000) == []


def test_the_command_line_prints_the_lines() -> None:
    program = (
        "import time; from vocable import cli; from vocable.core import progress\n"
        "cli.silence(); progress.INTERVAL = 0.1\n"
        "for _ in progress.track(range(3), 'index'): time.sleep(0.2)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "vocable: index: 1 of 3 (33%)" in done.stderr
    plain = program.replace("cli.silence(); ", "")
    assert subprocess.run([sys.executable, "-c", plain], capture_output=True, text=True, check=True).stderr == ""
