"""Steps of work that resumes: carried out once, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from vocable.core.steps import array_once, made_once, record_once, record_so_far


def test_a_file_is_made_by_the_first_run_alone(tmp_path: Path) -> None:
    path, calls = tmp_path / "made", list[int]()

    def make() -> None:
        calls.append(len(calls))
        path.write_text("text")

    assert [made_once(path, make) for _ in range(3)] == [path] * 3
    assert calls == [0]


def test_a_record_and_an_array_are_computed_by_the_first_run_alone(tmp_path: Path) -> None:
    for number in (1, 2):
        assert record_once(tmp_path / "deep" / "n.json", dict[str, int], lambda: {"n": number}) == {"n": 1}  # noqa: B023
        array = array_once(tmp_path / "n.npy", lambda: np.full((2, 3), number, np.float32))  # noqa: B023
        assert_array_equal(array, np.ones((2, 3), np.float32))
        assert array.dtype == np.float32


def test_counts_begin_at_nothing_and_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    assert record_so_far(path, dict[str, int]) == {}
    path.write_text('{"n": 3}')
    assert record_so_far(path, dict[str, int]) == {"n": 3}


def test_a_step_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> np.ndarray:
        raise OSError("killed")

    for step in (record_once, array_once):
        with pytest.raises(OSError, match="killed"):
            step(tmp_path / "x", *([dict] if step is record_once else []), fail)  # type: ignore[operator]
    assert list(tmp_path.iterdir()) == []
