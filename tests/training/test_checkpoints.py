"""Which checkpoint counts: the newest that a kill did not leave half-written."""

from __future__ import annotations

from pathlib import Path

import pytest

from vocable.training.trainer import last_checkpoint


def checkpoint(folder: Path, step: int, state: str | None) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    if state is not None:
        (path / "trainer_state.json").write_text(state, encoding="utf-8")
    return path


def test_the_highest_step_wins_not_the_highest_name(tmp_path: Path) -> None:
    checkpoint(tmp_path, 800, "{}")
    newest = checkpoint(tmp_path, 1000, "{}")
    checkpoint(tmp_path, 900, "{}")
    assert last_checkpoint(tmp_path) == str(newest)


@pytest.mark.parametrize("state", [None, "", '{"global_step": 1'])
def test_half_a_checkpoint_does_not_count(tmp_path: Path, state: str | None) -> None:
    whole = checkpoint(tmp_path, 2, "{}")
    checkpoint(tmp_path, 4, state)
    assert last_checkpoint(tmp_path) == str(whole)


def test_what_is_written_after_the_trainer_s_state_counts_too(tmp_path: Path) -> None:
    whole, newest = checkpoint(tmp_path, 2, "{}"), checkpoint(tmp_path, 4, "{}")
    (whole / "more").touch()
    assert last_checkpoint(tmp_path, "more") == str(whole)
    (newest / "more").touch()
    assert last_checkpoint(tmp_path, "more") == str(newest)


def test_without_a_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path / "missing") is None
    (tmp_path / "checkpoint-of-mine").mkdir()
    assert last_checkpoint(tmp_path) is None
