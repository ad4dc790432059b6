"""A segment of an index: documents in the order of their ids, with posting lists, words and dense vectors.

A segment never changes. `snapshot.LiveSegment` marks the documents that are deleted or replaced later, and segments are
merged into larger ones.

Letters: n documents, m of them, v output vocabulary, d dimensions of dense vectors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from vocable.core.arrays import Strings, order_of
from vocable.core.storage import StrPath
from vocable.data import Document
from vocable.engines.filters import Filter, matcher
from vocable.engines.protocols import Space
from vocable.errors import VectorsError
from vocable.indexes.dense_index import DenseIndex, rounded
from vocable.indexes.exact_index import rising
from vocable.indexes.postings import Postings
from vocable.indexes.words import WordPostings

SEGMENT = "segment"  # kind of its file
TEXT_COLUMNS = ("ids", "titles", "texts", "fields")
KEPT_FILTERS = 16  # filters whose documents a segment keeps
PARSED_AT_ONCE = 8_192  # documents whose fields are parsed together


@dataclass(frozen=True)
class SegmentSettings:
    """Settings of stored vectors; the `language` of the words is None for documents without words."""

    language: str | None = None
    title_weight: int = 1
    weight_bits: int | None = None


class Segment:
    """Documents with what was made of them; a kind of vectors that they lack is None."""

    def __init__(
        self,
        strings: Mapping[str, Strings],
        postings: Postings | None,
        words: WordPostings | None,
        dense: DenseIndex | None,
        name: str = "",
    ) -> None:
        """Take the ids, titles, texts and further fields (JSON, "" for none) of documents in the order of their ids."""
        self.ids, self.titles, self.texts, self.fields = (strings[column] for column in TEXT_COLUMNS)
        self.postings, self.words, self.dense, self.name = postings, words, dense, name
        self.checksum = 0  # of the file's header
        # Of the fields alone: a cycle of references would keep the mapped file until garbage is collected.
        self.passing = lru_cache(KEPT_FILTERS)(partial(_passing, self.fields))

    @classmethod
    def of(cls, documents: Sequence[Document], vectors: Mapping[Space, Any], settings: SegmentSettings) -> Segment:
        """Make a segment of documents with distinct ids and their `vectors` by space, and count their words."""
        ids = Strings([document.id for document in documents])
        order = order_of(ids)
        ordered = [documents[row] for row in order.tolist()]
        if np.array_equal(order, np.arange(len(order))):
            order = order[:0]  # as they are
        fields = [json.dumps(dict(one.fields), ensure_ascii=False) if one.fields else "" for one in ordered]
        strings = {
            "ids": ids.take(order.astype(np.int64)) if len(order) else ids,
            "titles": Strings([document.title for document in ordered]),
            "texts": Strings([document.text for document in ordered]),
            "fields": Strings(fields),
        }
        postings = words = dense = None
        if "sparse" in vectors:
            postings = Postings.of(_ordered(csr_array(vectors["sparse"]), order), settings.weight_bits)
        if "dense" in vectors:
            dense = DenseIndex(*rounded(_ordered(np.asarray(vectors["dense"]), order)))
        if settings.language is not None:
            texts = [document.weighed(settings.title_weight) for document in ordered]
            words = WordPostings.of(texts, settings.language)
        return cls(strings, postings, words, dense)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The kinds of vectors that the documents have."""
        held = {"sparse": self.postings, "bm25": self.words, "dense": self.dense}
        return tuple(space for space, index in held.items() if index is not None)

    def document(self, row: int) -> Document:
        """Return the document in a row."""
        fields = self.fields[row]
        return Document(self.ids[row], self.texts[row], self.titles[row], json.loads(fields) if fields else {})

    def vectors(self, rows: np.ndarray, space: Space) -> Any:
        """Return the vectors [m, columns] of the documents in these rows."""
        index = self.postings if space == "sparse" else self.dense
        if index is None:
            raise VectorsError(f"{self.name}: space {space!r}: the documents have no such vectors")
        return index.get(rows)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to store together with `header`."""
        arrays = dict(chain.from_iterable(getattr(self, name).arrays(name).items() for name in TEXT_COLUMNS))
        if self.postings is not None:
            arrays |= self.postings.arrays()
        if self.words is not None:
            arrays |= self.words.arrays()
        if self.dense is not None:
            arrays |= {"numbers": self.dense.numbers, "units": self.dense.units}
        return arrays

    def header(self) -> dict[str, object]:
        """Return the properties that `arrays` does not contain, as JSON values."""
        return {"spaces": list(self.spaces), **({} if self.postings is None else self.postings.header())}

    @classmethod
    def stored(
        cls, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any], place: StrPath, name: str, verified: bool
    ) -> Segment:
        """Return the segment of stored arrays; raise `VectorsError` with `place` if they do not fit together.

        Contents that were `verified` before are not read again.
        """
        strings = {column: Strings.stored(column, arrays, place, verified=verified) for column in TEXT_COLUMNS}
        spaces, n = header.get("spaces"), len(strings["ids"])
        if not isinstance(spaces, list):
            raise VectorsError(f"{place}: the index is damaged: its header names no spaces")
        postings = Postings.stored(arrays, header, place, verified=verified) if "sparse" in spaces else None
        words = WordPostings.stored(arrays, n, place, verified=verified) if "bm25" in spaces else None
        dense = DenseIndex.stored(arrays, place, verified=verified) if "dense" in spaces else None
        sizes = {n, *map(len, strings.values()), n if postings is None else len(postings)}
        if sizes != {n} or (dense is not None and len(dense.units) != n):
            raise VectorsError(f"{place}: the index is damaged: its parts are not of the same documents")
        if not verified and not rising(strings["ids"]):
            raise VectorsError(f"{place}: the index is damaged: the ids are not in order, or an id is repeated")
        segment = cls(strings, postings, words, dense, name)
        segment.checksum = header["crc32"]
        return segment


def _passing(fields: Strings, filter: Filter) -> np.ndarray:
    """Return whether each document, given its further fields in JSON, passes a filter, bool [n]."""
    passing, matches = np.zeros(len(fields), bool), matcher(filter)
    for start in range(0, len(fields), PARSED_AT_ONCE):
        part = fields[start : start + PARSED_AT_ONCE].all_encoded()
        values = json.loads(b"[%s]" % b",".join(text or b"{}" for text in part))  # one call parses faster than many
        passing[start : start + len(part)] = [matches(document) for document in values]
    return passing


def merged(parts: Sequence[tuple[Segment, np.ndarray]], settings: SegmentSettings) -> Segment:
    """Return one segment of the documents in some rows of several segments, which have the same kinds of vectors."""
    ids = [*chain.from_iterable(segment.ids.take(rows).all_encoded() for segment, rows in parts)]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    if order == list(range(len(ids))):
        order = []  # as they are
    strings = {}
    for column in TEXT_COLUMNS:
        joined = Strings.joined([getattr(segment, column).take(rows) for segment, rows in parts])
        strings[column] = joined.take(np.array(order, np.int64)) if order else joined
    postings = words = dense = None
    first = parts[0][0]
    if first.postings is not None:
        stacked = vstack([_rows(segment.postings.get(), rows) for segment, rows in parts if segment.postings])
        postings = Postings.of(_ordered(csr_array(stacked), order), settings.weight_bits)
    if first.words is not None:
        words = _merged_words([(segment.words, rows) for segment, rows in parts if segment.words is not None], order)
    if first.dense is not None:
        pairs = [(segment.dense, rows) for segment, rows in parts if segment.dense is not None]
        numbers = np.concatenate([dense.numbers[rows] for dense, rows in pairs])
        units = np.concatenate([dense.units[rows] for dense, rows in pairs])
        dense = DenseIndex(_ordered(numbers, order), _ordered(units, order))
    return Segment(strings, postings, words, dense)


def _merged_words(parts: Sequence[tuple[WordPostings, np.ndarray]], order: Sequence[int]) -> WordPostings:
    """Return the words of documents of several segments under one vocabulary, the documents in this order."""
    counted = [_rows(words.counts(), rows) for words, rows in parts]
    used = [np.flatnonzero(np.bincount(counts.indices, minlength=counts.shape[1])) for counts in counted]
    spelled = [words.vocabulary.take(columns).all_encoded() for (words, _), columns in zip(parts, used, strict=True)]
    vocabulary = sorted(set(chain.from_iterable(spelled)))
    column_of = {word: column for column, word in enumerate(vocabulary)}
    moved = []
    for counts, columns, words in zip(counted, used, spelled, strict=True):
        places = np.full(counts.shape[1], -1, np.int32)
        places[columns] = [column_of[word] for word in words]
        shape = counts.shape[0], len(vocabulary)
        moved.append(csr_array((counts.data, places[counts.indices], counts.indptr), shape=shape))
    lengths = _ordered(np.concatenate([words.lengths[rows] for words, rows in parts]), order)
    matrix = _ordered(csr_array(vstack(moved, format="csr")), order)
    matrix.sort_indices()
    return WordPostings.counted(Strings.of_encoded(vocabulary), matrix, lengths)


def _ordered(matrix: Any, order: Sequence[int] | np.ndarray) -> Any:
    """Return the rows of a matrix or an array in an order, [] for their own."""
    return matrix[order] if len(order) else matrix


def _rows(matrix: csr_array, rows: np.ndarray) -> csr_array:
    """Return the rows of a matrix, or the matrix if these are all."""
    return matrix if len(rows) == matrix.shape[0] else matrix[rows]
