"""Count the stored vectors of a collection, and compare them with the frequencies that searches use."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from itertools import islice

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.collection import Collection, open_index
from vocable.engines.hashed_words import NUMBERS

COUNTED = 1_000  # terms that a server counts at once


@dataclass(frozen=True)
class Recount:
    """Counts of a collection; the lengths are None without BM25, `words` also in a folder."""

    documents: int  # documents that have vectors
    words: int | None  # different words in all vectors of BM25
    wrong: int  # terms and words that a search counts otherwise, and parts in which it counts the documents otherwise
    weighed_length: float | None  # mean length in words that BM25's weights were made with
    mean_length: float | None  # mean length of the documents


def recount(index: str | os.PathLike[str] | Collection) -> Recount:
    """Count the documents that have each term by reading all vectors, and compare."""
    if not isinstance(index, Collection):
        with open_index(index) as opened:
            return recount(opened)
    collection = index.current()
    store = collection.store
    frequencies = {space: Counter[int]() for space in store.spaces if space != "dense"}
    documents, ids = 0, store.ids()
    while names := list(islice(ids, store.about.part)):
        documents += len(names)
        for space, counted in frequencies.items():
            counted.update(csr_array(store.vectors(names, space)).indices.tolist())
    wrong = 0
    for space, counted in frequencies.items():
        # A term that no document has is counted by a search too, if the vocabulary has it.
        columns = [*range(collection.settings.meta.size)] if space == "sparse" else sorted(counted)
        for start in range(0, len(columns), COUNTED):
            part = columns[start : start + COUNTED]
            known, total = store.count_terms(np.array(part, dtype=np.int64), space)
            wrong += int((known != [counted[column] for column in part]).sum()) + (total != documents)
    weighed, mean = store.lexicon.mean_lengths() if "bm25" in collection.spaces else (None, None)
    words = sum(column < NUMBERS for column in frequencies["bm25"]) if "bm25" in frequencies else None
    return Recount(documents, words, wrong, weighed, mean)
