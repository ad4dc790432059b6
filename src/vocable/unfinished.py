"""Work that may be killed: it is done in `OUTPUT.partial`, and only a whole result is renamed to `OUTPUT`.

`settings.json` in either folder says what is being made, or was: the same command goes on with it, any other is
refused.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from vocable.errors import ArgumentError, VectorsError
from vocable.storage import ANOTHER as ANOTHER
from vocable.storage import occupied as occupied
from vocable.storage import refuse_occupied as refuse_occupied
from vocable.storage import replacing

SETTINGS = "settings.json"
RECIPE = "recipe.json"  # in place of settings, of a training


def partial_of(output: Path) -> Path:
    """Where the work on `output` is done, beside it.

    >>> partial_of(Path("indexes/python/")).as_posix()
    'indexes/python.partial'

    Raises:
        ArgumentError: the output has no name of its own, as ".".
    """
    if output.name in ("", ".."):
        raise ArgumentError(f"{output} cannot be an output: name a folder that is not there yet")
    return output.with_name(f"{output.name}.partial")


def refuse_taken(output: Path) -> None:
    """Raise `ArgumentError` if something is there already, or if another command has begun to make it.

    For commands that do their work at once: those that can go on with theirs `claim` it.
    """
    refuse_occupied(output)
    work = partial_of(output)
    if any((work / name).exists() for name in (SETTINGS, RECIPE)):
        raise ArgumentError(
            f"{work} is the unfinished work of another command: finish or remove it, or name another output"
        )


def claim(work: Path, settings: dict[str, Any]) -> None:
    """Make `work` the folder of the run with these settings (JSON values), or go on with that run.

    Raises:
        ArgumentError: it is the folder of another run, or of something else.
        VectorsError: its settings cannot be read.
    """
    work.mkdir(parents=True, exist_ok=True)
    # A file with a dot in front is one that was being written when an earlier run was killed.
    if (work / SETTINGS).exists() or any(not path.name.startswith(".") for path in work.iterdir()):
        check_settings(work, settings)
    else:
        write_json(work / SETTINGS, settings)


def check_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Make sure that `folder` is of the run with these settings; errors are those of `claim`."""
    if not (folder / SETTINGS).is_file():
        raise ArgumentError(f"{folder} is already there and something else: {ANOTHER}")
    found = read_json(folder / SETTINGS)
    others = [key for key in sorted(settings.keys() | found.keys()) if found.get(key) != settings.get(key)]
    if others:
        raise ArgumentError(f"{folder} was made with other settings ({', '.join(others)}): {ANOTHER}")


def clear_up(work: Path, settings: dict[str, Any]) -> None:
    """Remove `work` if it is empty or the folder of the run with these settings; any other is left as it is."""
    try:
        if work.is_dir() and not occupied(work):
            work.rmdir()
        check_settings(work, settings)
    except (ArgumentError, VectorsError):
        return
    for path in work.iterdir():  # the settings last: until then it can be told whose it is
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != SETTINGS:
            path.unlink(missing_ok=True)
    shutil.rmtree(work, ignore_errors=True)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; raises `VectorsError` if it is damaged."""
    try:
        values = json.loads(path.read_bytes())
    except ValueError as error:
        raise VectorsError(f"{path}: damaged: {error}") from error
    if not isinstance(values, dict):
        raise VectorsError(f"{path}: damaged: not a JSON object")
    return values


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write a JSON object, whole or not at all."""
    with replacing(path) as file:
        file.write(as_json(values))


def as_json(values: dict[str, Any]) -> bytes:
    """The content of a file that `read_json` reads."""
    return json.dumps(values, indent=2, ensure_ascii=False).encode()
