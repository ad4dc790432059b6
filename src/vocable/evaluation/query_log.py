"""A log of queries and the documents that answered them, in memory.

A log is a place of examples: a query, a document that was chosen for it, and perhaps a label score, the first of the
example's `scores`. Without one the label is the number of times that the pair stands in the log. Distinct texts are
held, each once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from vocable.data import Example
from vocable.errors import DataError


@dataclass
class Log:
    """A log in memory: distinct `queries` and `documents`, and for each query its documents with their labels."""

    queries: list[str] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    answers: list[dict[int, float]] = field(default_factory=list)


def read_log(examples: Iterable[Example]) -> Log:
    """Gather the pairs of a log; a pair's label is its highest score, or without any how often it is there.

    Raises:
        DataError: some pairs have a score and some none, or there is no pair.
    """
    log, queries, documents = Log(), dict[str, int](), dict[str, int]()
    scored: set[bool] = set()
    for example in examples:
        query = queries.setdefault(example.query, len(queries))
        if query == len(log.answers):
            log.answers.append({})
        document, answers = documents.setdefault(example.positive, len(documents)), log.answers[query]
        scored.add(bool(example.scores))
        if len(scored) == 2:
            raise DataError(f"some pairs have a label score and some have none: {example.query[:60]!r}")
        if example.scores:
            answers[document] = max(example.scores[0], answers.get(document, -math.inf))
        else:
            answers[document] = answers.get(document, 0) + 1
    if not queries:
        raise DataError("the log has no pair")
    log.queries, log.documents = list(queries), list(documents)
    return log
