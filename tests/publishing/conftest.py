"""Published collections of toys, and the page's modules under node."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.toys import write_corpus
from vocable.collection.index import index
from vocable.data import Document
from vocable.encoding.hub import locate
from vocable.encoding.load import load
from vocable.publishing.publication import language_script, page_files, publish
from vocable.publishing.tokenizer import TOKENIZER_SCRIPTS
from vocable.torch_models.inference_free import make_inference_free

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


class Handler(SimpleHTTPRequestHandler):
    """A handler that keeps the paths that were asked for."""

    asked: ClassVar[list[str]] = []

    def log_message(self, format: str, *args: Any) -> None:
        self.asked.append(self.path)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Within the context, serve a folder at the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


class Fake:
    """A stand-in for ONNX Runtime Web with the same interface: it gives each token a weight, and another term.

    `MODULE` is the script, `weights` the same function here.
    """

    MODULE = """
export const env = { wasm: {} };
export class Tensor { constructor(type, data, dims) { Object.assign(this, { type, data, dims }); } }
const run = async (given, [output]) => {
  const data = new Float32Array(30522), ids = [...given.input_ids.data].map(Number);
  if ([...given.attention_mask.data].some((one) => one !== 1n) || env.wasm.numThreads !== 1) throw new Error("no");
  if (ids.includes(FAILING)) throw new Error("out of memory");
  ids.forEach((id) => { data[(id * 7 + 1) % 30522] ||= 0.5; });
  ids.forEach((id, place) => { data[id] = 1.5 + place / 2; });
  return { [output]: { data } };
};
export const InferenceSession = { create: async (graph) => {
  if (new TextDecoder().decode(env.wasm.wasmBinary) !== "binary" || graph.length !== GRAPH) throw new Error("no graph");
  return { inputNames: ["input_ids", "attention_mask", "token_type_ids"], run };
} };
"""
    FAILING = "volcano"  # a query with this token fails

    @staticmethod
    def weights(ids: Sequence[int]) -> dict[int, float]:
        """Return the weights by term of a text of these tokens."""
        return {(i * 7 + 1) % 30522: 0.5 for i in ids} | {i: 1.5 + place / 2 for place, i in enumerate(ids)}


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a stand-in for the npm package onnxruntime-web."""
    model, folder = Path(locate("vocable-mini")), tmp_path_factory.mktemp("runtime")
    vocabulary = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    size = (model / "onnx" / "model_quantized.onnx").stat().st_size
    module = Fake.MODULE.replace("FAILING", str(vocabulary[Fake.FAILING])).replace("GRAPH", str(size))
    (folder / "dist").mkdir()
    (folder / "package.json").write_text('{"name": "onnxruntime-web", "version": "0"}')
    (folder / "dist" / "ort.wasm.bundle.min.mjs").write_text(module)
    (folder / "dist" / "ort-wasm-simd-threaded.wasm").write_text("binary")
    return folder


@pytest.fixture(scope="session")
def encodable(rows: list[Document], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the documents by the built-in model, with BM25 and without dense vectors, as a page has it."""
    folder = tmp_path_factory.mktemp("encodable")
    corpus = write_corpus(rows, folder / "corpus.jsonl")
    index("vocable-mini", corpus, folder / "index", bm25=True, no_dense=True, device="cpu").close()
    return folder / "index"


@pytest.fixture(scope="session")
def encoding_site(encodable: Path, runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That index, published with the stand-in."""
    folder = tmp_path_factory.mktemp("encoding") / "site"
    with pytest.MonkeyPatch.context() as quick:
        quick.setattr("vocable.publishing.files.LEVEL", 1)
        publish(encodable, folder, encoder=runtime)
    return folder


def lookup_model(backbone: Path, texts: Sequence[str], folder: Path) -> str:
    """Save a toy model whose queries are looked up, weighted by the IDF in texts."""
    make_inference_free(load(backbone, device="cpu"), texts).save_pretrained(str(folder))
    return str(folder)


@pytest.fixture(scope="session")
def run_node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Run a script of node with the page's modules in a language and of a tokenizer's model: its body, and `given`."""
    if (node := shutil.which("node")) is None:
        pytest.skip("there is no node")

    @cache
    def page(language: str, model: str) -> Path:
        folder = tmp_path_factory.mktemp("page")
        for name, content in page_files("Toys", language_script(language), {}, TOKENIZER_SCRIPTS[model]).items():
            (folder / name).write_bytes(content)
        return folder

    def run(script: str, given: Any, language: str = "english", model: str = "WordPiece") -> Any:
        code = NODE.replace("PAGE", str(page(language, model))).replace("SCRIPT", script)
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


@pytest.fixture(scope="session")
def indexed(model: str, rows: list[Document], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the documents, with BM25."""
    folder = tmp_path_factory.mktemp("indexed")
    corpus = write_corpus(rows, folder / "corpus.jsonl")
    index(model, corpus, folder / "index", bm25=True, dtype="float32", device="cpu").close()
    return folder / "index"


@pytest.fixture(scope="session")
def site(indexed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published index."""
    folder = tmp_path_factory.mktemp("published") / "site"
    publish(indexed, folder, title="Toys <b>& more</b>")
    return folder


@pytest.fixture(scope="session")
def byte_level_site(
    backbones: dict[str, Path], corpus: Path, toy_texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The toy texts as a toy model with byte-level BPE reads them, published."""
    folder = tmp_path_factory.mktemp("byte-level")
    model = lookup_model(backbones["roberta"], toy_texts, folder / "model")
    index(model, corpus, folder / "index", dtype="float32", device="cpu").close()
    publish(folder / "index", folder / "site")
    return folder / "site"
