"""Work that may be killed: it is done in `OUTPUT.partial`, and only a whole result is renamed to `OUTPUT`.

`settings.json` in either folder says what is being made, or was: the same command goes on with it, any other is
refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vocable.errors import ArgumentError, VectorsError
from vocable.storage import replacing

SETTINGS = "settings.json"
ANOTHER = "name another output, or remove it"


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


def occupied(output: Path) -> bool:
    """Whether something is there already; an empty folder does not count, since renaming replaces it."""
    return output.exists() and not (output.is_dir() and not any(output.iterdir()))


def refuse_occupied(output: Path) -> None:
    """Raise `ArgumentError` if something is there already."""
    if occupied(output):
        raise ArgumentError(f"{output} is already there: {ANOTHER}")


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
