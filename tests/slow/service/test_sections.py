"""A folder of pages in Chromium, served and published: a page is one entry with links to its further sections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collection.test_groups import QUERY, expected, write_pages
from tests.publishing.conftest import serving as serving_files
from tests.service.process import serving
from tests.slow.conftest import Open, violations
from vocable.collection.answers import search
from vocable.collection.index import index
from vocable.publishing.publication import publish

sync_api = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright, which is not here")

BASE = "https://example.org/manual/"


@pytest.fixture(scope="module")
def place(toy_texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_pages(tmp_path_factory.mktemp("manual") / "docs", toy_texts, copied=False)
    index("vocable-mini-doc", folder, folder.parent / "index", base_url=BASE).close()
    return folder.parent / "index"


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[str]:
    with serving(place) as process:
        yield process.url


def links(page: Any, entries: str, heading: str) -> list[list[str]]:
    """The addresses of each entry: of its heading, and of its further sections."""
    return [
        [link.get_attribute("href") for link in entry.locator(f"{heading} a, .sections a").all()]
        for entry in page.locator(entries).all()
    ]


def test_the_page_lists_the_sections_of_a_page_below_its_best(open_page: Open, address: str, place: Path) -> None:
    page = open_page()
    page.locator("#query").fill(QUERY)
    [flat] = search(str(place), [QUERY], 100, sections=True)
    wanted = expected(flat.hits, 10)
    assert any(len(ids) > 1 for ids in wanted)
    sync_api.expect(page.locator(".hit")).to_have_count(len(wanted))
    urls = {hit.document.id: hit.document.fields["url"] for hit in flat.hits}
    assert links(page, ".hit", "h4") == [[urls[name] for name in ids] for ids in wanted]
    assert page.locator("#more").is_hidden()
    assert not violations(page)


def test_the_published_page_does_the_same(open_page: Open, place: Path, tmp_path: Path) -> None:
    publish(place, tmp_path / "site")
    [flat] = search(str(place), [QUERY], 100, sections=True, weights="sparse=1,bm25=1")
    wanted = expected(flat.hits, 10)
    with serving_files(tmp_path / "site") as at:
        page = open_page(at=at, bypass_csp=True)  # axe has styles of its own
        page.locator("#query").fill(QUERY)
        sync_api.expect(page.locator("article")).to_have_count(len(wanted))
        urls = {hit.document.id: hit.document.fields["url"] for hit in flat.hits}
        assert links(page, "article", "h2") == [[urls[name] for name in ids] for ids in wanted]
        assert not violations(page)
