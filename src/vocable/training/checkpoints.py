"""Which checkpoint a killed run goes on from."""

from __future__ import annotations

import json
import re
from pathlib import Path

NAME = re.compile(r"checkpoint-(\d+)")
WRITTEN_LAST = "trainer_state.json"


def last_checkpoint(folder: Path, then: str | None = None) -> str | None:
    """The newest whole checkpoint of the host trainer in `folder`; None if there is none.

    The trainer writes into a checkpoint's folder under its final name, so that a kill can leave half of one behind. Its
    state is written last: a checkpoint that has it, readable, is whole.

    Args:
        then: a file that we write after it, all at once, where there is one.
    """
    steps = {
        int(found[1]): path for path in folder.glob("checkpoint-*") if (found := NAME.fullmatch(path.name)) is not None
    }
    whole = (str(steps[step]) for step in sorted(steps, reverse=True) if _is_whole(steps[step], then))
    return next(whole, None)


def _is_whole(checkpoint: Path, then: str | None) -> bool:
    try:
        json.loads((checkpoint / WRITTEN_LAST).read_bytes())
    except (OSError, ValueError):
        return False
    return then is None or (checkpoint / then).exists()
