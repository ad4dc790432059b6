"""From a place (one string) to a source: numbered raw items and how to read one.

From a file to numbered raw items: lines as bytes, or the rows of a Parquet file.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq

from vocable.data.schemas import DOCUMENT, JUDGMENT, QUERY, Kind, Parser, Row, mapping_row
from vocable.errors import DataError, require_extra

T = TypeVar("T")
COMPRESSION = {".gz": "gzip", ".zst": "zstd"}
BUFFER = 1 << 18  # bytes
ROWS = 1024  # Parquet rows turned into Python objects at a time


def split_extension(path: Path) -> tuple[str, str]:
    """The format's extension and the compression's, both lower-case.

    >>> split_extension(Path("corpus.TSV.gz")), split_extension(Path("corpus"))
    (('.tsv', '.gz'), ('', ''))
    """
    compression = path.suffix.lower() if path.suffix.lower() in COMPRESSION else ""
    inner = path.with_suffix("") if compression else path
    return inner.suffix.lower(), compression


def file_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, decompressed, each with its number from 1 and its line end."""
    with _opened(path) as stream:
        yield from enumerate(stream, start=1)


def stdin_lines() -> Iterator[tuple[int, bytes]]:
    """The lines of standard input."""
    yield from enumerate(sys.stdin.buffer, start=1)


def parquet_rows(path: Path, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a Parquet file, numbered from 1; of its columns only those named."""
    with _opened(path) as stream, _seekable(stream, path) as file, pq.ParquetFile(file) as table:
        wanted = [name for name in table.schema_arrow.names if name in set(columns)]
        batches = table.iter_batches(batch_size=ROWS, columns=wanted)
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)


def guarded(items: Iterable[tuple[int, T]], place: str) -> Iterator[tuple[int, T]]:
    """The same items; what goes wrong while they are fetched becomes a `DataError` that says how far it got."""
    number = 0
    try:
        for number, item in items:
            yield number, item
    except (OSError, EOFError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        reached = f" beyond line {number}" if number else ""
        raise DataError(f"cannot be read{reached}: {reason}", place=place) from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    compression = COMPRESSION.get(path.suffix.lower())
    if compression is None:
        with path.open("rb", buffering=BUFFER) as plain:
            yield plain
    else:
        # Arrow's decompressors notice a stream that was cut short, and go on to a file's further members or frames.
        with pa.input_stream(str(path), compression=compression, buffer_size=BUFFER) as raw:
            yield cast(BinaryIO, io.BufferedReader(raw, BUFFER))


@contextmanager
def _seekable(stream: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    """Parquet is read from its end: a compressed file is unpacked beside memory, on disk, first."""
    if path.suffix.lower() not in COMPRESSION:
        yield stream
        return
    with tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(stream, unpacked, BUFFER)
        unpacked.seek(0)
        yield cast(BinaryIO, unpacked)


DEFAULT_SPLIT = "test"
EXTENSIONS = [".jsonl", ".tsv", ".parquet"]


class Source(NamedTuple):
    """Where records come from.

    `items` starts the stream of numbered raw items, `parse` makes a row of one, `expected` says what it should be.
    `name` is the short name given to examples. `judged_in` is the place of the judgments whose queries are the only
    ones wanted, or None.
    """

    place: str
    name: str
    items: Callable[[], Iterator[tuple[int, Any]]]
    parse: Parser
    expected: str
    judged_in: str | None = None


def resolve(place: str, kind: Kind[Any]) -> Source:
    """The source of a place's records of one kind.

    Raises:
        DataError: when there is nothing there, or nothing of that kind.
        MissingExtraError: when it takes a library that is not installed.
    """
    scheme, name, split = parse_place(place)
    if scheme is not None:
        return SCHEMES[scheme](name, split, kind)
    if place == "-":
        return Source("-", "stdin", lambda: guarded(stdin_lines(), "-"), *kind.parsers()[".jsonl"])
    return _file(Path(place), kind)


def parse_place(place: str) -> tuple[str | None, str, str | None]:
    """The scheme (None for a path or `-`), the name and the split.

    >>> parse_place("beir:data/scifact#train"), parse_place("data/c#.tsv")
    (('beir', 'data/scifact', 'train'), (None, 'data/c#.tsv', None))
    """
    scheme, colon, name = place.partition(":")
    if not colon or scheme not in SCHEMES:
        return None, place, None
    name, _, split = name.rpartition("#") if "#" in name else (name, "", "")
    return scheme, name, split or None


def _file(path: Path, kind: Kind[Any]) -> Source:
    place = str(path)
    if path.is_dir():
        beir = _find(path, "corpus") or _find(path, "queries")
        raise DataError(f"a folder: read it as beir:{path}" if beir else "a folder, not a file", place=place)
    if not path.exists():
        places = ", ".join([*(f"{scheme}:…" for scheme in SCHEMES), "-"])
        raise DataError(f"no such file (a place is a path or one of {places})", place=place)
    extension, _ = split_extension(path)
    stem = path.name.partition(".")[0] or path.name
    if extension == ".parquet":
        expected = f"columns {kind.fields}"
        return Source(place, stem, lambda: guarded(parquet_rows(path, kind.names), place), mapping_row, expected)
    parsers = kind.parsers()
    if extension not in parsers:
        known = ", ".join([*parsers, ".parquet"])
        raise DataError(f"{kind.name} files end in {known}, and may add .gz or .zst", place=place)
    return Source(place, stem, lambda: guarded(file_lines(path), place), *parsers[extension])


def _beir(name: str, split: str | None, kind: Kind[Any]) -> Source:
    folder = Path(name)
    if not folder.is_dir():
        raise DataError("no such folder", place=f"beir:{name}")
    if kind is DOCUMENT:
        return _file(_required(folder, "corpus"), kind)._replace(name=folder.name)
    judgments = _beir_judgments(folder, split, required=kind is JUDGMENT)
    if kind is JUDGMENT:
        return _file(Path(judgments or ""), kind)
    return _file(_required(folder, "queries"), kind)._replace(judged_in=judgments)


def _beir_judgments(folder: Path, split: str | None, *, required: bool) -> str | None:
    """The file of a split's judgments; None when the folder has no judgments at all and none are asked for."""
    wanted = split or DEFAULT_SPLIT
    stems = [f"qrels/{wanted}", f"qrels.{wanted}", *(["qrels"] if wanted == DEFAULT_SPLIT else [])]
    found = next(filter(None, (_find(folder, stem) for stem in stems)), None)
    if found is not None:
        return str(found)
    others = sorted(path.relative_to(folder).as_posix() for path in [*folder.glob("qrels.*"), *folder.glob("qrels/*")])
    if not (others or required or split):
        return None
    there = f"there is {', '.join(others)}" if others else "there are no judgments"
    raise DataError(f"no judgments for the split {wanted!r}, {there}", place=f"beir:{folder}")


def _required(folder: Path, stem: str) -> Path:
    found = _find(folder, stem)
    if found is None:
        raise DataError(f"no {stem}.jsonl, .tsv or .parquet (.gz, .zst)", place=f"beir:{folder}")
    return found


def _find(folder: Path, stem: str) -> Path | None:
    names = (f"{stem}{extension}{packed}" for extension in EXTENSIONS for packed in ["", *COMPRESSION])
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _ir_datasets(name: str, split: str | None, kind: Kind[Any]) -> Source:
    place = f"ir_datasets:{name}"
    library = require_extra("ir_datasets", "ir-datasets")
    if split is not None:
        raise DataError(f"a split is part of an ir_datasets name: {name}/{split}", place=place)
    methods = {DOCUMENT.name: "docs_iter", QUERY.name: "queries_iter", JUDGMENT.name: "qrels_iter"}
    try:
        dataset = library.load(name)
    except KeyError as error:
        raise DataError("no such dataset", place=place) from error
    records = getattr(dataset, methods[kind.name], None)
    if records is None:
        raise DataError(f"this dataset has no {kind.name} to read", place=place)
    return _rows(place, name, lambda: map(_ir_datasets_row, records()), kind)


def _ir_datasets_row(record: Any) -> Row:
    """Collections name their text differently; those without a plain `text` know how to make one."""
    row: dict[str, Any] = record._asdict()
    if "text" in row or not hasattr(record, "default_text"):
        return row
    return row | {"title": "", "text": record.default_text()}  # which has the title in it


def _hf(name: str, split: str | None, kind: Kind[Any]) -> Source:
    place = f"hf:{name}"
    path, _, config = name.partition(":")

    def rows() -> Iterable[Row]:
        from datasets import load_dataset  # slow to import, and needed here alone

        found = load_dataset(path, config or None, streaming=True)
        if split is None and len(found) > 1:
            raise DataError(f"choose a split: {', '.join(f'{place}#{one}' for one in found)}", place=place)
        if split is not None and split not in found:
            raise DataError(f"no split {split!r}: there is {', '.join(found)}", place=place)
        chosen: Iterable[Row] = found[split or next(iter(found))]
        return chosen

    return _rows(place, path, rows, kind)


def _pydocs(name: str, split: str | None, kind: Kind[Any]) -> Source:
    from vocable import pydocs  # it makes the records that are defined here

    if name or split not in (None, *pydocs.SPLITS):
        places = ", ".join(["pydocs:", *(f"pydocs:#{one}" for one in pydocs.SPLITS)])
        raise DataError(f"the built-in places are {places}", place=f"pydocs:{name}" + (f"#{split}" if split else ""))
    rows: dict[str, Callable[[], Iterable[Any]]] = {
        DOCUMENT.name: lambda: pydocs.documents() if split is None else pydocs.known_item_documents(),
        QUERY.name: lambda: pydocs.queries(split or DEFAULT_SPLIT),
        JUDGMENT.name: lambda: pydocs.judgments(split or DEFAULT_SPLIT),
    }
    return _rows("pydocs:", "pydocs", lambda: (row._asdict() for row in rows[kind.name]()), kind)


def _rows(place: str, name: str, start: Callable[[], Iterable[Row]], kind: Kind[Any]) -> Source:
    """A source whose items are rows already."""

    def numbered() -> Iterator[tuple[int, Row]]:
        yield from enumerate(start(), start=1)

    return Source(place, name, lambda: guarded(numbered(), place), mapping_row, kind.fields)


SCHEMES: dict[str, Callable[[str, str | None, Kind[Any]], Source]] = {
    "beir": _beir,
    "ir_datasets": _ir_datasets,
    "hf": _hf,
    "pydocs": _pydocs,
}
