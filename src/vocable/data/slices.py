"""Spans of a source, which are read separately; in a file of JSON lines without reading the lines before."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

from vocable.data.bad_lines import BadLines
from vocable.data.kinds import Kind
from vocable.data.read import open_source, records
from vocable.data.sources import BUFFER, Stream, bounded_lines, numbered, parse_source
from vocable.fingerprint import DERIVED, fingerprint
from vocable.storage import StrPath

T = TypeVar("T")


class Span(NamedTuple):
    """`size` records after the first `before` records of a source.

    In an uncompressed file of JSON lines they are the bytes from `start` to `end`, beginning with line `line`; for
    other sources these are 0. `digest` identifies the bytes, or the local files of the source.
    """

    before: int
    size: int
    start: int
    end: int
    line: int
    digest: str


def absolute(source: StrPath) -> str:
    """Return a source with absolute paths, for processes in other folders.

    >>> absolute("hf:a/b#train"), absolute("beir:/data/scifact#train")
    ('hf:a/b#train', 'beir:/data/scifact#train')
    """
    scheme, name, split = parse_source(str(source))
    if scheme in DERIVED:
        return f"{scheme}:" + absolute(str(source).removeprefix(f"{scheme}:"))
    if scheme not in (None, "beir"):
        return str(source)
    return ("beir:" if scheme else "") + str(Path(name).resolve()) + (f"#{split}" if split else "")


def cut(source: str, kind: Kind[T], size: int, spans: int, bad: BadLines) -> list[Span]:
    """Divide a source into `spans` spans of whole parts of `size` records; with too few records some are empty.

    In a file of JSON lines the records are the lines, including bad ones.
    """
    stream = open_source(source, kind)
    marks = _line_marks(stream.lines, size) if stream.lines else _record_marks(stream, kind, size, bad)
    bounds = [marks[number * (len(marks) - 1) // spans] for number in range(spans + 1)]
    found = [
        Span(before, after - before, start, end, line, "")
        for (before, start, line), (after, end, _) in pairwise(bounds)
    ]
    return [span._replace(digest=digest(source, kind, span)) for span in found]


def _line_marks(path: Path, size: int) -> list[tuple[int, int, int]]:
    """Return the start of each part of a file, and the end: records before it, byte and line."""
    marks, before, byte, number = list[tuple[int, int, int]](), 0, 0, 0
    with path.open("rb", buffering=BUFFER) as file:
        for number, line in enumerate(bounded_lines(file), start=1):
            if line.strip():
                if before % size == 0:
                    marks.append((before, byte, number))
                before += 1
            byte += len(line)
    return [*marks, (before, byte, number + 1)]


def _record_marks(stream: Stream, kind: Kind[T], size: int, bad: BadLines) -> list[tuple[int, int, int]]:
    """Return the same for other sources, without bytes and lines."""
    count = sum(1 for _ in records(stream, kind, bad))
    return [(before, 0, 0) for before in (*range(0, count, size), count)]


def digest(source: str, kind: Kind[T], span: Span) -> str:
    """Return the current digest of a span."""
    path = open_source(source, kind).lines
    if path is None:
        return fingerprint(source)
    found, left = blake2b(digest_size=8), span.end - span.start
    with path.open("rb") as file:
        file.seek(span.start)
        while left and (block := file.read(min(left, BUFFER))):
            found.update(block)
            left -= len(block)
    return found.hexdigest()


def has_changed(source: str, kind: Kind[T], spans: list[Span], number: int) -> bool:
    """Return whether a span has changed since the source was divided, or the file has grown."""
    path = open_source(source, kind).lines
    grown = path is not None and path.stat().st_size != spans[-1].end
    return grown or digest(source, kind, spans[number]) != spans[number].digest


def read_span(source: str, kind: Kind[T], span: Span, bad: BadLines) -> Iterator[T]:
    """Yield the records of a span; `bad` counts the bad lines of the span."""
    stream = open_source(source, kind)
    if (path := stream.lines) is not None:

        def lines() -> Iterator[bytes]:
            with path.open("rb", buffering=BUFFER) as file:
                file.seek(span.start)
                following, left = bounded_lines(file), span.end - span.start
                while left and (line := next(following, b"")):
                    yield line
                    left -= len(line)

        yield from records(stream._replace(items=numbered(lines, stream.source, span.line)), kind, bad)
        return
    found = records(stream, kind, bad)
    next(islice(found, span.before, span.before), None)
    bad.clear()
    yield from islice(found, span.size)
