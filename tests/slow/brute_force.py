"""Random documents with vectors that need no model, and the answers that brute force gives: for scripts that break.

Letters: n documents, m texts, q queries, v output vocabulary, d dimensions of dense vectors, k results.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.collection import Collection, open_index
from vocable.data import Document
from vocable.encoding.idf import idf
from vocable.encoding.protocol import EncodedTexts
from vocable.engines.filters import matches, parse_filter
from vocable.engines.segmented import SegmentedStore
from vocable.indexes.dense_index import DenseIndex, rounded
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.word_counts import K1, B
from vocable.language.words import stemmed

WORDS = [f"{start}{middle}{end}" for start in "bdgklmnprt" for middle in ("a", "ei", "o", "u") for end in "dlmnrt"]
V, D = 500, 8  # terms of the sparse vectors, dimensions of the dense vectors
QUERIES = ["bad dem", "Title", "bal bal beim", " ".join(WORDS[::9]), " ".join(WORDS[200::5]), "nowhere"]
FILTERS = (None, "lang=de", "year>=2015 and not lang=en")
SPACES = ("sparse", "bm25", "dense")
Answers = dict[tuple[str, str | None], list[list[tuple[str, float]]]]  # hits of each query, by space and filter


class DamageError(Exception):
    """An index that is not as it must be; the text begins with the kind of damage."""


class WordVectors:
    """Vectors of texts in place of a model: a term for each word, by a checksum, which weighs the same everywhere."""

    truncated = windows_read = unknown = query_idf = 0
    dimensions = D

    def encode(self, texts: Sequence[str], advance: object = None) -> csr_array:
        """Return the sparse vectors [m, v] of m texts."""
        rows = [{crc32(word.encode()) % V: 1 + len(word) / 8 for word in set(text.split())} for text in texts]
        indptr = np.cumsum([0, *map(len, rows)]).astype(np.int32)
        columns = np.array([column for row in rows for column in sorted(row)], np.int32)
        weights = np.array([row[column] for row in rows for column in sorted(row)], np.float32)
        return csr_array((weights, columns, indptr), shape=(len(rows), V))

    def encode_both(self, texts: Sequence[str], advance: object = None) -> EncodedTexts:
        """Return the sparse vectors [m, v] and the dense vectors [m, d] of m texts."""
        dense = [[len(text.split(letter)) / 8 - 1 for letter in "aeioubdg"] for text in texts]
        return EncodedTexts(self.encode(texts), np.array(dense, np.float32).reshape(len(texts), D))


def random_document(identifier: str, rng: random.Random, length: int = 8, least: int = 0) -> Document:
    """Return a random document of about `length` words."""
    words = rng.choices(WORDS, weights=range(len(WORDS), 0, -1), k=rng.randint(least, 2 * length))
    fields = {"lang": rng.choice(["de", "en", "fr"]), "year": rng.randint(2000, 2025), "tags": [rng.random()]}
    return Document(identifier, " ".join(words), f"Title {rng.random()}" if rng.random() < 0.5 else "", fields)


def make_index(documents: Sequence[Document], output: Path) -> None:
    """Write an index of documents, whose vectors are stored beside it."""
    from vocable.collection.index import index
    from vocable.encoding.vectors import VectorsMeta, write_vectors

    encoded = WordVectors().encode_both([document.full for document in documents])
    meta, ids = VectorsMeta("words", "words", "max", "document", 0, V), [document.id for document in documents]
    vectors = output.with_name(f"{output.name}.parquet")
    write_vectors(vectors, ids, encoded.sparse, meta, encoded.dense)
    index(vectors, documents, output, bm25=True).close()


def open_words(place: Path) -> Collection:
    """Open an index that `make_index` made."""
    collection, vectors = open_index(place), WordVectors()
    collection.models.documents = vectors  # type: ignore[assignment]
    collection.models.queries = lambda **options: vectors  # type: ignore[method-assign,assignment]
    return collection


def answers_of(view: Collection, k: int) -> Answers:
    """Return the answers of an index, which does not change meanwhile."""
    sparse, dense = WordVectors().encode_both(QUERIES)
    queries = {"sparse": sparse, "bm25": view.store.lexicon.query_vectors(QUERIES), "dense": dense}
    answers: Answers = {}
    for space in SPACES:
        for text in FILTERS:
            vectors = queries[space]
            assert vectors is not None
            ranking = view.searcher.search_space(
                vectors, k, space=space, filter=None if text is None else parse_filter(text)
            )
            answers[space, text] = [ranking.hits(number) for number in range(len(ranking))]
    return answers


class BruteForce:
    """The answers over any choice of n documents, each document scored by itself.

    Several documents may have one id, as long as a choice has one of them.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = list(documents)
        n, q = len(documents), len(QUERIES)
        names = [document.id for document in documents]
        self._names = np.array(names, object)
        self._order = np.empty(n, np.int64)
        self._order[sorted(range(n), key=lambda row: names[row].encode())] = np.arange(n)
        self.sparse, self.dense = WordVectors().encode_both([document.full for document in documents])
        sparse, dense = WordVectors().encode_both(QUERIES)
        assert self.dense is not None
        assert dense is not None
        self._scores = {name: np.zeros((q, n), np.float32) for name in ("sparse", "dense")}
        if n:
            rankings = {
                "sparse": ExactIndex(self.sparse).search(sparse, n, threads=1),
                "dense": DenseIndex(*rounded(self.dense)).search(dense, n),
            }
            for space, ranking in rankings.items():
                for row, scores, found in zip(self._scores[space], ranking.scores, ranking.rows, strict=True):
                    row[found[found >= 0]] = scores[found >= 0]
            plain = (sparse @ self.sparse.T).toarray()
            assert np.allclose(self._scores["sparse"], plain, rtol=1e-5), "ExactIndex is wrong"
        self._passing = {
            text: np.array([text is None or matches(parse_filter(text), one.fields) for one in documents], bool)
            for text in FILTERS
        }
        self._count_words([document.full for document in documents])

    def _count_words(self, texts: Sequence[str]) -> None:
        """Count the words of queries in each text, float32 [words, n], and all words of each text."""
        words, self._queries = stemmed(texts), [Counter(query) for query in stemmed(QUERIES)]
        self.lengths = np.array([*map(len, words)], np.int64)
        self.words = sorted(set().union(*self._queries))
        counted = [Counter(text) for text in words]
        counts = [[count[word] for count in counted] for word in self.words]
        self._counts = np.array(counts, np.float32).reshape(len(self.words), len(texts))

    def word_frequencies(self, rows: np.ndarray) -> dict[str, int]:
        """Return the number of the documents in `rows` with each word of the queries."""
        return dict(zip(self.words, np.count_nonzero(self._counts[:, rows], axis=1).tolist(), strict=True))

    def frequencies(self, rows: np.ndarray) -> np.ndarray:
        """Return the number of the documents in `rows` with each term, int64 [v]."""
        return np.bincount(self.sparse[rows].indices, minlength=V) if len(rows) else np.zeros(V, np.int64)

    def _by_words(self, rows: np.ndarray) -> np.ndarray:
        """Return the scores of BM25 of the documents in `rows`, float32 [q, rows]."""
        lengths, counts = self.lengths[rows], self._counts[:, rows]
        mean = lengths.sum() / len(rows) if lengths.sum() else 1.0
        factors = idf(np.count_nonzero(counts, axis=1), max(1, len(rows)))
        norms = K1 * ((1 - B) + B * lengths / mean)
        weights = [
            (factor * (count / (norms + count))).astype(np.float32)
            for factor, count in zip(factors, counts, strict=True)
        ]
        scores = np.zeros((len(QUERIES), len(rows)), np.float32)
        for row, query in zip(scores, self._queries, strict=True):
            for word, weight in zip(self.words, weights, strict=True):
                if word in query:
                    row += weight * np.float32(query[word])
        return scores

    def answers(self, rows: np.ndarray, k: int) -> Answers:
        """Return the answers over the documents in `rows`."""
        scored = {space: scores[:, rows] for space, scores in self._scores.items()} | {"bm25": self._by_words(rows)}
        return {
            (space, text): [self._best(rows, scores * self._passing[text][rows], k) for scores in scored[space]]
            for space in SPACES
            for text in FILTERS
        }

    def _best(self, rows: np.ndarray, scores: np.ndarray, k: int) -> list[tuple[str, float]]:
        hits = np.flatnonzero(scores > 0)
        if len(hits) > 4 * k:
            least = np.partition(scores[hits], len(hits) - k)[len(hits) - k]
            hits = hits[scores[hits] >= least]
        best = hits[np.lexsort((self._order[rows[hits]], -scores[hits]))[:k]]
        return [*zip(self._names[rows[best]].tolist(), scores[best].tolist(), strict=True)]


def check_answers(answers: Answers, expected: Answers, what: str = "") -> None:
    """Raise `DamageError` unless two answers have the same hits, in the same order, with scores of the same bits."""
    for key, wanted in expected.items():
        for query, hits, others in zip(QUERIES, answers[key], wanted, strict=True):
            if hits != others:
                differing = [pair for pair in zip(hits, others, strict=False) if pair[0] != pair[1]][:2]
                sizes = f"{len(hits)} hits for {len(others)}"
                raise DamageError(f"wrong: {what}{key}: {query[:20]!r}: {sizes}, such as {differing}")


def check_counts(view: Collection, force: BruteForce, rows: np.ndarray) -> None:
    """Raise `DamageError` unless an index counts terms and words as the documents in `rows` have them."""
    store = view.store
    assert isinstance(store, SegmentedStore)
    snapshot, frequencies = store.now(), force.frequencies(rows)
    if len(view) != len(rows):
        raise DamageError(f"wrong: {len(view)} documents are counted, and {len(rows)} are there")
    if (store.count_terms(np.arange(V))[0] != frequencies).any():
        raise DamageError("wrong: the document frequencies are not the count")
    counts, total = store.count_terms(terms := np.arange(0, V, 7))
    if total != len(rows) or (counts != frequencies[terms]).any():
        raise DamageError("wrong: the frequencies of terms are not the count")
    words = dict(zip(force.words, snapshot.count_words(force.words).tolist(), strict=True))
    if words != force.word_frequencies(rows):
        raise DamageError(f"wrong: the frequencies of words are {words}")
    mean = force.lengths[rows].sum() / len(rows) if len(rows) and force.lengths[rows].sum() else 1.0
    if snapshot.mean_length != mean:
        raise DamageError(f"wrong: a mean length of {snapshot.mean_length}, the count is {mean}")
