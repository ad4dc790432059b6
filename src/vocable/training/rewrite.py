"""Examples in, examples out, one JSON line each: long work that goes on where it was killed.

OUTPUT.partial/settings.json    what is being made
OUTPUT.partial/lines.jsonl      what has been written
OUTPUT.partial/progress.json    how much of it counts
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from vocable.data import Example
from vocable.errors import DataError, VectorsError
from vocable.progress import progress
from vocable.unfinished import ANOTHER, claim, partial_of, read_json, refuse_occupied, write_json

CHUNK = 256  # examples that are worked on together, and lost at most
LINES, DONE = "lines.jsonl", "progress.json"

Change = Callable[[list[Example]], list[Example]]


@dataclass
class Rewritten:
    """How many examples were read and written, and how many negatives those written have; all runs together."""

    read: int = 0
    written: int = 0
    negatives: int = 0
    size: int = 0  # bytes of the lines that count
    checksum: int = 0  # of the examples that were read


def rewrite(
    examples: Callable[[], Iterable[Example]],
    output: Path,
    settings: dict[str, Any],
    prepare: Callable[[Path], Change],
    *,
    title: str,
) -> Rewritten:
    """Write what becomes of the examples as JSON lines, going on where an earlier call with the same settings stopped.

    Args:
        examples: starts their stream.
        output: the file; there only when it is whole.
        settings: all that decides the result, as JSON values.
        prepare: given the folder of the work, which it may keep things in, gives what changes some examples in a row;
            it may leave examples out.
        title: of the progress bar.

    Raises:
        ArgumentError: the output is there already, or the work in progress was begun with other settings.
        DataError: there is no example.
        VectorsError: the work in progress was begun with other examples, or is damaged.
    """
    refuse_occupied(output)
    work = partial_of(output)
    claim(work, settings)
    done = _read_progress(work)
    stream = iter(examples())
    _skip(stream, done, work)
    change = prepare(work)
    with progress(title) as advance, (work / LINES).open("ab") as file:
        file.truncate(done.size)
        advance(done.read)
        while chunk := list(islice(stream, CHUNK)):
            changed = change(chunk)
            file.write(b"".join(example.line for example in changed))
            file.flush()
            os.fsync(file.fileno())
            done.read += len(chunk)
            done.written += len(changed)
            done.negatives += sum(len(example.negatives) for example in changed)
            done.size, done.checksum = file.tell(), _checksum(chunk, done.checksum)
            write_json(work / DONE, asdict(done))
            advance(len(chunk))
    if not done.read:
        shutil.rmtree(work)
        raise DataError("there is no example")
    os.replace(work / LINES, output)
    shutil.rmtree(work)
    return done


def _read_progress(work: Path) -> Rewritten:
    if not (work / DONE).exists():
        return Rewritten()
    try:
        return Rewritten(**read_json(work / DONE))
    except TypeError as error:
        raise VectorsError(f"{work / DONE}: damaged: {error}") from error


def _skip(stream: Iterator[Example], done: Rewritten, work: Path) -> None:
    """Pass over what is done already, and make sure that it is what was done."""
    if _checksum(islice(stream, done.read), 0) != done.checksum:
        raise VectorsError(f"{work} was begun with other examples: {ANOTHER}")


def _checksum(examples: Iterable[Example], start: int) -> int:
    for example in examples:
        start = zlib.crc32(example.line, start)
    return start
