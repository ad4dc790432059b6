"""Statistics of a collection that changes: document frequencies of terms and words, in SQLite.

The vector of a document for BM25 has tf / (tf + k1 (1 - b + b length / mean length)) for each word; a query's vector
has the count of each word times its inverse document frequency, so that the part that changes with every added document
is in the query. The mean length in use is renewed when the real one differs by a tenth.

Letters: n documents, m of them, q queries, v output vocabulary.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from vocable.core.links import refuse_link
from vocable.encoding.idf import idf
from vocable.engines.base import UNBOUNDED
from vocable.errors import ArgumentError, DataError, NoSpaceError, VectorsError
from vocable.indexes.word_counts import count_words, term_frequency_weights
from vocable.language.words import stemmed

DRIFT = 0.1  # share that the mean length may differ from the length in use
DAMAGED = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)  # an error: other tables
SIDE_FILES = ("", "-wal", "-shm", "-journal")  # endings of the files that SQLite writes
FIGURES = (
    "documents",
    "entries",  # sum of the document frequencies of terms
    "words",  # words of all documents, repeats counted
    "postings",  # sum of the document frequencies of words
    "mean",  # length in use
    "pending",  # 1 while the documents change
)


class Content(NamedTuple):
    """Documents to count: their sparse vectors [m, v] and, if words are counted, their texts."""

    vectors: csr_array
    texts: Sequence[str]


class TermCounts(NamedTuple):
    """Counts of n documents: documents with each term, int64 [v], n, and the IDF of each term, float32 [v].

    Without documents, the IDF is None.
    """

    frequencies: np.ndarray
    documents: int
    idf: np.ndarray | None

    @classmethod
    def of(cls, frequencies: np.ndarray, documents: int) -> Self:
        """Return the counts with the IDF."""
        return cls(frequencies, documents, idf(frequencies, documents) if documents else None)


class Statistics:
    """Document frequencies of a changing collection, in a file.

    `identity` is a random number of the file, which the collection also stores. `recover` is true if the figures may
    not match the documents: a kill interrupted a change, or the file is damaged or was exchanged.
    """

    def __init__(self, path: Path, documents: int, identity: int | None, *, size: int, language: str | None) -> None:
        """Open the statistics of a collection of a number of `documents`, or begin new ones.

        `size` is v; `language` is the language of the words, None if they are not counted for BM25.

        Raises:
            VectorsError: the file cannot be read or written, or is a link.
        """
        self._path, self._size, self._language = path, size, language
        for ending in SIDE_FILES:
            refuse_link(path.with_name(path.name + ending))
        with self._failing():
            try:
                whole = self._open()
            except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: a damaged name in the schema
                if isinstance(error, sqlite3.Error) and error.sqlite_errorcode & 0xFF not in DAMAGED:
                    raise
                self.close()
                for ending in SIDE_FILES:
                    path.with_name(path.name + ending).unlink(missing_ok=True)
                whole = self._open()
            [self.identity] = self._db.execute("PRAGMA user_version").fetchone()
        self.recover = not whole or identity != self.identity or self["documents"] != documents or bool(self["pending"])

    def _open(self) -> bool:
        """Open the file, and return whether its figures are possible and agree with its tables."""
        self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS words (number INTEGER PRIMARY KEY, word TEXT UNIQUE, df INTEGER)")
        self._db.execute("CREATE TABLE IF NOT EXISTS figures (name TEXT PRIMARY KEY, value REAL)")
        self._db.execute("CREATE TABLE IF NOT EXISTS terms (df BLOB)")
        if self._db.execute("PRAGMA user_version").fetchone() == (0,):
            self._db.execute(f"PRAGMA user_version = {1 + secrets.randbelow(2**31 - 2)}")
        impossible = "typeof(word) <> 'text' OR typeof(df) <> 'integer' OR df < 0 OR number NOT BETWEEN 1 AND ?"
        self._db.execute(f"DELETE FROM words WHERE {impossible}", (UNBOUNDED - 1,))
        figures = dict(self._db.execute("SELECT name, value FROM figures WHERE typeof(value) = 'real' AND value >= 0"))
        self._db.executemany(
            "INSERT OR REPLACE INTO figures VALUES (?, 0)", [(name,) for name in FIGURES if name not in figures]
        )
        terms = [row for (row,) in self._db.execute("SELECT df FROM terms WHERE typeof(df) = 'blob'")]
        if whole := len(terms) == 1 and len(terms[0]) == 8 * self._size and figures.keys() >= set(FIGURES):
            counts = np.frombuffer(terms[0], dtype="<i8")
            possible = 0 <= counts.min(initial=0) <= counts.max(initial=0) <= figures["documents"]
            postings, largest = self._db.execute("SELECT total(df), ifnull(max(df), 0) FROM words").fetchone()
            whole = possible and counts.sum() == figures["entries"] and largest <= figures["documents"]
            return bool(whole and postings == figures["postings"] <= figures["words"] < 2**53)
        self._db.execute("DELETE FROM terms")
        self._db.execute("INSERT INTO terms VALUES (?)", (bytes(8 * self._size),))
        return False

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Turn errors of SQLite into `VectorsError`s."""
        try:
            yield
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL:
                raise NoSpaceError(
                    f"{self._path}: no space left on the disk: free some, and repeat the command"
                ) from error
            raise VectorsError(f"{self._path}: cannot be read or written: {error}") from error

    def __getitem__(self, figure: str) -> float:
        with self._failing():
            [value] = self._db.execute("SELECT value FROM figures WHERE name = ?", (figure,)).fetchone()
        return float(value)

    @property
    def terms(self) -> np.ndarray:
        """Number of documents with each term, int64 [v]."""
        with self._failing():
            [content] = self._db.execute("SELECT df FROM terms").fetchone()
        return np.frombuffer(content, dtype="<i8")

    @property
    def drifted(self) -> float:
        """The difference of the documents' mean length from the length in use, as a share of the latter."""
        mean = self["words"] / max(1, self["documents"])
        return abs(mean / self["mean"] - 1) if self["mean"] else float(mean > 0)

    @contextmanager
    def changing(self, added: Content, removed: Content | None = None) -> Iterator[csr_array | None]:
        """Count documents that the block adds to and removes from the store.

        Yields the vectors [m, columns] of the added texts for BM25, None if no words are counted. After a kill or an
        error in the block, `recover` is true at the next opening, unless the store refused the documents.
        """
        pending = self["pending"]
        self._set(pending=1)
        with self._failing():
            self._db.execute("BEGIN")
        counts = self.terms + self._counted(added)
        documents = self["documents"] + added.vectors.shape[0]
        if removed is not None:
            counts, documents = counts - self._counted(removed), documents - removed.vectors.shape[0]
        with self._failing():
            self._db.execute("UPDATE terms SET df = ?", (counts.astype("<i8").tobytes(),))
        self._set(documents=documents, entries=float(counts.sum()))
        weights = self._change_words(added.texts, removed.texts if removed else ()) if self._language else None
        try:
            yield weights
        except BaseException as error:
            with self._failing():
                self._db.execute("ROLLBACK")
            if isinstance(error, ArgumentError | DataError):  # raised before anything was written
                self._set(pending=pending)
            raise
        with self._failing():
            self._db.execute("COMMIT")
        self._set(pending=pending)  # a recount is one change

    def _counted(self, content: Content) -> np.ndarray:
        return np.bincount(content.vectors.indices, minlength=self._size)

    def _change_words(self, added: Sequence[str], removed: Sequence[str]) -> csr_array:
        """Count the words of texts, and return the vectors of the added texts."""
        new, gone = self._stemmed(added), self._stemmed(removed)
        df = Counter(chain.from_iterable(map(set, new)))
        df.subtract(Counter(chain.from_iterable(map(set, gone))))
        with self._failing():
            self._db.executemany("INSERT OR IGNORE INTO words (word, df) VALUES (?, 0)", [(word,) for word in df])
            self._db.executemany(
                "UPDATE words SET df = df + ? WHERE word = ?", [(change, word) for word, change in df.items()]
            )
        words = self["words"] + sum(map(len, new)) - sum(map(len, gone))
        postings, mean = self["postings"] + df.total(), self["mean"] or words / max(1, self["documents"])
        self._set(words=words, postings=postings, mean=mean)
        return self._weights(new)

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Take the mean length of the documents into use; the block computes all vectors anew with `weights`."""
        self._set(pending=1, mean=self["words"] / max(1, self["documents"]))
        yield
        self.end_recovery()

    def end_recovery(self) -> None:
        """Record that the figures match the documents."""
        self._set(pending=0)
        self.recover = False

    def clear(self) -> None:
        """Reset all counts, but keep the numbers of the words."""
        self._set(pending=1, documents=0, entries=0, words=0, postings=0, mean=0)
        with self._failing():
            self._db.execute("UPDATE words SET df = 0")
            self._db.execute("UPDATE terms SET df = ?", (bytes(8 * self._size),))

    def weights(self, texts: Sequence[str]) -> csr_array:
        """Return the vectors of m texts as documents, csr_array [m, columns]."""
        return self._weights(self._stemmed(texts))

    def query_vectors(self, texts: Sequence[str], *, stems: bool = False) -> csr_array:
        """Return the vectors of q texts, or `stems`, as queries [q, columns], without words that no document has."""
        words = [[text] for text in texts] if stems else self._stemmed(texts)
        known = {word: (number, df) for word, number, df in self._known(chain.from_iterable(words)) if df > 0}
        counts = count_words(words, {word: number for word, (number, _) in known.items()}, UNBOUNDED)
        df = dict(known.values())
        frequencies = np.array([df[number] for number in counts.indices.tolist()], dtype=np.int64)
        weights = counts.data * idf(frequencies, int(self["documents"]))
        return csr_array((weights, counts.indices, counts.indptr), shape=counts.shape)

    def words_like(self, initials: str, shortest: int, longest: int) -> list[tuple[str, int]]:
        """Return words of these lengths that begin with one of `initials`, with their document frequencies."""
        query = "SELECT word, df FROM words WHERE word >= ? AND word < ? AND df > 0 AND length(word) BETWEEN ? AND ?"
        ranges = [(initial, f"{initial}\U0010ffff", shortest, longest) for initial in dict.fromkeys(initials)]
        with self._failing():
            return [row for bounds in ranges for row in self._db.execute(query, bounds)]

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _stemmed(self, texts: Sequence[str]) -> list[list[str]]:
        assert self._language is not None
        return stemmed(texts, self._language)

    def _weights(self, words: Sequence[Sequence[str]]) -> csr_array:
        numbers = {word: number for word, number, _ in self._known(chain.from_iterable(words))}
        counts = count_words(words, numbers, UNBOUNDED)
        lengths = np.array([len(stems) for stems in words], dtype=np.float64)
        weights = term_frequency_weights(counts, lengths, self["mean"] or 1.0)
        return csr_array((weights.astype(np.float32), counts.indices, counts.indptr), shape=counts.shape)

    def _known(self, words: Iterable[str]) -> Iterator[tuple[str, int, int]]:
        distinct = sorted(set(words))
        for part in (distinct[start : start + 500] for start in range(0, len(distinct), 500)):
            marks = ",".join("?" * len(part))
            with self._failing():
                rows = self._db.execute(f"SELECT word, number, df FROM words WHERE word IN ({marks})", part).fetchall()
            yield from rows

    def _set(self, **figures: float) -> None:
        values = [(value, name) for name, value in figures.items()]
        with self._failing():
            self._db.executemany("UPDATE figures SET value = ? WHERE name = ?", values)
