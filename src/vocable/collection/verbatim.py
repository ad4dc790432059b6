"""Verbatim matches: a fusion puts a document first that is clearly the one whose words a query repeats.

A title, the name of a function or a sentence has one document, which BM25 finds, and which other kinds of vectors may
bury (docs/benchmarks.md).

Letters: q queries, k results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from vocable.data import Document
from vocable.indexes.ranking import Ranking
from vocable.language.phrases import SpelledText

VERBATIM_MATCH = "verbatim"  # kind of a part of a score
READ_HITS = 20  # hits of words whose texts are read

DocumentsOf: TypeAlias = Callable[[Sequence[str]], Sequence[Document | None]]  # ids -> documents


def verbatim(words: Ranking, queries: Sequence[str], documents_of: DocumentsOf) -> Ranking:
    """Return the verbatim match [q, 1] of each query among its first hits by `words` [q, k], with the score 1.

    It is the best hit whose title is the query, else the only hit whose heading or text has the words of the query in
    their order, but for copies of its text; most queries have none.
    """
    hits = [[name for name, _ in words.first(READ_HITS).hits(number)] for number in range(len(queries))]
    distinct = [*dict.fromkeys(name for names in hits for name in names)]
    documents = {document.id: document for document in documents_of(distinct) if document is not None}
    rows, scores = np.full((len(queries), 1), -1, np.int32), np.zeros((len(queries), 1), np.float32)
    for number, (query, names) in enumerate(zip(queries, hits, strict=True)):
        match = _match(query, [documents[name] for name in names if name in documents])
        if match is not None:
            rows[number], scores[number] = words.rows[number, names.index(match)], 1
    return replace(words, rows=rows, scores=scores, missing=None)


def _match(query: str, documents: Sequence[Document]) -> str | None:
    """Return the id of the verbatim match among documents, best first."""
    phrase = SpelledText(query)
    if not phrase.lines.strip():
        return None
    named = [document for document in documents if SpelledText(document.title).lines == phrase.lines]
    parts = [(document, document.heading, document.text) for document in documents]
    having = [document for document, *texts in parts if any(SpelledText(text).has(phrase) for text in texts)]
    if not named and len({document.text for document in having}) > 1:
        return None
    return next((document.id for document in named or having), None)
