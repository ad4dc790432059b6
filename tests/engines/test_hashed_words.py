"""BM25 of collections on servers, against the same corpus in a folder and against counts of all words."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.collection import servers
from tests.collection.servers import MODEL, SERVERS, precision, served
from tests.engines.recount import recount
from tests.toys import write_corpus
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.collection.verbs import add, delete
from vocable.data import Document
from vocable.engines import hashed_words
from vocable.engines.hashed_words import NUMBERS, number_of
from vocable.engines.protocols import engine_of
from vocable.errors import UnavailableError
from vocable.language.words import stemmed

WORDS = ["river", "rivers", "mountain", "boat", "library", "old", "quiet", "garden", "stone", "the", "lantern", "fox"]
QUERIES = ["old rivers", "a fox in the garden of the fox", "quiet stone lantern boat", "xyzzy", ""]
K1, B = 1.2, 0.75


def texts(count: int, seed: int = 0, longest: int = 30) -> list[Document]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest, count)
    return [
        Document(f"d{row}", " ".join(rng.choice(WORDS, size=length)), "", {"row": row})
        for row, length in enumerate(lengths)
    ]


def scores(query: str, documents: dict[str, Document], mean: float) -> dict[str, float]:
    """The BM25 scores of a query, word by word."""
    words = {name: stemmed([document.full], "english")[0] for name, document in documents.items()}
    df, n = Counter(word for some in words.values() for word in set(some)), len(documents)
    found = {}
    for name, some in words.items():
        norm = K1 * (1 - B + B * len(some) / mean)
        parts = [
            times * np.log(1 + (n - df[word] + 0.5) / (df[word] + 0.5)) * some.count(word) / (some.count(word) + norm)
            for word, times in Counter(stemmed([query], "english")[0]).items()
        ]
        if (score := sum(parts)) > 0:
            found[name] = float(score)
    return found


def assert_scores(place: str, documents: dict[str, Document], mean: float, allowed: float) -> None:
    """Each query has the hits and scores of the word-by-word count."""
    with open_index(place) as opened:
        ranking = opened.search(QUERIES, 100, weights="bm25=1")
        for number, query in enumerate(QUERIES):
            assert dict(ranking.hits(number)) == pytest.approx(scores(query, documents, mean), rel=allowed)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    servers.models_once(monkeypatch)
    servers.small_parts(monkeypatch)


@pytest.fixture(scope="module", params=SERVERS)
def named(request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as monkeypatch,
        served(request.param, Path(folder), monkeypatch) as place,
    ):
        yield place


def make(place: str, documents: Sequence[Document] | Path, **options: Any) -> None:
    index(MODEL("vocable-mini"), documents, place, bm25=True, **options).close()


def mean_length(documents: Sequence[Document]) -> float:
    return sum(map(len, stemmed([one.full for one in documents], "english"))) / len(documents)


@pytest.mark.slow
def test_a_server_has_the_hits_and_scores_of_a_folder(named: Callable[[str], str], tmp_path: Path) -> None:
    documents, place = texts(40), named("alike")
    for one in (str(tmp_path / "folder"), place):
        make(one, documents)
    with open_index(tmp_path / "folder") as folder, open_index(place) as server:
        searches: list[Any] = [{"weights": "bm25=1"}, {}, {"weights": "bm25=0.7,sparse=0.3"}]
        searches += [{"weights": "bm25=1", "idf_filter": "row<9"}, {"filter": "row>=30"}, {"idf_filter": "row<9"}]
        for options in searches:
            rankings = [opened.search(QUERIES, 40, **options) for opened in (folder, server)]
            for number in range(len(QUERIES)):
                hits, found = (dict(ranking.hits(number)) for ranking in rankings)
                # A folder stores dense vectors in 8 bits.
                allowed = max(2 * precision(place), 0 if "weights" in options else 1e-2)
                assert found == pytest.approx(hits, rel=allowed, abs=allowed)


@pytest.mark.slow
def test_scores_are_right_after_every_change(named: Callable[[str], str], tmp_path: Path) -> None:
    documents, place = {one.id: one for one in texts(20)}, named("changing")
    make(place, [*documents.values()])
    mean = mean_length([*documents.values()])
    assert_scores(place, documents, mean, precision(place))
    more = {one.id: one for one in [*texts(12, seed=3), *(one._replace(id=f"n{one.id}") for one in texts(5))]}
    corpus = write_corpus([*more.values()], tmp_path / "more.jsonl")
    with open_index(place) as beside:  # a second writer, which was opened before
        add(place, corpus)
        documents |= more
        assert_scores(place, documents, mean, precision(place))
        gone = ["d3", "nd1", "none"]
        delete(beside, gone)
    documents = {name: one for name, one in documents.items() if name not in gone}
    assert_scores(place, documents, mean, precision(place))
    counted = recount(place)
    words = {word for some in stemmed([one.full for one in documents.values()], "english") for word in some}
    assert (counted.documents, counted.words, counted.wrong) == (len(documents), len(words), 0)
    assert (counted.weighed_length, counted.mean_length) == pytest.approx((mean, mean_length([*documents.values()])))


@pytest.mark.slow
def test_a_recount_finds_what_another_program_has_deleted() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as monkeypatch,
        served("postgresql", Path(folder), monkeypatch) as place,
    ):
        make(place("deleted"), texts(20))
        with psycopg().connect(place("deleted").partition("&table")[0], autocommit=True) as connection:
            connection.execute("DELETE FROM deleted WHERE id IN ('d3', 'd4')")
        counted = recount(place("deleted"))
        assert counted.documents == 18
        assert counted.wrong > 1


def psycopg() -> Any:
    return pytest.importorskip("psycopg")


def test_documents_that_can_be_read_twice_are_written_once(
    named: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, place = texts(40, seed=2), named("once")
    corpus = write_corpus(documents, tmp_path / "corpus.jsonl")
    monkeypatch.setattr(engine_of(place)[0], "replace_vectors", pytest.fail)
    make(place, corpus)
    assert_scores(place, {one.id: one for one in documents}, mean_length(documents), precision(place))


@pytest.mark.slow
def test_a_making_that_was_cut_short_anywhere_has_the_true_mean_length(
    named: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, place = texts(40, seed=1), named("cut")
    corpus = write_corpus(documents, tmp_path / "corpus.jsonl")
    engine: Any = engine_of(place)[0]
    monkeypatch.setattr("vocable.collection.index._is_stream", lambda source: True)  # which is read once
    for method, number in (("upsert", 1), ("upsert", 3), ("replace_vectors", 2), ("replace_vectors", 5)):
        calls, whole = iter(range(1, 100)), getattr(engine, method)

        def cut(*given: Any, calls: Any = calls, number: int = number, whole: Any = whole) -> None:
            whole(*given)
            if next(calls) == number:
                raise UnavailableError("cut")

        with monkeypatch.context() as patched:
            patched.setattr(engine, method, cut)
            with pytest.raises(UnavailableError):
                make(place, corpus)
    make(place, corpus)
    assert_scores(place, {one.id: one for one in documents}, mean_length(documents), precision(place))


def test_a_collection_whose_documents_have_become_longer_says_so(
    named: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    place = named("longer")
    make(place, texts(20))
    with open_index(place) as opened:
        opened.add([Document("short", "fox")])
        assert "words on average" not in caplog.text
        opened.add([Document(f"long{number}", "river boat " * 60) for number in range(6)])
    assert "words on average" in caplog.text
    assert "index again" in caplog.text


@pytest.mark.slow
def test_a_replacement_has_its_own_words(named: Callable[[str], str], tmp_path: Path) -> None:
    place = named("replaced")
    if place.startswith("milvus:"):
        pytest.skip("Milvus Lite has no replacement")
    for seed in (0, 4):
        documents = texts(20, seed=seed)
        make(place, write_corpus(documents, tmp_path / f"{seed}.jsonl"), replace=True)
    assert_scores(place, {one.id: one for one in documents}, mean_length(documents), precision(place))


def test_two_words_with_one_number_are_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashed_words, "number_of", lambda word: 7)
    counts = hashed_words._counted([["river", "boat", "river"], ["boat"], []])
    assert (counts.indices.tolist(), counts.data.tolist(), counts.indptr.tolist()) == ([7, 7], [3, 1], [0, 1, 2, 2])


def test_numbers_fit_every_engine_and_seldom_meet() -> None:
    numbers = {number_of(f"word{number}") for number in range(100_000)}
    assert 0 <= min(numbers) <= max(numbers) < NUMBERS
    assert 100_000 - len(numbers) <= 15  # 5 are expected


@pytest.mark.slow
def test_a_writer_that_was_open_during_a_replacement_weighs_with_the_new_mean_length(
    named: Callable[[str], str], tmp_path: Path
) -> None:
    place, longer, new = named("taken"), texts(20, seed=4, longest=90), Document("new", "old rivers and a fox")
    make(place, write_corpus(texts(20), tmp_path / "0.jsonl"), replace=True)
    with open_index(place) as writer:
        make(place, write_corpus(longer, tmp_path / "4.jsonl"), replace=True)
        writer.add([new])
    assert_scores(place, {one.id: one for one in [*longer, new]}, mean_length(longer), precision(place))


@pytest.mark.slow
def test_writers_at_once_leave_the_true_counts(named: Callable[[str], str]) -> None:
    if "milvus" in named("atonce"):
        pytest.skip("Milvus Lite has one writer at a time")
    place, lots = named("atonce"), [texts(10, seed=seed, longest=20 + 20 * seed) for seed in range(4)]
    lots = [[one._replace(id=f"{number}{one.id}") for one in some] for number, some in enumerate(lots)]
    make(place, texts(20, seed=9))

    def write(documents: list[Document]) -> None:
        with open_index(place) as opened:
            opened.models.loaded = MODEL("vocable-mini")
            opened.add(documents)

    with ThreadPoolExecutor(len(lots)) as pool:
        list(pool.map(write, lots))
    stored = [*texts(20, seed=9), *chain.from_iterable(lots)]
    counted = recount(place)
    assert (counted.documents, counted.wrong) == (len(stored), 0)
    assert counted.mean_length == pytest.approx(mean_length(stored))
