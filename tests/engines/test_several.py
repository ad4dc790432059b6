"""Several stores as one, against one index of all documents: each kind of vectors, filters, and changes meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from tests.engines.reference import SETTINGS, SPACES, WORDS, LiveDocuments, V, fill, hits, make_documents, make_queries
from tests.engines.reference import make_vectors as vectors_of
from vocable.data import Document
from vocable.engines.filters import parse_filter
from vocable.engines.memory import MemoryStore
from vocable.engines.several import SeveralStore
from vocable.errors import ArgumentError

FILTERS = [None, parse_filter("lang=de"), parse_filter("not year>=2003 or lang=en"), parse_filter("lang=fr")]
NAMES = [f"{prefix}{number}" for prefix in ("d", "ü", "日") for number in range(6)]
LABELS = ["one", "two", "three"]


class WithoutIndex(LiveDocuments):
    """The documents of all indexes; the field with an index's name is not compared."""

    def check_content(self, store: Any) -> None:
        """Compare documents, vectors, and counts of terms and words."""
        documents = store.documents

        def without_index(ids: Sequence[str]) -> list[Document | None]:
            read = documents(ids)
            fields = [{k: v for k, v in (one.fields if one else {}).items() if k != "index"} for one in read]
            return [one and one._replace(fields=kept) for one, kept in zip(read, fields, strict=True)]

        store.documents = without_index
        try:
            super().check_content(store)
        finally:
            del store.documents


def several(*names: str, count: int = 2) -> SeveralStore:
    """Return empty stores in memory as one."""
    stores = {name: MemoryStore.create("", SPACES, SETTINGS) for name in names or LABELS[:count]}
    return SeveralStore(stores, lambda settings: dict(next(iter(settings.values()))))


changes = st.lists(
    st.tuples(st.sampled_from(range(3)), st.lists(st.sampled_from(NAMES), min_size=1, max_size=7, unique=True)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=8)
@given(changes, st.integers(0, 99))
def test_answers_of_several_stores_are_those_of_one_index(changes: list[tuple[int, list[str]]], seed: int) -> None:
    together, live = several(count=3), WithoutIndex()
    for number, (of, ids) in enumerate(changes):
        for other, store in enumerate(together.stores):  # an id moves
            if other != of:
                store.delete(ids)
        fill(together.stores[of], live, ids, seed + number)  # type: ignore[arg-type]
        if number % 3 == 2:
            assert together.stores[of].delete(ids[:2]) == live.delete(ids[:2])
        view: Any = together.pinned()
        live.check(view, make_queries(seed), FILTERS)
        live.check(together, make_queries(seed))  # type: ignore[arg-type]


def test_view_keeps_the_commits_that_it_was_made_of() -> None:
    together = several()
    fill(together.stores[0], WithoutIndex(), ["a", "b"], 1)  # type: ignore[arg-type]
    view, queries = together.pinned(), make_queries(1)
    words = view.query_vectors(queries["texts"])
    answers = [hits(view.search(words, 9, space="bm25")), hits(view.search(queries["sparse"], 9)), len(view)]
    fill(together.stores[1], WithoutIndex(), ["c", "d", "e"], 2)  # type: ignore[arg-type]
    assert [hits(view.search(words, 9, space="bm25")), hits(view.search(queries["sparse"], 9)), len(view)] == answers
    assert len(together.pinned()) == 5
    assert view.version() != together.version()


def test_equal_ids_are_both_hits_and_keep_apart() -> None:
    together = several()
    for number, store in enumerate(together.stores):
        documents = make_documents(["a", f"b{number}", "one:c"][: 3 - number], number)
        store.upsert(documents, {"sparse": csr_array(np.full((len(documents), V), 1 + number, np.float32)),
                                 "dense": vectors_of(len(documents), 1)["dense"]})  # fmt: skip
    queries = csr_array(np.eye(1, V, dtype=np.float32))
    ranking = together.search(queries, 9).hits(0)
    assert ranking == [("two:a", 2), ("b1", 2), ("one:a", 1), ("b0", 1), ("one:one:c", 1)]
    ids = [identifier for identifier, _ in ranking]
    assert sorted(together.ids()) == sorted(ids)
    assert [one and (one.id, one.fields["index"]) for one in together.documents([*ids, "one:b0", "one:c"])] == [
        ("two:a", "two"), ("b1", "two"), ("one:a", "one"), ("b0", "one"), ("one:one:c", "one"), None, None
    ]  # fmt: skip
    assert together.vectors(ids).toarray()[:, 0].tolist() == [2, 2, 1, 1, 1]
    with pytest.raises(ArgumentError) as raised:
        together.documents(["b0", "a"])
    assert str(raised.value) == "one, two: two indexes have the document 'a': name 'one:a' or 'two:a'"


def test_filter_by_the_name_of_an_index() -> None:
    together, live = several(), WithoutIndex()
    fill(together.stores[0], live, ["a", "b", "c"], 1)  # type: ignore[arg-type]
    fill(together.stores[1], live, ["d", "e"], 2)  # type: ignore[arg-type]
    query = csr_array(np.ones((1, V), np.float32))
    expected = together.stores[1].search(query, 9).hits(0)
    assert together.search(query, 9, filter=parse_filter("index=two")).hits(0) == expected
    assert together.count(parse_filter("index=two or index=none")) == 2
    assert together.count_terms(np.arange(V), filter=parse_filter("not index=one"))[1] == 2
    assert together.search(query, 9, filter=parse_filter("index=none")).hits(0) == []


def test_changes_are_of_one_index() -> None:
    together = several()
    for change in (
        lambda: together.upsert(make_documents(["a"], 1), vectors_of(1, 1)),
        lambda: together.delete(["a"]),
        lambda: together.configure({}),
        together.optimize,
        together.drop,
    ):
        with pytest.raises(ArgumentError) as raised:
            change()
        assert str(raised.value) == "one, two cannot change: change one index at a time"


def test_words_are_weighed_anew_after_a_change_alone() -> None:
    together = several()
    fill(together.stores[0], WithoutIndex(), ["a", "b"], 1)  # type: ignore[arg-type]
    views = [together.pinned(), together.pinned()]
    assert views[0]._weighed[1][0] is views[1]._weighed[1][0]
    text = " ".join(WORDS)
    first = views[0].search(views[0].query_vectors([text]), 9, space="bm25").hits(0)
    fill(together.stores[1], WithoutIndex(), [f"c{number}" for number in range(9)], 2)  # type: ignore[arg-type]
    later = together.search(together.query_vectors([text]), 99, space="bm25").hits(0)
    assert {name for name, _ in first} < {name for name, _ in later}
    assert not {*first} & {*later}  # other frequencies, other scores
