"""Negatives found with BM25: near misses of the source, never an answer."""

from __future__ import annotations

import pytest
from datasets import Dataset

from vocable.errors import DataError
from vocable.search.bm25 import BM25Index
from vocable.training.lexical_negatives import FIRST, LAST, add_lexical_negatives

FRUITS = ("apple", "pear", "plum", "grape", "melon", "cherry", "fig", "lemon", "mango", "olive", "peach", "quince")


@pytest.fixture
def source() -> Dataset:
    rows = [
        {"query": f"grow {fruit} trees", "positive": f"{fruit} trees grow in garden {i}"}
        for i, fruit in enumerate(FRUITS)
    ]
    rows.append({"query": "grow apple trees", "positive": "apple trees grow from grafted apple trees"})
    return Dataset.from_list(rows)


def test_negatives_are_hits_from_the_fourth_on_without_the_answers(source: Dataset) -> None:
    found = add_lexical_negatives(source, source, 3)
    texts = sorted(set(source["positive"]))
    ranking = BM25Index(texts).search(source["query"][:], LAST)
    for number, row in enumerate(found):
        answers = {other["positive"] for other in source if other["query"] == row["query"]}
        hits = [texts[position] for position in ranking.rows[number] if position >= 0]
        expected = [text for text in hits[FIRST:] if text not in answers][:3]
        assert [row[f"negative_{i}"] for i in (1, 2, 3)] == expected
        assert not answers & set(expected)


def test_the_last_one_is_repeated_where_there_are_too_few(source: Dataset) -> None:
    few = source.select(range(2))
    found = add_lexical_negatives(few, few, 2)
    assert [found[0]["negative_1"], found[0]["negative_2"]] == [source[1]["positive"]] * 2


def test_a_query_that_every_text_answers_is_refused(source: Dataset) -> None:
    one = source.select([0])
    with pytest.raises(DataError, match="there is no negative"):
        add_lexical_negatives(one, one, 1)
