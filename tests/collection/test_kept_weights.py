"""Weights of searches that an index keeps, in a folder, in memory and on a server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SparseEncoder

from tests.collection.servers import served
from tests.service.conftest import Client
from tests.service.conftest import served as served_index
from vocable.collection.answers import search
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.collection.standing import explain
from vocable.data import Document
from vocable.encoding.load import load
from vocable.errors import ArgumentError

QUERIES = ["the old fox reads", "posting lists at night"]
KEPT = {"sparse": 0.2, "bm25": 0.8}
client_of = served_index


@pytest.fixture(scope="module")
def model(backbones: dict[str, Path]) -> SparseEncoder:
    return load(backbones["bert"], device="cpu")


@pytest.mark.parametrize("engine", ["folder", "qdrant"])
def test_searches_use_the_kept_weights_until_others_are_given(
    engine: str,
    model: SparseEncoder,
    backbones: dict[str, Path],
    toy_texts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents = [Document(f"d{number}", text) for number, text in enumerate(toy_texts[:30])]
    with ExitStack() as stack:
        place = str(tmp_path / "index")
        if engine == "qdrant":
            place = stack.enter_context(served("qdrant", tmp_path, monkeypatch))("kept")
        made: Any = {"bm25": True, "dtype": "float32"}
        index(model, documents, place, **made).close()
        with open_index(place) as collection:
            equal, weighed = (collection.search(QUERIES, 30, weights=weights) for weights in ("sparse=1,bm25=1", KEPT))
            assert str(collection).endswith(f"{len(documents)} documents")
            collection.keep_weights(KEPT)
        with open_index(place) as collection:
            usual = collection.search(QUERIES, 30)
            for number in range(len(QUERIES)):
                assert dict(usual.hits(number)) == pytest.approx(dict(weighed.hits(number)))
                overridden = collection.search(QUERIES, 30, weights="sparse=1,bm25=1")
                assert dict(overridden.hits(number)) == pytest.approx(dict(equal.hits(number)))
            [answer] = search(collection, QUERIES[:1], 3, explain=True)
            assert max(hit.parts.kinds["sparse"] for hit in answer.hits if hit.parts is not None) <= 0.2
            standing: Any = explain(collection, QUERIES[0], answer.hits[0].document.id)
            assert standing.score == pytest.approx(answer.hits[0].score)
            liked = [collection.search([], 5, like="d7", **how).hits(0) for how in ({}, {"weights": "sparse"})]
            assert dict(liked[0]) == dict(liked[1])
            assert "sparse=0.2,bm25=0.8" in str(collection)
            assert collection.to_json()["weights"] == KEPT
            with pytest.raises(ArgumentError):
                collection.keep_weights({"dense": 1.0})
        if engine != "qdrant":  # a repeated command leaves the index and its weights
            index(model, documents, place, **made).close()
        with open_index(place) as collection:
            assert collection.kept_weights == KEPT
            collection.keep_weights(None)
            again = collection.search(QUERIES, 30)
            assert dict(again.hits(0)) == pytest.approx(dict(equal.hits(0)))


def test_a_service_and_its_page_use_the_kept_weights(
    backbones: dict[str, Path], corpus: Path, tmp_path: Path, client_of: Callable[..., Client]
) -> None:
    with index(str(backbones["bert"]), corpus, tmp_path / "index", bm25=True, dtype="float32", device="cpu") as made:
        made.keep_weights(KEPT)
        expected = made.search(QUERIES[:1], 5, weights=KEPT).hits(0)
    client = client_of(tmp_path / "index")
    assert client("GET", "/info").json()["weights"] == KEPT
    hits = client("POST", "/search", json={"query": QUERIES[0], "k": 5}).json()["hits"]
    assert [(hit["id"], pytest.approx(hit["score"], rel=1e-4)) for hit in hits] == expected
    view = client("POST", "/view", json={"query": QUERIES[0], "k": 5, "show": ["hybrid"]}).json()
    assert {one["id"]: one["ranks"]["hybrid"] for one in view["documents"]} == {
        name: rank for rank, (name, _) in enumerate(expected, start=1)
    }
