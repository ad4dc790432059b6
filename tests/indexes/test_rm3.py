from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.bm25 import RM3, BM25Index

WORDS = ["cat", "dog", "owl", "fox", "bear", "wolf", "hen", "rat"]  # each is its own stem
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), min_size=1, max_size=8)
SHARE = 0.25  # exact in binary, as all shares of the reference are


def reference(
    query: str, hits: list[tuple[str, float]], texts: list[str], known: set[str]
) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
    """The query's language model and RM1 in exact arithmetic, from the words themselves."""
    own = Counter(word for word in query.split() if word in known)
    total = sum((Fraction(score) for _, score in hits), Fraction(0))
    model: dict[str, Fraction] = {}
    for document, score in hits:
        words = texts[int(document)].split()
        for word in words:
            model[word] = model.get(word, Fraction(0)) + Fraction(score) / total / len(words)
    return {word: Fraction(count, own.total()) for word, count in own.items()}, model


@given(TEXTS, TEXTS, st.integers(1, 4), st.integers(1, 5))
def test_rm3_follows_its_formula(texts: list[str], queries: list[str], fb_docs: int, fb_terms: int) -> None:
    index = BM25Index(texts)
    rm3 = RM3(index, texts, fb_docs=fb_docs, fb_terms=fb_terms, original_query_weight=SHARE)
    expanded, ranking = rm3.expand(queries), index.search(queries, fb_docs)
    assert expanded.shape == (len(queries), len(index.vocabulary))
    for row, query in enumerate(queries):
        own, model = reference(query, ranking.hits(row), texts, set(index.vocabulary))
        # Rounded, so that what is equal in theory is a tie; of a tie the first in the alphabet stay.
        kept = sorted(model, key=lambda word: (-round(float(model[word]), 6), word))[:fb_terms]
        mass = sum((model[word] for word in kept), Fraction(0))
        expected = {
            word: SHARE * float(own.get(word, 0)) + (1 - SHARE) * (float(model[word] / mass) if word in kept else 0.0)
            for word in {*own, *kept}
        }
        found = {word: expanded[row, column] for word, column in index.vocabulary.items() if expanded[row, column]}
        assert found == pytest.approx(expected, rel=1e-5)


def test_feedback_finds_a_document_that_shares_no_word_with_the_query() -> None:
    texts = ["cat purr", "purr loudly", "owl hoot"]
    rm3 = RM3(BM25Index(texts, ids=["a", "b", "c"]), texts, fb_docs=1)
    assert [document for document, _ in rm3.index.search(["cat"], 3).hits(0)] == ["a"]
    assert [document for document, _ in rm3.index.search(rm3.expand(["cat"]), 3).hits(0)] == ["a", "b"]


def test_documents_are_counted_in_their_own_order() -> None:
    # Postings are in the order of the ids, the counts in that of the texts.
    texts = ["cat purr", "owl hoot"]
    rm3 = RM3(BM25Index(texts, ids=["z", "a"]), texts, original_query_weight=0)
    assert {word for word, column in rm3.vocabulary.items() if rm3.expand(["cat"])[0, column]} == {"cat", "purr"}


def test_the_query_alone_and_a_query_that_finds_nothing() -> None:
    texts = ["cat cat dog", "owl"]
    index = BM25Index(texts)
    alone = RM3(index, texts, original_query_weight=1).expand(["cat cat owl", "zebra", ""])
    np.testing.assert_allclose(alone.toarray(), np.array([[2, 0, 1], [0, 0, 0], [0, 0, 0]]) / 3, rtol=1e-6)
    assert alone.nnz == 2  # no zeros are stored
    assert RM3(index, texts).expand([]).shape == (0, 3)


def test_rm3_without_documents_expands_to_nothing() -> None:
    assert RM3(BM25Index([]), []).expand(["cat"]).shape == (1, 0)


def test_senseless_arguments_are_refused() -> None:
    index = BM25Index(["cat"])
    with pytest.raises(VectorsError):
        RM3(index, ["cat", "dog"])
    with pytest.raises(ArgumentError):
        RM3(index, ["cat"], fb_docs=0)
    with pytest.raises(ArgumentError):
        RM3(index, ["cat"], fb_terms=0)
    with pytest.raises(ArgumentError):
        RM3(index, ["cat"], original_query_weight=1.5)
