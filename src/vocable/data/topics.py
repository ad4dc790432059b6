"""TREC topics: queries in SGML, `<top>` with `<num>` and `<title>`, or in XML, `<topic number="1">`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape

from vocable.data.kinds import RowValues
from vocable.data.lines import decode
from vocable.data.records import MalformedError

TOPIC = re.compile(rb"^(?:\xef\xbb\xbf)?[ \t]*<top(?:ic)?(?=[\s>])", re.MULTILINE | re.IGNORECASE)
TOPIC_NUMBER = re.compile(
    r"<num>\s*(?:Number\s*:)?\s*([^\s<]+)|<top(?:ic)?\s[^>]*?\b(?:number|id)\s*=\s*[\"']([^\"']+)", re.I
)
LABEL = re.compile(r"\s*(?:Topic|Description)\s*:", re.IGNORECASE)
ITEMS = ("title", "query", "desc", "description")  # the first with words is the query

Lines = Callable[[], Iterator[tuple[int, bytes]]]


def topics(lines: Lines) -> Lines:
    """Return a function that yields the topics of a file as texts, with the number of their first line."""

    def items() -> Iterator[tuple[int, bytes]]:
        content = b"".join(line for _, line in lines())
        starts = [match.start() for match in TOPIC.finditer(content)]
        for start, end in zip(starts, [*starts[1:], len(content)], strict=True):
            yield content.count(b"\n", 0, start) + 1, content[start:end]

    return items


def topic_row(number: int, raw: bytes) -> RowValues:
    """Return a topic as a row: its number without leading zeros, as in judgments, and its title.

    Without a title, the query is the item `query`, else the description, else the whole text.

    >>> topic_row(1, b"<top><num> Number: 051 <title> Topic: Airbus Subsidies <desc> Description: ...</top>")
    {'id': '51', 'text': 'Airbus Subsidies'}
    """
    topic = decode(number, raw)
    number_match = TOPIC_NUMBER.search(topic)
    if number_match is None:
        raise MalformedError("a topic without a number")
    name = (number_match[1] or number_match[2]).strip()
    text = next(filter(None, (_item(topic, item) for item in ITEMS)), "") or _plain(re.sub(r"<num>.*", "", topic))
    return {"id": name.lstrip("0") or "0" if name.isdecimal() else name, "text": text}


def _item(topic: str, name: str) -> str:
    match = re.search(rf"<{name}>([^<]*)", topic, re.IGNORECASE)
    return "" if match is None else _plain(LABEL.sub("", match[1], count=1))


def _plain(text: str) -> str:
    """Return a text without tags and entities, on one line."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())
