"""A study that is killed at each of its stages ends with the cells of a whole run; `kills.py` does all four."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.studies.kills import kill_each_stage
from tests.studies.test_plan import study_of


@pytest.mark.usefixtures("quiet_libraries")
def test_a_study_that_is_killed_at_each_stage_has_the_same_cells(tmp_path: Path) -> None:
    study = study_of("wacky_weights")
    exhibit = replace(study.exhibits["figure-2"], rows={"wacky-weights": "v2"}, models=[])
    killed = kill_each_stage(replace(study, exhibits={"figure-2": exhibit}), tmp_path)
    reached = {one.partition(" ")[2] for one in killed}
    assert reached >= {"train", "encode_stream", "measure_wackiness", "ablate", "write_kept"}
    assert len(killed) >= 10
