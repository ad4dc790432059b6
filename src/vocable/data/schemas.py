"""The records that are read, and how a raw item becomes a row and a row a record.

A row is a mapping from column names to values. Each parser takes an item and its number and returns a row, or None
where there is nothing (an empty line, a header).
"""

from __future__ import annotations

import ast
import json
import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar
from unicodedata import category

from ir_measures import Qrel, ScoredDoc

__all__ = ["Document", "Example", "MinedNegatives", "Qrel", "Query", "ScoredDoc"]


class Document(NamedTuple):
    """A text to be found; `fields` are what else is known of it, JSON values that a search can filter by and shows.

    >>> Document("d1", "A list is a sequence.", title="Lists").full
    'Lists A list is a sequence.'
    """

    id: str
    text: str
    title: str = ""
    fields: Mapping[str, Any] = {}

    @property
    def full(self) -> str:
        """Title and text joined by a space: what is encoded and indexed."""
        return f"{self.title} {self.text}".strip()


def same_document(one: Document, other: Document | None) -> bool:
    """Return whether two documents are the same, their fields compared as JSON, in which 1 is neither true nor 1.0.

    >>> same_document(Document("d1", "A list.", fields={"n": 1}), Document("d1", "A list.", fields={"n": True}))
    False
    """
    if other is None or one != other:
        return False
    first, second = (json.dumps(dict(document.fields), sort_keys=True) for document in (one, other))
    return first == second


class Query(NamedTuple):
    """A text to search with."""

    id: str
    text: str


class Example(NamedTuple):
    """A training example: a query, a text that answers it, and texts that do not.

    `source` names where it came from (a file's stem), so that a batch can be drawn from one source. `scores` are a
    teacher's, of the positive and then of each negative; there are none where no teacher was asked.
    """

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    source: str = ""
    scores: tuple[float, ...] = ()

    @property
    def line(self) -> bytes:
        """The line of JSON that `read_examples` reads as this example; the source is the file's.

        >>> Example("lists?", "A list is a sequence.", ("A set is not.",)).line
        b'{"query": "lists?", "positive": "A list is a sequence.", "negatives": ["A set is not."]}\\n'
        """
        values = {name: value for name, value in self._asdict().items() if value and name != "source"}
        return json.dumps(values, ensure_ascii=False).encode() + b"\n"


class MinedNegatives(NamedTuple):
    """The ids of a query's positives, and for each system that was asked those of its best other documents in order."""

    query_id: str
    positives: tuple[str, ...]
    systems: dict[str, tuple[str, ...]]


class MalformedError(ValueError):
    """One line or row is not what it should be; the reader adds source, line and what was expected."""


T = TypeVar("T")

DOCUMENT_ID = ("_id", "id", "doc_id")
QUERY_ID = ("_id", "id", "query_id")
TEXT = ("text", "contents")
JUDGED_QUERY = ("query-id", "query_id")
JUDGED_DOCUMENT = ("corpus-id", "doc_id")
RELEVANCE = ("score", "relevance")
ASKED = ("query", "anchor")
NEGATIVES = ("negatives", "negative")
# The host library's n-tuples have a column for each negative.
NUMBERED = tuple(f"negative_{number}" for number in range(1, 101))
MINED_QUERY = ("qid", "query_id", "query-id")
MINED_DOCUMENT = ("pid", "doc_id", "corpus-id")
FOUND = ("query", "Q0", "document", "rank", "score", "tag")
DEEPEST = 100  # fields within fields


@dataclass(frozen=True)
class Kind(Generic[T]):
    """What is particular to one kind of record.

    `published` makes the record of a row in a published collection, where that is another one. `key` gives what two
    records may have in common only if they are identical, None if all may; `repeated` says that two have it, and
    `differs` in what they differ. `columns` has the column names for each possible number of fields of a table's line;
    with `rest`, further fields go to that column, as a list if there are several. `names` are those that make a first
    line a header. Tabs separate fields; with `spaces` any blanks, unless there is a header with tabs, and a line that
    begins with # is a comment: such a table may have any name. `lines`: a .txt file has one text a line. `further`:
    columns without a name of these are kept, too. `fields` and `layout` say what is expected of a row and of a table's
    line, for messages.
    """

    name: str
    record: Callable[[Row], T]
    names: frozenset[str]
    columns: Mapping[int, tuple[str, ...]]
    fields: str
    layout: str
    published: Callable[[Row], T] | None = None
    key: Callable[[Any], str | None] = lambda record: None
    repeated: Callable[[Any], str] = lambda record: f"the id {record.id!r} is there already"
    differs: str = "another text"
    further: bool = False
    lines: bool = False
    rest: str | None = None
    spaces: bool = False

    def parsers(self) -> dict[str, tuple[Parser, str]]:
        """Return, for the extension of each text format, a fresh parser and what it expects of a line."""
        json: tuple[Parser, str] = (json_row, f"a JSON object with {self.fields}")
        table: tuple[Parser, str] = (TableRow(self), self.layout)
        text: tuple[Parser, str] = (text_row, f"one {self.name} a line")
        texts = {".txt": text} if self.lines else {}
        return {".jsonl": json, ".ndjson": json, ".json": json, ".tsv": table, **texts}


def _identifier(row: Row, names: tuple[str, ...]) -> str:
    value = _first(row, names)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None:
        raise MalformedError(f"no {_either(names[:2])}")
    return check_id(value)


def _text(row: Row, names: tuple[str, ...], *, required: bool = False) -> str:
    value = _first(row, names)
    if value is not None and not isinstance(value, str):
        raise MalformedError(f'"{names[0]}" is a {type(value).__name__}')
    if required and not (value or "").strip():
        raise MalformedError(f"no {_either(names[:2])}" if value is None else f'an empty "{names[0]}"')
    return value or ""


def _first(row: Row, names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(f'"{name}"' for name in names)


def _document(row: Row) -> Document:
    return check_document(_unchecked_document(row))


def _published_document(row: Row) -> Document:
    """A document of a published collection, where some have no text."""
    if not any(name in row for name in (*TEXT, "title")):
        raise MalformedError(f"no {_either(TEXT)}")
    return check_document(_unchecked_document(row), may_be_empty=True)


def _unchecked_document(row: Row) -> Document:
    told = {next((name for name in names if row.get(name) is not None), "") for names in (DOCUMENT_ID, TEXT)}
    row = {name: value if name in told or name == "title" else structured(name, value) for name, value in row.items()}
    further = row["fields"] if isinstance(row.get("fields"), Mapping) else {}  # of a document that vocable wrote
    told |= {"title", "fields"} if further or row.get("fields") == {} else {"title"}
    given = {name: value for name, value in row.items() if name not in told} | further
    fields = {name: _json_value(value) for name, value in given.items() if _is_there(value)}
    return Document(_identifier(row, DOCUMENT_ID), _text(row, TEXT), _text(row, ("title",)), fields)


def check_document(document: Document, *, may_be_empty: bool = False) -> Document:
    """Return `document`; raise `MalformedError`, in the readers' words, for one that no reader would give.

    Its id has a visible character and neither a tab nor a line end; its title or its text has a visible character,
    unless it `may_be_empty`; its fields are JSON values under names that are str.
    """
    check_id(document.id)
    for name in ("title", "text"):
        value = getattr(document, name)
        if not isinstance(value, str):
            raise MalformedError(f'"{name}" must be a text, not {type(value).__name__}')
        check_characters(value)
    if not (visible(document.full) or may_be_empty):
        raise MalformedError(f"document {document.id!r} has neither text nor title")
    if document.fields:
        _check_fields(document.fields)
    return document


def visible(text: str) -> bool:
    """Return whether a text has a character that can be seen: neither a blank nor a mark of format, as U+200B is.

    >>> visible("a"), visible(" \\u200b\\t")
    (True, False)
    """
    return any(not character.isspace() and category(character) != "Cf" for character in text)


def check_characters(text: str) -> None:
    """Raise `MalformedError` for a text that UTF-8 cannot hold."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:  # no tokenizer and no Parquet file takes it
        raise MalformedError("half of a surrogate pair, which is not a character") from error


def check_id(value: object) -> str:
    """Return an id; raise `MalformedError` for one that no table and no run can hold."""
    if not isinstance(value, str):
        raise MalformedError(f"the id must be a text, not {type(value).__name__}")
    if not visible(value):
        raise MalformedError("an empty id")
    if "\t" in value or "\n" in value or "\r" in value:
        raise MalformedError(f"the id {value!r} has a tab or a line end")
    check_characters(value)
    return value


def _check_fields(fields: object) -> None:
    try:
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedError(f"a field is not a JSON value ({error})") from error
    if not isinstance(fields, Mapping) or not _has_named_fields(fields):
        raise MalformedError("the fields are not a dict whose keys are str")


def _has_named_fields(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _has_named_fields(one) for name, one in value.items())
    return not isinstance(value, list | tuple) or all(map(_has_named_fields, value))


def structured(name: str, value: Any) -> Any:
    """Return a column's value, or the list or object that it is as JSON in a text, which is all that a table can hold.

    >>> structured("tags", '["a", "b"]'), structured("note", "[sic]")
    (['a', 'b'], '[sic]')

    Raises:
        MalformedError: the text is a list or object as Python prints it.
    """
    if not isinstance(value, str) or (text := value.strip())[:1] + text[-1:] not in ("[]", "{}"):
        return value
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about backslashes
            printed = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value
    raise MalformedError(f'"{name}" is the text of a Python {type(printed).__name__}: write it as JSON')


def _json_value(value: Any, deepest: int = DEEPEST) -> Any:
    """A field's value as JSON has it: of what it has not, such as a date, the text."""
    if not deepest and isinstance(value, Mapping | list | tuple):
        raise MalformedError(f"a field is nested more than {DEEPEST} deep")
    if isinstance(value, Mapping):
        return {str(name): _json_value(one, deepest - 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(one, deepest - 1) for one in value]
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if value is None or (isinstance(value, str | int | float) and finite) else str(value)


def _is_there(value: Any) -> bool:
    """Whether a field says anything: tables have None or NaN where a document has no value."""
    return value is not None and value == value and value not in ("", {}, [])


def _query(row: Row) -> Query:
    return Query(_identifier(row, QUERY_ID), _text(row, TEXT, required=True))


def _judgment(row: Row) -> Qrel:
    query, document, value = _identifier(row, JUDGED_QUERY), _identifier(row, JUDGED_DOCUMENT), _first(row, RELEVANCE)
    if value is None or isinstance(value, bool):
        raise MalformedError("no relevance")
    with suppress(TypeError, ValueError, OverflowError):
        number = decimal(value) if isinstance(value, str) else float(value)
        if number.is_integer() and abs(number) < 1 << 31:  # what ir_measures can hold
            return Qrel(query, document, int(number))
    raise MalformedError(f"the relevance is {value!r}, not a whole number of 32 bits")


def _example(row: Row) -> Example:
    negatives = structured("negatives", row.get("negatives"))
    if negatives is None:
        negatives = row.get("negative")
    if negatives is None:
        negatives = [row[name] for name in NUMBERED if row.get(name) is not None]
    elif isinstance(negatives, str):
        negatives = [negatives]
    scores = () if row.get("scores") is None else structured("scores", row["scores"])
    for name, values in (("negatives", negatives), ("scores", scores)):
        if not isinstance(values, list | tuple):
            raise MalformedError(f'"{name}" is a {type(values).__name__}')
    query, positive = _text(row, ASKED, required=True), _text(row, ("positive",), required=True)
    others = tuple(_text({"negative": negative}, ("negative",), required=True) for negative in negatives)
    if scores and len(scores) != 1 + len(others):
        raise MalformedError(f"there are {len(scores)} scores where positive and negatives are {1 + len(others)}")
    return Example(query, positive, others, scores=tuple(map(_number, scores)))


def _number(value: Any) -> float:
    with suppress(OverflowError):  # of an integer of hundreds of digits
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    raise MalformedError(f"the score is {value!r}, not a finite number")


def decimal(text: str) -> float:
    """The number that a text is, `ValueError` if none: Python's own notation 1_0 and digits beyond ASCII are none."""
    if "_" in text or not text.isascii():
        raise ValueError(f"not a number: {text!r}")
    return float(text)


def _mined_negatives(row: Row) -> MinedNegatives:
    if not isinstance(row.get("neg"), Mapping):
        raise MalformedError('no "neg", the ids of each system')
    systems = {name: _identifiers(ids) for name, ids in row["neg"].items() if ids is not None}
    return MinedNegatives(_identifier(row, MINED_QUERY), _identifiers(row.get("pos")), systems)


def _identifiers(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list | tuple):
        raise MalformedError(f"ids are a list, not a {type(values).__name__}")
    return tuple(_identifier({"id": value}, ("id",)) for value in values)


def _scored_document(row: Row) -> ScoredDoc:
    value = row.get("score")
    if isinstance(value, str):  # of a table
        with suppress(ValueError):
            value = decimal(value)
    return ScoredDoc(_identifier(row, MINED_QUERY), _identifier(row, MINED_DOCUMENT), _number(value))


def _found(row: Row) -> ScoredDoc:
    """A hit of a run. Words may follow the tag, unless they look like the end of an id with white space in it."""
    if "words" in row and not (row["rank"].isdecimal() and not _is_number(row["tag"])):
        raise MalformedError("more than six fields, which are not those of a hit and a tag of several words")
    with suppress(ValueError):
        if math.isfinite(score := decimal(row["score"])):
            return ScoredDoc(row["query"], row["document"], score)
    raise MalformedError(f"the score {row['score']!r} is not a finite number")


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        return math.isfinite(decimal(text))
    return False


def _any_text(row: Row) -> str:
    text = " ".join(part for part in (_text(row, ("title",)), _text(row, (*TEXT, "positive"))) if part.strip())
    if not text:
        raise MalformedError("no text")
    return text


DOCUMENT = Kind(
    name="document",
    record=_document,
    published=_published_document,
    key=lambda document: document.id,
    differs="another title, text or field",
    further=True,
    names=frozenset({*DOCUMENT_ID, *TEXT, "title", "url"}),
    columns={2: ("id", "text"), 3: ("id", "title", "text"), 4: ("id", "url", "title", "text")},
    fields='"_id" or "id", "text" or "contents", and perhaps "title"',
    layout="id TAB text, id TAB title TAB text, or id TAB url TAB title TAB text",
    lines=True,
)
QUERY = Kind(
    name="query",
    record=_query,
    key=lambda query: query.id,
    names=frozenset({*QUERY_ID, *TEXT}),
    columns={2: ("id", "text")},
    fields='"_id" or "id", and "text"',
    layout="id TAB text",
    lines=True,
)
JUDGMENT = Kind(
    name="judgment",
    record=_judgment,
    key=lambda judgment: f"{judgment.query_id}\t{judgment.doc_id}",
    repeated=lambda judgment: f"document {judgment.doc_id!r} is judged already for query {judgment.query_id!r}",
    differs="another grade",
    names=frozenset({*JUDGED_QUERY, *JUDGED_DOCUMENT, *RELEVANCE, "iteration"}),
    columns={3: ("query-id", "corpus-id", "score"), 4: ("query-id", "iteration", "corpus-id", "score")},
    fields='"query-id", "corpus-id" and "score"',
    layout="query, document and relevance (BEIR), or query, 0, document and relevance (TREC)",
    spaces=True,
)
EXAMPLE = Kind(
    name="example",
    record=_example,
    names=frozenset({*ASKED, "positive", *NEGATIVES, *NUMBERED, "scores"}),
    columns={2: ("query", "positive")},
    fields='"query" or "anchor", "positive", and perhaps "negatives" and "scores"',
    layout="query TAB positive, and perhaps TAB negative...",
    rest="negatives",
)
PLAIN_TEXT = Kind(
    name="text",
    record=_any_text,
    names=frozenset({*DOCUMENT_ID, *TEXT, "title", "url", *EXAMPLE.names}),
    columns=DOCUMENT.columns,
    fields='"text", "contents" or "positive"',
    layout=DOCUMENT.layout,
    lines=True,
)
MINED = Kind(
    name="hard negatives",
    record=_mined_negatives,
    key=lambda mined: mined.query_id,
    repeated=lambda mined: f"the query {mined.query_id!r} is there already",
    differs="other ids",
    names=frozenset({*MINED_QUERY, "pos", "neg"}),
    columns={3: ("qid", "pos", "neg")},
    fields='"qid", "pos" (a list of ids) and "neg" (such a list for each system)',
    layout="JSON lines or Parquet, since a table has no lists",
)
SCORED = Kind(
    name="score",
    record=_scored_document,
    names=frozenset({*MINED_QUERY, *MINED_DOCUMENT, "score"}),
    columns={3: ("qid", "pid", "score")},
    fields='"qid", "pid" and "score"',
    layout="qid TAB pid TAB score",
)
FOUND_DOCUMENT = Kind(
    name="hit",
    record=_found,
    key=lambda hit: f"{hit.query_id}\t{hit.doc_id}",
    repeated=lambda hit: f"query {hit.query_id!r} already has document {hit.doc_id!r}",
    differs="another score",
    names=frozenset(),
    columns={6: FOUND},
    fields=", ".join(FOUND),
    layout="the six fields of a TREC run (query Q0 document rank score tag)",
    rest="words",
    spaces=True,
)
TYPED_QUERY = Kind(
    name="query",
    record=lambda row: Query(row["id"], row["text"].strip()),
    names=frozenset(),
    columns={},
    fields="a query",
    layout="a query a line",
)
TYPED_ID = Kind(
    name="id",
    record=lambda row: _identifier(row, ("text",)),
    names=frozenset(),
    columns={},
    fields="an id",
    layout="an id a line",
)


Row = Mapping[str, Any]
Parser = Callable[[int, Any], Row | None]
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def json_row(number: int, raw: bytes) -> Row | None:
    """A line that is a JSON object."""
    line = decode(number, raw)
    if not line.strip():
        return None
    try:
        row = json.loads(line)
        # Perhaps there is half of a surrogate pair, which no tokenizer or Parquet file takes.
        written = json.dumps(row, ensure_ascii=False) if "\\ud" in line or "\\uD" in line else ""
    except json.JSONDecodeError as error:
        raise MalformedError(f"not JSON ({error.msg} at character {error.pos + 1})") from error
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"not JSON that can be read ({error})") from error
    if not isinstance(row, dict):
        raise MalformedError(f"a JSON {type(row).__name__}")
    check_characters(written)
    return row


def text_row(number: int, raw: bytes) -> Row | None:
    """A line that is a text; its number is its id."""
    row = typed_row(number, raw)
    return row if row["text"].strip() else None


def typed_row(number: int, raw: bytes) -> Row:
    """A line that is a text, or blank; its number is its id."""
    return {"id": str(number), "text": decode(number, raw)}


class TableRow:
    """Lines of a table of one kind of record, the columns named by their number or by a header.

    >>> row = TableRow(QUERY)
    >>> row(1, b"q1\\tlists?"), row(2, b"q2\\tsets?")
    ({'id': 'q1', 'text': 'lists?'}, {'id': 'q2', 'text': 'sets?'})
    """

    def __init__(self, kind: Kind[Any]) -> None:
        self.kind, self.columns, self.rest = kind, kind.columns, kind.rest
        self.separator = None if kind.spaces else "\t"
        self._begun = False  # whether there was a line that is neither blank nor a comment

    def __call__(self, number: int, raw: bytes) -> Row | None:
        line = decode(number, raw)
        if not line.strip(" "):
            return None
        fields = line.split(self.separator)
        if self.kind.spaces and line.startswith("#") and self._is_comment(fields):
            return None
        begun, self._begun = self._begun, True
        return None if not begun and self._is_header(line, fields) else self._row(fields)

    def _is_header(self, line: str, fields: list[str]) -> bool:
        """Return whether a first line names the columns of the others."""
        names = tuple(field.lower() for field in fields)
        if not (len(set(names)) == len(fields) > 1 and self.kind.names.issuperset(names)):
            return False
        self.columns, self.rest = {len(fields): names}, None
        self.separator = "\t" if "\t" in line else self.separator
        return True

    def _row(self, fields: list[str]) -> Row:
        widest = max(self.columns)
        if self.rest is not None and len(fields) > widest:
            rest = fields[widest:]
            first = dict(zip(self.columns[widest], fields, strict=False))
            return first | {self.rest: rest if len(rest) > 1 else rest[0]}
        if len(fields) not in self.columns:
            raise MalformedError(f"{len(fields)} field{'s' if len(fields) != 1 else ''}")
        return dict(zip(self.columns[len(fields)], fields, strict=True))

    def _is_comment(self, fields: list[str]) -> bool:
        """Return whether a line that begins with # is a comment, not a record whose id begins with #."""
        if fields[0] != "#":
            with suppress(MalformedError):
                self.kind.record(self._row(fields))
                return False
        return True


def decode(number: int, raw: bytes) -> str:
    """A line as text, without its line end and without a byte-order mark."""
    if number == 1:
        raw = raw.removeprefix(BYTE_ORDER_MARK)
    try:
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedError(f"not UTF-8 (byte {error.start + 1} is 0x{raw[error.start]:02x})") from error
