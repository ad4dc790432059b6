"""Agents list the pages of a folder, and read a page whole, as tools and as resources."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import vocable as vo
from tests.service.conftest import Client
from vocable.collection.collection import Collection, open_index
from vocable.data import Document
from vocable.errors import ArgumentError
from vocable.service import listing
from vocable.service.listing import first_sections, pages, whole_page
from vocable.service.mcp import MAX_ANSWER, call, tool_server

LONG = "A section of a few words would be a part of the section before. " * 12
FILES = {
    "guides/install.md": f"# Install\n\nWheels. {LONG}\n\n## On Linux\n\n{LONG}\n\n## On Windows\n\nPip. {LONG}\n",
    "guides/search.md": f"# Search\n\nAsk. {LONG}\n\n## Filters\n\nLeave out. {LONG}\n",
    "notes/a b#c.md": "# Odd name\n\nA page whose name is odd.\n",
    "notes/preface.md": f"Above all headings. {LONG}\n\n## Rest\n\nBelow. {LONG}\n",
    "plain.txt": "Only a paragraph of text.\n",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name, text in FILES.items():
        (folder / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "docs" / name).write_text(text)
    vo.index("vocable-mini", folder / "docs", folder / "index").close()
    return folder / "index"


@pytest.fixture
def collection(place: Path) -> Iterator[Collection]:
    with open_index(place) as opened:
        yield opened


def ask(service: Any, tool: str, **arguments: Any) -> Any:
    value, failed = asyncio.run(call(service, tool, arguments))
    assert not failed, value
    assert len(json.dumps(value, ensure_ascii=False).encode()) <= MAX_ANSWER + 100
    return value


def test_pages_are_files_and_their_sections_stand_in_order(collection: Collection) -> None:
    listed = pages(collection)
    assert list(listed) == sorted(listed)
    assert {name.partition("#")[0] for name in listed} == {name.partition("#")[0] for name in FILES}
    assert [one.partition("#")[2] for one in listed["guides/search.md"]] == ["filters", "search"]
    first = first_sections(collection, [listed["guides/search.md"], listed["guides/install.md"]])
    assert [section and section.title for section in first] == ["Search", "Install"]
    assert pages(collection) is listed  # kept
    page = whole_page(collection, "guides/install.md")
    assert page is not None
    assert page.text.split() == FILES["guides/install.md"].replace("#", "").split()
    assert [page.text[start:].split("\n")[0] for start in page.starts.values()] == ["Install", "On Linux", "On Windows"]
    page = whole_page(collection, "guides/search.md")
    assert page is not None
    assert [page.text[start:].split("\n")[0] for start in page.starts.values()] == ["Search", "Filters"]
    assert whole_page(collection, "guides/none.md") is None


def test_a_list_follows_changes(place: Path, tmp_path: Path) -> None:
    with vo.index("vocable-mini-doc", ["one", "two"], tmp_path / "index") as changed:
        before = pages(changed)
        assert list(before) == sorted(changed.store.ids())
        changed.add([Document("new", "three")])
        assert set(pages(changed)) == {*before, "new"}
        changed.delete(["new"])
        assert pages(changed) == before


def test_an_index_that_is_too_large_is_not_listed(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_LISTED", 3)
    with pytest.raises(ArgumentError) as error:
        pages(collection)
    assert "3 at most can be listed: search it" in str(error.value)


@pytest.mark.parametrize("pattern", ["*", "guides/*", "*.txt", "none*", "[", "guides/?earch.md"])
def test_an_agent_lists_by_a_pattern_and_goes_on(served: Callable[..., Client], place: Path, pattern: str) -> None:
    service = served(place).service
    names = [name for name in pages(service.collection) if fnmatchcase(name, pattern)]
    found, offset = [], 0
    while True:
        answer = ask(service, "list", pattern=pattern, offset=offset, k=2)
        assert answer["total"] == len(names)
        found += [one["id"] for one in answer["pages"]]
        if "next" not in answer:
            break
        offset = answer["next"]
    assert found == ["notes/a b#c.md" if name == "notes/a b" else name for name in names]


def test_an_agent_finds_a_page_and_reads_it_in_parts(served: Callable[..., Client], place: Path) -> None:
    service = served(place).service
    [hit] = ask(service, "search", query="pip on windows", k=1)["hits"]
    name = hit["group"]
    assert name == "guides/install.md"
    whole = whole_page(service.collection, name)
    assert whole is not None
    text, sections, starts = "", dict[str, int](), [0]
    for start in starts:
        part = ask(service, "read", id=name, start=start, characters=700)
        assert (part["title"], part["characters"]) == ("Install", len(whole.text))
        text, sections = text + part["text"], sections | part["sections"]
        starts += [part["next"]] if "next" in part else []
    assert (text, sections) == (whole.text, whole.starts)
    assert ask(service, "read", id=hit["id"])["text"] in text
    assert "whose name is odd" in ask(service, "read", id="notes/a b#c.md")["text"]
    value, failed = asyncio.run(call(service, "read", {"id": "guides"}))
    assert (value, failed) == ("there is no document 'guides'", True)


def test_a_page_that_begins_above_its_headings_is_read_whole(
    served: Callable[..., Client], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = served(place).service
    [hit] = ask(service, "search", query="preface above all headings", k=1)["hits"]
    assert hit["group"] == "notes/preface.md"
    page = ask(service, "read", id=hit["group"])
    assert list(page["sections"]) == ["notes/preface.md", "notes/preface.md#rest"]
    assert "Below." in page["text"]
    assert ask(service, "read", id="plain.txt")["fields"]["file"] == "plain.txt"  # a page of one section is a document
    monkeypatch.setattr(listing, "MAX_LISTED", 3)  # where no page can be listed, its beginning is read
    assert ask(service, "read", id="notes/preface.md")["text"].startswith("Above all headings.")


def test_pages_are_resources(served: Callable[..., Client], place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp")
    from mcp.client.client import Client as MCPClient

    monkeypatch.setattr("vocable.service.mcp.RESOURCES", 3)
    monkeypatch.setattr("vocable.service.mcp.MAX_READ", 40)
    service = served(place).service

    async def talk() -> None:
        async with MCPClient(tool_server(lambda: service)) as client:
            first = await client.list_resources()
            second = await client.list_resources(cursor=first.next_cursor)
            found = [*first.resources, *second.resources]
            assert second.next_cursor is None
            assert [one.uri for one in found] == [f"vocable:{quote(name)}" for name in sorted(FILES)]
            page = whole_page(service.collection, "guides/install.md")
            assert page is not None
            content: Any = (await client.read_resource(found[0].uri)).contents[0]
            assert content.text.startswith(page.text[:40])
            assert content.text.endswith(f"[40 of {len(page.text):,} characters: `read` the rest]")
            with pytest.raises(Exception, match="there is no document 'none'"):
                await client.read_resource("vocable:none")

    asyncio.run(talk())
