"""Documents that a store should have, searched by indexes that are made anew of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document
from vocable.engines.filters import Filter, matches
from vocable.engines.segmented import SegmentedStore
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.dense_index import DenseIndex, rounded
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.ranking import Ranking
from vocable.language.words import stemmed

V, D = 30, 4
SPACES = {"sparse": V, "dense": D}
SETTINGS: dict[str, Any] = {"bm25": True, "language": "english", "title_weight": 2, "whole": True}
WORDS = ["fox", "owl", "night", "reads", "books", "hidden", "rain", "search", "sparse", "vectors", "twelve"]


def make_documents(names: Sequence[str], seed: int) -> list[Document]:
    """Return documents of random words; each third has a title, each second has fields."""
    random, documents = np.random.default_rng(seed), []
    for number, name in enumerate(names):
        text = " ".join(random.choice(WORDS, random.integers(1, 12)))
        title = str(random.choice(WORDS)) if number % 3 == 0 else ""
        fields = {"year": int(random.integers(2000, 2005)), "lang": str(random.choice(["de", "en"]))}
        documents.append(Document(name, text, title, fields if number % 2 else {}))
    return documents


def make_vectors(count: int, seed: int) -> dict[str, Any]:
    """Return sparse vectors of few distinct weights, so that equal scores are common, and dense vectors."""
    random = np.random.default_rng(seed)
    sparse = random.choice(np.float32([0, 0, 0, 0, 0.5, 1, 2, 0.1]), size=(count, V))
    dense = random.choice(np.float32([-1, 0, 0.5, 0.7, 1]), size=(count, D))
    return {"sparse": csr_array(sparse), "dense": dense}


class LiveDocuments:
    """The documents that a store should have, with their vectors."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[Document, np.ndarray, np.ndarray]] = {}

    def put(self, documents: Sequence[Document], vectors: dict[str, Any]) -> None:
        """Add documents, or replace documents with their ids."""
        sparse, dense = vectors["sparse"].toarray(), vectors["dense"]
        for row, document in enumerate(documents):
            self.rows[document.id] = document, sparse[row], dense[row]

    def delete(self, ids: Sequence[str]) -> int:
        """Delete documents, and return how many of them existed."""
        return sum(self.rows.pop(name, None) is not None for name in dict.fromkeys(ids))

    @property
    def ids(self) -> list[str]:
        return [*self.rows]

    @property
    def documents(self) -> list[Document]:
        return [document for document, _, _ in self.rows.values()]

    def sparse(self) -> csr_array:
        return csr_array(np.array([row for _, row, _ in self.rows.values()], np.float32).reshape(-1, V))

    def dense(self) -> np.ndarray:
        return np.array([row for _, _, row in self.rows.values()], np.float32).reshape(-1, D)

    def check(self, store: SegmentedStore, queries: dict[str, Any], filters: Sequence[Filter | None] = (None,)) -> None:
        """Compare everything that a store answers with indexes of these documents, to the last bit."""
        self.check_content(store)
        exact = ExactIndex(self.sparse(), self.ids)
        dense = DenseIndex(*rounded(self.dense()), ids=self.ids)
        words = BM25Index([document.weighed(2) for document in self.documents], self.ids)
        texts = queries["texts"]
        word_queries = store.query_vectors(texts)
        for filter in filters:
            allowed = np.array([filter is None or matches(filter, one.fields) for one in self.documents], bool)
            for k in (1, 4, 50):
                for share in (0.0, 0.5, 1.0):
                    expected = exact.search(queries["sparse"], k, allowed=allowed, minimum_match=share)
                    ranking = store.search(queries["sparse"], k, filter=filter, minimum_match=share)
                    assert hits(ranking) == hits(expected)
                expected = words.search(texts, k, allowed=allowed)
                assert hits(store.search(word_queries, k, space="bm25", filter=filter)) == hits(expected)
                expected = dense.search(queries["dense"], k, allowed=allowed)
                assert hits(store.search(queries["dense"], k, space="dense", filter=filter)) == hits(expected)
            if filter is not None:
                assert store.count(filter) == np.count_nonzero(allowed)
                self.check_idf(store, texts, filter)

    def check_idf(self, store: SegmentedStore, texts: Sequence[str], idf_filter: Filter) -> None:
        """Compare counts, and scores of BM25 by the IDF of the documents that pass a filter, with sums word by word."""
        passing = np.array([matches(idf_filter, document.fields) for document in self.documents], bool)
        n, sparse = int(np.count_nonzero(passing)), self.sparse().toarray()
        counts, documents = store.count_terms(np.arange(V), filter=idf_filter)
        assert (counts.tolist(), documents) == ((sparse[passing] > 0).sum(axis=0).tolist(), n)
        if n == 0:
            return
        words = stemmed([document.weighed(2) for document in self.documents], "english")
        lengths = np.array([len(stems) for stems in words])
        norms = 1.2 * (0.25 + 0.75 * lengths / lengths.mean())
        ranking = store.search(store.query_vectors(texts, idf_filter=idf_filter), len(words), space="bm25")
        for number, asked in enumerate(stemmed(texts, "english")):
            scores = np.zeros(len(words))
            for word in asked:
                frequencies = np.array([stems.count(word) for stems in words])
                df = np.count_nonzero(frequencies[passing])
                scores += np.log(1 + (n - df + 0.5) / (df + 0.5)) * frequencies / (frequencies + norms)
            wanted = {name: score for name, score in zip(self.ids, scores.tolist(), strict=True) if score > 0}
            found = dict(ranking.hits(number))
            assert found.keys() == wanted.keys()
            np.testing.assert_allclose([found[name] for name in wanted], [*wanted.values()], rtol=2e-6)

    def check_content(self, store: SegmentedStore) -> None:
        """Compare documents, vectors, and counts of terms and words."""
        assert (len(store), sorted(store.ids())) == (len(self.rows), sorted(self.ids))
        assert store.documents([*self.ids, "unknown"]) == [*self.documents, None]
        sparse = self.sparse().toarray()
        np.testing.assert_array_equal(store.vectors(self.ids).toarray(), sparse)
        numbers, units = rounded(self.dense())
        np.testing.assert_array_equal(store.vectors(self.ids, "dense"), numbers * units[:, None])
        frequencies = np.count_nonzero(sparse, axis=0)
        np.testing.assert_array_equal(store.count_terms(np.arange(V))[0], frequencies)
        terms = np.array([7, 0, V - 1, 7])
        counts, documents = store.count_terms(terms)
        assert (counts.tolist(), documents) == (frequencies[terms].tolist(), len(self.rows))
        words = BM25Index([document.weighed(2) for document in self.documents], self.ids)
        initials = "".join(sorted({word[0] for word in WORDS}))
        assert sorted(store.words_like(initials, 3, 6)) == sorted(words.words_like(initials, 3, 6))


def hits(ranking: Ranking) -> list[list[tuple[str, float]]]:
    """Return the hits of each query."""
    return [ranking.hits(query) for query in range(len(ranking))]


def make_queries(seed: int) -> dict[str, Any]:
    """Return four queries of each kind, one of which is empty."""
    queries = make_vectors(4, seed)
    queries["sparse"] = csr_array(queries["sparse"].toarray() * np.array([[1], [0], [3], [0.7]], np.float32))
    random = np.random.default_rng(seed)
    return queries | {"texts": ["", *(" ".join(random.choice([*WORDS, "unknown"], 4)) for _ in range(3))]}


def fill(store: SegmentedStore, live: LiveDocuments, names: Sequence[str], seed: int) -> None:
    """Put documents into a store and among the documents that it should have."""
    documents, vectors = make_documents(names, seed), make_vectors(len(names), seed)
    store.upsert(documents, vectors)
    live.put(documents, vectors)
