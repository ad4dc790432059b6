"""Files of examples that are written again, changed: JSON lines in, JSON lines out, without PyTorch.

Work in progress is in OUTPUT.partial: the lines in lines.jsonl, and their valid size in progress.json.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from vocable.core.progress import progress
from vocable.core.steps import record_so_far
from vocable.core.storage import ANOTHER, finish, finished, resumable, write_record
from vocable.core.tables import counted
from vocable.data import Example
from vocable.errors import DataError, VectorsError

CHUNK = 256  # examples processed together; an interruption loses at most a chunk
LINES, DONE = "lines.jsonl", "progress.json"


@dataclass
class ExampleCounts:
    """Counts of examples read and written, and of negatives written, including interrupted runs."""

    read: int = 0
    written: int = 0
    negatives: int = 0
    size: int = 0  # bytes of the complete lines
    checksum: int = 0  # checksum of the examples read

    @classmethod
    def of(cls, examples: Iterable[Example], output: str | Path) -> ExampleCounts:
        """Count the examples that a finished call has read, and its lines."""
        with Path(output).open("rb") as file:
            negatives = [len(json.loads(line).get("negatives", ())) for line in file]
        return cls(sum(1 for _ in examples), len(negatives), sum(negatives))

    def to_json(self) -> dict[str, int]:
        return {"examples": self.written, "negatives": self.negatives, "left_out": self.read - self.written}

    def __str__(self) -> str:
        left_out = self.read - self.written
        line = f"{counted(self.written, 'example')}, {counted(self.negatives, 'negative')}"
        return f"{line}; left out for too few negatives: {counted(left_out, 'example')}" if left_out else line


def rewrite(
    examples: Callable[[], Iterable[Example]],
    output: str | Path,
    settings: dict[str, object],
    prepare: Callable[[Path], Callable[[list[Example]], list[Example]]],
    *,
    title: str,
) -> ExampleCounts:
    """Write changed examples as JSON lines; an interrupted call resumes when repeated.

    `examples` opens the stream. `prepare` takes the work folder, where it may keep files. It returns a function that
    changes a chunk of examples, and that may leave examples out.
    """
    if finished(output, settings):
        return ExampleCounts.of(examples(), output)
    with resumable(output, settings) as work:
        done = record_so_far(work / DONE, ExampleCounts)
        stream = iter(examples())
        if _checksum(islice(stream, done.read), 0) != done.checksum:
            raise VectorsError(f"{work} was begun with other examples: {ANOTHER}")
        chunk = list(islice(stream, CHUNK))
        if not (chunk or done.read):
            raise DataError("there is no example")
        change = prepare(work)
        with progress(title) as advance, (work / LINES).open("ab") as file:
            file.truncate(done.size)
            advance(done.read)
            while chunk:
                changed = change(chunk)
                file.write(b"".join(example.line for example in changed))
                file.flush()
                os.fsync(file.fileno())
                done.read += len(chunk)
                done.written += len(changed)
                done.negatives += sum(len(example.negatives) for example in changed)
                done.size, done.checksum = file.tell(), _checksum(chunk, done.checksum)
                write_record(work / DONE, done)
                advance(len(chunk))
                chunk = list(islice(stream, CHUNK))
        finish(work, output, work / LINES)
    return done


def _checksum(examples: Iterable[Example], start: int) -> int:
    for example in examples:
        start = zlib.crc32(example.line, start)
    return start
