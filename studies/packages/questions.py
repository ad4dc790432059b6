"""Questions about passages: pairs to train on, and known items to search for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from studies.packages.passages import is_prose

Line = dict[str, Any]

FEWEST, MOST = 2, 25  # words of a question
ANSWERS = 5  # passages of a section
SPECIFIC = 3  # words of a heading that says enough without the title of its page
NUMBERS = re.compile(r"^(chapter |section |appendix )?([A-Z]?\d+(\.\d+)*|[A-Z])[.:)]?\s+|[\s¶#↑]+$", re.IGNORECASE)
QUESTION = re.compile(
    r"(how (do|does|can|to|is|are|much|many)|what|why|when|where|which|who|can i|should|is there) .*\w.*", re.I
)
GENERAL = re.compile(
    r"description|overview|introduction|about|details?|detailed description|summary|abstract", re.IGNORECASE
)
UNSAID = re.compile(
    r"(see also|authors?|copyright|licen[cs]e|bugs|support|index|contents|news|changes).*", re.IGNORECASE
)
SUMMED = frozenset(["docstrings", "descriptions"])  # formats whose headings are first sentences


def pairs(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield questions, each with passages of the section that answers it and with its kind; one section a question."""
    asked = dict[str, tuple[str, ...]]()
    for line in lines:
        kind, question = question_of(line)
        section = line["_id"].rpartition("/")[0], line["page"], line["heading"]
        if question and line["part"] <= ANSWERS and asked.setdefault(question.lower(), section) == section:
            yield {"query": question, "positive": line["text"], "kind": kind}


def question_of(line: Line) -> tuple[str, str]:
    """Return the kind and the text of the question that the section of a passage answers, "" if there is none.

    >>> question_of({"page": "ls - list directory contents", "heading": "DESCRIPTION", "format": "manual pages"})
    ('synopsis', 'ls - list directory contents')
    >>> question_of({"page": "vacuumdb - clean a database", "heading": "Notes", "format": "manual pages"})
    ('heading', 'vacuumdb Notes')
    """
    heading, page = (NUMBERS.sub("", line[field]).strip() for field in ("heading", "page"))
    subject = page.partition(" - ")[0]
    if UNSAID.fullmatch(heading):
        return "", ""
    if heading.endswith("?") or QUESTION.fullmatch(heading):
        kind, text = "question", heading
    elif line["format"] in SUMMED:
        kind, text = "summary", heading
    elif not heading or GENERAL.fullmatch(heading) or heading.lower() in page.lower():
        kind, text = ("synopsis", page) if " - " in page else ("title", page)
    else:
        enough = len(heading.split()) >= SPECIFIC or subject.lower() in heading.lower()
        kind, text = "heading", heading if enough else f"{subject} {heading}"
    fits = FEWEST <= len(text.split()) <= MOST and is_prose(text)
    return (kind, text) if fits else ("", "")


class KnownItem(NamedTuple):
    """A question and the id of its only answer; it is a sentence that a passage lost, or the heading of a section."""

    text: str
    document: str
    is_sentence: bool


def known_items(lines: Iterable[Line]) -> Iterator[KnownItem]:
    """Yield lost sentences, and the headings that no other section has and that do not stand in their passage."""
    headings = dict[str, str]()  # "" if several sections have the heading
    for line in lines:
        if sentence := line.get("sentence"):
            yield KnownItem(sentence, line["_id"], True)
        kind, question = question_of(line)
        if kind in ("heading", "question") and line["part"] == 1 and question.lower() not in line["text"].lower():
            headings[question] = "" if question in headings else line["_id"]
    yield from (KnownItem(question, document, False) for question, document in headings.items() if document)
