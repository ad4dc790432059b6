"""The kinds of record, each as one table entry: its columns, its layout in files, and how a row becomes one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from vocable.data.bad_lines import MalformedError
from vocable.data.records import Document, Example, MinedNegatives, Qrel, Query, ScoredDoc
from vocable.data.rows import Parser, Row, TableRow, json_row, text_row

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


@dataclass(frozen=True)
class Kind(Generic[T]):
    """What is particular to one kind of record.

    `key` gives what must not repeat and `repeated` says that it did. `names`, `columns`, `rest` and `spaces` are as in
    `TableRow`. `texts` are the further extensions of a plain text file, `lines` whether such a file has one text a line
    (otherwise it is a table). `fields` and `layout` say what is expected of a row and of a table's line, for messages.
    """

    name: str
    record: Callable[[Row], T]
    key: Callable[[T], str | None]
    repeated: Callable[[T], str]
    names: frozenset[str]
    columns: Mapping[int, tuple[str, ...]]
    fields: str
    layout: str
    texts: tuple[str, ...] = ()
    lines: bool = False
    rest: str | None = None
    spaces: bool = False

    def parsers(self) -> dict[str, tuple[Parser, str]]:
        """For the extension of each text format, a fresh parser and what it expects of a line."""
        json = (json_row, f"a JSON object with {self.fields}")
        table = TableRow(self.columns, names=self.names, rest=self.rest, spaces=self.spaces)
        text = (text_row, f"one {self.name} a line") if self.lines else (table, self.layout)
        parsers: dict[str, tuple[Parser, str]] = {".jsonl": json, ".ndjson": json, ".json": json}
        return parsers | {".tsv": (table, self.layout)} | dict.fromkeys(self.texts, text)


def _identifier(row: Row, names: tuple[str, ...]) -> str:
    value = _first(row, names)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise MalformedError(f"no {_either(names[:2])}" if value is None else f"the id is a {type(value).__name__}")
    if not value.strip():
        raise MalformedError("an empty id")
    return value


def _text(row: Row, names: tuple[str, ...]) -> str:
    value = _first(row, names)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedError(f'"{names[0]}" is a {type(value).__name__}')
    return value


def _required_text(row: Row, names: tuple[str, ...]) -> str:
    value = _text(row, names)
    if not value.strip():
        raise MalformedError(f'an empty "{names[0]}"' if _first(row, names) is not None else f"no {_either(names[:2])}")
    return value


def _first(row: Row, names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(f'"{name}"' for name in names)


def _document(row: Row) -> Document:
    document = Document(_identifier(row, DOCUMENT_ID), _text(row, TEXT), _text(row, ("title",)))
    if not document.full:
        raise MalformedError(f"document {document.id!r} has neither text nor title")
    return document


def _query(row: Row) -> Query:
    return Query(_identifier(row, QUERY_ID), _required_text(row, TEXT))


def _judgment(row: Row) -> Qrel:
    return Qrel(_identifier(row, JUDGED_QUERY), _identifier(row, JUDGED_DOCUMENT), _relevance(row))


def _relevance(row: Row) -> int:
    value = _first(row, RELEVANCE)
    if value is None or isinstance(value, bool):
        raise MalformedError("no relevance")
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not number.is_integer():
        raise MalformedError(f"the relevance is {value!r}, not a whole number")
    return int(number)


def _example(row: Row) -> Example:
    negatives = _first(row, NEGATIVES)
    if negatives is None:
        negatives = [row[name] for name in NUMBERED if row.get(name) is not None]
    elif isinstance(negatives, str):
        negatives = [negatives]
    if not isinstance(negatives, list | tuple):
        raise MalformedError(f'"negatives" is a {type(negatives).__name__}')
    return Example(
        _required_text(row, ASKED),
        _required_text(row, ("positive",)),
        tuple(_required_text({"negative": negative}, ("negative",)) for negative in negatives),
        scores=_scores(row, 1 + len(negatives)),
    )


def _scores(row: Row, texts: int) -> tuple[float, ...]:
    """The teacher's scores of a positive and its negatives, `texts` together; none at all will do."""
    values = _first(row, ("scores",))
    if values is None:
        return ()
    if not isinstance(values, list | tuple):
        raise MalformedError(f'"scores" is a {type(values).__name__}')
    if values and len(values) != texts:
        raise MalformedError(f"there are {len(values)} scores where positive and negatives are {texts}")
    return tuple(_number(value) for value in values)


def _number(value: Any) -> float:
    try:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:  # an integer of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise MalformedError(f"the score is {value!r}, not a finite number")
    return number


def _mined_negatives(row: Row) -> MinedNegatives:
    systems = row.get("neg")
    if not isinstance(systems, Mapping):
        raise MalformedError('no "neg", the ids of each system')
    found = {name: _identifiers(ids) for name, ids in systems.items() if ids is not None}
    return MinedNegatives(_identifier(row, MINED_QUERY), _identifiers(row.get("pos")), found)


def _identifiers(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list | tuple):
        raise MalformedError(f"ids are a list, not a {type(values).__name__}")
    return tuple(_identifier({"id": value}, ("id",)) for value in values)


def _scored_document(row: Row) -> ScoredDoc:
    value = row.get("score")
    if isinstance(value, str):  # of a table
        with suppress(ValueError):
            value = float(value)
    return ScoredDoc(_identifier(row, MINED_QUERY), _identifier(row, MINED_DOCUMENT), _number(value))


def _any_text(row: Row) -> str:
    text = " ".join(part for part in (_text(row, ("title",)), _text(row, (*TEXT, "positive"))) if part.strip())
    if not text:
        raise MalformedError("no text")
    return text


DOCUMENT = Kind(
    name="document",
    record=_document,
    key=lambda document: document.id,
    repeated=lambda document: f"the id {document.id!r} is there already",
    names=frozenset({*DOCUMENT_ID, *TEXT, "title", "url"}),
    columns={2: ("id", "text"), 3: ("id", "title", "text"), 4: ("id", "url", "title", "text")},
    fields='"_id" or "id", "text" or "contents", and perhaps "title"',
    layout="id TAB text, id TAB title TAB text, or id TAB url TAB title TAB text",
    texts=(".txt",),
    lines=True,
)
QUERY = Kind(
    name="query",
    record=_query,
    key=lambda query: query.id,
    repeated=lambda query: f"the id {query.id!r} is there already",
    names=frozenset({*QUERY_ID, *TEXT}),
    columns={2: ("id", "text")},
    fields='"_id" or "id", and "text"',
    layout="id TAB text",
    texts=(".txt",),
    lines=True,
)
JUDGMENT = Kind(
    name="judgment",
    record=_judgment,
    key=lambda judgment: f"{judgment.query_id}\t{judgment.doc_id}",
    repeated=lambda judgment: f"document {judgment.doc_id!r} is judged already for query {judgment.query_id!r}",
    names=frozenset({*JUDGED_QUERY, *JUDGED_DOCUMENT, *RELEVANCE, "iteration"}),
    columns={3: ("query-id", "corpus-id", "score"), 4: ("query-id", "iteration", "corpus-id", "score")},
    fields='"query-id", "corpus-id" and "score"',
    layout="query, document and relevance (BEIR), or query, 0, document and relevance (TREC)",
    texts=(".txt", ".qrels", ".trec"),
    spaces=True,
)
EXAMPLE = Kind(
    name="example",
    record=_example,
    key=lambda example: None,
    repeated=lambda example: "",
    names=frozenset({*ASKED, "positive", *NEGATIVES, *NUMBERED, "scores"}),
    columns={2: ("query", "positive")},
    fields='"query" or "anchor", "positive", and perhaps "negatives" and "scores"',
    layout="query TAB positive, and perhaps TAB negative...",
    rest="negatives",
)
PLAIN_TEXT = Kind(
    name="text",
    record=_any_text,
    key=lambda text: None,
    repeated=lambda text: "",
    names=frozenset({*DOCUMENT_ID, *TEXT, "title", "url", *EXAMPLE.names}),
    columns=DOCUMENT.columns,
    fields='"text", "contents" or "positive"',
    layout=DOCUMENT.layout,
    texts=(".txt",),
    lines=True,
)
MINED = Kind(
    name="hard negatives",
    record=_mined_negatives,
    key=lambda mined: mined.query_id,
    repeated=lambda mined: f"the query {mined.query_id!r} is there already",
    names=frozenset({*MINED_QUERY, "pos", "neg"}),
    columns={3: ("qid", "pos", "neg")},
    fields='"qid", "pos" (a list of ids) and "neg" (such a list for each system)',
    layout="JSON lines or Parquet, since a table has no lists",
)
SCORED = Kind(
    name="score",
    record=_scored_document,
    key=lambda scored: None,
    repeated=lambda scored: "",
    names=frozenset({*MINED_QUERY, *MINED_DOCUMENT, "score"}),
    columns={3: ("qid", "pid", "score")},
    fields='"qid", "pid" and "score"',
    layout="qid TAB pid TAB score",
)
