"""Hard negatives without a model: texts that BM25 confuses with a query's answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from datasets import Dataset

from vocable.errors import DataError
from vocable.search.bm25 import BM25Index

# Ranks (from 0) that negatives are taken from: the very first hits are often answers that nobody wrote down.
FIRST, LAST = 3, 30


def add_lexical_negatives(drawn: Dataset, source: Dataset, count: int) -> Dataset:
    """`drawn` with columns negative_1 to negative_`count`, taken from the positives of the whole `source`.

    For each query the hits of BM25 are read from the fourth on; a text that answers the same query somewhere in the
    source is passed over, and the last hit is repeated where there are too few.

    Raises:
        DataError: a source too small to give any query a negative.
    """
    texts = sorted(set(source["positive"]))
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for row in source:
        answers[row["query"]].add(row["positive"])
    queries: list[str] = drawn["query"][:]
    hits = BM25Index(texts).search(queries, LAST).rows
    chosen = [
        _negatives([texts[row] for row in rows if row >= 0], answers[query], count, texts)
        for query, rows in zip(queries, hits.tolist(), strict=True)
    ]
    for number in range(count):
        drawn = drawn.add_column(f"negative_{number + 1}", [texts[number] for texts in chosen])
    return drawn


def _negatives(found: Sequence[str], answers: set[str], count: int, texts: Sequence[str]) -> list[str]:
    wrong = [text for text in found[FIRST:] if text not in answers] or [
        text for text in (*found, *texts[: len(answers) + 1]) if text not in answers
    ]
    if not wrong:
        raise DataError("every text of the source answers the same query: there is no negative")
    return [wrong[min(number, len(wrong) - 1)] for number in range(count)]
