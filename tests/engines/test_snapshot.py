"""One commit of an index: rows over all segments, and counts that follow the documents that are gone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from tests.engines.reference import make_documents, make_vectors
from vocable.engines.filters import parse_filter
from vocable.engines.numbered_words import WordNumbers
from vocable.engines.segment import Segment, SegmentSettings
from vocable.engines.snapshot import LiveSegment, Snapshot

SETTINGS = SegmentSettings("english")


def make_snapshot(sizes: list[int], gone: list[int]) -> tuple[Snapshot, list[str], list[str]]:
    """Return segments of these sizes without some rows, and the ids of all rows and of the rows that are left."""
    parts, ids, live = [], list[str](), list[str]()
    for number, size in enumerate(sizes):
        names = [f"{number}-{row:02}" for row in range(size)]
        part = LiveSegment(Segment.of(make_documents(names, number), make_vectors(size, number), SETTINGS))
        rows = [row for row in gone if row < size]
        parts.append(part.without(np.array(rows, np.int64)))
        ids += names
        live += [name for row, name in enumerate(names) if row not in rows]
    return Snapshot(parts), ids, live


sizes = st.lists(st.integers(0, 6), max_size=4)
rows_gone = st.lists(st.integers(0, 5), max_size=3)


@given(sizes, rows_gone)
def test_rows_are_numbered_over_all_segments(sizes: list[int], gone: list[int]) -> None:
    snapshot, ids, live = make_snapshot(sizes, gone)
    assert (list(snapshot.ids), len(snapshot.ids)) == (ids, len(ids))
    assert [snapshot.ids[row] for row in range(len(ids))] == ids
    assert snapshot.ids[1:-1:2] == ids[1:-1:2]
    assert list(snapshot.live_ids()) == live
    assert len(snapshot) == snapshot.with_vectors == len(live)
    wanted = [*ids[::-1], "unknown"]
    assert snapshot.rows(wanted).tolist() == [ids.index(name) if name in live else -1 for name in wanted]
    assert [document and document.id for document in snapshot.documents(wanted)] == [
        name if name in live else None for name in wanted
    ]


@given(sizes, rows_gone)
def test_vectors_are_in_the_order_of_the_rows_that_are_asked_for(sizes: list[int], gone: list[int]) -> None:
    snapshot, ids, _ = make_snapshot(sizes, gone)
    rows = np.random.default_rng(len(ids)).permutation(len(ids))
    sparse = np.concatenate(
        [make_vectors(size, number)["sparse"].toarray() for number, size in enumerate(sizes)] or [np.zeros((0, 30))]
    )
    np.testing.assert_array_equal(snapshot.vectors(rows, "sparse", 30).toarray(), sparse[rows])
    assert snapshot.vectors(rows, "dense", 4).shape == (len(rows), 4)


def test_counts_follow_the_documents_that_are_gone() -> None:
    snapshot, _, _ = make_snapshot([6, 4], [1, 2])
    whole, _, _ = make_snapshot([6, 4], [])
    lengths = [part.segment.words.lengths[part.rows()] for part in snapshot.parts if part.segment.words]
    assert snapshot.mean_length == np.concatenate(lengths).mean()
    assert snapshot.mean_length != whole.mean_length
    words = {word for part in whole.parts if part.segment.words for word in part.segment.words.vocabulary}
    counted = dict(snapshot.words_like("".join({word[0] for word in words}), 1, 99))
    for word in words:
        assert snapshot.count_words([word, word]).tolist() == [counted.get(word, 0)] * 2
    german = parse_filter("lang=de")
    assert snapshot.count(german) == sum(
        document is not None and document.fields.get("lang") == "de" for document in snapshot.documents([*snapshot.ids])
    )
    assert Snapshot([]).mean_length == 1.0


def test_a_part_without_further_documents_shares_its_segment_and_leaves_the_first_as_it_is() -> None:
    [part] = make_snapshot([5], [])[0].parts
    fewer = part.without(np.array([1, 3]))
    fewest = fewer.without(np.array([3, 4]))
    assert part.without(np.empty(0, np.int64)) is part
    assert [part.live, fewer.live, fewest.live] == [5, 3, 2]
    assert [each.rows().tolist() for each in (part, fewer, fewest)] == [[0, 1, 2, 3, 4], [0, 2, 4], [0, 2]]
    assert part.segment is fewer.segment is fewest.segment
    assert fewer.find(["0-00", "0-01", "x"]).tolist() == [0, -1, -1]


def test_words_keep_their_numbers() -> None:
    numbers = WordNumbers()
    assert [numbers(word) for word in ("fox", "owl", "fox", "night")] == [0, 1, 0, 2]
    assert numbers.words == ["fox", "owl", "night"]


@pytest.mark.parametrize("space", ["sparse", "dense", "bm25"])
def test_a_snapshot_without_documents_has_no_hits(space: str) -> None:
    snapshot = Snapshot([])
    if space == "dense":
        ranking = snapshot.search_dense(np.ones((2, 4)), 3)
    elif space == "sparse":
        ranking = snapshot.search(csr_array(np.ones((2, 30), np.float32)), 3)
    else:
        ranking = snapshot.search_words(csr_array(np.ones((2, 1), np.float32)), ["fox"], 3)
    assert ranking.rows.tolist() == [[-1] * 3] * 2
    assert ranking.scores.tolist() == [[0] * 3] * 2
