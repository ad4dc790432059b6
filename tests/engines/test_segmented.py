"""Segments that change: whatever was added, replaced, deleted and merged, all answers are those of one new index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from tests.engines.reference import SETTINGS, SPACES, LiveDocuments, fill, hits, make_documents, make_queries
from tests.engines.reference import make_vectors as vectors_of
from vocable.data import Document
from vocable.engines import segmented
from vocable.engines.filters import Comparison, Every, Filter, Not, Some, parse_filter
from vocable.engines.folder import FolderStore
from vocable.engines.memory import MemoryStore
from vocable.engines.segmented import SegmentedStore
from vocable.errors import ArgumentError, DataError, VectorsError

FILTERS = [None, parse_filter("lang=de"), parse_filter("not year>=2003 or lang=en"), parse_filter("lang=fr")]
NAMES = [f"{prefix}{number}" for prefix in ("d", "ü", "日") for number in range(5)]
Make = Callable[..., SegmentedStore]


@pytest.fixture(params=[FolderStore, MemoryStore])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Make an empty store, which is closed in the end."""
    stores: list[SegmentedStore] = []

    def new(**more: Any) -> SegmentedStore:
        stores.append(request.param.create(str(tmp_path / f"store-{len(stores)}"), SPACES, SETTINGS | more))
        return stores[-1]

    yield new
    for store in stores:
        store.close()


names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=7, unique=True)
changes = st.lists(
    st.tuples(st.just("put"), names)
    | st.tuples(st.just("delete"), names)
    | st.tuples(st.sampled_from(["optimize", "open"]), st.just([]))
    | st.tuples(st.just("both"), names),
    min_size=1,
    max_size=7,
)


@pytest.mark.parametrize("ratio", [0, segmented.RATIO])  # 0: no segments are merged but those with deletions
@settings(max_examples=8)
@given(changes, st.integers(0, 99), st.sampled_from([None, None, 8, 16]))
def test_answers_after_any_changes_are_those_of_one_index(
    ratio: int, changes: list[tuple[str, list[str]]], seed: int, bits: int | None
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(segmented, "RATIO", ratio)
        options = {"engine_options": {"weight_bits": bits}}
        store: Any = FolderStore.create(f"{folder}/store", SPACES, SETTINGS | options)
        live = LiveDocuments()
        for number, (kind, ids) in enumerate(changes):
            if kind in ("put", "both"):
                with store.changing():
                    fill(store, live, ids, seed + number)
                    if kind == "both":  # one commit of both changes
                        assert store.delete(ids[:2]) == live.delete(ids[:2])
            elif kind == "delete":
                assert store.delete([*ids, ids[0], "unknown"]) == live.delete(ids)
            elif kind == "optimize":
                store.optimize()
                assert len(store.now().parts) <= 1
            else:
                store.close()
                store = FolderStore.open(f"{folder}/store")
            if bits is None:
                live.check(store, make_queries(seed), FILTERS)
        live.check_content(store) if bits is None else check_rounded(store, live, bits)
        store.close()


def check_rounded(store: SegmentedStore, live: LiveDocuments, bits: int) -> None:
    """The error of each weight is at most 2 / (2^bits - 1) of the largest weight, 2, after several merges, too."""
    stored, exact = store.vectors(live.ids).toarray(), live.sparse().toarray()
    assert np.abs(stored - exact).max(initial=0) <= 2 / (2**bits - 1) * 2
    np.testing.assert_array_equal(stored > 0, exact > 0)


def test_a_store_in_memory_answers_as_one_index(make: Make) -> None:
    store, live = make(), LiveDocuments()
    for number in range(6):
        fill(store, live, NAMES[number : number + 4], number)
        live.check(store, make_queries(number), FILTERS)
    assert store.delete(NAMES[3:8]) == live.delete(NAMES[3:8])
    live.check(store, make_queries(7), FILTERS)
    store.optimize()
    live.check(store, make_queries(8), FILTERS)


comparisons = st.one_of(
    st.builds(Comparison, st.just("lang"), st.just("="), st.sampled_from(["de", "en", "fr"])),
    st.builds(Comparison, st.just("year"), st.sampled_from(["=", "<", ">="]), st.integers(1999, 2005)),
)
some_filters = st.recursive(
    comparisons,
    lambda parts: st.one_of(
        st.builds(Not, parts),
        st.builds(lambda some: Every(tuple(some)), st.lists(parts, min_size=1, max_size=2)),
        st.builds(lambda some: Some(tuple(some)), st.lists(parts, min_size=1, max_size=2)),
    ),
    max_leaves=4,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@given(st.lists(some_filters, min_size=1, max_size=4), st.integers(0, 1000))
def test_idf_is_that_of_the_documents_that_pass_a_filter(make: Make, filters: list[Filter], seed: int) -> None:
    store, live = make(), LiveDocuments()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(segmented, "RATIO", 0)
        for number in range(3):
            fill(store, live, NAMES[4 * number : 4 * number + 5], seed + number)
        store.delete(NAMES[3:5])
        live.delete(NAMES[3:5])
    for filter in filters:
        live.check_idf(store, make_queries(seed)["texts"], filter)


def test_equal_scores_are_in_the_order_of_the_ids_over_all_segments(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segmented, "RATIO", 0)
    store = make()
    for number in range(10):
        ids = [f"{prefix}{(7 * number) % 10}" for prefix in "azü"]
        given = vectors_of(3, 0)
        store.upsert(make_documents(ids, 0), given | {"sparse": csr_array(np.ones((3, 30), np.float32))})
    assert len(store.now().parts) == 10
    expected = [*(f"a{i}" for i in range(10)), *(f"z{i}" for i in range(10)), *(f"ü{i}" for i in range(10))]
    for k in (1, 5, 17, 30, 40):
        ranking = store.search(csr_array(np.ones((2, 30), np.float32)), k)
        assert hits(ranking) == [[(name, 30.0) for name in expected[:k]]] * 2


def test_idf_and_mean_length_follow_every_change(make: Make) -> None:
    """By the formula, for a word of two documents, of one, and of none."""

    def expected(frequency: int, n: int, tf: int, length: int, mean: float) -> float:
        idf = np.log(1 + (n - frequency + 0.5) / (frequency + 0.5))
        return float(idf * tf / (tf + 1.2 * (0.25 + 0.75 * length / mean)))

    store = make(title_weight=1)

    def score(word: str) -> float:
        return float(store.search(store.query_vectors([word]), 1, space="bm25").scores[0, 0])

    given = vectors_of(1, 0)
    store.upsert([Document("a", "fox fox owl")], given)
    assert score("fox") == pytest.approx(expected(1, 1, 2, 3, 3), rel=1e-5)
    store.upsert([Document("b", "owl night night night rain")], given)
    assert score("fox") == pytest.approx(expected(1, 2, 2, 3, 4), rel=1e-5)
    store.upsert([Document("a", "fox")], given)
    assert score("fox") == pytest.approx(expected(1, 2, 1, 1, 3), rel=1e-5)
    store.delete(["b"])
    assert score("fox") == pytest.approx(expected(1, 1, 1, 1, 1), rel=1e-5)
    assert store.query_vectors(["owl", "foxes"]).nnz == 1
    assert hits(store.search(store.query_vectors(["owl", "rain"]), 2, space="bm25")) == [[], []]
    assert dict(store.words_like("fon", 1, 9)) == {"fox": 1}


def test_all_changes_in_a_block_are_one_commit_and_an_error_leaves_none(make: Make) -> None:
    store, live = make(), LiveDocuments()
    fill(store, live, NAMES[:5], 1)
    before = store.version()
    with store.changing():
        fill(store, live, NAMES[3:9], 2)
        store.delete(NAMES[:1])
        live.delete(NAMES[:1])
        store.configure({**store.settings, "note": "one"})
        assert len(store) == 5  # a search sees the commit before
    assert (store.settings["note"], store.now().number) == ("one", 2)
    assert store.version() != before
    live.check(store, make_queries(3))

    def fail() -> None:
        with store.changing():
            store.upsert(make_documents(["new"], 4), vectors_of(1, 4))
            store.delete(NAMES)
            store.configure({"note": "two"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (store.settings["note"], store.now().number) == ("one", 2)
    live.check(store, make_queries(3))
    fill(store, live, ["new"], 5)
    live.check(store, make_queries(3))


def test_a_change_of_nothing_is_no_commit(make: Make) -> None:
    store, live = make(), LiveDocuments()
    fill(store, live, NAMES[:5], 1)
    number = store.now().number
    assert store.delete(["unknown"]) == 0
    store.upsert([], vectors_of(0, 0))
    store.configure(dict(store.settings))
    with store.changing():
        pass
    store.optimize()
    assert store.now().number == number


def test_a_view_keeps_its_commit_and_cannot_change(make: Make) -> None:
    store, live, old = make(), LiveDocuments(), LiveDocuments()
    fill(store, live, NAMES[:6], 1)
    old.rows = dict(live.rows)
    view = store.pinned()
    assert view.pinned() is view
    fill(store, live, NAMES[4:], 2)
    store.delete(NAMES[:3])
    live.delete(NAMES[:3])
    old.check(view, make_queries(1), FILTERS)
    live.check(store, make_queries(1), FILTERS)
    for change in (lambda: view.delete(NAMES), lambda: view.configure({}), view.optimize):
        with pytest.raises(ArgumentError):
            change()
    store.close()
    old.check(view, make_queries(2))


def test_small_segments_are_merged_and_large_ones_stay(make: Make) -> None:
    """Of 200 changes, there are few segments at any time, and a document is rewritten a few times at most."""
    store, written, before, most = make(), 0, list[Any](), 0
    for number in range(200):
        store.upsert(make_documents([f"d{number:03}"], number), vectors_of(1, number))
        segments = [part.segment for part in store.now().parts]
        written += sum(len(segment) for segment in segments if segment not in before)
        before, most = segments, max(most, len(segments))
    assert len(store) == 200
    assert most <= 9  # about log2(200)
    assert written <= 200 * 12
    assert sum(len(segment) for segment in before) == 200


def test_a_merged_segment_is_no_larger_than_the_limit(make: Make) -> None:
    store = make()
    store.largest = 600  # postings
    for number in range(40):
        store.upsert(make_documents([f"d{number:03}"], number), vectors_of(1, number))
    sizes = [segmented._size(part) for part in store.now().parts]
    assert max(sizes) <= 600
    assert len(sizes) <= 9
    store.optimize()
    sizes = [segmented._size(part) for part in store.now().parts]
    assert max(sizes) <= 600
    assert len(sizes) <= 2
    assert len(store) == 40


def test_a_segment_is_written_anew_when_a_third_of_it_is_gone(make: Make) -> None:
    store, live = make(), LiveDocuments()
    ids = [f"d{number:02}" for number in range(30)]
    fill(store, live, ids, 1)
    store.delete(ids[:9])
    [part] = store.now().parts
    assert (len(part.segment), part.live) == (30, 21)
    store.delete(ids[9:10])
    [part] = store.now().parts
    assert (len(part.segment), part.gone) == (20, None)
    live.delete(ids[:10])
    live.check(store, make_queries(2), FILTERS)
    store.delete(ids)
    assert store.now().parts == []


def test_documents_without_vectors_are_found_by_their_words_until_they_have_some(make: Make) -> None:
    store, live = make(), LiveDocuments()
    documents, given = make_documents(NAMES, 1), vectors_of(len(NAMES), 1)
    store.upsert(documents[:8], {})
    store.upsert(documents[8:], {})
    assert (len(store), store.encoded_share) == (len(NAMES), 0)
    assert sorted(one.id for one in store.without_vectors()) == sorted(NAMES)
    assert hits(store.search(given["sparse"][:1], 3)) == [[]]
    assert hits(store.search(given["dense"][:1], 3, space="dense")) == [[]]
    np.testing.assert_array_equal(store.vectors(NAMES[:2]).toarray(), np.zeros((2, 30)))
    np.testing.assert_array_equal(store.vectors(NAMES[:2], "dense"), np.zeros((2, 4)))
    word = hits(store.search(store.query_vectors(["fox"]), 20, space="bm25"))
    store.upsert(documents[:6], {name: matrix[:6] for name, matrix in given.items()})
    assert store.encoded_share == 6 / len(NAMES)
    assert hits(store.search(store.query_vectors(["fox"]), 20, space="bm25")) == word
    assert {name for name, _ in hits(store.search(given["sparse"][:1], 20))[0]} <= set(NAMES[:6])
    np.testing.assert_array_equal(store.vectors(NAMES[:8]).toarray()[6:], np.zeros((2, 30)))
    store.upsert(documents[6:], {name: matrix[6:] for name, matrix in given.items()})
    live.put(documents, given)
    assert (store.encoded_share, list(store.without_vectors())) == (1, [])
    live.check(store, make_queries(1), FILTERS)


def test_eight_threads_that_add_wait_for_one_another(make: Make) -> None:
    store, live, errors = make(), LiveDocuments(), list[BaseException]()
    for thread in range(8):
        for number in range(3):
            ids = [f"t{thread}-{number}-{row}" for row in range(3)]
            live.put(make_documents(ids, thread), vectors_of(3, thread))

    def add(thread: int) -> None:
        try:
            for number in range(3):
                ids = [f"t{thread}-{number}-{row}" for row in range(3)]
                store.upsert(make_documents(ids, thread), vectors_of(3, thread))
                assert {name for name, _ in store.search(csr_array(np.ones((1, 30))), 99).hits(0)} >= set(ids)
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store.now().number == 24
    live.check(store, make_queries(1), FILTERS)


def test_input_that_does_not_fit_changes_nothing(make: Make) -> None:
    store = make()
    for documents, vectors, error in (
        (make_documents(["a"], 0), vectors_of(2, 0), ArgumentError),
        (make_documents(["a"], 0), {"sparse": vectors_of(1, 0)["sparse"]}, ArgumentError),
        ([Document("a", "x"), Document("", "x")], vectors_of(2, 0), DataError),
        ([Document("a", "x"), Document("", "x")], {}, DataError),
        ([Document("a", "x", "", {"n": float("inf")})], {}, DataError),
    ):
        with pytest.raises(error):
            store.upsert(documents, vectors)
    for call in (
        lambda: store.vectors(["unknown"]),
        lambda: store.search(csr_array((1, 30), dtype=np.float32), 0),
        lambda: store.search(csr_array((1, 30), dtype=np.float32), space="words"),
    ):
        with pytest.raises(ArgumentError):
            call()
    with pytest.raises(VectorsError):
        store.search(csr_array((1, 7), dtype=np.float32))
    with pytest.raises(VectorsError):
        store.search(np.zeros((1, 7), np.float32), space="dense")
    assert (len(store), store.now().number) == (0, 0)


def test_a_closed_store_says_so(make: Make) -> None:
    store = make()
    store.upsert(make_documents(["a"], 0), vectors_of(1, 0))
    store.close()
    for call in (lambda: len(store), lambda: store.documents(["a"]), lambda: store.delete(["a"])):
        with pytest.raises(VectorsError):
            call()
    store.close()


@pytest.mark.parametrize("bits", [8, 16])
def test_rounded_weights_are_within_the_declared_error_after_merges(make: Make, bits: int) -> None:
    store, live = make(engine_options={"weight_bits": bits}), LiveDocuments()
    for number in range(12):
        fill(store, live, [f"d{number}-{row}" for row in range(4)], number)
    check_rounded(store, live, bits)
    assert (store.vectors(live.ids).toarray() != live.sparse().toarray()).any()
