"""A service of several indexes: searches, filters and changes over HTTP, and a process that serves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.conftest import Client
from vocable.collection.answers import search
from vocable.collection.index import index
from vocable.collection.verbs import add
from vocable.data import Document
from vocable.options import check
from vocable.service import ServiceOptions
from vocable.service.server import WorkerSettings, application

QUERY = "the old fox reads"


@pytest.fixture
def places(model: str, documents: list[Document], tmp_path: Path) -> list[str]:
    """Two indexes that share two documents."""
    for name, share in (("one", documents[:20]), ("two", documents[18:])):
        index(model, share, tmp_path / name, device="cpu").close()
    return [str(tmp_path / "one"), str(tmp_path / "two")]


def test_requests_are_answered_from_all_indexes(places: list[str], documents: list[Document]) -> None:
    options = check(ServiceOptions, {"device": "cpu", "allow_host": ["test"]})
    client = Client(application(WorkerSettings(places, None, "127.0.0.1", None, options)))
    [answer] = search(places, [QUERY], 9, device="cpu")
    response = client("POST", "/search", json={"query": QUERY, "k": 9, "facets": ["index"]}).json()
    assert [(hit["id"], hit["fields"]["index"]) for hit in response["hits"]] == [
        (hit.document.id, hit.document.fields["index"]) for hit in answer.hits
    ]
    assert {count["value"] for count in response["facets"][0]["counts"]} == {"one", "two"}
    alone = client("POST", "/search", json={"query": QUERY, "filter": "index=two"}).json()
    assert {hit["fields"]["index"] for hit in alone["hits"]} == {"two"}
    twice = documents[18].id
    refusal = client("POST", "/search", json={"like": twice})
    assert refusal.status_code == 422
    assert f"name 'one:{twice}' or 'two:{twice}'" in refusal.json()["error"]
    stored = client("GET", "/documents", params={"id": [f"two:{twice}", documents[0].id, "none"]}).json()
    assert [one and one["fields"]["index"] for one in stored] == ["two", "one", None]
    explained = client("POST", "/explain", json={"query": QUERY, "id": f"two:{twice}"})
    assert explained.status_code == 200
    view = client("POST", "/view", json={"query": QUERY, "show": ["sparse", "hybrid"]})
    assert view.status_code == 200
    assert view.json()["documents"]
    information = client("GET", "/info").json()
    assert (information["title"], information["documents"], information["can_change"]) == ("one, two", 42, False)
    for method, body in (
        ("PUT", {"json": {"documents": [{"id": "a", "text": "b"}]}}),
        ("DELETE", {"params": {"id": "a"}}),
    ):
        refusal = client(method, "/documents", **body)
        assert (refusal.status_code, refusal.json()["error"]) == (
            405, "this index cannot change: change one index at a time"
        )  # fmt: skip
    add(places[1], [Document("zebra", "a zebra crosses")], device="cpu")
    [first, *_] = client("POST", "/search", json={"query": "zebra", "weights": "bm25"}).json()["hits"]
    assert (first["id"], first["fields"]["index"]) == ("zebra", "two")
    client.service.close()
