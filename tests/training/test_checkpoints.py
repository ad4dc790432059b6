"""Which checkpoint counts: the newest that was on disk, with all its files, when it was marked."""

from __future__ import annotations

from pathlib import Path

from vocable.training.callbacks import COMPLETE, last_checkpoint


def checkpoint(folder: Path, step: int, *, marked: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "trainer_state.json").write_text("{}", encoding="utf-8")
    if marked:
        (path / COMPLETE).touch()
    return path


def test_the_highest_step_wins_not_the_highest_name(tmp_path: Path) -> None:
    checkpoint(tmp_path, 800)
    newest = checkpoint(tmp_path, 1000)
    checkpoint(tmp_path, 900)
    assert last_checkpoint(tmp_path) == str(newest)


def test_half_a_checkpoint_does_not_count(tmp_path: Path) -> None:
    whole = checkpoint(tmp_path, 2)
    checkpoint(tmp_path, 4, marked=False)
    assert last_checkpoint(tmp_path) == str(whole)


def test_without_a_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path / "missing") is None
    (tmp_path / "checkpoint-of-mine").mkdir()
    assert last_checkpoint(tmp_path) is None
