"""Kill a study on toys before and after each of its stages, repeat it, and compare all cells with a whole run.

python -m tests.studies.kills wacky_weights --only table-2 --only 'v2*' -o OUT
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from studies import measurements, runs, vectors
from studies.common import reproduce, silence_libraries
from studies.plan import Study

STAGES = (
    (runs, "carry_out_stages"),  # adaptation, with the pre-training
    (runs, "finish"),
    (runs, "with_prepared_examples"),
    (runs, "train"),
    (vectors, "encode_stream"),
    (vectors, "save_exact"),
    (vectors, "embed"),
    (measurements, "evaluate_run"),
    (measurements, "measure_wackiness"),
    (measurements, "ablate"),
    (runs, "write_kept"),
)


def kill_each_stage(study: Study, folder: Path, only: Sequence[str] = ()) -> list[str]:
    """Return the kills that happened; raise `AssertionError` if a cell differs from that of a whole run."""
    killed: list[str] = []

    def kill_once(moment: str) -> None:
        if moment not in killed:
            killed.append(moment)
            raise KeyboardInterrupt

    def fragile(name: str, original: Any) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            kill_once(f"before {name}")
            found = original(*given, **options)
            kill_once(f"after {name}")
            return found

        return call

    with ExitStack() as stack:
        for module, name in STAGES:
            stack.enter_context(patch.object(module, name, fragile(name, getattr(module, name))))
        found = None
        while found is None:
            with suppress(KeyboardInterrupt):
                found = reproduce(study, folder / "killed", only=only, toy=True)
    assert not found.failed
    assert not reproduce(study, folder / "whole", only=only, toy=True).failed
    one, two = (json.loads((folder / output / "results.json").read_text())["cells"] for output in ("killed", "whole"))
    assert one == two
    return killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    silence_libraries()
    study = import_module(f"studies.{given.study}.__main__").STUDY
    killed = kill_each_stage(study, given.output, given.only)
    print(f"{given.study}: killed {len(killed)} times ({', '.join(killed)}): all cells are those of a whole run")


if __name__ == "__main__":
    sys.exit(main())
