"""Spans of a source, which are read separately; a span of a file of JSON lines without the lines above it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

from vocable.core.fingerprint import DERIVED, fingerprint
from vocable.core.storage import StrPath
from vocable.data.bad_lines import BadLines
from vocable.data.compressed import BUFFER
from vocable.data.kinds import Kind
from vocable.data.read import open_source, records
from vocable.data.sources import bounded_lines, numbered, parse_source

T = TypeVar("T")

WHOLE_PARTS = 10  # least parts of a span of whole parts: sizes of spans then differ by a tenth at most


class Span(NamedTuple):
    """`size` records after the first `before` records of a source.

    In an uncompressed file of JSON lines, they are the bytes from `start` to `end`, and begin with line `line`; for
    other sources all three are 0. `digest` identifies the bytes, or the local files of the source.
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
    """Divide a source into `spans` spans whose numbers of records differ by at most 1.

    If each span has at least `WHOLE_PARTS` parts of `size` records, spans consist of whole parts instead. In a file of
    JSON lines every line counts as a record, bad lines included. Raises `DataError` for more bad lines than `bad`
    tolerates: now, since the spans of a corrected file are others.
    """
    stream = open_source(source, kind)
    count = sum(1 for _ in records(stream, replace(kind, key=()), bad))
    bad.clear()  # the reader of a span counts its own
    if stream.lines is None:
        marks = [(bound, 0, 0) for bound in _bounds(count, size, spans)]
    else:
        with stream.lines.open("rb", buffering=BUFFER) as file:
            count = sum(1 for line in bounded_lines(file) if line.strip())
        marks = _line_marks(stream.lines, _bounds(count, size, spans))
    pairs = pairwise(marks)
    cuts = [
        Span(before=first, size=last - first, start=start, end=end, line=line, digest="")
        for (first, start, line), (last, end, _) in pairs
    ]
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
    """Return the number of records before each bound, its byte and its line."""
    marks, count, byte, number = dict[int, tuple[int, int, int]](), 0, 0, 0
    wanted = set(bounds)
    with path.open("rb", buffering=BUFFER) as file:
        for number, line in enumerate(bounded_lines(file), start=1):
            if line.strip():
                if count in wanted:
                    marks[count] = count, byte, number
                count += 1
            byte += len(line)
    end = count, byte, number + 1
    return [marks.get(bound, end) for bound in bounds]


def digest(source: str, kind: Kind[T], span: Span) -> str:
    """Return the current digest of a span."""
    path = open_source(source, kind).lines
    if path is None:
        return fingerprint(source)
    hashed, left = blake2b(digest_size=8), span.end - span.start
    with path.open("rb") as file:
        file.seek(span.start)
        while left and (block := file.read(min(left, BUFFER))):
            hashed.update(block)
            left -= len(block)
    return hashed.hexdigest()


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
    all_records = records(stream, kind, bad)
    next(islice(all_records, span.before, span.before), None)
    bad.clear()
    yield from islice(all_records, span.size)
