"""Spans of a source, which are read separately; in a file of JSON lines without reading the lines before."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

from vocable.core.fingerprint import DERIVED, fingerprint
from vocable.core.storage import StrPath
from vocable.data.bad_lines import BadLines
from vocable.data.kinds import Kind
from vocable.data.read import open_source, records
from vocable.data.sources import BUFFER, bounded_lines, numbered, parse_source

T = TypeVar("T")

WHOLE_PARTS = 10  # of a span: whole parts then differ by a tenth at most


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
    """Divide a source into `spans` spans of equally many records, with a difference of at most one.

    If each span has at least `WHOLE_PARTS` parts of `size` records, spans consist of whole parts instead. In a file of
    JSON lines the records are the lines, including bad ones.
    """
    stream = open_source(source, kind)
    if stream.lines is None:
        count = sum(1 for _ in records(stream, kind, bad))
        marks = [(bound, 0, 0) for bound in _bounds(count, size, spans)]
    else:
        with stream.lines.open("rb", buffering=BUFFER) as file:
            count = sum(1 for line in bounded_lines(file) if line.strip())
        marks = _line_marks(stream.lines, _bounds(count, size, spans))
    pairs = pairwise(marks)
    cuts = [Span(before, after - before, start, end, line, "") for (before, start, line), (after, end, _) in pairs]
    return [span._replace(digest=digest(source, kind, span)) for span in cuts]


def _bounds(count: int, size: int, spans: int) -> list[int]:
    """Return the first record of each span, and the number of records.

    >>> _bounds(1500, 2048, 4), _bounds(85, 4, 2)
    ([0, 375, 750, 1125, 1500], [0, 44, 85])
    """
    if count < WHOLE_PARTS * size * spans:
        return [number * count // spans for number in range(spans + 1)]
    parts = -(-count // size)
    return [min(count, number * parts // spans * size) for number in range(spans + 1)]


def _line_marks(path: Path, bounds: list[int]) -> list[tuple[int, int, int]]:
    """Return for each bound the records before it, its byte and its line."""
    marks, before, byte, number = dict[int, tuple[int, int, int]](), 0, 0, 0
    wanted = set(bounds)
    with path.open("rb", buffering=BUFFER) as file:
        for number, line in enumerate(bounded_lines(file), start=1):
            if line.strip():
                if before in wanted:
                    marks[before] = before, byte, number
                before += 1
            byte += len(line)
    end = before, byte, number + 1
    return [marks.get(bound, end) for bound in bounds]


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
