from __future__ import annotations

from pathlib import Path

import bm25s
import numpy as np
import pytest
import Stemmer
from scipy.sparse import csr_array

from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.bm25 import BM25Index

TEXTS = [
    "The cat sat on the mat, and the cats were sitting.",
    "Dogs bark at cats; a dog barks louder than any cat.",
    "",
    "Sparse retrieval with learned term weights",
    "the of and a",
    "Retrieval of documents: weights of terms, terms, terms",
]
QUERIES = ["barking dogs and cats", "term weights term", "", "the", "zebra"]


def test_scores_are_those_of_bm25s() -> None:
    ranking = BM25Index(TEXTS).search(QUERIES, k=len(TEXTS))
    stem = Stemmer.Stemmer("english")
    model = bm25s.BM25(k1=1.2, b=0.75)
    indexed, tokens = (
        [
            [word for word in words if word]
            for words in bm25s.tokenize(texts, stopwords="en", stemmer=stem, return_ids=False, show_progress=False)
        ]
        for texts in (TEXTS, QUERIES)
    )
    model.index(indexed, show_progress=False)
    for query, words in enumerate(tokens):
        expected = model.get_scores(words) if words else np.zeros(len(TEXTS))
        found = ranking.rows[query] >= 0
        assert set(ranking.rows[query][found]) == set(np.flatnonzero(expected))
        np.testing.assert_allclose(ranking.scores[query][found], expected[ranking.rows[query][found]], rtol=1e-6)
        assert (np.diff(ranking.scores[query]) <= 0).all()


def test_a_score_by_hand() -> None:
    # Two documents of one and three words; "cat" is in one of them, once.
    ranking = BM25Index(["cat", "dog dog bird"]).search(["cat"], k=1)
    idf = np.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    norm = 1.2 * (1 - 0.75 + 0.75 * 1 / 2)
    assert ranking.hits(0) == [("0", pytest.approx(idf * 1 / (1 + norm), rel=1e-6))]


def test_a_language_changes_words_and_b_changes_scores() -> None:
    plain = BM25Index(["the cats"], language="none")
    assert sorted(plain.vocabulary) == ["cats", "the"]
    assert sorted(BM25Index(["the cats"]).vocabulary) == ["cat"]
    flat = BM25Index(["cat", "cat dog bird fish"], b=0.0).search(["cat"], 2)
    assert flat.scores[0, 0] == flat.scores[0, 1]  # b = 0: length does not count; then the order of the rows
    assert flat.rows.tolist() == [[0, 1]]


def test_empty_queries_and_k_beyond_the_documents() -> None:
    ranking = BM25Index(TEXTS, ids=list("fedcba")).search(QUERIES, k=10)
    assert ranking.rows.shape == (5, 10)
    assert (ranking.rows[2:] == -1).all()
    assert [document for document, _ in ranking.hits(1)] == ["a", "c"]


def test_weights_of_query_words_multiply_scores() -> None:
    index = BM25Index(TEXTS)
    counts, half = index.query_vectors(QUERIES), csr_array(index.query_vectors(QUERIES) * np.float32(0.5))
    whole, weighted = index.search(QUERIES, 6), index.search(half, 6)
    np.testing.assert_array_equal(index.search(counts, 6).scores, whole.scores)
    np.testing.assert_array_equal(weighted.rows, whole.rows)
    np.testing.assert_array_equal(weighted.scores, whole.scores / 2)
    with pytest.raises(VectorsError):
        index.search(csr_array((1, 3)))


@pytest.mark.parametrize("texts", [[], ["", "the"]])
def test_an_index_without_words_finds_nothing(texts: list[str], tmp_path: Path) -> None:
    index = BM25Index(texts)
    assert index.search(["cat", ""], k=2).rows.tolist() == [[-1, -1]] * 2
    assert index.search([], k=2).rows.shape == (0, 2)
    index.save(tmp_path / "bm25")
    assert len(BM25Index.load(tmp_path / "bm25")) == len(texts)


def test_a_loaded_index_gives_the_same_answers(tmp_path: Path) -> None:
    index = BM25Index(TEXTS, ids=list("fedcba"), k1=0.9, b=0.4)
    index.save(tmp_path / "bm25")
    loaded = BM25Index.load(tmp_path / "bm25")
    one, other = index.search(QUERIES, 6), loaded.search(QUERIES, 6)
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_array_equal(one.scores, other.scores)
    assert loaded.ids == list("fedcba")
    assert loaded.settings == {"k1": 0.9, "b": 0.4, "language": "english"}
    assert loaded.vocabulary == index.vocabulary


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    BM25Index(TEXTS).save(tmp_path / "bm25")
    content = (tmp_path / "bm25").read_bytes()
    (tmp_path / "bm25").write_bytes(content[:-70])
    with pytest.raises(VectorsError, match="bm25: damaged: terms_bytes: it is truncated"):
        BM25Index.load(tmp_path / "bm25")


def test_nothing_is_printed_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    BM25Index(TEXTS).search(QUERIES)
    assert capfd.readouterr() == ("", "")
    BM25Index(TEXTS, progress=True)  # a bar appears after a second
    assert capfd.readouterr().out == ""


def test_senseless_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError):
        BM25Index(TEXTS, b=2)
    with pytest.raises(ArgumentError):
        BM25Index(TEXTS, language="xx")
    with pytest.raises(VectorsError):
        BM25Index(TEXTS, ids=["a"])
    with pytest.raises(ArgumentError):
        BM25Index(TEXTS).search(QUERIES, k=0)
