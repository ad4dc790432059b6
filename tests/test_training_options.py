"""Options of trainings that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from vocable.errors import ArgumentError
from vocable.tuning.tune import tune


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"minutes": 0}, "minutes"),
        ({"minutes": float("nan")}, "minutes"),
        ({"seed": -1}, "seed"),
        ({"teachers": ["m"]}, "teachers"),
        ({"teacher": "m"}, "teacher"),
    ],
)
def test_options_that_cannot_be_are_known_at_once(options: dict, says: str, tmp_path: Path) -> None:
    with pytest.raises((ArgumentError, TypeError), match=says):
        tune("/no/such/model", "/no/such/corpus", tmp_path / "out", **options)
    assert not [*tmp_path.iterdir()]
