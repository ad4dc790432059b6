"""Open a source: a stream of numbered items (lines as bytes, or rows) and the parser of an item."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from vocable.core.fingerprint import DERIVED
from vocable.core.folders import something_else
from vocable.core.lfs import POINTER, is_pointer
from vocable.data.bad_lines import warn_once
from vocable.data.compressed import BUFFER, PACKED, is_packed, opened
from vocable.data.kinds import DOCUMENT, JUDGMENT, PLAIN_TEXT, QUERY, TEXT, Kind, RowValues
from vocable.data.lines import Parser, TableRow, has_id, json_row, line_limit, numbered_row, parsers
from vocable.data.records import MalformedError
from vocable.data.topics import TOPIC, topic_row, topics
from vocable.errors import DataError, require_extra

ROWS = 1024  # Parquet rows converted to Python objects at a time
SAMPLE = 100  # first lines of a text file, to guess its format


def _parquet_rows(path: Path, columns: Iterable[str] | None) -> Iterator[RowValues]:
    """Yield the rows of a Parquet file, with the named columns or all."""
    arrow, parquet = require_extra("pyarrow", "parquet"), require_extra("pyarrow.parquet", "parquet")
    with opened(path) as stream, tempfile.TemporaryFile() if is_packed(path) else nullcontext(stream) as file:
        if file is not stream:  # Parquet is read from its end: unpack a compressed file to disk
            shutil.copyfileobj(stream, file, BUFFER)
            file.seek(0)
        try:
            with parquet.ParquetFile(file) as table:
                present = [name for name in table.schema_arrow.names if columns is None or name in columns]
                for batch in table.iter_batches(batch_size=ROWS, columns=present):
                    yield from batch.to_pylist()
        except arrow.ArrowException as error:
            raise ValueError(str(error)) from error


def numbered(
    start: Callable[[], Iterable[object]], source: str, first: int = 1
) -> Callable[[], Iterator[tuple[int, Any]]]:
    """Return a function that iterates over the numbered items, and raises errors of reading as `DataError`."""

    def items() -> Iterator[tuple[int, Any]]:
        number = first - 1
        try:
            for number, item in enumerate(start(), start=first):
                yield number, item
        except MalformedError as error:
            raise DataError(str(error), source=source, line=number + 1) from error
        except (OSError, EOFError, ValueError) as error:
            reason = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
            reached = f" beyond line {number}" if number else ""
            raise DataError(f"cannot be read{reached}: {reason}", source=source) from error

    return items


def file_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed."""
    with opened(path) as stream:
        yield from bounded_lines(stream)


def bounded_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a stream; raise `MalformedError` for a line above the limit without reading all of it."""
    limit = line_limit()
    while line := stream.readline(limit.bytes + 1):
        if len(line) > limit.bytes:
            raise MalformedError(
                f"a line of more than {limit.megabytes} MB: give each record a line of its own, or set {limit.variable}"
            )
        yield line


DEFAULT_SPLIT = "test"
EXTENSIONS = [".jsonl", ".tsv", ".parquet"]


class Stream(NamedTuple):
    """An opened source.

    Args:
        source: its name, for messages.
        name: its short name, for examples.
        items: starts the numbered raw items.
        parse: turns an item into a row, or into None to skip it.
        expected: the expected format of an item, for messages.
        judged_in: source of judgments; queries without a judgment in it are skipped.
        lines: the file, if it is an uncompressed file of JSON lines.
        published: a published collection, which may have documents without text.
        several: the items come from several files, and each has its file and line.
    """

    source: str
    name: str
    items: Callable[[], Iterator[tuple[int, Any]]]
    parse: Parser
    expected: str
    judged_in: str | None = None
    lines: Path | None = None
    published: bool = False
    several: bool = False

    def place(self, number: int, item: Any) -> tuple[str, int]:
        """Return the source and line of an item, for messages."""
        return (item.file, item.line) if self.several else (self.source, number)


def resolve(source: str, kind: Kind[object]) -> Stream:
    """Return the stream of a source's records of a kind; raise `DataError` if it is missing or has other records."""
    scheme, name, split = parse_source(source)
    if scheme is not None:
        return SCHEMES[scheme](name, split, kind)
    if source == "-":
        return standard_input(*parsers(kind)[".jsonl"])
    return _file(Path(source), kind, numbers=True)


def standard_input(parse: Parser, expected: str) -> Stream:
    """Return the stream of the lines of standard input."""
    return Stream("-", "stdin", numbered(lambda: bounded_lines(sys.stdin.buffer), "-"), parse, expected)


def run_file(path: Path, kind: Kind[object]) -> Stream:
    """Return the stream of a TREC run; the name of the file does not matter."""
    source = str(path)
    return Stream(source, path.stem, numbered(lambda: file_lines(path), source), TableRow(kind), kind.layout)


def parse_source(source: str) -> tuple[str | None, str, str | None]:
    """Return the scheme (None for a path or `-`), the name and the split of a source.

    >>> parse_source("beir:data/scifact#train"), parse_source("data/c#.tsv")
    (('beir', 'data/scifact', 'train'), (None, 'data/c#.tsv', None))
    """
    scheme, colon, name = source.partition(":")
    if not colon or scheme not in (*SCHEMES, *DERIVED):
        return None, source, None
    name, _, split = name.rpartition("#") if "#" in name else (name, "", "")
    return scheme, name, split or None


def _file(path: Path, kind: Kind[object], *, numbers: bool = False) -> Stream:
    """Open a file; with `numbers`, JSON lines of documents without ids have the numbers of the lines as ids."""
    source = str(path)
    # What is not a file of records.
    if path.is_dir():
        return folder_stream(path, kind)
    if not path.exists():
        sources = ", ".join([*(f"{scheme}:…" for scheme in (*SCHEMES, *DERIVED)), "-"])
        raise DataError(f"no such file (a source is a path or one of {sources})", source=source)
    if is_pointer(path):
        raise DataError(POINTER, source=source)
    # The ending tells the format, after an ending such as .gz is taken off.
    extension = (path.with_suffix("") if is_packed(path) else path).suffix.lower()
    stem = path.name.partition(".")[0] or path.name
    if extension == ".parquet":
        rows = numbered(lambda: _parquet_rows(path, None if kind.further else kind.names), source)
        return Stream(source, stem, rows, _as_it_is, f"columns {kind.fields}")
    known, lines = parsers(kind), numbered(lambda: file_lines(path), source)
    if extension in known and extension != ".txt":
        stream = Stream(source, stem, lines, *known[extension])
        if stream.parse is not json_row:
            return stream
        numbers = numbers and kind is DOCUMENT and path.is_file()
        if numbers and _have_no_ids(line for _, line in islice(lines(), SAMPLE)):
            stream = stream._replace(parse=numbered_row)  # as the lines of a text file
        return stream if is_packed(path) else stream._replace(lines=path)
    if kind.spaces:  # a table, whatever its name
        return Stream(source, stem, lines, *known[".tsv"])
    # For a text or an unknown ending, the first lines decide. They are read only if they can matter.
    sampled = path.is_file() and (extension in known or kind is QUERY)
    sample = b"".join(line for _, line in islice(lines(), SAMPLE)) if sampled else b""
    if TOPIC.search(sample):
        if kind is not QUERY:
            raise DataError(f"TREC topics are queries and hold no {kind.name}", source=source)
        return Stream(source, stem, topics(lines), topic_row, "<top> with <num> and <title>")
    if extension not in known:
        endings = ", ".join([*known, ".parquet"])
        raise DataError(f"{kind.name} files end in {endings}, and may add .gz or .zst", source=source)
    if re.match(rb"\s*<DOC[ >]", sample):
        raise DataError("TREC documents (<DOC>) are not read: write them as JSON lines", source=source)
    # Lines of another format in a file of texts are read as that format, with a warning.
    if _is_json(sample):
        warn_once(f"{source}: read as JSON lines, like its first lines; name it .jsonl")
        return Stream(source, stem, lines, *known[".jsonl"])
    if _is_table(sample, kind):
        warn_once(f"{source}: read as {kind.layout}, like its first lines; name it .tsv")
        return Stream(source, stem, lines, *known[".tsv"])
    return Stream(source, stem, lines, *known[extension])


def folder_stream(
    path: Path,
    kind: Kind[object] = DOCUMENT,
    *,
    inside: str = "",
    all_pages: bool = False,
    code: bool | None = None,
) -> Stream:
    """Return the stream of the documents of a folder of pages, or of a page or a folder `inside` it.

    With `all_pages`, they include pages that generators made of other pages; `code` is as in `files_of`. Raises
    `DataError` if the folder, or the part of it, has no pages.
    """
    from vocable.data.folder import EXPECTED, check_folder, folder_items, item_row  # with parsers of the formats

    source = str(path)
    # Refuse a folder of another kind, and records that a folder cannot hold.
    if (reason := something_else(path)) is not None:
        raise DataError(reason, source=source)
    if kind not in (DOCUMENT, PLAIN_TEXT):
        instead = f": cloze:{path} makes examples of them" if kind.name == "example" else ""
        raise DataError(f"a folder, not a file: it holds documents, no {kind.name}{instead}", source=source)
    # A part of the folder has the part's name. For the whole folder, a warning tells what is not read.
    listing, left_out = check_folder(path, all_pages=all_pages, code=code)
    files, name = listing.files, path.resolve().name
    if inside:
        source, name = str(path / inside), Path(inside).stem
        files = [file for file in files if is_inside(file, inside)]
        if not files:
            raise DataError(f"no such page among the documents of {path}", source=source)
    elif left_out:
        warn_once(f"{source}: {left_out}")
    has_code = listing.has_code
    items = numbered(lambda: folder_items(path, files, listing.files, has_code=has_code, all_pages=all_pages), source)
    return Stream(source, name, items, item_row, EXPECTED, several=True)


def is_inside(file: str, part: str) -> bool:
    """Return whether a file of a folder is in a part of it: a file, a folder with a slash at its end, or all ("").

    >>> is_inside("a/b.md", "a/"), is_inside("a/b.md", "a/b.md"), is_inside("ab/c.md", "a/"), is_inside("a.md", "")
    (True, True, False, True)
    """
    return file == part or ((not part or part.endswith("/")) and file.startswith(part))


def _is_json(sample: bytes) -> bool:
    """Return whether each line of a text file is a JSON object."""
    rows = [line for line in sample.splitlines() if line.strip()]
    try:
        return bool(rows) and all(isinstance(json.loads(row), dict) for row in rows)
    except (ValueError, RecursionError):
        return False


def _have_no_ids(lines: Iterable[bytes]) -> bool:
    """Return whether there are JSON objects with a text, and none has the id of a document."""
    rows = []
    for line in lines:
        with suppress(ValueError, RecursionError):  # a bad line, which the reader counts
            rows.append(json.loads(line))
    texts = [row for row in rows if isinstance(row, dict) and any(row.get(name) is not None for name in TEXT)]
    return bool(texts) and not any(map(has_id, texts))


def _is_table(sample: bytes, kind: Kind[object]) -> bool:
    """Return whether each line begins with a distinct id and a tab, and all lines have the same number of tabs."""
    rows = [line.split(b"\t") for line in sample.splitlines() if line.strip()]
    ids = {row[0] for row in rows if len(row) in kind.columns and re.fullmatch(rb"\S+", row[0])}
    return bool(rows) and len(ids) == len(rows) and len(set(map(len, rows))) == 1


def _beir(name: str, split: str | None, kind: Kind[object]) -> Stream:
    folder = Path(name)
    if not folder.is_dir():
        raise DataError("no such folder", source=f"beir:{name}")
    judgments = None if kind is DOCUMENT else _beir_judgments(folder, split, required=kind is JUDGMENT)
    if kind is JUDGMENT:
        return _file(Path(judgments or ""), kind)
    stem = "corpus" if kind is DOCUMENT else "queries"
    if (path := _find(folder, stem)) is None:
        raise DataError(f"no {stem}.jsonl, .tsv or .parquet (.gz, .zst)", source=f"beir:{folder}")
    stream = _file(path, kind)
    return (
        stream._replace(name=folder.name, published=True)
        if kind is DOCUMENT
        else stream._replace(judged_in=judgments, lines=None if judgments else stream.lines)
    )


def _beir_judgments(folder: Path, split: str | None, *, required: bool) -> str | None:
    """Return the file with the judgments of a split; None if the folder has none and they are not `required`."""
    name = split or DEFAULT_SPLIT
    # Judgments are qrels/SPLIT or qrels.SPLIT; for the default split also qrels.
    stems = [f"qrels/{name}", f"qrels.{name}", *(["qrels"] if name == DEFAULT_SPLIT else [])]
    if (judgments := next(filter(None, (_find(folder, stem) for stem in stems)), None)) is not None:
        return str(judgments)
    others = sorted(path.relative_to(folder).as_posix() for path in [*folder.glob("qrels.*"), *folder.glob("qrels/*")])
    if not (others or required or split):
        return None
    available = f"only {', '.join(others)}" if others else "nor for any other"
    raise DataError(f"no judgments for the split {name!r}, {available}", source=f"beir:{folder}")


def _find(folder: Path, stem: str) -> Path | None:
    names = (f"{stem}{extension}{packed}" for extension in EXTENSIONS for packed in ["", *PACKED])
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _ir_datasets(name: str, split: str | None, kind: Kind[object]) -> Stream:
    source = f"ir_datasets:{name}"
    library = require_extra("ir_datasets", "ir-datasets")
    if split is not None:
        raise DataError(f"a split is part of an ir_datasets name: {name}/{split}", source=source)
    methods = {DOCUMENT.name: "docs_iter", QUERY.name: "queries_iter", JUDGMENT.name: "qrels_iter"}
    try:
        dataset = library.load(name)
    except KeyError as error:
        raise DataError("no such dataset", source=source) from error
    records = getattr(dataset, methods[kind.name], None)
    if records is None:
        raise DataError(f"this dataset has no {kind.name} to read", source=source)
    return rows_stream(source, name, lambda: map(_ir_datasets_row, records()), kind)


def _ir_datasets_row(record: Any) -> RowValues:
    """Return a record of ir_datasets as a row; collections without a field `text` have `default_text`."""
    row: dict[str, Any] = record._asdict()
    if "text" in row or not hasattr(record, "default_text"):
        return row
    text = record.default_text()  # includes the title
    further = {name: value for name, value in row.items() if not (isinstance(value, str) and value in text)}
    return {"doc_id": row.get("doc_id"), **further, "title": "", "text": text}


def _hf(name: str, split: str | None, kind: Kind[object]) -> Stream:
    source = f"hf:{name}"
    path, _, config = name.partition(":")

    def rows() -> Iterable[RowValues]:
        library = require_extra("datasets", "train")  # slow to import
        dataset = library.load_dataset(path, config or None, streaming=True)
        if split is None and len(dataset) > 1:
            raise DataError(f"choose a split: {', '.join(f'{source}#{name}' for name in dataset)}", source=source)
        if split is not None and split not in dataset:
            raise DataError(f"no split {split!r}, only {', '.join(dataset)}", source=source)
        return dataset[split or next(iter(dataset))]

    return rows_stream(source, path, rows, kind)


def _pydocs(name: str, split: str | None, kind: Kind[object]) -> Stream:
    from vocable.data import pydocs

    if name or split not in (None, *pydocs.SPLITS):
        sources = ", ".join(["pydocs:", *(f"pydocs:#{built_in}" for built_in in pydocs.SPLITS)])
        raise DataError(f"the built-in sources are {sources}", source=f"pydocs:{name}" + (f"#{split}" if split else ""))
    rows: dict[str, Callable[[], Iterable[Any]]] = {
        DOCUMENT.name: lambda: pydocs.documents() if split is None else pydocs.known_item_documents(),
        QUERY.name: lambda: pydocs.queries(split or DEFAULT_SPLIT),
        JUDGMENT.name: lambda: pydocs.judgments(split or DEFAULT_SPLIT),
    }
    return rows_stream("pydocs:", "pydocs", lambda: (row._asdict() for row in rows[kind.name]()), kind)


def rows_stream(source: str, name: str, start: Callable[[], Iterable[RowValues]], kind: Kind[object]) -> Stream:
    """Return a stream whose items are rows."""
    return Stream(source, name, numbered(start, source), _as_it_is, kind.fields, published=True)


def _as_it_is(number: int, row: RowValues) -> RowValues:
    return row


SCHEMES: dict[str, Callable[[str, str | None, Kind[object]], Stream]] = {
    "beir": _beir,
    "ir_datasets": _ir_datasets,
    "hf": _hf,
    "pydocs": _pydocs,
}
