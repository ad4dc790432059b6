"""Pages of a folder over HTTP, by the client, over MCP and on the page: against a search in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import done
from tests.collection.test_groups import QUERY, expected, write_pages
from tests.service.conftest import Client
from tests.service.process import serving
from vocable.collection.answers import search
from vocable.collection.collection import Collection, open_index
from vocable.collection.index import index
from vocable.data import Query
from vocable.service import client as clients
from vocable.service.mcp import call
from vocable.service.schemas import SearchAnswer

Serve = Callable[..., Client]


@pytest.fixture(scope="module")
def manual(backbones: dict[str, Path], toy_texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of a folder of pages with web addresses."""
    folder = write_pages(tmp_path_factory.mktemp("manual") / "docs", toy_texts, copied=False)
    made = folder.parent / "index"
    base_url = "https://example.org/"
    index(str(backbones["bert"]), folder, made, dtype="float32", device="cpu", base_url=base_url).close()
    return made


@pytest.fixture(scope="module")
def opened(manual: Path) -> Collection:
    return open_index(manual)


@pytest.fixture(scope="module")
def client(served: Serve, manual: Path) -> Client:
    return served(manual)


def test_an_answer_is_by_document_and_has_pages_if_they_are_asked_for(client: Client, opened: Collection) -> None:
    [answer] = search(opened, [QUERY], 8)
    plain = client("POST", "/search", json={"query": QUERY, "k": 8}).json()
    grouped = client("POST", "/search", json={"query": QUERY, "k": 8, "sections": False}).json()
    assert "pages" not in plain
    assert plain["hits"] == grouped["hits"]
    assert [(hit["id"], hit["group"]) for hit in plain["hits"]] == [(hit.document.id, hit.group) for hit in answer.hits]
    assert grouped["pages"] == json.loads(json.dumps([page.to_json() for page in answer.pages]))
    assert any(page.sections for page in answer.pages)
    for hit in plain["hits"]:  # a hit says what it is made of
        assert sum(hit["parts"]["kinds"].values()) == pytest.approx(hit["score"], rel=1e-5)
    back = SearchAnswer.model_validate(grouped).answer(Query("0", QUERY))
    assert back.pages == answer.pages
    assert back.hits == answer.hits


def test_the_description_of_the_interface_names_parts_groups_and_pages(client: Client) -> None:
    schemas = client("GET", "/openapi.json").json()["components"]["schemas"]
    assert {"parts", "group", "sections"} <= schemas["FoundDocument"]["properties"].keys()
    assert {"hits", "pages"} <= schemas["SearchAnswer"]["properties"].keys()
    assert schemas["FurtherSection"]["properties"].keys() == {"id", "title", "score", "url", "place"}
    assert schemas["ScoreParts"]["properties"].keys() == {"kinds", "words"}


def test_an_agent_gets_pages(client: Client, opened: Collection) -> None:
    [answer] = search(opened, [QUERY], 8)
    for more, pages in (({}, answer.pages), ({"sections": True}, answer.hits)):
        found, failed = asyncio.run(call(client.service, "search", {"query": QUERY, "k": 8, **more}))
        assert not failed
        assert [hit["id"] for hit in found["hits"]] == [hit.document.id for hit in pages]
        assert [hit["rank"] for hit in found["hits"]] == [*range(1, 9)]
        assert all(hit["parts"]["kinds"] for hit in found["hits"])
        assert "pages" not in found
        sections = [[section["id"] for section in hit.get("sections", [])] for hit in found["hits"]]
        assert sections == [[section.id for section in hit.sections] for hit in pages]


@pytest.mark.slow
def test_the_client_and_the_terminal_show_the_pages_of_a_service(
    manual: Path, opened: Collection, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(manual) as process:
        text = done(capsys, "search", process.url, QUERY, "-k", 8)
        assert text == done(capsys, "search", manual, QUERY, "-k", 8)
        assert "+ " in text
        sections = done(capsys, "search", process.url, QUERY, "-k", 8, "--sections")
        assert sections == done(capsys, "search", manual, QUERY, "-k", 8, "--sections")
        with clients.Client(process.url) as connected:
            assert tuple(connected.search(QUERY, 8)) == search(opened, [QUERY], 8)[0].hits


@pytest.mark.parametrize("k", [1, 8])
def test_the_page_shows_a_page_once_in_each_ranking(client: Client, opened: Collection, k: int) -> None:
    how: dict[str, dict[str, Any]] = {"sparse": {"weights": "sparse"}, "bm25": {"weights": "bm25"}, "hybrid": {}}
    view = client("POST", "/view", json={"query": QUERY, "k": k, "show": [*how], "max_terms": 1000}).json()
    for by, way in how.items():
        [flat] = search(opened, [QUERY], 100, sections=True, **way)
        best = sorted((one for one in view["documents"] if by in one["sections"]), key=lambda one: one["ranks"][by])
        shown = [[one["id"], *(section["id"] for section in one["sections"][by])] for one in best]
        assert shown == expected(flat.hits, k)
        assert [one["ranks"][by] for one in best] == [*range(1, len(best) + 1)]
        files = [*dict.fromkeys(hit.document.fields["file"] for hit in flat.hits)]
        for one in view["documents"]:
            if by in one["ranks"]:
                assert one["ranks"][by] == files.index(one["fields"]["file"]) + 1
    [first] = [one for one in view["documents"] if one["ranks"].get("hybrid") == 1 and "hybrid" in one["sections"]]
    for section in first["sections"]["hybrid"]:
        assert section["url"].startswith("https://example.org/")
