"""The searches of static sites that the benchmark compares: the way each is built, and its module in the page.

A module exports `open(setting)`, which loads the search and gives a function from a query to at most ten hits.

Pagefind finds the pages that have every word of a query, and has no setting for pages that have some. "word by word"
is not documented: it leaves out stop words, searches for each other word, and adds the scores. Documented settings
that were tried on cacm, scifact and pydocs, and were no better on all of them: `termFrequency`, `termSimilarity` and
`pageLength` of Pagefind, boosts of titles in lunr and MiniSearch, prefixes in MiniSearch.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bm25s.stopwords import STOPWORDS_EN

import vocable as vo
from vocable.encoding.hub import BY_LOOKUP

BARE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Search</title><ol></ol>
<script type="module">
let search;
window.shown = async (query) => {
  const start = performance.now();
  search ??= import("./peer.js").then((peer) => peer.open(window.setting));
  const hits = await (await search)(query);
  document.querySelector("ol").replaceChildren(...hits.map((hit) => {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = hit.url;
    link.textContent = hit.title;
    item.append(link, " ", hit.excerpt);
    return item;
  }));
  document.body.getBoundingClientRect();  // the browser lays the hits out
  return { urls: hits.map((hit) => hit.url), ms: performance.now() - start };
};
</script></html>
"""
EXCERPT = 160  # characters, of the searches that keep no texts
RECORDS = """
const fs = require("fs");
const rows = fs.readFileSync(process.argv[1], "utf8").trimEnd().split("\\n").map(JSON.parse);
const kept = rows.map(({ title, text }) => [title, text.slice(0, EXCERPT)]);
""".replace("EXCERPT", str(EXCERPT))
PAGEFIND = """
export async function open(setting) {
  const pagefind = await import("./bundle/pagefind.js");
  const { stop = [], alone = false, ...options } = setting;
  await pagefind.options(options);
  return async (query) => {
    const words = query.split(/\\s+/).filter((word) => !stop.includes(word.toLowerCase().replace(/[^a-z']/g, "")));
    const best = new Map();
    for (const part of alone ? words : [words.join(" ")]) {
      for (const one of (await pagefind.search(part)).results) {
        const known = best.get(one.id);
        best.set(one.id, { score: one.score + (known?.score ?? 0), data: one.data });
      }
    }
    const hits = [...best.values()].sort((one, other) => other.score - one.score).slice(0, 10);
    const found = await Promise.all(hits.map((one) => one.data()));
    return found.map(({ url, meta, plain_excerpt }) => ({ url, title: meta.title ?? "", excerpt: plain_excerpt }));
  };
}
"""
LUNR_BUILD = """
const lunr = require("lunr");
const index = lunr(function () {
  this.ref("id"); this.field("title"); this.field("text");
  rows.forEach(({ title, text }, id) => this.add({ id, title, text }));
});
fs.writeFileSync("index.json", JSON.stringify(index));
fs.writeFileSync("kept.json", JSON.stringify(kept));
"""
LUNR = """
import lunr from "./lunr.js";

const read = async (file) => (await fetch(new URL(file, import.meta.url))).json();

export async function open() {
  const [json, kept] = await Promise.all([read("index.json"), read("kept.json")]);
  const index = lunr.Index.load(json);
  return (query) => index.query((clauses) => clauses.term(lunr.tokenizer(query))).slice(0, 10)
    .map(({ ref }) => ({ url: `${ref}.html`, title: kept[ref][0], excerpt: kept[ref][1] }));
}
"""
MINISEARCH_BUILD = """
const MiniSearch = require("minisearch");
const index = new MiniSearch({ fields: ["title", "text"], storeFields: ["title", "excerpt"] });
index.addAll(rows.map(({ title, text }, id) => ({ id, title, text, excerpt: kept[id][1] })));
fs.writeFileSync("index.json", JSON.stringify(index));
"""
MINISEARCH = """
import MiniSearch from "./minisearch.js";

export async function open(setting) {
  const json = await (await fetch(new URL("index.json", import.meta.url))).text();
  const options = { fields: ["title", "text"], storeFields: ["title", "excerpt"] };
  const index = MiniSearch.loadJSON(json, options);
  return (query) => index.search(query, setting).slice(0, 10)
    .map(({ id, title, excerpt }) => ({ url: `${id}.html`, title, excerpt }));
}
"""
VOCABLE = """
export async function open() {
  await import("./site/vocable-search.js");
  const search = document.body.appendChild(document.createElement("vocable-search"));
  return async (query) => {
    search.shadowRoot.querySelector("input").value = query;
    const found = new Promise((resolve) => search.addEventListener("found", resolve, { once: true }));
    await search.ask();
    return (await found).detail.hits.map(({ id, title, text }) => ({ url: `#${id}`, title, excerpt: text }));
  };
}
"""


@dataclass(frozen=True)
class Peer:
    """A search: its folder in the site, its package, its module, and settings of the query side by name."""

    name: str
    package: str
    module: str
    settings: Mapping[str, dict[str, Any]]

    def title(self, packages: Path) -> str:
        """The package with its version."""
        about = json.loads((packages / self.package / "package.json").read_text())
        return f"{self.name} {about['version']}"

    def build(self, site: Path, folder: Path, packages: Path) -> None:
        """Make the search of a site with `pages` and `records.jsonl` in a folder."""
        folder.mkdir()
        (folder / "bare.html").write_text(BARE)
        (folder / "peer.js").write_text(self.module)
        self.index(site, folder, packages)

    def index(self, site: Path, folder: Path, packages: Path) -> None:
        raise NotImplementedError


class Pagefind(Peer):
    """Pagefind over the HTML pages."""

    def index(self, site: Path, folder: Path, packages: Path) -> None:
        program = packages / ".bin" / "pagefind"
        _run([str(program), "--silent", "--site", str(site / "pages"), "--output-path", str(folder / "bundle")], folder)


class Vocable(Peer):
    """A published collection; its index is kept in the site's folder, so that documents are encoded once."""

    def title(self, packages: Path) -> str:
        return self.name

    def index(self, site: Path, folder: Path, packages: Path) -> None:
        place = site / "index"
        if not place.exists():
            vo.index(BY_LOOKUP, site / "records.jsonl", place, bm25=True).close()
        vo.publish(place, folder / "site")


@dataclass(frozen=True)
class Built(Peer):
    """A search in memory: a script of Node writes the index, a bundler makes its library small."""

    script: str
    library: str

    def index(self, site: Path, folder: Path, packages: Path) -> None:
        node = ["node", "--max-old-space-size=12000", "-e", RECORDS + self.script, str(site / "records.jsonl")]
        _run(node, folder, {"NODE_PATH": str(packages)})
        bundler, library = packages / ".bin" / "esbuild", packages / self.library
        _run(
            [
                str(bundler),
                str(library),
                "--bundle",
                "--format=esm",
                "--minify",
                f"--outfile={folder / self.package}.js",
                "--log-level=error",
            ],
            folder,
        )


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, **(environment or {})})


WORDS = {"stop": list(STOPWORDS_EN), "alone": True, "noWorker": True}
PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Vocable("vocable", "vocable", VOCABLE, {"": {}}),
        Pagefind("Pagefind", "pagefind", PAGEFIND, {"": {}, "word by word": WORDS}),
        Built("lunr", "lunr", LUNR, {"": {}}, LUNR_BUILD, "lunr/lunr.js"),
        Built(
            "MiniSearch",
            "minisearch",
            MINISEARCH,
            {"": {}, "fuzzy 0.2": {"fuzzy": 0.2}},
            MINISEARCH_BUILD,
            "minisearch/dist/es/index.js",
        ),
    )
}
