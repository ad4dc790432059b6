"""Kinds of records, and how a row becomes a record of a kind.

A row is a mapping from column names to values.
"""

from __future__ import annotations

import ast
import json
import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar
from unicodedata import normalize

from vocable.data.records import (
    Document,
    Example,
    MalformedError,
    MinedNegatives,
    Qrel,
    Query,
    ScoredDoc,
    check_document,
    check_id,
)

R_co = TypeVar("R_co", covariant=True)
RowValues: TypeAlias = Mapping[str, Any]

DOCUMENT_ID = ("_id", "id", "doc_id")
QUERY_ID = ("_id", "id", "query_id")
TEXT = ("text", "contents")
JUDGED_QUERY = ("query-id", "query_id")
JUDGED_DOCUMENT = ("corpus-id", "doc_id")
RELEVANCE = ("score", "relevance")
EXAMPLE_QUERY = ("query", "anchor")
NEGATIVES = ("negatives", "negative")
# The n-tuples of sentence-transformers have a column for each negative.
NUMBERED = tuple(f"negative_{number}" for number in range(1, 101))
MINED_QUERY = ("qid", "query_id", "query-id")
MINED_DOCUMENT = ("pid", "doc_id", "corpus-id")
RUN_COLUMNS = ("query", "Q0", "document", "rank", "score", "tag")
MAX_DEPTH = 100  # of nested fields


@dataclass(frozen=True)
class Kind(Generic[R_co]):
    """A kind of record.

    Args:
        name: its name in messages.
        record: turns a row into a record.
        names: column names that make the first line of a table a header.
        columns: column names of a table without a header, by the number of fields of a line.
        fields: the expected fields of a row, for messages.
        layout: the expected layout of a line of a table, for messages.
        published: turns a row of a published collection into a record, if `record` does not.
        key: attributes that identify a record: records with equal keys must be equal; () lets records repeat.
        differs: the difference between two records with equal keys, for messages.
        further: keep columns that are not among `names`.
        lines: a .txt file has one text per line.
        rest: column of the further fields of a line; its value is a list if there are several.
        spaces: fields are separated by white space, not only by tabs; a line that begins with # is a comment, and the
            file may have any name.
    """

    name: str
    record: Callable[[RowValues], R_co]
    names: frozenset[str]
    columns: Mapping[int, tuple[str, ...]]
    fields: str
    layout: str
    published: Callable[[RowValues], R_co] | None = None
    key: tuple[str, ...] = ()
    differs: str = "another text"
    further: bool = False
    lines: bool = False
    rest: str | None = None
    spaces: bool = False

    def duplicate(self, record: object) -> str:
        """Return a message about a second record with the key of an earlier one.

        >>> QUERY.duplicate(Query("q1", "lists?"))
        "duplicate id 'q1'"
        """
        return "duplicate " + " and ".join(f"{name} {getattr(record, name)!r}" for name in self.key)


def _identifier(row: RowValues, names: tuple[str, ...]) -> str:
    value = _first(row, names)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None:
        raise MalformedError(f"no {_either(names[:2])}")
    return check_id(value)


def _text(row: RowValues, names: tuple[str, ...], *, required: bool = False) -> str:
    value = _first(row, names)
    if value is not None and not isinstance(value, str):
        raise MalformedError(f'"{names[0]}" is a {type(value).__name__}')
    if required and not (value or "").strip():
        raise MalformedError(f"no {_either(names[:2])}" if value is None else f'an empty "{names[0]}"')
    return value or ""


def _first(row: RowValues, names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(f'"{name}"' for name in names)


def _document(row: RowValues, *, may_be_empty: bool = False) -> Document:
    known = {next((name for name in names if row.get(name) is not None), "") for names in (DOCUMENT_ID, TEXT)} | {
        "title"
    }
    row = {name: value if name in known else structured(name, value) for name, value in row.items()}
    further = row.get("fields")
    further = further if isinstance(further, Mapping) else None  # of a document that vocable wrote
    known |= set() if further is None else {"fields"}
    fields = {name: _json_value(value) for name, value in row.items() if name not in known and _has_value(value)}
    inner = {name: _json_value(value) for name, value in (further or {}).items() if _has_value(value)}
    both = fields.keys() & inner.keys()  # a field of the record and one of its own `fields`
    fields |= {"fields": inner} if both else inner
    document = Document(_identifier(row, DOCUMENT_ID), _text(row, TEXT), _text(row, ("title",)), fields)
    return check_document(document, may_be_empty=may_be_empty)


def _published_document(row: RowValues) -> Document:
    """Return a document of a published collection, which may lack a text."""
    if not any(name in row for name in (*TEXT, "title")):
        raise MalformedError(f"no {_either(TEXT)}")
    return _document(row, may_be_empty=True)


def structured(name: str, value: object) -> Any:
    """Parse a text that is a JSON list or object, as in the cells of tables; return any other value unchanged.

    >>> structured("tags", '["a", "b"]'), structured("note", "[sic]")
    (['a', 'b'], '[sic]')

    Raises:
        MalformedError: the text is a list or dict as Python prints it.
    """
    if not isinstance(value, str) or (text := value.strip())[:1] + text[-1:] not in ("[]", "{}"):
        return value
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes
            printed = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value
    raise MalformedError(f'"{name}" is the text of a Python {type(printed).__name__}: write it as JSON')


def _json_value(value: object, depth: int = MAX_DEPTH) -> Any:
    """Return a value as a JSON value; values of other types, such as dates, become texts."""
    if not depth and isinstance(value, Mapping | list | tuple):
        raise MalformedError(f"a field is nested more than {MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        return {str(name): _json_value(inner, depth - 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item, depth - 1) for item in value]
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if value is None or (isinstance(value, str | int | float) and finite) else str(value)


def _has_value(value: object) -> bool:
    """Return whether a field has a value; tables have None or NaN for missing values."""
    return value is not None and value == value and value not in ("", {}, [])


def _judgment(row: RowValues) -> Qrel:
    query, document, value = _identifier(row, JUDGED_QUERY), _identifier(row, JUDGED_DOCUMENT), _first(row, RELEVANCE)
    if value is None or isinstance(value, bool):
        raise MalformedError("no relevance")
    with suppress(TypeError, ValueError, OverflowError):
        number = decimal(value) if isinstance(value, str) else float(value)
        if number.is_integer() and abs(number) < 1 << 31:  # the range of trec_eval
            return Qrel(query, document, int(number))
    raise MalformedError(f"the relevance is {value!r}, not a whole number of 32 bits")


def _example(row: RowValues) -> Example:
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
    query, positive = _text(row, EXAMPLE_QUERY, required=True), _text(row, ("positive",), required=True)
    others = [_text({"negative": negative}, ("negative",), required=True) for negative in negatives]
    if scores and len(scores) != 1 + len(others):
        raise MalformedError(f"{len(scores)} scores for {1 + len(others)} texts, the positive and the negatives")
    query, positive, *others = (
        normalize("NFC", text) for text in (query, positive, *others)
    )  # as `data.texts.as_text`
    return Example(query, positive, tuple(others), scores=tuple(map(_number, scores)))


def _number(value: object) -> float:
    with suppress(OverflowError):  # an integer of hundreds of digits
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    raise MalformedError(f"the score is {value!r}, not a finite number")


def decimal(text: str) -> float:
    """Return the number in a text; unlike `float`, raise `ValueError` for 1_0 and for digits beyond ASCII."""
    if "_" in text or not text.isascii():
        raise ValueError(f"not a number: {text!r}")
    return float(text)


def _mined_negatives(row: RowValues) -> MinedNegatives:
    if not isinstance(row.get("neg"), Mapping):
        raise MalformedError('no "neg", the ids of each system')
    systems = {name: _identifiers(ids) for name, ids in row["neg"].items() if ids is not None}
    return MinedNegatives(_identifier(row, MINED_QUERY), _identifiers(row.get("pos")), systems)


def _identifiers(values: object) -> tuple[str, ...]:
    if not isinstance(values, list | tuple):
        raise MalformedError(f"ids are a list, not a {type(values).__name__}")
    return tuple(_identifier({"id": value}, ("id",)) for value in values)


def _scored_document(row: RowValues) -> ScoredDoc:
    value = row.get("score")
    if isinstance(value, str):  # in a table
        with suppress(ValueError):
            value = decimal(value)
    return ScoredDoc(_identifier(row, MINED_QUERY), _identifier(row, MINED_DOCUMENT), _number(value))


def _found(row: RowValues) -> ScoredDoc:
    """Return a hit of a run. The tag may contain blanks; an id with a blank is an error."""
    if "words" in row and not (row["rank"].isdecimal() and not _is_number(row["tag"])):
        raise MalformedError("more than six fields, and they are not a hit whose tag has several words")
    with suppress(ValueError):
        if math.isfinite(score := decimal(row["score"])):
            return ScoredDoc(row["query"], row["document"], score)
    raise MalformedError(f"the score {row['score']!r} is not a finite number")


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        return math.isfinite(decimal(text))
    return False


def _any_text(row: RowValues) -> str:
    text = " ".join(part for part in (_text(row, ("title",)), _text(row, (*TEXT, "positive"))) if part.strip())
    if not text:
        raise MalformedError("no text")
    return text


DOCUMENT = Kind(
    name="document",
    record=_document,
    published=_published_document,
    key=("id",),
    differs="another title, text or field",
    further=True,
    names=frozenset({*DOCUMENT_ID, *TEXT, "title", "url"}),
    columns={2: ("id", "text"), 3: ("id", "title", "text"), 4: ("id", "url", "title", "text")},
    fields='"_id" or "id", "text" or "contents", and optionally "title"',
    layout="id TAB text, id TAB title TAB text, or id TAB url TAB title TAB text",
    lines=True,
)
QUERY = Kind(
    name="query",
    record=lambda row: Query(_identifier(row, QUERY_ID), _text(row, TEXT, required=True)),
    key=("id",),
    names=frozenset({*QUERY_ID, *TEXT}),
    columns={2: ("id", "text")},
    fields='"_id" or "id", and "text"',
    layout="id TAB text",
    lines=True,
)
JUDGMENT = Kind(
    name="judgment",
    record=_judgment,
    key=("query_id", "doc_id"),
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
    names=frozenset({*EXAMPLE_QUERY, "positive", *NEGATIVES, *NUMBERED, "scores"}),
    columns={2: ("query", "positive")},
    fields='"query" or "anchor", "positive", and optionally "negatives" and "scores"',
    layout="query TAB positive, then optionally TAB negative...",
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
    key=("query_id",),
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
RUN_HIT = Kind(
    name="hit",
    record=_found,
    key=("query_id", "doc_id"),
    differs="another score",
    names=frozenset(),
    columns={6: RUN_COLUMNS},
    fields=", ".join(RUN_COLUMNS),
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
