"""Verbatim matches: the hit that repeats a query comes first in a fusion, and no other ranking changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vocable.collection.plan import Depths, EncodedQueries, SearchPlan
from vocable.collection.verbatim import READ_HITS, VERBATIM_MATCH, verbatim
from vocable.data import Document
from vocable.indexes.fusion import fused
from vocable.indexes.ranking import Ranking, ranking_of
from vocable.options import Fusion

DOCUMENTS = {
    "join": Document("join", "Join paths, as os.path.split parts them.", "os.path.join"),
    "split": Document("split", "Split a path, the opposite of os.path.join(head, tail).", "os.path.split"),
    "copy": Document("copy", "Split a path, the opposite of os.path.join(head, tail).", "posixpath.split"),
    "walk": Document("walk", "Walk a tree: top-down, or bottom up.", "walk", {"path": "Files > walk"}),
    "other": Document("other", "Walk a tree from the top down.", "scan"),
}


def documents_of(ids: list[str]) -> list[Document | None]:
    return [DOCUMENTS.get(name) for name in ids]


@pytest.mark.parametrize(
    ("query", "hits", "match"),
    [
        ("os.path.join", ["split", "join"], "join"),  # its title, although another has it in its text
        ("OS.path.SPLIT", ["join", "split"], "split"),
        ("the opposite of os.path.join", ["join", "split"], "split"),  # the only one that has the words in order
        ("the opposite of os.path.join", ["split", "copy"], "split"),  # a copy does not count
        ("os.path", ["join", "split"], None),  # several have it
        ("walk a tree top down", ["other", "walk"], "walk"),  # punctuation does not count
        ("down the tree walk", ["walk", "other"], None),  # all words, but in another order
        ("files walk", ["other", "walk"], "walk"),  # the heading with the headings above it
        ("top down", ["other", "walk"], None),
        ("?!", ["walk"], None),
        ("walk", [], None),
    ],
)
def test_the_match_is_the_title_or_the_only_text(query: str, hits: list[str], match: str | None) -> None:
    words = ranking_of([[(name, float(9 - place)) for place, name in enumerate(hits)]], 9)
    assert [name for name, _ in verbatim(words, [query], documents_of).hits(0)] == ([] if match is None else [match])


def test_only_the_best_hits_are_read() -> None:
    names = [f"d{number:02}" for number in range(READ_HITS + 1)]
    words = ranking_of([[(name, 99.0 - place) for place, name in enumerate(names)]], len(names))
    read: list[str] = []

    def reading(ids: list[str]) -> list[Document | None]:
        read.extend(ids)
        return [Document(name, f"a fox {name}", title="fox" if name == names[-1] else "") for name in ids]

    assert verbatim(words, ["fox"], reading).hits(0) == []
    assert read == names[:-1]


SCORES = st.lists(st.floats(0.5, 9, width=32), min_size=6, max_size=6, unique=True)


@given(SCORES, SCORES, st.integers(0, 6), st.sampled_from(["weighted", "reciprocal-rank"]), st.floats(0.1, 5))
def test_a_match_comes_first_and_the_others_stay(
    first: list[float], second: list[float], place: int, fusion: Fusion, weight: float
) -> None:
    names = [f"d{number}" for number in range(6)]
    documents = [Document(name, "a text", "the query" if number == place else "") for number, name in enumerate(names)]
    rankings = [ranking_of([list(zip(names, scores, strict=True))], 6) for scores in (first, second)]
    kinds = dict(zip(("sparse", "bm25"), rankings, strict=True))
    weights = {"sparse": weight, "bm25": 1.0}
    plan = SearchPlan(Depths(k=6, offset=0, depth=100, first=6, kept=6), weights, fusion)
    queries = EncodedQueries(["The Query"], pytest.fail)

    def read(ids: list[str]) -> list[Document]:
        return [documents[names.index(name)] for name in ids]

    found = plan.carry_out(plan.rankings(queries, lambda _: kinds, read), pytest.fail, read)
    without = fused(kinds, weights, fusion, 6).hits(0)
    # A match that is the last of all kinds ties with a document that is the first of all.
    assume(fusion != "weighted" or place == 6 or without[0][1] - dict(without)[names[place]] < (weight + 1) * 0.9999)
    expected = [name for name, _ in without]
    if place < 6:
        expected = [names[place], *(name for name in expected if name != names[place])]
    assert [name for name, _ in found.hits(0)] == expected
    assert found.parts is not None
    sums = {name: sum(dict(part.hits(0)).get(name, 0) for part in found.parts.values()) for name in names}
    assert dict(found.hits(0)) == pytest.approx(sums, rel=1e-5)
    assert len(found.parts[VERBATIM_MATCH].hits(0)) == (place < 6)


def test_words_alone_and_other_kinds_have_no_match() -> None:
    empty = Ranking(np.zeros((1, 0), np.int32), np.zeros((1, 0), np.float32), ["a"])
    for weights in ({"bm25": 1.0}, {"sparse": 1.0, "dense": 1.0}):
        plan = SearchPlan(Depths(k=1, offset=0, depth=100, first=1, kept=1), weights)
        rankings = plan.rankings(
            EncodedQueries(["a"], pytest.fail), lambda spaces: dict.fromkeys(spaces, empty), pytest.fail
        )
        assert rankings.keys() == weights.keys()
