"""Addresses of pages: every way in which a log or another search may name a page."""

from __future__ import annotations

import pytest

from vocable.data import Document
from vocable.evaluation.addresses import PageAddresses

SITE = "https://example.org/docs"


def section(file: str, anchor: str, url: str) -> Document:
    link = f"{SITE}/{url}"
    name = f"{file}#{anchor}" if anchor else file
    fields = {"file": file, "path": f"Page {file} > Part {anchor}", "url": f"{link}#{anchor}" if anchor else link}
    return Document(name, "A text.", f"Part {anchor}", fields)


DOCUMENTS = [
    section("install.md", "", "install/"),
    section("install.md", "linux", "install/"),
    section("install.md", "größe", "install/"),
    section("a/api one.html", "", "a/api%20one.html"),
    section("README.md", "", ""),
    section("twin.html", "", "twin.html"),
    section("twin/index.html", "", "twin/"),
    Document("faq-7", "A text.", "Frequent questions", {"url": f"{SITE}/faq?id=7"}),
    Document("faq-8", "A text.", "Frequent questions", {"url": f"{SITE}/faq?id=8"}),
    Document("plain text", "A text."),
]
PAGES = PageAddresses(DOCUMENTS)


@pytest.mark.parametrize(
    ("address", "page"),
    [
        *((f"{SITE}/install{end}", f"{SITE}/install/") for end in ("/", "", "/index.html", ".html", "/#linux", "#x")),
        *((name, f"{SITE}/install/") for name in ("install.md", "install.md#linux", "install/", "/install", "install")),
        *((name, f"{SITE}/install/") for name in ("/docs/install/", "docs/install.html", "/docs/install/?from=mail#x")),
        ("http://EXAMPLE.org/docs/install/", f"{SITE}/install/"),
        ("example.org/docs/install", f"{SITE}/install/"),
        ("http://localhost:8080/docs/install/", f"{SITE}/install/"),
        (" /docs/a/api%20one.html ", f"{SITE}/a/api%20one.html"),
        ("/docs/a/api one", f"{SITE}/a/api%20one.html"),
        (f"{SITE}/", f"{SITE}/"),
        (SITE, f"{SITE}/"),
        (f"{SITE}/index.html", f"{SITE}/"),
        ("README.md", f"{SITE}/"),
        (f"{SITE}/twin.html", f"{SITE}/twin.html"),
        (f"{SITE}/twin/", f"{SITE}/twin/"),
        ("twin/index.html", f"{SITE}/twin/"),
        ("/docs/faq?id=8", f"{SITE}/faq?id=8"),
        ("faq-7", f"{SITE}/faq?id=7"),
        ("plain text", "plain text"),
    ],
)
def test_a_page_is_known_by_links_paths_files_and_ids(address: str, page: str) -> None:
    assert PAGES.page(address) == page


@pytest.mark.parametrize(
    "address",
    ["", "#", "/docs/twin", "/docs/faq", "/install/linux", "/docs/instal", "faq", "https://[x/", "/Docs/install"],
)
def test_an_address_of_no_page_or_of_several_names_none(address: str) -> None:
    assert PAGES.page(address) is None
    assert PAGES.documents(address) == ()


def test_the_first_known_address_of_a_hit_counts() -> None:
    assert PAGES.page("/nowhere/", "faq-7", "install.md") == f"{SITE}/faq?id=7"
    assert PAGES.page() is None


@pytest.mark.parametrize(
    ("address", "ids"),
    [
        ("/docs/install/", ["install.md", "install.md#linux", "install.md#größe"]),
        ("install.md", ["install.md", "install.md#linux", "install.md#größe"]),
        ("/docs/install/#linux", ["install.md#linux"]),
        ("/docs/install/#gr%C3%B6%C3%9Fe", ["install.md#größe"]),
        ("/docs/install/#gone", ["install.md", "install.md#linux", "install.md#größe"]),
        ("plain text", ["plain text"]),
    ],
)
def test_a_page_stands_for_its_sections_unless_the_address_names_one(address: str, ids: list[str]) -> None:
    assert PAGES.documents(address) == ids


def test_a_page_has_its_title_and_link() -> None:
    assert PAGES.pages[f"{SITE}/install/"][:2] == ("Page install.md", f"{SITE}/install/")
    assert PAGES.pages["plain text"][:2] == ("plain text", "plain text")
