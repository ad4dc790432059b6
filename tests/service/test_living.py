"""A living service, and an open collection, answer after any changes as a service that has just been started."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.collection.servers import SERVERS, models_once, served
from tests.forks import Fork
from tests.service.conftest import Client
from vocable.collection.answers import search
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.collection.verbs import add, delete
from vocable.encoding.text_encoder import TextEncoder
from vocable.engines import kept_counts
from vocable.errors import DataError
from vocable.options import check
from vocable.service import ServiceOptions
from vocable.service.mcp import call
from vocable.service.server import WorkerSettings, application

QUERIES = ["river mountain", "old boats on a quiet river", "librarian"]
WORDS = ["river", "mountain", "boat", "library", "old", "quiet", "garden", "stone"]
FIRST = {f"d{number}": f"the {WORDS[number % 4]} and the {WORDS[number % 3 + 4]}" for number in range(6)}
IDS = [f"d{number}" for number in range(9)]
MODELS = ["vocable-mini", "vocable-mini-doc"]  # queries by a transformer, and looked up; both with IDF
POWERS = [None, 0.0, 1.0]  # None: the model's own

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
some_documents = st.dictionaries(st.sampled_from(IDS), texts, min_size=1, max_size=4)
some_ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["PUT", "POST", "add"]), some_documents),
        st.tuples(st.sampled_from(["DELETE", "delete"]), some_ids),
        st.tuples(st.just("search"), st.sampled_from(QUERIES)),
    ),
    min_size=1,
    max_size=6,
)


def written(documents: dict[str, str], path: Path) -> Path:
    path.write_text("".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in documents.items()))
    return path


def comparable(value: Any) -> Any:
    """Return an answer without the last bits of scores, which a store adds up in any order, and so without ranks."""
    if isinstance(value, dict):
        return {name: comparable(inner) for name, inner in value.items() if not name.startswith("rank")}
    if isinstance(value, list | tuple):
        return sorted((comparable(inner) for inner in value), key=repr)
    return float(f"{value:.4g}") if isinstance(value, float) else value


class Living:
    """A service, a collection that was opened with it, and another writer, all of one place."""

    def __init__(self, place: str, work: Path, documents: dict[str, str]) -> None:
        self.place, self.corpus, self.documents = place, work / "more.jsonl", dict(documents)
        self.open()

    def open(self) -> None:
        options = check(ServiceOptions, {"device": "cpu", "allow_host": ["test"]})
        self.client = Client(application(WorkerSettings(self.place, None, "127.0.0.1", None, options)))
        self.collection, self.writer = open_index(self.place), open_index(self.place)

    def close(self) -> None:
        self.client.service.close()
        self.collection.close()
        self.writer.close()

    def ask(self, path: str, **body: Any) -> Any:
        answer = self.client("POST", path, json=body)
        return answer.status_code, answer.json()

    def change(self, verb: str, change: Any) -> None:
        """Take one step: a request to the service, or a change by the other writer."""
        if verb in ("PUT", "POST"):
            rows = [{"id": name, "text": text} for name, text in change.items()]
            answer = self.client(verb, "/documents", json={"documents": rows})
            assert answer.status_code == (409 if verb == "POST" and change.keys() & self.documents else 200)
            self.documents |= change if answer.status_code == 200 else {}
        elif verb == "add":
            add(self.writer, written(change, self.corpus))
            self.documents |= change
        elif verb == "search":
            self.hits([change])
        else:
            if verb == "DELETE":
                assert self.client("DELETE", "/documents", params={"id": change}).status_code == 200
            else:
                delete(self.writer, change)
            self.documents = {name: text for name, text in self.documents.items() if name not in change}

    def hits(self, queries: list[str]) -> list[Any]:
        """Return the hits of the service and of the open collection, with every power of the IDF."""
        found = []
        for query in queries:
            for power in POWERS:
                asked: Any = {} if power is None else {"query_idf": power}
                found.append(self.ask("/search", query=query, **asked))
                found.append(search(self.collection, [query], **asked).to_json())
        return found

    def answers(self) -> list[Any]:
        """Return what every way to search says."""
        found = [len(self.collection), self.client("GET", "/info").json()["documents"], *self.hits(QUERIES)]
        query, service = QUERIES[0], self.client.app.app.state.service
        found.append(asyncio.run(call(service, "search", {"query": query})))
        view = self.ask("/view", query=query, show=["sparse", *["hybrid"] * (len(self.collection.spaces) > 1)])
        view[1].pop("milliseconds", None)
        found += [view, self.ask("/explain", query=query)]
        found.append(self.ask("/explain", query=query, id=next(iter(self.documents), "none")))
        return [comparable(answer) for answer in found]


def made(place: str, model: str, work: Path, **options: Any) -> Living:
    index(model, written(FIRST, work / "corpus.jsonl"), place, device="cpu", **options).close()
    return Living(place, work, FIRST)


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    models_once(monkeypatch)


@pytest.fixture(scope="module", params=[*SERVERS, "folder", "folder, words", "folder, passages"])
def places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Places of an engine by name, and the options of an index there."""
    engine, _, kind = request.param.partition(", ")
    options = {"words": {"bm25": True}, "passages": {"bm25": True, "long_documents": "passages"}}.get(kind, {})
    folder = tmp_path_factory.mktemp("engine")
    if engine == "folder":
        yield lambda name: str(folder / name), options
        return
    with pytest.MonkeyPatch.context() as monkeypatch, served(engine, folder, monkeypatch) as place:
        monkeypatch.setattr(kept_counts, "RECORD_SECONDS", 0.0)  # a change of others is seen at once
        yield place, {"bm25": True}


@pytest.fixture
def living(places: tuple[Callable[[str], str], Any], model: str, tmp_path: Path) -> Iterator[Living]:
    place, options = places
    if model != MODELS[-1] and ("://" in place("") or options):
        pytest.skip("with the other model")
    found = made(place(model.replace("-", "_")), model, tmp_path, **options)
    yield found
    found.close()


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=1, phases=[Phase.explicit, Phase.generate])
@example([("search", QUERIES[0]), ("PUT", {"d7": "river"}), ("add", {"d8": "mountain"}), ("search", QUERIES[0])])
@example([("search", QUERIES[0]), ("DELETE", IDS), ("search", QUERIES[0]), ("add", FIRST)])
@given(steps)
def test_all_answers_follow_all_changes(living: Living, changes: list[tuple[str, Any]]) -> None:
    for verb, change in changes:
        living.change(verb, change)
    answers = living.answers()
    assert answers[:2] == [len(living.documents)] * 2
    _, rows = living.ask("/embed_sparse", inputs=QUERIES, prompt_name="query")
    for row, weights in zip(rows, expected(living), strict=True):
        found = np.zeros_like(weights)
        found[[entry["index"] for entry in row]] = [entry["value"] for entry in row]
        np.testing.assert_allclose(found, weights, rtol=1e-5)
    living.close()
    living.open()
    assert living.answers() == answers


def expected(living: Living) -> Any:
    """The queries' weights [q, v]: the model's, times log(1 + (n - df + 1/2) / (df + 1/2)) to the model's power."""
    model = living.collection.models.loaded
    encoder = TextEncoder(model, "query")
    queries = encoder.encode(QUERIES).toarray()
    n = len(living.documents)
    documents = TextEncoder(model, "document").encode([*living.documents.values()])
    counts = np.bincount(documents.indices, minlength=queries.shape[1])
    return queries * np.log(1 + (n - counts + 0.5) / (counts + 0.5)) ** encoder.query_idf if n else queries


def put(place: str, corpus: Path) -> None:
    add(place, corpus)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["postgresql", "elasticsearch"])
def test_a_service_follows_another_process(
    engine: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_counts, "RECORD_SECONDS", 0.0)  # a change of others is seen at once
    with served(engine, tmp_path_factory.mktemp("engine"), monkeypatch) as place:
        living = made(place("shared"), "vocable-mini-doc", tmp_path)
        before = living.answers()
        more = {f"d{number}": f"a river, the mountain and {WORDS[number % 8]}" for number in range(4, 14)}
        with Fork(put, living.place, written(more, tmp_path / "other.jsonl")) as process:
            assert process.wait() == 0, process.stderr.read()
        living.documents |= more
        answers = living.answers()
        assert answers[:2] == [14, 14]
        assert answers != before
        living.close()
        living.open()
        assert living.answers() == answers
        living.close()


def test_a_killed_change_leaves_no_counts_to_keep(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served("elasticsearch", tmp_path_factory.mktemp("engine"), monkeypatch) as place:
        living = made(place("killed"), "vocable-mini-doc", tmp_path)
        store = living.writer.store
        version = store.version()
        assert version == living.collection.store.version() is not None
        with pytest.raises(KeyboardInterrupt), store.changing():
            raise KeyboardInterrupt
        reader: Any = living.collection.store
        asked, count, terms = list[int](), reader._count_all, np.arange(3)
        monkeypatch.setattr(reader, "_count_all", lambda given: asked.append(1) or count(given))
        monkeypatch.setattr(kept_counts, "RECORD_SECONDS", 0.0)
        assert reader.version() is None
        reader.count_terms(terms)
        reader.count_terms(terms)
        assert len(asked) == 2
        with pytest.raises(DataError):
            add(living.writer, written({"d" * 40_000: "an id that is too long"}, living.corpus))
        assert reader.version() not in (None, version)
        reader.count_terms(terms)
        reader.count_terms(terms)
        assert len(asked) == 3
        living.close()
