"""BM25 on a collection that changes: how many documents have each word, in SQLite, and the weights of texts.

A document's vector has tf / (tf + k1 (1 - b + b length / mean length)) for each word, a query's the count of each word
times its inverse document frequency, ln(1 + (n - df + 0.5) / (df + 0.5)): what changes with every document added is
on the side of the query. The mean length that documents were weighed with is renewed when it has drifted by a tenth.

Letters: n documents, m of them, q queries.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from vocable.errors import ArgumentError, DataError, NoSpaceError, VectorsError
from vocable.retrieval.engines.base import UNBOUNDED
from vocable.retrieval.words import stemmed

K1, B = 1.2, 0.75  # as in `BM25Index`
DAMAGED = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)  # also other tables
DRIFT = 0.1  # of the mean length, from which on documents are weighed anew
FIGURES = (
    "documents",
    "words",  # of all documents, repeats counted
    "postings",  # the sum of all df
    "mean",  # the length in use
    "pending",  # 1 while the documents change
)


class Lexicon:
    """The words of a changing collection, in a file.

    `identity` is a random number of the file, by which a collection knows its own. `recover` says that the figures may
    not be those of the documents: a change was cut short by a kill, or the file is damaged or has been exchanged.
    """

    def __init__(self, path: Path, documents: int, identity: int | None) -> None:
        """Open the lexicon of so many documents in a file, or begin one.

        Raises:
            VectorsError: it cannot be read or written.
        """
        self._path = path
        with self._failing():
            try:
                whole = self._open()
            except sqlite3.Error as error:
                if error.sqlite_errorcode & 0xFF not in DAMAGED:
                    raise
                self.close()
                for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                    path.with_name(name).unlink(missing_ok=True)
                whole = self._open()
            [self.identity] = self._db.execute("PRAGMA user_version").fetchone()
        self.recover = not whole or identity != self.identity or self["documents"] != documents or bool(self["pending"])

    def _open(self) -> bool:
        """Open the file, and return whether its figures are possible ones that agree with its words."""
        self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS words (number INTEGER PRIMARY KEY, word TEXT UNIQUE, df INTEGER)")
        self._db.execute("CREATE TABLE IF NOT EXISTS figures (name TEXT PRIMARY KEY, value REAL)")
        if self._db.execute("PRAGMA user_version").fetchone() == (0,):
            self._db.execute(f"PRAGMA user_version = {1 + secrets.randbelow(2**31 - 2)}")
        impossible = "typeof(word) <> 'text' OR typeof(df) <> 'integer' OR df < 0 OR number NOT BETWEEN 1 AND ?"
        self._db.execute(f"DELETE FROM words WHERE {impossible}", (UNBOUNDED - 1,))
        figures = dict(self._db.execute("SELECT name, value FROM figures WHERE typeof(value) = 'real' AND value >= 0"))
        self._db.executemany(
            "INSERT OR REPLACE INTO figures VALUES (?, 0)", [(name,) for name in FIGURES if name not in figures]
        )
        postings, largest = self._db.execute("SELECT total(df), ifnull(max(df), 0) FROM words").fetchone()
        return figures.keys() >= set(FIGURES) and (
            postings == figures["postings"] <= figures["words"] < 2**53 and largest <= figures["documents"]
        )

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
    def drifted(self) -> float:
        """By which share the mean length of the documents differs from the one in use."""
        mean = self["words"] / max(1, self["documents"])
        return abs(mean / self["mean"] - 1) if self["mean"] else float(mean > 0)

    @contextmanager
    def changing(self, added: Sequence[str], removed: Sequence[str] = ()) -> Iterator[csr_array]:
        """Count the words of texts that the block adds to and removes from the store; gives the vectors [m, columns].

        A kill in the block, or an error, leaves `recover` true, unless the store refused what it was given.
        """
        there, gone, pending = stemmed(added), stemmed(removed), self["pending"]
        self._set(pending=1)
        df = Counter(chain.from_iterable(map(set, there)))
        df.subtract(Counter(chain.from_iterable(map(set, gone))))
        with self._failing():
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR IGNORE INTO words (word, df) VALUES (?, 0)", [(word,) for word in df])
            self._db.executemany(
                "UPDATE words SET df = df + ? WHERE word = ?", [(change, word) for word, change in df.items()]
            )
        documents = self["documents"] + len(there) - len(gone)
        words = self["words"] + sum(map(len, there)) - sum(map(len, gone))
        postings, mean = self["postings"] + df.total(), self["mean"] or words / max(1, documents)
        self._set(documents=documents, words=words, postings=postings, mean=mean)
        try:
            yield self._weights(there)
        except BaseException as error:
            with self._failing():
                self._db.execute("ROLLBACK")
            if isinstance(error, ArgumentError | DataError):  # before it wrote anything
                self._set(pending=pending)
            raise
        with self._failing():
            self._db.execute("COMMIT")
        self._set(pending=pending)  # of a recount, all of it is one change

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Take the mean length of the documents into use; the block weighs all of them anew with `weights`."""
        self._set(pending=1, mean=self["words"] / max(1, self["documents"]))
        yield
        self._set(pending=0)
        self.recover = False

    def clear(self) -> None:
        """Forget all figures, but not the numbers of the words."""
        self._set(pending=1, documents=0, words=0, postings=0, mean=0)
        with self._failing():
            self._db.execute("UPDATE words SET df = 0")

    def weights(self, texts: Sequence[str]) -> csr_array:
        """The vectors of m texts as documents, csr_array [m, columns]."""
        return self._weights(stemmed(texts))

    def query_vectors(self, texts: Sequence[str]) -> csr_array:
        """The vectors of q texts as queries, csr_array [q, columns]; a word that no document has is left out."""
        words, documents = stemmed(texts), self["documents"]
        known = {word: (number, df) for word, number, df in self._known(chain.from_iterable(words)) if df > 0}
        rows = [Counter(word for word in some if word in known) for some in words]
        idf = {word: np.log1p((documents - df + 0.5) / (df + 0.5)) for word, (_, df) in known.items()}
        return _matrix([{known[word][0]: count * idf[word] for word, count in row.items()} for row in rows])

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _weights(self, texts: Sequence[Sequence[str]]) -> csr_array:
        numbers = {word: number for word, number, _ in self._known(chain.from_iterable(texts))}
        rows, mean = [], self["mean"] or 1.0
        for words in texts:
            norm = K1 * (1 - B + B * len(words) / mean)
            rows.append({numbers[word]: tf / (tf + norm) for word, tf in Counter(words).items()})
        return _matrix(rows)

    def _known(self, words: Iterable[str]) -> Iterator[tuple[str, int, int]]:
        distinct = sorted(set(words))
        for some in (distinct[start : start + 500] for start in range(0, len(distinct), 500)):
            marks = ",".join("?" * len(some))
            with self._failing():
                found = self._db.execute(f"SELECT word, number, df FROM words WHERE word IN ({marks})", some).fetchall()
            yield from found

    def _set(self, **figures: float) -> None:
        values = [(value, name) for name, value in figures.items()]
        with self._failing():
            self._db.executemany("UPDATE figures SET value = ? WHERE name = ?", values)


def _matrix(rows: Sequence[dict[int, float]]) -> csr_array:
    """Rows of {column: weight} as csr_array [m, columns]."""
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    columns = [sorted(row) for row in rows]
    weights = [row[column] for row, some in zip(rows, columns, strict=True) for column in some]
    indices = np.fromiter(chain.from_iterable(columns), np.int32)
    return csr_array((np.array(weights, np.float32), indices, indptr), shape=(len(rows), UNBOUNDED))
