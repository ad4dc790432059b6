"""A service of a model with a dense side: one pass for each query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import Client
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.collection.standing import Standing, explain
from vocable.encoding.text_encoder import TextEncoder

TEXTS = ["the old fox reads", "posting lists at night", "a naïve vocabulary"]


@pytest.fixture(scope="module")
def place(m3: str, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dense") / "index"
    index(m3, corpus, folder, bm25=True, dtype="float32", device="cpu")
    return folder


@pytest.fixture(scope="module")
def client(served: Callable[..., Client], place: Path) -> Client:
    return served(place)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The texts of each pass of an encoder."""
    found, encode = [], TextEncoder.encode_both

    def counted(self: TextEncoder, texts: Any, *rest: Any) -> Any:
        found.append(texts)
        return encode(self, texts, *rest)

    monkeypatch.setattr(TextEncoder, "encode_both", counted)
    return found


@pytest.mark.parametrize("body", [{}, {"weights": "dense=1"}, {"explain": True}])
def test_a_query_is_encoded_once(client: Client, place: Path, passes: list[Any], body: dict[str, Any]) -> None:
    query = f"the old fox {body}"
    found = client("POST", "/search", json={"query": query, "k": 5, **body}).json()["hits"]
    assert passes == [[query]]
    with open_index(place, device="cpu") as collection:
        expected = collection.search([query], 5, **{name: value for name, value in body.items() if name != "explain"})
    assert [(one["id"], pytest.approx(one["score"], rel=1e-4)) for one in found] == expected.hits(0)
    if "explain" in body:
        assert [*found[0]["parts"]["kinds"]] == ["sparse", "bm25", "dense"]


def test_the_page_encodes_a_query_once(client: Client, passes: list[Any]) -> None:
    show = ["sparse", "bm25", "dense", "hybrid"]
    view = client("POST", "/view", json={"query": "a fox at night", "show": show}).json()
    assert passes == [["a fox at night"]]
    assert view["rankings"] == ["sparse", "bm25", "dense", "hybrid"]
    assert any("dense" in one["ranks"] for one in view["documents"])


def test_documents_like_another_are_ranked_by_both_vectors(client: Client, place: Path) -> None:
    with open_index(place, device="cpu") as collection:
        expected = collection.search([], 10, like="d7").hits(0)
    found = client("POST", "/search", json={"like": "d7"}).json()
    assert found["weights"] == {"sparse": 1, "dense": 1}
    assert [(hit["id"], pytest.approx(hit["score"], rel=1e-4)) for hit in found["hits"]] == expected
    view = client("POST", "/view", json={"like": "d7", "show": ["hybrid"]}).json()
    assert view["rankings"] == ["sparse", "dense", "hybrid"]
    ranks = {one["ranks"]["hybrid"]: one["id"] for one in view["documents"]}
    assert [ranks[rank] for rank in sorted(ranks)] == [name for name, _ in expected]


def test_an_explanation_has_the_parts_of_a_search(client: Client, place: Path, passes: list[Any]) -> None:
    query = "a fox explained"
    best = client("POST", "/search", json={"query": query, "explain": True}).json()["hits"][0]
    with open_index(place, device="cpu") as collection:
        standing = explain(collection, query, best["id"])
    assert passes == [[query]] * 2
    found = client("POST", "/explain", json={"query": query, "id": best["id"]}).json()
    assert found["parts"]["kinds"] == best["parts"]["kinds"]
    assert found["parts"]["kinds"]["dense"] > 0
    assert isinstance(standing, Standing)
    assert standing.parts is not None
    assert standing.parts.kinds == pytest.approx(best["parts"]["kinds"], rel=1e-4)
    of_text = client("POST", "/explain", json={"query": query, "document": best["text"]}).json()
    assert "parts" not in of_text
