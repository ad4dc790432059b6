"""Searches of static sites side by side: bytes and milliseconds of a query in a browser, and nDCG@10.

    npm install --prefix peers pagefind lunr minisearch esbuild
    python benchmarks/static_search.py beir:cacm beir:scifact pydocs:#test --packages peers/node_modules

Each document of a collection becomes one HTML page. Pagefind indexes the pages; lunr and MiniSearch, which index
records, get title and text, are built beforehand, and are loaded as their documentation says; of vocable the element
<vocable-search> is measured, of the others the search without an interface. A bare page loads a search only when the
first query is asked, and shows ten hits with title and excerpt. Python's `http.server` serves the site, on HTTP/1.1,
and counts every byte that it sends, headers included; `--gzip` compresses texts as most hosts do. Chromium's network
is slowed to `--mbit` and `--latency`. A cold query is the first one of a browser without a cache.

A collection without judgments (a folder with corpus.jsonl and queries.jsonl) is measured in bytes and milliseconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import ir_measures
import torch
from machine import machine
from playwright.sync_api import Browser, Page, sync_playwright
from static_peers import PEERS, Peer
from static_server import Served

from vocable.core.progress import track
from vocable.core.tables import NONE, Table
from vocable.data import Document, Qrel, Query, read_corpus, read_judgments, read_queries
from vocable.errors import VocableError

MEASURE = ir_measures.parse_measure("nDCG@10")
SHOWN = 10  # hits of a query
QUIET = 0.4  # seconds without a byte after which a query is over
FURTHER = 5  # queries after a cold one


@dataclass(frozen=True)
class Found:
    """The figures of one search of one collection: medians of bytes and milliseconds; seconds and MB of the build."""

    collection: str
    pages: int
    search: str
    setting: str
    build_s: float
    site_mb: float
    cold_kb: float
    cold_kb_most: float
    further_kb: float
    further_kb_most: float
    cold_ms: float
    further_ms: float
    queries: int
    ndcg: float | None
    empty: float | None


def write_pages(folder: Path, documents: Sequence[Document]) -> None:
    """Write a page for each document, named by its number."""
    folder.mkdir(parents=True)
    for number, document in enumerate(documents):
        title = escape(document.title or "")
        heading = f"<h1>{title}</h1>\n" if title else ""
        paragraphs = "\n".join(f"<p>{escape(text)}</p>" for text in (document.text or "").split("\n\n"))
        html = f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n'
        (folder / f"{number}.html").write_text(f"{html}<body><main>\n{heading}{paragraphs}\n</main></body>\n</html>\n")


class Collection:
    """The documents, queries and judgments of a source, cut to the numbers of pages and queries, and their site."""

    def __init__(self, source: str, work: Path, pages: int, queries: int) -> None:
        self.name = source.removeprefix("beir:").rstrip("/").rpartition("/")[2]
        self.documents = list(read_corpus(source))[: pages or None]
        known = {document.id for document in self.documents}
        self.judgments = [one for one in _judgments(source) if one.doc_id in known]
        judged = {one.query_id for one in self.judgments if one.relevance > 0}
        every = [one for one in read_queries(source) if not judged or one.id in judged]
        self.queries: list[Query] = every[:: max(1, len(every) // queries)][:queries] if queries else every
        self.site = work / f"{self.name.replace('#', '-').replace(':', '')}-{len(self.documents)}"
        if not self.site.exists():
            write_pages(self.site / "pages", self.documents)
        self.numbers = {one.id: number for number, one in enumerate(self.documents)}
        rows = ({"id": one.id, "title": one.title or "", "text": one.text or ""} for one in self.documents)
        self.records = self.site / "records.jsonl"
        self.records.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    def ndcg(self, pages: dict[str, list[int]]) -> float | None:
        """Return the mean nDCG@10 of the numbers of pages that each query found."""
        if not self.judgments:
            return None
        run = [
            ir_measures.ScoredDoc(query, self.documents[number].id, -rank)
            for query, numbers in pages.items()
            for rank, number in enumerate(numbers)
        ]
        judgments = [one for one in self.judgments if one.query_id in pages]
        values = {one.query_id: one.value for one in ir_measures.iter_calc([MEASURE], judgments, run)}
        return statistics.fmean(values.get(query, 0.0) for query in pages)


def _judgments(source: str) -> list[Qrel]:
    try:
        return list(read_judgments(source))
    except VocableError:
        return []


class Driver:
    """A search in a browser, over a slow network if asked for."""

    def __init__(
        self, browser: Browser, served: Served, peer: Peer, setting: dict[str, Any], numbers: Mapping[str, int]
    ) -> None:
        self.browser, self.served, self.address = browser, served, f"{served.url}/{peer.name}/bare.html"
        self.setting, self.numbers = setting, numbers

    def open(self, megabits: float = 0, latency: float = 0) -> Page:
        """A page of a browser that has seen nothing; the search is not loaded yet."""
        page = self.browser.new_context().new_page()
        page.set_default_timeout(600_000)
        page.goto(self.address)
        page.evaluate("setting => window.setting = setting", self.setting)
        if megabits:
            rate = megabits * 1e6 / 8
            conditions = {"offline": False, "latency": latency, "downloadThroughput": rate, "uploadThroughput": rate}
            session = page.context.new_cdp_session(page)
            session.send("Network.enable")
            session.send("Network.emulateNetworkConditions", conditions)
        return page

    def search(self, page: Page, query: str) -> tuple[list[int], float]:
        """The numbers of the pages that are found, and the milliseconds until they are shown."""
        answer = page.evaluate("query => window.shown(query)", query)
        return [self._number(url) for url in answer["urls"]], answer["ms"]

    def _number(self, url: str) -> int:
        page, mark, document = url.partition("#")
        return self.numbers[document] if mark else int(page.rpartition("/")[2].partition(".")[0])

    def cost(self, page: Page, query: str) -> tuple[float, float]:
        """The KB that the server sends for a query, what follows in the background included, and its milliseconds."""
        start = self.served.sent
        _, taken = self.search(page, query)
        last = -1
        while last != self.served.sent:
            last = self.served.sent
            page.wait_for_timeout(QUIET * 1000)
        return (last - start) / 1000, taken


def measured(driver: Driver, queries: Sequence[str], given: argparse.Namespace) -> Iterator[tuple[bool, float, float]]:
    """Yield whether a query was cold, its KB and its milliseconds."""
    for number in range(given.cold):
        page = driver.open(given.mbit, given.latency)
        for turn in range(1 + FURTHER):
            query = queries[(number * (1 + FURTHER) + turn) % len(queries)]
            yield (turn == 0, *driver.cost(page, query))
        page.context.close()


def compare(collection: Collection, peer: Peer, browser: Browser, given: argparse.Namespace) -> Iterator[Found]:
    """Build a search of a collection, and yield its figures for each setting."""
    folder = collection.site / peer.name
    shutil.rmtree(folder, ignore_errors=True)
    start = time.perf_counter()
    peer.build(collection.site, folder, given.packages)
    built = time.perf_counter() - start
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    with Served(collection.site, given.gzip) as served:
        for name, setting in peer.settings.items():
            driver = Driver(browser, served, peer, setting, collection.numbers)
            page = driver.open()
            answers = {
                query.id: driver.search(page, query.text)[0]
                for query in track(collection.queries, f"{collection.name}: {peer.name}")
                if collection.judgments
            }
            page.context.close()
            costs = list(measured(driver, [query.text for query in collection.queries], given))
            cold, further = ([(kb, ms) for first, kb, ms in costs if first is now] for now in (True, False))
            yield Found(
                collection=collection.name,
                pages=len(collection.documents),
                search=peer.title(given.packages),
                setting=name,
                build_s=built,
                site_mb=size,
                cold_kb=statistics.median(kb for kb, _ in cold),
                cold_kb_most=max(kb for kb, _ in cold),
                further_kb=statistics.median(kb for kb, _ in further),
                further_kb_most=max(kb for kb, _ in further),
                cold_ms=statistics.median(ms for _, ms in cold),
                further_ms=statistics.median(ms for _, ms in further),
                queries=len(collection.queries),
                ndcg=collection.ndcg(answers),
                empty=sum(not pages for pages in answers.values()) / len(answers) if answers else None,
            )


def table(collection: Collection, figures: Sequence[Found], given: argparse.Namespace) -> Table:
    """The figures of a collection, a row a search and setting."""
    header = ["search", "KB cold", "at most", "KB further", "at most", "ms cold", "ms further", "nDCG@10", "no hit"]
    rows = [
        [f"{search.search}, {search.setting}" if search.setting else search.search]
        + [
            f"{value:,.0f}"
            for value in (search.cold_kb, search.cold_kb_most, search.further_kb, search.further_kb_most)
        ]
        + [f"{value:,.0f}" for value in (search.cold_ms, search.further_ms)]
        + [
            NONE if search.ndcg is None else f"{search.ndcg:.3f}",
            NONE if search.empty is None else f"{search.empty:.0%}",
        ]
        + [f"{search.build_s:,.0f}", f"{search.site_mb:,.1f}"]
        for search in figures
    ]
    texts = "texts gzipped" if given.gzip else "nothing compressed by the server"
    title = f"{collection.name}, {len(collection.documents):,} pages, {len(collection.queries)} queries"
    note = f"{given.mbit:g} Mbit/s, {given.latency:g} ms, {texts}, medians of {given.cold} cold queries."
    return Table(title, [*header, "s to build", "MB on disk"], rows, notes=[note])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="sources, as beir:DIR or pydocs:#test")
    parser.add_argument("--packages", type=Path, required=True, help="node_modules with the searches and esbuild")
    parser.add_argument("--searches", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--work", type=Path, default=Path("static-work"), help="folder of the sites")
    parser.add_argument("--pages", type=int, default=0, help="the first pages of each collection; 0 for all")
    parser.add_argument("--queries", type=int, default=300, help="at most so many, evenly drawn; 0 for all")
    parser.add_argument("--cold", type=int, default=10, help="browsers without a cache")
    parser.add_argument("--mbit", type=float, default=10)
    parser.add_argument("--latency", type=float, default=40, help="ms added to each request")
    parser.add_argument("--gzip", action="store_true", help="compress texts as most hosts do")
    parser.add_argument("--chromium", default=shutil.which("chromium"), help="the browser's program")
    parser.add_argument("--json", type=Path, help="file of all figures")
    given = parser.parse_args()
    given.packages = given.packages.resolve()
    every: list[Found] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
        for source in given.collections:
            collection = Collection(source, given.work.resolve(), given.pages, given.queries)
            figures = [row for name in given.searches for row in compare(collection, PEERS[name], browser, given)]
            shown = table(collection, figures, given)
            print(f"{shown.title}\n\n{shown.markdown()}\n", flush=True)
            every += figures
        version = browser.version
        browser.close()
    about = machine(torch.device("cpu")) | {"chromium": version}
    print(json.dumps(about))
    if given.json:
        kept = {"machine": about, "gzip": given.gzip, "mbit": given.mbit, "latency": given.latency}
        given.json.write_text(json.dumps(kept | {"found": [asdict(one) for one in every]}, indent=1))


if __name__ == "__main__":
    main()
