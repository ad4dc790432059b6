"""A service of a model with a dense side: one pass for each query, and OpenAI's interface."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.conftest import Client
from tests.torch_models.test_dense import with_dense
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.collection.standing import Standing, explain
from vocable.encoding.text_encoder import TextEncoder
from vocable.options import check
from vocable.service import ServiceOptions
from vocable.service.server import WorkerSettings, application
from vocable.torch_models.inference_free import make_inference_free
from vocable.torch_models.sparse_encoder import load_sparse_encoder, save_model

TEXTS = ["the old fox reads", "posting lists at night", "a naïve vocabulary"]


@pytest.fixture(scope="module")
def place(backbones: dict[str, Path], corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dense")
    model = with_dense(backbones["bert"], folder / "model", 16)
    index(model, corpus, folder / "index", bm25=True, dtype="float32", device="cpu")
    return folder / "index"


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


def test_embeddings_are_those_of_the_encoder(client: Client) -> None:
    encoder = TextEncoder(client.service.model, "document", dtype="float32")
    expected = encoder.encode_both(TEXTS).dense
    assert expected is not None
    answer = client("POST", "/v1/embeddings", json={"input": TEXTS, "model": "any", "user": "me"}).json()
    assert (answer["object"], answer["model"]) == ("list", client.service.collection.models.name)
    assert [one["index"] for one in answer["data"]] == [0, 1, 2]
    np.testing.assert_allclose([one["embedding"] for one in answer["data"]], expected, atol=1e-6)
    tokens = int(encoder.lengths(TEXTS).sum())
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}

    coded = client("POST", "/v1/embeddings", json={"input": TEXTS[0], "encoding_format": "base64", "dimensions": 4})
    [one] = coded.json()["data"]
    found = np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
    first = expected[0, :4]
    np.testing.assert_allclose(found, first / np.linalg.norm(first), atol=1e-6)
    [nothing] = client("POST", "/v1/embeddings", json={"input": ""}).json()["data"]
    assert nothing["embedding"] == [0.0] * 16
    assert client("GET", "/info").json()["dimensions"] == 16


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"input": "a", "dimensions": 17}, 422, "at most 16"),
        ({"input": "a", "dimensions": 0}, 422, "dimensions"),
        ({"input": []}, 422, "empty"),
        ({"input": [[1, 2]]}, 422, "input"),
        ({"input": "a", "encoding_format": "int8"}, 422, "float"),
        ({"input": ["a"] * 65}, 413, "64 inputs"),
        ({"input": "fox " * 2000}, 413, "tokens"),
    ],
)
def test_a_wrong_request_is_refused(client: Client, body: dict[str, Any], status: int, message: str) -> None:
    refused = client("POST", "/v1/embeddings", json=body)
    assert refused.status_code == status
    assert message in refused.json()["error"]
    if status == 413 and "tokens" in message:
        assert client("POST", "/v1/embeddings", json=body | {"truncate": True}).status_code == 200


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


def test_a_service_of_looked_up_queries_leaves_dense_vectors_out(place: Path) -> None:
    free = place.parent / "free"
    save_model(make_inference_free(load_sparse_encoder(place.parent / "model", device="cpu"), weights="ones"), free)
    options = check(ServiceOptions, {"device": "cpu", "allow_host": ["test"], "allow_changed_model": True})
    client = Client(application(WorkerSettings(str(place), str(free), "127.0.0.1", None, options)))
    try:
        assert client("GET", "/info").json()["spaces"] == ["sparse", "bm25"]
        view = client("POST", "/view", json={"query": "a fox at night", "show": ["sparse", "bm25", "hybrid"]}).json()
        assert view["rankings"] == ["sparse", "bm25", "hybrid"]
        assert client("POST", "/search", json={"query": "a fox at night"}).json()["hits"]
        refused = client("POST", "/search", json={"query": "a fox", "weights": "dense=1"})
        assert (refused.status_code, "no dense vectors" in refused.json()["error"]) == (424, True)
    finally:
        client.service.close()
