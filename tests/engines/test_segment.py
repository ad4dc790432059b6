"""Segments: made, stored and merged documents come back as they were, and damage is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.reference import SPACES, V, make_documents, make_vectors
from vocable.core.arrays import load_arrays, write_arrays
from vocable.data import Document
from vocable.engines.filters import matches, parse_filter
from vocable.engines.segment import SEGMENT, Segment, SegmentSettings, merged
from vocable.errors import VectorsError
from vocable.indexes.dense_index import rounded
from vocable.indexes.words import WordPostings

SETTINGS = SegmentSettings("english", 2)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUE = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
FIELDS = st.dictionaries(TEXT, VALUE | st.lists(VALUE) | st.dictionaries(TEXT, VALUE), max_size=3)
DOCUMENTS = st.lists(st.builds(Document, TEXT, TEXT, TEXT, FIELDS), max_size=6, unique_by=lambda one: one.id)


def stored(segment: Segment, *, verified: bool = False, **changed: Any) -> Segment:
    """Return the segment of the arrays of a segment, or of other arrays if they are given."""
    arrays, header = segment.arrays() | changed, segment.header()
    return Segment.stored(arrays, header | {"crc32": 7}, "place", "000001.segment", verified)


def documents_of(segment: Segment) -> list[Document]:
    return [segment.document(row) for row in range(len(segment))]


def assert_equal(segment: Segment, documents: list[Document], vectors: dict[str, Any]) -> None:
    """Compare a segment with documents and their vectors, by id, and its words with a new count of the words."""
    order = sorted(range(len(documents)), key=lambda row: documents[row].id.encode())
    assert documents_of(segment) == [documents[row] for row in order]
    rows = np.arange(len(documents))
    if "sparse" in vectors:
        np.testing.assert_array_equal(segment.vectors(rows, "sparse").toarray(), vectors["sparse"].toarray()[order])
        numbers, units = rounded(vectors["dense"])
        np.testing.assert_array_equal(segment.vectors(rows, "dense"), (numbers * units[:, None])[order])
    words, expected = segment.words, WordPostings.of([documents[row].weighed(2) for row in order], "english")
    assert words is not None
    assert sorted(words.vocabulary) == sorted(expected.vocabulary)
    places = [words.column(word) for word in expected.vocabulary]
    np.testing.assert_array_equal(words.counts().toarray()[:, places], expected.counts().toarray())
    np.testing.assert_array_equal(words.lengths, expected.lengths)


@given(DOCUMENTS)
def test_any_documents_come_back_in_the_order_of_their_ids(documents: list[Document]) -> None:
    segment = Segment.of(documents, {}, SETTINGS)
    for again in (segment, stored(segment), stored(segment, verified=True)):
        assert_equal(again, documents, {})
        assert again.spaces == ("bm25",)


@given(st.lists(DOCUMENTS, min_size=1, max_size=3), st.data())
def test_any_rows_of_merged_segments_are_documents_of_one(parts: list[list[Document]], data: st.DataObject) -> None:
    documents = {document.id: document for part in parts for document in part}
    segments, kept = [], list[Document]()
    for part in parts:
        part = [document for document in part if documents.pop(document.id, None) is not None]
        segment = Segment.of(part, {}, SETTINGS)
        rows = np.array(data.draw(st.lists(st.sampled_from(range(len(part))), unique=True)) if part else [], np.int64)
        rows.sort()
        segments.append((segment, rows))
        kept += [segment.document(row) for row in rows.tolist()]
    assert_equal(merged(segments, SETTINGS), kept, {})


def test_vectors_of_merged_segments_stay_to_the_last_bit() -> None:
    random, parts, documents, given_vectors = np.random.default_rng(0), [], list[Document](), list[Any]()
    for number in range(3):
        part = make_documents([f"{name}{number}" for name in random.permutation(list("abcdeü"))], number)
        vectors = make_vectors(6, number)
        segment = stored(Segment.of(part, vectors, SETTINGS))
        assert_equal(segment, part, vectors)
        assert segment.spaces == ("sparse", "bm25", "dense")
        rows = np.array([0, 2, 3])
        parts.append((segment, rows))
        names = [document.id for document in part]
        for row in rows.tolist():
            documents.append(segment.document(row))
            place = names.index(documents[-1].id)
            given_vectors.append((vectors["sparse"].toarray()[place], vectors["dense"][place]))
    whole = merged(parts, SETTINGS)
    order = sorted(range(9), key=lambda row: documents[row].id.encode())
    sparse, dense = (np.array([pair[part] for pair in given_vectors])[order] for part in (0, 1))
    np.testing.assert_array_equal(whole.vectors(np.arange(9), "sparse").toarray(), sparse)
    numbers, units = rounded(dense)
    np.testing.assert_array_equal(whole.vectors(np.arange(9), "dense"), numbers * units[:, None])
    assert documents_of(whole) == [documents[row] for row in order]


def test_a_filter_passes_the_documents_that_match() -> None:
    documents = make_documents([f"d{number}" for number in range(20)], 1)
    segment = Segment.of(documents, {}, SETTINGS)
    for text in ("lang=de", "not lang=de", "year>2001 or lang=en", "none=1"):
        filter = parse_filter(text)
        expected = [matches(filter, document.fields) for document in documents_of(segment)]
        assert segment.passing(filter).tolist() == expected


def test_a_kind_of_vectors_that_documents_lack_is_refused() -> None:
    segment = Segment.of(make_documents(["a"], 0), {}, SegmentSettings())
    assert segment.spaces == ()
    for space in SPACES:
        with pytest.raises(VectorsError):
            segment.vectors(np.array([0]), space)


DAMAGES: dict[str, tuple[str, int | slice, Any]] = {
    "an id beyond the bytes": ("ids_offsets", -1, 10**6),
    "ids out of order": ("ids_bytes", 0, ord("z")),
    "a text out of UTF-8": ("texts_bytes", 0, 255),
    "a title before the last": ("titles_offsets", 1, -1),
    "a posting of no document": ("places", -1, 9),
    "a weight of 0": ("weights", 0, 0),
    "a list beyond the postings": ("starts", 3, 10**6),
    "a count of 0": ("word_counts", 0, 0),
    "a word of no document": ("word_places", -1, 9),
    "a list beyond the words": ("word_starts", 1, 10**6),
    "a length below 0": ("word_lengths", 0, -1),
    "a unit that is no number": ("units", 0, np.nan),
}


@pytest.fixture
def segment() -> Segment:
    return Segment.of(make_documents(["a", "b", "c"], 1), make_vectors(3, 1), SETTINGS)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_array_is_refused(segment: Segment, damage: str) -> None:
    name, place, value = DAMAGES[damage]
    array = np.array(segment.arrays()[name])
    array[place] = value
    with pytest.raises(VectorsError):
        stored(segment, **{name: array})


def test_arrays_of_other_documents_types_and_shapes_are_refused(segment: Segment) -> None:
    other = Segment.of(make_documents(["a", "b", "c", "d"], 2), make_vectors(4, 2), SETTINGS).arrays()
    for name, array in segment.arrays().items():
        if not name.endswith("_bytes"):
            with pytest.raises(VectorsError):
                stored(segment, **{name: other[name]})
        for wrong in (array.astype(np.complex128), array.reshape(1, -1), array[:0]):
            if wrong.shape != array.shape or wrong.dtype != array.dtype:
                with pytest.raises(VectorsError):
                    stored(segment, **{name: wrong})
        arrays = {key: kept for key, kept in segment.arrays().items() if key != name}
        with pytest.raises(VectorsError):
            Segment.stored(arrays, segment.header() | {"crc32": 7}, "place", "000001.segment", False)
    with pytest.raises(VectorsError):
        Segment.stored(segment.arrays(), {"crc32": 7, "spaces": ["sparse"]}, "place", "000001.segment", False)


def test_a_segment_of_a_file_reads_its_arrays_in_place(segment: Segment, tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        write_arrays(file, SEGMENT, segment.arrays(), segment.header())
    arrays, header = load_arrays(tmp_path / "file", SEGMENT)
    read = Segment.stored(arrays, header, tmp_path / "file", "file", False)
    assert read.checksum == header["crc32"]
    assert not read.texts.content.flags.writeable
    assert documents_of(read) == documents_of(segment)
    assert [len(read), read.postings is not None and read.postings.shape[1]] == [3, V]
    assert all(first < second for first, second in pairwise(read.ids))
