"""Bake-offs on the documentation of projects: the searches of an index, Pagefind, Lunr and MiniSearch.

    npm install --prefix peers pagefind lunr minisearch esbuild
    npm pack npm fastify        # and unpack them: npm has docs/output in HTML, fastify docs in Markdown
    python benchmarks/bakeoff.py npm=NPM/docs/output fastify=FASTIFY/docs --packages peers/node_modules -o bakeoffs

A folder of Markdown becomes plain HTML first, one page a file, and all searches get the same pages. Pagefind indexes
the pages, Lunr and MiniSearch the title and text of each page. Two logs stand in for logged searches: headings that
only one page has, and the first sentences of sections. Both are known items, and lenient ones: nothing is removed from
the pages, so the words of each query stand in its page. The peers answer in Chromium, and their hits are written as the
JSON that `vocable bakeoff --also` reads.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from html import escape
from pathlib import Path
from random import Random
from shutil import copytree
from time import perf_counter

import torch
from machine import machine
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, sync_playwright
from static_peers import PEERS
from static_server import Served

import vocable as vo
from vocable.core.tables import short
from vocable.data import Document, read_corpus
from vocable.data.pydocs import divide
from vocable.encoding.hub import BUILT_IN_MODEL

FEWEST_WORDS = 2  # of a query
ASK = """async (query) => {
  try { return { error: null, ...(await window.shown(query)) }; }
  catch (error) { return { error: String(error), urls: [], ms: 0 }; }
}"""  # lunr fails for some words
RIVALS = ("Pagefind", "lunr", "MiniSearch")


def write_site(source: Path, pages: Path) -> None:
    """Copy a folder of HTML, or write the pages of a folder of Markdown as HTML."""
    if next(source.rglob("*.html"), None) is not None:
        copytree(source, pages)
        return
    for file in sorted(source.rglob("*.md")):
        body = MarkdownIt("commonmark").enable("table").render(file.read_text(encoding="utf-8"))
        heading = re.search(r"<h1>(.*?)</h1>", body, re.DOTALL)
        title = re.sub(r"<[^>]+>", "", heading[1]) if heading else escape(file.stem)
        target = (pages / file.relative_to(source)).with_suffix(".html")
        target.parent.mkdir(parents=True, exist_ok=True)
        head = f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n'
        target.write_text(f"{head}<body><main>\n{body}</main></body>\n</html>\n", encoding="utf-8")


def page_texts(documents: Iterable[Document]) -> dict[str, tuple[str, str]]:
    """Return the title and text of each page, by its file."""
    texts = defaultdict[str, list[str]](list)
    titles = dict[str, str]()
    for document in documents:
        file = str(document.fields["file"])
        titles.setdefault(file, str(document.fields["path"]).partition(" > ")[0])
        texts[file].append(f"{document.title}\n\n{document.text}")
    return {file: (titles[file], "\n\n".join(parts)) for file, parts in texts.items()}


def logs(documents: list[Document], count: int) -> dict[str, list[tuple[str, str]]]:
    """Return the queries of each log, with the file of the page; a query that two pages have is left out."""
    found: dict[str, defaultdict[str, set[str]]] = {name: defaultdict(set) for name in ("headings", "sentences")}
    for document in documents:
        file, sentence = str(document.fields["file"]), divide(document.text)[0]
        for name, query in (("headings", document.title), ("sentences", sentence)):
            query = " ".join(query.split())
            if len(re.findall(r"\w+", query)) >= FEWEST_WORDS and len(query) <= 200:
                found[name][query].add(file)
    queries = {
        name: sorted((q, min(files)) for q, files in of.items() if len(files) == 1) for name, of in found.items()
    }
    return {name: Random(0).sample(rows, min(count, len(rows))) for name, rows in queries.items()}


def write_results(browser: Browser, site: Path, queries: list[str], packages: Path, files: list[str]) -> list[Path]:
    """Build the peers, ask them all queries, and return the files of their results; print bytes and milliseconds."""
    results = list[Path]()
    for name in RIVALS:
        peer, folder = PEERS[name], site / name
        if not folder.exists():
            start = perf_counter()
            peer.build(site, folder, packages)
            print(f"{peer.title(packages)}: built in {short(perf_counter() - start)} s")
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        with Served(site, False) as served:
            for setting, values in peer.settings.items():
                page = browser.new_page()
                page.goto(f"{served.url}/{name}/bare.html")
                page.evaluate("setting => window.setting = setting", values)
                answers = {query: page.evaluate(ASK, query) for query in queries}
                urls = {query: [file_of(url, files) for url in answer["urls"]] for query, answer in answers.items()}
                if failed := [query for query, answer in answers.items() if answer["error"]]:
                    print(
                        f"{name} {setting}: {len(failed)} queries fail: {answers[failed[0]]['error']} ({failed[0]!r})"
                    )
                results.append(site / f"{f'{name} {setting}'.strip()}.json")
                results[-1].write_text(json.dumps(urls, ensure_ascii=False, indent=1), encoding="utf-8")
                median = statistics.median(answer["ms"] for answer in answers.values())
                print(f"{results[-1].stem}: {short(median)} ms in the browser, {short(size / 1e6)} MB built")
                page.close()
    return results


def file_of(url: str, files: list[str]) -> str:
    """Return the address of a hit; the searches that index records number the pages."""
    number = re.fullmatch(r"(\d+)\.html", url)
    return files[int(number[1])] if number else url


def bake(name: str, source: Path, browser: Browser, arguments: argparse.Namespace) -> None:
    """Print the tables of a project, and write their pages."""
    site = arguments.output / name
    if not (site / "pages").exists():
        write_site(source, site / "pages")
    documents = list(read_corpus(str(site / "pages")))
    pages = page_texts(documents)
    rows = ({"title": title, "text": text} for title, text in pages.values())
    (site / "records.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    if not (site / "index").exists():
        vo.index(BUILT_IN_MODEL, site / "pages", site / "index", device="cpu").close()
    for log, searches in logs(documents, arguments.queries).items():
        with (site / f"{log}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("query", "page"), *searches])
        testset = site / f"testset-{log}"
        if not testset.exists():
            vo.make_testset(str(site / f"{log}.csv"), testset, index=str(site / "index"))
        print(f"\n{name}, {log}: {len(pages):,} pages, {len(documents):,} sections, {len(searches)} queries\n")
        files = write_results(browser, site, [query for query, _ in searches], arguments.packages, list(pages))
        output = arguments.output / f"{name}-{log}.html"
        result = vo.bakeoff(site / "index", testset, also=list(map(str, files)), output=output)
        print(f"\n{result.markdown()}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="+", metavar="NAME=FOLDER", help="folders of HTML or Markdown")
    parser.add_argument("--packages", type=Path, required=True, help="node_modules with the peers")
    parser.add_argument("--queries", type=int, default=300, help="of each log")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.packages, arguments.output = arguments.packages.resolve(), arguments.output.resolve()
    print(machine(torch.device("cpu")))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.chromium, args=["--no-sandbox"])
        for project in arguments.projects:
            name, _, folder = project.partition("=")
            bake(name, Path(folder), browser, arguments)


if __name__ == "__main__":
    main()
