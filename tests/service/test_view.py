"""The data of the page: ranks, scores, shares, marks and postings, compared with the functions and with NumPy."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.conftest import Client
from vocable import encode, prune, search
from vocable.collection.collection import Collection
from vocable.collection.index import index
from vocable.data import Document
from vocable.explanation.explain import MatchedTerm
from vocable.service.batching import ARRIVED
from vocable.service.pages import FILES
from vocable.service.schemas import ViewRequest
from vocable.service.service import Service
from vocable.service.view import view

TEXT = "the old fox and the night"
Serve = Callable[..., Client]


def viewed(client: Client, **body: Any) -> dict[str, Any]:
    answer = client("POST", "/view", json={"query": TEXT, "k": 5} | body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ranked(answer: dict[str, Any], by: str, k: int = 5) -> list[str]:
    """The ids of one ranking."""
    documents = [one for one in answer["documents"] if one["ranks"].get(by, k + 1) <= k]
    return [one["id"] for one in sorted(documents, key=lambda one: one["ranks"][by])]


def test_each_ranking_is_that_of_a_search(client: Client, collection: Collection) -> None:
    answer = viewed(client, show=["sparse", "bm25", "hybrid"])
    assert answer["rankings"] == ["sparse", "bm25", "hybrid"]
    how: dict[str, dict[str, Any]] = {"sparse": {"weights": "sparse"}, "bm25": {"weights": "bm25"}, "hybrid": {}}
    for by, asked in how.items():
        [expected] = search(collection, [TEXT], 5, **asked)
        assert ranked(answer, by) == [hit.document.id for hit in expected.hits]
        scores = {one["id"]: one["scores"].get(by) for one in answer["documents"]}
        for hit in expected.hits:
            assert scores[hit.document.id] == pytest.approx(hit.score, rel=1e-4)


def test_shares_and_terms_are_those_of_the_vectors(client: Client, collection: Collection) -> None:
    answer = viewed(client)
    query = encode(collection.models.loaded, [TEXT], "query").toarray()[0]
    assert (answer["active"], answer["kept"]) == (np.count_nonzero(query), np.count_nonzero(query))
    names = collection.models.terms
    heaviest = [names[column] for column in np.argsort(-query, kind="stable")[:10]]
    assert [term["term"] for term in answer["terms"][:10]] == heaviest
    tokens = set(collection.models.loaded.sparse_encoder.tokenizer.tokenize(TEXT))
    assert {term["term"] for term in answer["terms"] if term["in_text"]} <= tokens
    assert all("wacky" not in term for term in answer["terms"])
    for one in answer["documents"]:
        products = query * collection.vectors([one["id"]]).toarray()[0]
        assert one["sparse"] == pytest.approx(float(products.sum()), rel=1e-4)
        assert one["shared"] == np.count_nonzero(products)
        expected = np.sort(products)[::-1][: len(one["matches"])] / products.sum()
        np.testing.assert_allclose([match["share"] for match in one["matches"]], expected, rtol=1e-4)


def test_the_text_is_whole_and_its_marks_are_terms(client: Client, collection: Collection) -> None:
    marks = 0
    for one in viewed(client, k=20)["documents"]:
        [document] = collection.documents([one["id"]])
        assert document is not None
        assert "".join(piece["text"] for piece in one["text"]) == document.text
        assert "".join(piece["text"] for piece in one["title"]) == document.title
        kinds = {match["term"]: MatchedTerm(**match).kind for match in one["matches"]}
        for piece in one["text"]:
            if "term" in piece:
                marks += 1
                assert piece["term"].removeprefix("##") == piece["text"].lower()
                assert piece["kind"] == kinds[piece["term"]]
    assert marks


def test_documents_like_another_are_those_of_a_search(client: Client, collection: Collection) -> None:
    answer = client("POST", "/view", json={"like": "d7", "k": 5}).json()
    [expected] = search(collection, k=5, like="d7")
    assert ranked(answer, "sparse") == [hit.document.id for hit in expected.hits]
    scores = {one["id"]: one["scores"]["sparse"] for one in answer["documents"]}
    assert scores == pytest.approx({hit.document.id: hit.score for hit in expected.hits}, rel=1e-4)
    assert (answer["rankings"], "suggestion" in answer) == (["sparse"], False)
    assert client("POST", "/view", json={"like": "d99"}).status_code == 422
    assert client("POST", "/view", json={"like": "d7", "show": ["bm25"]}).status_code == 422
    hits = client("POST", "/search", json={"like": "d7", "k": 5, "explain": True}).json()["hits"]
    assert [hit["id"] for hit in hits] == [hit.document.id for hit in expected.hits]
    assert [hit["explanation"]["score"] for hit in hits] == pytest.approx([hit["score"] for hit in hits], rel=1e-4)
    for wrong in ({"like": "d99"}, {"like": "d7", "query": "fox"}, {"like": "d7", "weights": "bm25=1"}):
        assert client("POST", "/search", json=wrong).status_code == 422


def test_unknown_words_get_a_suggestion(client: Client) -> None:
    for path in ("/view", "/search"):
        assert client("POST", path, json={"query": "a libarian"}).json()["suggestion"] == "a librarian"
        assert "suggestion" not in client("POST", path, json={"query": "a librarian"}).json()
        note = "no document has the words libarian, zebras"
        assert client("POST", path, json={"query": "a libarian reads zebras"}).json()["note"] == note
        assert "note" not in client("POST", path, json={"query": "a librarian"}).json()


def test_pruning_shows_both_rankings(client: Client, collection: Collection) -> None:
    answer = viewed(client, max_terms=3)
    query = encode(collection.models.loaded, [TEXT], "query")
    kept, counts = prune(query, 3), collection.store.count_terms(np.arange(query.shape[1]))[0]
    assert {term["term"] for term in answer["terms"] if term["kept"]} == {
        collection.models.terms[i] for i in kept.indices
    }
    for by, vector in (("sparse", kept), ("unpruned", query)):
        expected = collection.search([TEXT], 5, vectors=vector, weights="sparse").hits(0)
        assert ranked(answer, by) == [one for one, _ in expected]
        assert answer["costs"][by]["terms"] == vector.nnz
        assert answer["costs"][by]["postings"] == counts[vector.indices].sum()
    assert "unpruned" not in viewed(client, max_terms=10_000)["costs"]
    nothing = viewed(client, min_weight=1e6)
    assert nothing["kept"] == 0
    assert ranked(nothing, "sparse") == []


def test_the_time_of_a_search_counts_from_the_arrival_of_its_request(client: Client) -> None:
    assert viewed(client)["milliseconds"] > 0

    async def see() -> float:
        ARRIVED.set(time.monotonic() - 10)
        return (await client.service.view(ViewRequest(query=TEXT))).milliseconds

    assert asyncio.run(see()) > 10_000


def test_a_filter_is_of_every_ranking(client: Client) -> None:
    answer = viewed(client, filter="lang=de", show=["sparse", "bm25", "hybrid"], max_terms=4)
    assert {one["fields"]["lang"] for one in answer["documents"]} == {"de"}
    refused = client("POST", "/view", json={"query": TEXT, "filter": "lang>>3"})
    assert (refused.status_code, refused.json()["error"][:16]) == (422, "filter 'lang>>3'")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"k": 51}, "k must be at most 50"),
        ({"show": ["dense"]}, "show: there is no ranking 'dense'"),
        ({"max_terms": 0}, "max_terms must be"),
    ],
)
def test_requests_for_a_view_that_cannot_be_are_refused(client: Client, body: dict[str, Any], said: str) -> None:
    refused = client("POST", "/view", json={"query": TEXT} | body)
    assert refused.status_code == 422
    assert refused.json()["error"].startswith(said)


def test_wacky_terms_are_known_where_somebody_said_which(collection: Collection) -> None:
    vector = encode(collection.models.loaded, [TEXT], "query")
    request = ViewRequest(query=TEXT, k=5)
    plain = view(collection, request, vector)
    added = frozenset(term.term for term in plain.terms if not term.in_text)
    marked = view(collection, request, vector, added)
    assert all(term.wacky is (term.term in added) for term in marked.terms)
    kinds = {match.kind for one in marked.documents for match in one.matches}
    assert kinds <= {"text", "wacky"}
    assert "wacky" in kinds


def test_postings_are_those_of_the_index(served: Serve, store: Path, collection: Collection) -> None:
    client = served(store)
    ids = [f"d{i}" for i in range(40)]
    vectors = collection.vectors(ids).toarray()
    column = int(np.argsort((vectors > 0).sum(axis=0))[-3])  # of a frequent term
    term, weights = collection.models.terms[column], vectors[:, column]
    answer = client("GET", "/postings", params={"term": term}).json()
    assert (answer["documents"], answer["of"], answer["more"]) == (np.count_nonzero(weights), 40, False)
    assert answer["largest"] == pytest.approx(float(weights.max()), rel=1e-4)
    expected, _ = np.histogram(weights[weights > 0], len(answer["counts"]), (0, answer["largest"]))
    assert abs(np.array(answer["counts"]) - expected).sum() <= 2  # where a weight stands on an edge
    heaviest = {one["id"]: one["weight"] for one in answer["heaviest"]}
    for identifier, weight in heaviest.items():
        assert weight == pytest.approx(float(weights[ids.index(identifier)]), rel=1e-4)
    assert len(heaviest) == min(10, np.count_nonzero(weights)) > 1
    assert min(heaviest.values()) >= np.sort(weights)[::-1][: len(heaviest)].min() * (1 - 1e-4)
    assert client("GET", "/postings", params={"term": "no such term"}).status_code == 404
    client.service.close()


def test_a_second_index_answers_beside_the_first(exact: Path, collection: Collection, served: Serve) -> None:
    client = served(exact, compare_with=exact)
    assert client("GET", "/info").json()["compare_with"] == collection.models.name
    body = {"json": {"query": TEXT, "k": 5}}
    answers = [client("POST", path, **body).json()["documents"] for path in ("/view", "/compare-with/view")]
    assert answers[0] == answers[1]
    assert isinstance(client.service, Service)
    assert client("DELETE", "/compare-with/documents", params={"id": "d1"}).status_code == 404


def test_the_page_needs_no_token_and_all_data_do(served: Serve, exact: Path) -> None:
    client = served(exact, token="secret")
    for path in FILES:
        answer = client("GET", path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        for elsewhere in ("http://", "https://", "innerHTML", "insertAdjacentHTML", "eval("):
            assert elsewhere not in answer.text.replace("http://www.w3.org/2000/svg", "")
    for path in ("/view", "/postings", "/info", "/compare-with/view", "/page/main.js", "/../serve/app.py"):
        assert client("GET", path).status_code == 401


def test_of_a_long_document_the_best_passage_is_shown(
    served: Serve, backbones: dict[str, Path], documents: list[Document], tmp_path: Path
) -> None:
    text = " ".join(one.text for one in documents) + " zebra"
    row = {"_id": "long", "title": "All", "text": text}
    (tmp_path / "corpus.jsonl").write_text(json.dumps(row), encoding="utf-8")
    how: dict[str, Any] = {"dtype": "float32", "device": "cpu", "long_documents": "passages"}
    index(str(backbones["bert"]), tmp_path / "corpus.jsonl", tmp_path / "index", **how).close()
    client = served(tmp_path / "index")
    [one] = client("POST", "/view", json={"query": TEXT}).json()["documents"]
    [hit] = client("POST", "/search", json={"query": TEXT, "explain": True}).json()["hits"]
    assert (one["id"], one["cut"]) == ("long", True)
    assert "".join(piece["text"] for piece in one["text"]) == hit["passage"]["text"]
    assert text[hit["snippet"]["start"] : hit["snippet"]["end"]] == hit["snippet"]["text"] in hit["passage"]["text"]
    assert one["sparse"] == pytest.approx(one["scores"]["sparse"], rel=1e-4)
    assert [match["term"] for match in one["matches"]] == [
        match["term"] for match in hit["explanation"]["matches"][: len(one["matches"])]
    ]
