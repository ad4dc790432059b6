"""The endpoints answer with the numbers of the Python functions, in the shapes that clients know."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.conftest import Client
from vocable.collection.answers import search
from vocable.collection.collection import Collection, open_index
from vocable.collection.index import index
from vocable.data import Document
from vocable.encoding.encode import encode
from vocable.service.schemas import SearchAnswer
from vocable.service.service import Service

Serve = Callable[..., Client]
TEXTS = ["the old fox reads", "posting lists at night", "a naïve vocabulary"]


def values(rows: list[list[dict[str, float]]], size: int) -> np.ndarray:
    """Sparse values as a dense matrix."""
    matrix = np.zeros((len(rows), size), dtype=np.float32)
    for row, terms in enumerate(rows):
        for term in terms:
            matrix[row, int(term["index"])] = term["value"]
    return matrix


def test_explained_searches_that_would_not_be_done_in_time_are_refused_early(
    served: Serve, exact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, search_alone, statuses = served(exact, timeout=3), Service._search_alone, list[int]()

    def slow(*given: Any) -> Any:
        time.sleep(0.5)
        return search_alone(*given)

    async def ask(http: httpx.AsyncClient, number: int) -> None:
        body = {"query": f"the old fox {number}", "explain": True}
        statuses.append((await http.post("/search", json=body)).status_code)

    async def ask_all() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(client.app), base_url="http://test") as http:
            await asyncio.gather(*(ask(http, number) for number in range(20)))

    monkeypatch.setattr(Service, "_search_alone", slow)
    asyncio.run(ask_all())
    assert statuses[:3] == [200, 200, 429]  # two answers tell how long the next ones would take
    assert set(statuses) == {200, 429}


def test_sparse_embeddings_are_those_of_encode(client: Client, collection: Collection) -> None:
    one = client("POST", "/embed_sparse", json={"inputs": TEXTS[0]}).json()
    several = client("POST", "/embed_sparse", json={"inputs": TEXTS, "truncate": True, "normalize": True}).json()
    queries = client("POST", "/embed_sparse", json={"inputs": TEXTS, "prompt_name": "query"}).json()
    model = collection.models.loaded
    expected = encode(model, TEXTS, "document").toarray()
    np.testing.assert_allclose(values(several, expected.shape[1]), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values(one, expected.shape[1]), expected[:1], rtol=1e-5, atol=1e-6)
    expected = encode(model, TEXTS, "query").toarray()
    np.testing.assert_allclose(values(queries, expected.shape[1]), expected, rtol=1e-5, atol=1e-6)
    assert [term["index"] for term in one[0]] == sorted(term["index"] for term in one[0])


def test_a_long_text_is_cut_where_it_is_asked_to_be(client: Client, collection: Collection) -> None:
    long = " ".join(f"{TEXTS[0]} {i}" for i in range(200))
    refused = client("POST", "/embed_sparse", json={"inputs": [TEXTS[0], long]})
    assert (refused.status_code, refused.json()["error_type"]) == (413, "Validation")
    length = client.service.documents.max_length
    assert refused.json()["error"].startswith(f"`inputs` must have at most {length} tokens, not ")
    body = {"inputs": long, "truncate": True}
    right, left = (
        client("POST", "/embed_sparse", json=body | {"truncation_direction": side}).json() for side in ("Right", "left")
    )
    expected = encode(collection.models.loaded, [long], "document").toarray()
    np.testing.assert_allclose(values(right, expected.shape[1]), expected, rtol=1e-5, atol=1e-6)
    tokenizer = collection.models.loaded.sparse_encoder.tokenizer
    end = tokenizer.decode(tokenizer(long, add_special_tokens=False)["input_ids"][-(length - 2) :])
    expected = encode(collection.models.loaded, [end], "document").toarray()
    np.testing.assert_allclose(values(left, expected.shape[1]), expected, rtol=1e-5, atol=1e-6)
    again = client("POST", "/embed_sparse", json=body).json()
    assert again == right  # the tokenizer cuts as before


@pytest.mark.parametrize(
    "fused",
    [
        {},
        {"weights": "sparse"},
        {"fusion": "reciprocal-rank"},
        {"weights": {"sparse": 0.3, "bm25": 0.7}},
        {"weights": {"bm25": 1}},
        {"offset": 3, "min_score": 0.5},
    ],
)
@pytest.mark.parametrize(
    ("filter", "idf_filter"),
    [(None, None), ("lang=de and n>=10", None), ("lang=de and n>=10", "n<20"), (None, "lang=de")],
)
def test_a_search_finds_what_the_function_finds(
    client: Client, collection: Collection, fused: dict[str, Any], filter: str | None, idf_filter: str | None
) -> None:
    body = {"k": 5, **fused, "filter": filter, "idf_filter": idf_filter, "explain": True}
    answers = client.together([("POST", "/search", {"json": body | {"query": text}}) for text in TEXTS])
    expected = search(collection, TEXTS, 5, **fused, filter=filter, idf_filter=idf_filter, explain=True)
    for answer, wanted in zip(answers, expected.to_json(), strict=True):
        assert answer.status_code == 200
        same_hits(answer.json()["hits"], wanted["hits"])
        read = [found.hit().to_json() for found in SearchAnswer.model_validate(answer.json()).hits]
        assert [hit.get("parts") for hit in read] == [hit.get("parts") for hit in answer.json()["hits"]]


def same_hits(found: list[dict[str, object]], expected: list[dict[str, object]]) -> None:
    """The same documents, scores and shares, up to the last bits."""
    assert [hit["id"] for hit in found] == [hit["id"] for hit in expected]
    numbers = [
        json.loads(json.dumps(hits), parse_float=lambda text: round(float(text), 3)) for hits in (found, expected)
    ]
    assert numbers[0] == numbers[1]


def test_a_vector_searches_as_its_text_does(client: Client) -> None:
    vector = client("POST", "/embed_sparse", json={"inputs": TEXTS[0], "prompt_name": "query"}).json()[0]
    by_text = client("POST", "/search", json={"query": TEXTS[0], "k": 7, "weights": "sparse"}).json()
    found = client("POST", "/search", json={"vector": vector[::-1], "k": 7}).json()
    assert by_text.pop("note") == "no document has the words old, fox"
    assert any(hit["snippet"]["marks"] for hit in by_text["hits"])
    for hit in by_text["hits"]:
        hit["snippet"].update(marks=[], title_marks=[])  # a vector has no words to mark
    assert found == by_text
    both = client("POST", "/search", json={"query": TEXTS[1], "vector": vector, "k": 7}).json()
    assert both != client("POST", "/search", json={"query": TEXTS[0], "k": 7}).json()
    few = client("POST", "/search", json={"query": TEXTS[0], "k": 7, "max_terms": 2, "weights": "sparse"}).json()
    heaviest = sorted(vector, key=lambda term: -term["value"])[:2]
    found = client("POST", "/search", json={"vector": heaviest, "k": 7}).json()
    assert [(hit["id"], hit["score"]) for hit in few["hits"]] == [(hit["id"], hit["score"]) for hit in found["hits"]]


def test_explanations_are_those_of_the_index(client: Client, collection: Collection) -> None:
    [hit, *_] = client("POST", "/search", json={"query": TEXTS[0], "explain": True}).json()["hits"]
    by_id = client("POST", "/explain", json={"query": TEXTS[0], "id": hit["id"]}).json()
    assert by_id == hit["explanation"] | {"parts": hit["parts"]}
    by_text = client("POST", "/explain", json={"query": TEXTS[0], "document": f"{hit['title']} {hit['text']}"}).json()
    assert by_text["score"] == pytest.approx(hit["explanation"]["score"], rel=1e-5)
    alone = client("POST", "/explain", json={"query": TEXTS[0], "k": 3}).json()
    vector = encode(collection.models.loaded, [TEXTS[0]], "query")
    assert (alone["active"], len(alone["terms"])) == (vector.nnz, 3)
    assert alone["terms"][0]["weight"] == pytest.approx(float(vector.data.max()), rel=1e-5)
    assert client("POST", "/explain", json={"query": "a", "id": "no such"}).status_code == 404


def test_an_index_that_cannot_change_says_so(
    served: Serve, backbones: dict[str, Path], corpus: Path, documents: list[Document], tmp_path: Path
) -> None:
    pytest.importorskip("seismic")
    index(str(backbones["bert"]), corpus, f"seismic:{tmp_path / 'index'}", device="cpu").close()
    client = served(tmp_path / "index")
    assert client("GET", "/info").json()["can_change"] is False
    assert client("GET", "/documents", params={"id": ["d3", "no such"]}).json() == [documents[3]._asdict(), None]
    one = {"documents": [{"id": "new", "text": "a text"}]}
    for refused in (
        client("POST", "/documents", json=one),
        client("PUT", "/documents", json=one),
        client("DELETE", "/documents", params={"id": "d3"}),
    ):
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
        assert refused.json()["error"].startswith("this index cannot change: index again to a plain folder")


def test_documents_are_added_and_deleted(served: Serve, store: Path, documents: list[Document]) -> None:
    client = served(store)
    new = {"id": "a/b c", "text": "zebras and the old fox", "fields": {"lang": "nl", "deep": {"n": [1, None, 2.5]}}}
    counts = {"added": 1, "replaced": 0, "unchanged": 0, "deleted": 0, "documents": 41}
    assert client("POST", "/documents", json={"documents": [new]}).json() == counts
    assert client("GET", "/documents", params={"id": "a/b c"}).json() == [new | {"title": ""}]
    found = client("POST", "/search", json={"query": "zebras", "k": 1, "filter": "lang=nl"}).json()["hits"]
    assert [hit["id"] for hit in found] == ["a/b c"]
    again = client("POST", "/documents", json={"documents": [{"id": "other", "text": "a"}, new]})
    assert (again.status_code, again.json()["error"]) == (
        409,
        "duplicate id 'a/b c': PUT replaces the document",
    )
    assert client("GET", "/documents", params={"id": "other"}).json() == [None]
    replaced = client("PUT", "/documents", json={"documents": [new | {"text": "a giraffe"}]}).json()
    assert (replaced["replaced"], replaced["documents"]) == (1, 41)
    deleted = client("DELETE", "/documents", params={"id": ["a/b c", "d0", "no such"]}).json()
    assert (deleted["deleted"], deleted["documents"]) == (2, 39)
    assert client("GET", "/info").json()["documents"] == 39


BAD = {
    "an empty id": ({"id": "", "text": "x"}, "an empty id"),
    "blanks": ({"id": " \u00a0", "text": "x"}, "an empty id"),
    "a tab": ({"id": "a\tb", "text": "x"}, "has a tab or a line end"),
    "a line feed": ({"id": "a\n", "text": "x"}, "has a tab or a line end"),
    "a carriage return": ({"id": "\ra", "text": "x"}, "has a tab or a line end"),
    "no text": ({"id": "a", "text": ""}, "'a' has neither text nor title"),
    "blanks alone": ({"id": "a", "text": " \n\t", "title": "\u2003"}, "'a' has neither text nor title"),
    "an id twice": ({"id": "good", "text": "y"}, "duplicate id 'good'"),
}


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("what", BAD)
def test_a_request_with_a_document_that_readers_refuse_changes_nothing(
    changeable: Client, method: str, what: str
) -> None:
    client, (bad, said) = changeable, BAD[what]
    before = client("GET", "/info").json()["documents"]
    answer = client(method, "/documents", json={"documents": [{"id": "good", "text": "x"}, bad]})
    assert (answer.status_code, answer.json()["error_type"]) == (422, "Validation")
    assert answer.json()["error"].startswith("documents[1]: ")
    assert said in answer.json()["error"]
    assert client("GET", "/documents", params={"id": "good"}).json() == [None]
    assert client("GET", "/info").json()["documents"] == before
    titled = client(method, "/documents", json={"documents": [{"id": "good", "text": "", "title": "A title"}]})
    assert titled.json()["added"] == 1
    assert client("DELETE", "/documents", params={"id": "good"}).json()["documents"] == before


def test_filters_at_one_time_are_not_mixed_up(served: Serve, backbones: dict[str, Path], tmp_path: Path) -> None:
    values: list[Any] = [1, True, 0, False, "1", 1.5]
    rows = [{"_id": f"{i}", "text": f"the old fox {i}", "flag": values[i % len(values)]} for i in range(24)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    index(str(backbones["bert"]), tmp_path / "corpus.jsonl", tmp_path / "index", device="cpu").close()
    client = served(tmp_path / "index")
    texts = ["flag=1", "flag=true", "flag=0", "flag=false", "flag='1'", "flag=1.5"]
    body = {"query": "the old fox", "k": 24}
    answers = client.together([("POST", "/search", {"json": body | {"filter": text}}) for text in texts * 10])
    for number, answer in enumerate(answers):
        found = [hit["fields"]["flag"] for hit in answer.json()["hits"]]
        assert [repr(one) for one in found] == [repr(values[number % len(values)])] * 4


def test_a_value_of_another_type_is_written(served: Serve, store: Path) -> None:
    client = served(store)
    for value in (1, True, 0, False, [1], [True], {"a": 1}, {"a": True}):
        one = {"id": "new", "text": "zebras", "title": "", "fields": {"flag": value}}
        changed = client("PUT", "/documents", json={"documents": [one]}).json()
        assert (changed["added"] + changed["replaced"], changed["unchanged"]) == (1, 0)
        assert repr(client("GET", "/documents", params={"id": "new"}).json()) == repr([one])


def test_a_search_sees_all_of_a_change_or_nothing(served: Serve, store: Path) -> None:
    """Searches between changes that come at the same time find all documents of one state."""
    client = served(store, batch_wait=0)
    words = ["zebra", "giraffe"]
    states = [
        [{"id": f"s{i}", "text": f"{word} {word} {word} x{i}", "fields": {"state": n}} for i in range(20)]
        for n, word in enumerate(words)
    ]
    client("PUT", "/documents", json={"documents": states[0]})
    body = {"query": "zebra giraffe", "k": 40, "filter": "state in (0, 1)"}
    requests = []
    for i in range(12):
        requests.append(("PUT", "/documents", {"json": {"documents": states[(i + 1) % 2]}}))
        requests += [("POST", "/search", {"json": body})] * 3
    answers = [one for one in client.together(requests) if "hits" in one.json()]
    assert len(answers) == 36
    for answer in answers:
        hits = answer.json()["hits"]
        assert len({hit["fields"]["state"] for hit in hits}) == 1
        assert len(hits) == 20


def test_info_health_and_readiness_describe_the_service(served: Serve, exact: Path) -> None:
    client = served(exact)
    info = client("GET", "/info").json()
    assert info["model_type"] == {"embedding": {"pooling": "splade"}}
    assert info["title"] == exact.name
    assert served(exact, title="Our books")("GET", "/info").json()["title"] == "Our books"
    assert (info["documents"], info["spaces"], info["can_change"]) == (40, ["sparse", "bm25"], True)
    assert client("GET", "/health").json() == client("GET", "/ready").json() == {"status": "ok"}
    description = client("GET", "/openapi.json").json()
    assert set(description["paths"]) == {
        *("/embed_sparse", "/search", "/explain", "/documents"),
        *("/view", "/postings", "/info", "/health", "/ready", "/metrics", "/reload"),
    }
    operations = {one["operationId"] for path in description["paths"].values() for one in path.values()}
    assert operations == {
        *("embed_sparse", "search", "explain", "view", "postings", "info", "health", "ready", "metrics", "reload"),
        *("get_documents", "add_documents", "upsert_documents", "delete_documents"),
    }
    schemas = description["components"]["schemas"]
    assert all("default" not in field for one in schemas.values() for field in one.get("properties", {}).values())
    assert "required" not in schemas["SearchRequest"]
    assert schemas["SearchRequest"]["properties"]["k"]["description"].endswith("best first. 10 by default.")
    assert schemas["SearchAnswer"]["required"] == ["hits"]
    assert {"copies", "passage"}.isdisjoint(schemas["FoundDocument"]["required"])
    client.service.batcher.close()
    assert client("GET", "/ready").status_code == 503
    assert client("POST", "/search", json={"query": "a fox"}).status_code == 429


def test_all_work_is_done_in_one_thread(client: Client) -> None:
    threads = set()
    batches = []

    def work(items: list[int]) -> list[int]:
        threads.add(threading.current_thread().name)
        batches.append(len(items))
        return [item + 1 for item in items]

    async def many() -> list[list[int]]:
        return await asyncio.gather(*(client.service.batcher.run(work, [i], wait=1.0) for i in range(80)))

    assert asyncio.run(many()) == [[i + 1] for i in range(80)]
    assert threads == {"vocable-serve"}
    assert batches == [32, 32, 16]


def test_a_service_reranks_unless_it_is_told_not_to(served: Callable[..., Client], exact: Path, cross: str) -> None:
    client, plain = served(exact, rerank=cross, rerank_depth=8, rerank_batch_size=4), served(exact)
    request = {"query": "the old fox reads", "k": 5}
    opened = open_index(exact, device="cpu")
    expected = opened.search([request["query"]], 5, rerank=cross, rerank_depth=8, rerank_batch_size=4).hits(0)
    hits = client("POST", "/search", json=request).json()["hits"]
    assert [hit["id"] for hit in hits] == [name for name, _ in expected]
    assert [hit["score"] for hit in hits] == pytest.approx([score for _, score in expected], rel=1e-4)
    assert all(hit["first_score"] > 0 for hit in hits)
    off = client("POST", "/search", json={**request, "rerank": False}).json()
    assert off == plain("POST", "/search", json=request).json()
    fewer = client("POST", "/search", json={**request, "rerank_depth": 3}).json()["hits"]
    assert [hit["id"] for hit in fewer][3:] == [hit["id"] for hit in off["hits"]][3:]
    vector = client("POST", "/embed_sparse", json={"inputs": "fox", "prompt_name": "query"}).json()[0]
    assert "first_score" not in client("POST", "/search", json={"vector": vector}).json()["hits"][0]
    for refused, match in (
        ({**request, "rerank_depth": 9}, "rerank_depth must be at most 8, not 9"),
        ({"vector": vector, "rerank": True}, "query is missing"),
    ):
        answer = client("POST", "/search", json=refused)
        assert (answer.status_code, match in answer.json()["error"]) == (422, True)
    answer = plain("POST", "/search", json={**request, "rerank": True})
    assert (answer.status_code, "without a cross encoder" in answer.json()["error"]) == (422, True)
    answer = plain("POST", "/search", json={**request, "rerank_depth": 3})
    assert (answer.status_code, "needs `rerank`" in answer.json()["error"]) == (422, True)
    assert client("GET", "/info").json()["rerank"] == cross
    seen = client("POST", "/view", json={"query": request["query"], "k": 5, "show": ["reranked"]}).json()
    ranks = {one["id"]: one["ranks"]["reranked"] for one in seen["documents"]}
    both = opened.search([request["query"]], 5, rerank=cross, rerank_depth=8).hits(0)
    assert sorted(ranks, key=lambda name: ranks[name]) == [name for name, _ in both]
    assert plain("POST", "/view", json={"query": "fox", "show": ["reranked"]}).status_code == 422
    opened.close()
