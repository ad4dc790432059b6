"""Published collections of toys, and the page's modules under node."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from vocable.data import Document
from vocable.encoder.inference_free import make_inference_free
from vocable.encoder.load import load
from vocable.publishing.languages import language_script
from vocable.publishing.publication import page_files, publish
from vocable.retrieval.verbs import index

HOSTILE = "fox <script>document.title='run'</script><img src=x onerror=\"document.title='run'\"> night"
URLS = {
    "https://example.org/a?b=c#d": "https://example.org/a?b=c#d",
    "../guide/owl/#at-night": "/guide/owl/#at-night",  # below the address of the site
    "javascript:document.title='run'": None,
    " JavaScript:document.title='run'": None,
    "data:text/html,<script>1</script>": None,
    "vbscript:x": None,
    "ftp://example.org/x": None,
}
# Modules of the page read files in place of addresses; SCRIPT is called with what stdin has, and its result is printed.
NODE = """
import fs from "node:fs";
import { fileURLToPath } from "node:url";
globalThis.fetch = async (address) => {
  const path = fileURLToPath(address);
  return fs.existsSync(path) ? new Response(fs.readFileSync(path)) : new Response("", { status: 404 });
};
const page = (name) => import(`file://PAGE/${name}`);
const given = JSON.parse(fs.readFileSync(0, "utf8"));
const run = async (given, page) => { SCRIPT };
console.log(JSON.stringify(await run(given, page)));
"""

Node = Callable[..., Any]


def lookup_model(backbone: Path, texts: Sequence[str], folder: Path) -> str:
    """Save a toy model whose queries are looked up, weighted by the IDF in texts."""
    make_inference_free(load(backbone, device="cpu"), texts).save_pretrained(str(folder))
    return str(folder)


@pytest.fixture(scope="session")
def run_node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Run a script of node with the page's modules in a language: its body, and the value `given` that it sees."""
    if (node := shutil.which("node")) is None:
        pytest.skip("there is no node")

    @cache
    def page(language: str) -> Path:
        folder = tmp_path_factory.mktemp("page")
        for name, content in page_files("Toys", language_script(language)).items():
            (folder / name).write_bytes(content)
        return folder

    def run(script: str, given: Any, language: str = "english") -> Any:
        code = NODE.replace("PAGE", str(page(language))).replace("SCRIPT", script)
        command = [node, "--input-type=module", "-e", code]
        done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def model(backbones: dict[str, Path], toy_texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a toy model whose queries are looked up."""
    return lookup_model(backbones["bert"], toy_texts, tmp_path_factory.mktemp("lookup"))


@pytest.fixture(scope="session")
def rows(documents: list[Document]) -> list[Document]:
    """The documents of the other tests, one that is not to be trusted, and some with addresses."""
    tags = [["b"], ["a", "b"]]
    some = [one._replace(fields={**one.fields, "tags": tags[i % 2]}) for i, one in enumerate(documents)]
    some.append(Document("<b>x</b>", HOSTILE * 20, HOSTILE, {"lang": '<i>"', HOSTILE: HOSTILE[:30], "path": HOSTILE}))
    some += [Document(f"u{i}", f"giraffe {i}", "", {"url": url, "kind": "web"}) for i, url in enumerate(URLS)]
    return some


def write_corpus(documents: Sequence[Document], path: Path) -> Path:
    """Write documents as JSON lines."""
    values = [{"_id": one.id, "title": one.title, "text": one.text, **one.fields} for one in documents]
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def indexed(model: str, rows: list[Document], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the documents, with BM25."""
    folder = tmp_path_factory.mktemp("indexed")
    corpus = write_corpus(rows, folder / "corpus.jsonl")
    index(model, corpus, f"exact:{folder / 'index'}", bm25=True, dtype="float32", device="cpu").close()
    return folder / "index"


@pytest.fixture(scope="session")
def site(indexed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published index."""
    folder = tmp_path_factory.mktemp("published") / "site"
    publish(indexed, folder, title="Toys <b>& more</b>")
    return folder
