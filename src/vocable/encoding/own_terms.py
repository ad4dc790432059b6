"""The file of the terms of an output vocabulary, output_vocabulary.jsonl: one JSON string per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from vocable.core.storage import replacing
from vocable.errors import DataError

TERMS_FILE = "output_vocabulary.jsonl"


def write_terms(path: str | Path, terms: Iterable[str]) -> None:
    """Write terms as JSON strings, one per line, so that all characters survive."""
    with replacing(path) as file:
        file.writelines(json.dumps(term, ensure_ascii=False).encode() + b"\n" for term in terms)


def read_terms(path: str | Path) -> list[str]:
    """Return the terms in a file of JSON strings, one per line; raise `DataError` for an empty or a duplicate term."""
    place = str(path)
    lines = Path(path).read_bytes().removesuffix(b"\n").split(b"\n")
    terms = [json_string(line, place, number) for number, line in enumerate(lines, start=1)]
    for number, fault in faults_of(terms):
        raise DataError(fault, source=place, line=number)
    return terms


def json_string(line: str | bytes, place: str, number: int) -> str:
    """Return the term in a line of JSON."""
    try:
        term = json.loads(line)
        str(term).encode()  # fails for half of a surrogate pair
    except (ValueError, RecursionError):
        term = None
    if not isinstance(term, str):
        raise DataError("a term is a JSON string, in quotes", source=place, line=number)
    return term


def faults_of(terms: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the number, counted from 1, and the fault of each bad term."""
    first: dict[str, int] = {}
    for number, term in enumerate(terms, start=1):
        if not term:
            yield number, "an empty term"
        elif first.setdefault(term, number) != number:
            yield number, f"duplicate term {term!r}, also number {first[term]}"
