"""Names of the pages of an index in logs and other searches: links, paths, files and ids.

A page is a document, or all documents that are sections of one page. An address is compared exactly first, then without
the parts that servers and generators of sites add: host, query string, a slash at the end, index.html, .html.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from vocable.collection.groups import ADDRESS, FILE, page_on_site
from vocable.data import Document
from vocable.data.folder import anchor_of, published
from vocable.data.records import BETWEEN

ENDING = re.compile(r"(^|/)index\.html?$|\.html?$")
SEVERAL = ""  # in place of a page, if several pages have the address


class IndexedPage(NamedTuple):
    """The title of a page, its link or else its file or id, and the ids of its documents."""

    title: str
    address: str
    documents: list[str]


class PageAddresses:
    """The pages of an index by their keys, the page of each document, and the addresses of the pages.

    >>> url = "https://example.org/docs/install/"
    >>> pages = PageAddresses([Document("install.md#linux", "…", fields={"file": "install.md", "url": f"{url}#linux"})])
    >>> {pages.page(name) for name in (url, "/docs/install/index.html?from=mail", "install.md", "install.html#linux")}
    {'https://example.org/docs/install/'}
    >>> pages.page("/docs/") is None
    True
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self.pages: dict[str, IndexedPage] = {}
        self.page_of: dict[str, str] = {}
        self._exact: dict[str, str] = {}
        self._loose: dict[str, str] = {}
        self._sections: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for document in documents:
            self._add(document)

    def page(self, *addresses: str) -> str | None:
        """Return the key of the page that the first known address names; None if no address names a single page."""
        names = (name for address in addresses for name in self._named(address.strip()))
        return next(filter(None, names), None)

    def documents(self, address: str) -> Sequence[str]:
        """Return the ids of the documents of a section or of a whole page; none if the address names neither."""
        page, anchor = self.page(address), unquote(address.partition("#")[2])
        if page is None:
            return ()
        return self._sections.get((page, anchor)) or self.pages[page].documents

    def _add(self, document: Document) -> None:
        url, file = (str(document.fields.get(name) or "") for name in (ADDRESS, FILE))
        page = page_on_site(document) or document.id
        is_section = page_on_site(document) is not None
        # Keep what is shown of the page: the first heading of a section is the title of its page.
        title = str(document.fields.get("path") or document.title).partition(BETWEEN)[0]
        link = url.partition("#")[0]
        known = self.pages.setdefault(page, IndexedPage(title or page, link or page, []))
        known.documents.append(document.id)
        self.page_of[document.id] = page
        anchor = anchor_of(document) if is_section and file else unquote(url.partition("#")[2])
        if anchor:
            self._sections[page, anchor].append(document.id)
        # Enter all names of the page.
        for name in filter(None, (document.id, link, file if is_section else "")):
            _enter(self._exact, name, page)
        for name in filter(None, (link, file, published(file) if file and is_section else "", document.id)):
            for loose in _loose(name):
                _enter(self._loose, loose, page)

    def _named(self, address: str) -> Iterator[str | None]:
        for name in (address, address.partition("#")[0]):
            yield self._exact.get(name)
        with_host = (name for name in _loose(f"//{address}") if name[0] != "/")  # an address without https:
        for name in chain(_loose(address), with_host):
            yield self._loose.get(name)


def _enter(names: dict[str, str], name: str, page: str) -> None:
    names[name] = page if names.get(name, page) == page else SEVERAL


def _loose(address: str) -> Iterator[str]:
    """Yield the compared forms of an address, the strictest first; paths begin with a slash.

    >>> [*_loose("https://Example.org/a%20b/index.html?v=1#top")]
    ['example.org/a b?v=1', '/a b?v=1', 'example.org/a b', '/a b']
    """
    try:
        parts = urlsplit(address)
        host = parts.netloc.lower()
    except ValueError:  # such as a bracket that is no IPv6 address
        return
    path = "/" + ENDING.sub("", unquote(parts.path).strip("/")).strip("/")
    for query in dict.fromkeys([f"?{parts.query}" if parts.query else "", ""]):
        yield from [f"{host}{path}{query}"] * bool(host)
        yield f"{path}{query}"
