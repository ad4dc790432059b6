"""Count the stored vectors of a collection, and compare them with the frequencies that searches use.

Letters: v output vocabulary.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import islice

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.collection import Collection, open_index
from vocable.core.progress import progress
from vocable.core.tables import NONE, Table, Tabular
from vocable.engines.folder import FolderStore
from vocable.engines.hashed_words import NUMBERS
from vocable.engines.protocols import Space

COUNTED = 1_000  # terms that a server counts at once


@dataclass(frozen=True)
class Recount(Tabular):
    """The outcome of a recount; the lengths are None without BM25, `words` also in a folder."""

    place: str
    engine: str
    documents: int  # documents that have vectors
    terms: int  # different terms in all sparse vectors
    words: int | None  # different words in all vectors of BM25
    wrong: int  # terms and words that a search counts otherwise, and 1 if it counts the documents otherwise
    weighed_length: float | None  # mean length in words that BM25's weights were made with
    mean_length: float | None  # mean length of the documents as they are now

    def to_json(self) -> dict[str, object]:
        """Return the counts as JSON values."""
        return asdict(self)

    def table(self) -> Table:
        """Return a table with a row for each count."""
        rows = [["documents", f"{self.documents:,}"], ["terms", f"{self.terms:,}"]]
        rows += [["words", NONE if self.words is None else f"{self.words:,}"], ["wrong frequencies", f"{self.wrong:,}"]]
        for name, length in (("weighed for a length of", self.weighed_length), ("mean length", self.mean_length)):
            rows.append([name, NONE if length is None else f"{length:.1f} words"])
        return Table(f"{self.engine} at {self.place}: an index, counted", ["", "value"], rows)


def check(index: str | os.PathLike[str] | Collection) -> Recount:
    """Check the files and the counts of an index.

    All files are compared with their checksums, and all vectors with the frequencies that searches use.

    Args:
        index: place of the index; in Python also the result of `vocable.open_index`.

    Raises:
        VectorsError: there is no index, or it is damaged; the message names the file.
    """
    if not isinstance(index, Collection):
        with open_index(index) as opened:
            return check(opened)
    if isinstance(index.store, FolderStore):
        index.store.check()
    return recount(index.current())


def recount(collection: Collection) -> Recount:
    """Count the documents that have each term by reading all vectors, and compare."""
    store = collection.store
    counted = [space for space in store.spaces if space != "dense"]
    frequencies = {space: Counter[int]() for space in counted}
    documents, ids = 0, store.ids()
    with progress("count", len(store)) as advance:
        while names := list(islice(ids, store.about.part)):
            documents += len(names)
            for space in counted:
                columns, counts = np.unique(csr_array(store.vectors(names, space)).indices, return_counts=True)
                frequencies[space].update(dict(zip(columns.tolist(), counts.tolist(), strict=True)))
            advance(len(names))
    wrong = sum(_wrong(collection, space, frequencies[space], documents) for space in counted)
    weighed, mean = store.lexicon.mean_lengths() if "bm25" in collection.spaces else (None, None)
    words = sum(column < NUMBERS for column in frequencies["bm25"]) if "bm25" in frequencies else None
    terms = len(frequencies["sparse"])
    return Recount(collection.place, store.about.engine, documents, terms, words, wrong, weighed, mean)


def _wrong(collection: Collection, space: Space, counted: Counter[int], documents: int) -> int:
    """Count the terms of a space that a search counts otherwise."""
    # A term that no document has is counted by a search too, if the vocabulary has it.
    columns = (
        np.arange(collection.settings.meta.size) if space == "sparse" else np.array(sorted(counted), dtype=np.int64)
    )
    wrong, total = 0, documents
    for start in range(0, len(columns), COUNTED):
        part = columns[start : start + COUNTED]
        known, total = collection.store.count_terms(part, space)
        wrong += int((known != [counted[column] for column in part.tolist()]).sum())
    return wrong + (total != documents)
