"""The query encoder of a published page: the graph of the index's model, which ONNX Runtime Web computes.

A browser loads the encoder when its user asks for it. Until then, and if loading fails, queries are looked up.
page/encoder has the modules that load and run the encoder.
"""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from vocable.collection.collection import Collection
from vocable.core.storage import regular
from vocable.encoding.graph import GraphModel
from vocable.encoding.graph_sessions import GRAPHS
from vocable.encoding.graph_settings import READ_BYTES
from vocable.encoding.hub import BUILT_IN_MODEL, BY_LOOKUP
from vocable.encoding.load import load_encoder
from vocable.encoding.vectors import token_names
from vocable.errors import ArgumentError, ModelError
from vocable.publishing.files import SiteFiles, size_of

NPM_PACKAGE = "onnxruntime-web"
ABOUT, MODULE, BINARY = "package.json", "dist/ort.wasm.bundle.min.mjs", "dist/ort-wasm-simd-threaded.wasm"
SCRIPTS = Path(__file__).parent / "page" / "encoder"
RUNTIME_SCRIPT = "onnxruntime.js"  # lies with the scripts: some servers do not know .mjs
NEEDED = f"the encoder needs the npm package {NPM_PACKAGE}, unpacked or as npm pack {NPM_PACKAGE} writes it"


@dataclass(frozen=True)
class QueryGraph:
    """The encoder of a published collection.

    Attributes:
        prompt: text at the beginning of every query.
        longest: largest number of tokens in a query, without `before` and `after`; None means no limit.
        before: ids of the special tokens at the beginning.
        after: ids of the special tokens at the end.
        files: the files of the runtime, of the graph, and of the names of its tokens, which are its terms.
        nbytes: size of everything that the encoder needs.
        runtime: version of the runtime.
    """

    prompt: str
    longest: int | None
    before: list[int]
    after: list[int]
    files: list[str]
    nbytes: int
    runtime: str


class WebRuntime(NamedTuple):
    """ONNX Runtime Web for one thread: its version, its JavaScript module, and its WebAssembly binary."""

    version: str
    module: bytes
    binary: bytes

    @property
    def scripts(self) -> dict[str, bytes]:
        """The scripts that a page needs only for an encoder, by name."""
        contents = {path.name: path.read_bytes() for path in sorted(SCRIPTS.iterdir())} | {RUNTIME_SCRIPT: self.module}
        return {f"{SCRIPTS.name}/{name}": content for name, content in contents.items()}


def read_runtime(place: Path) -> WebRuntime:
    """Read ONNX Runtime Web from an npm package, a folder or a .tgz; raise `ArgumentError` for anything else."""
    with _errors_of(place):
        if place.is_dir():
            about, module, binary = (regular(place / name).read_bytes() for name in (ABOUT, MODULE, BINARY))
        else:
            with tarfile.open(regular(place)) as package:
                about, module, binary = (_member(package, name) for name in (ABOUT, MODULE, BINARY))
                while package.fileobj is not None and package.fileobj.read(READ_BYTES):
                    pass  # reading to the end verifies the checksum there
        described = json.loads(about)
        if described["name"] != NPM_PACKAGE:
            raise ValueError(f"this is {described['name']}")
        return WebRuntime(str(described["version"]), module, binary)


def _member(package: tarfile.TarFile, name: str) -> bytes:
    member = package.extractfile(f"package/{name}")
    if member is None:
        raise ValueError(f"{name} is not a file")
    return member.read()


@contextmanager
def _errors_of(place: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, KeyError, TypeError, ValueError, tarfile.TarError, zlib.error) as error:
        raise ArgumentError(f"{place}: {NEEDED} ({' '.join(str(error).split())})") from error


def graph_of(collection: Collection) -> GraphModel:
    """Return the graph that encodes a collection's queries; raise `ModelError` if the model has no 8-bit graph."""
    built_in = collection.models.name in (BUILT_IN_MODEL, BY_LOOKUP)  # both give documents the same vectors
    model = load_encoder(BUILT_IN_MODEL, runtime="onnx") if built_in else collection.models.loaded
    if not isinstance(model, GraphModel) or model.looks_up("query") or (model.runtime, model.dtype) != ("onnx", "int8"):
        instead = "index with what vocable export-model --int8 writes of a model that encodes queries"
        raise ModelError(f"{collection.place}: {collection.models.name} has no 8-bit ONNX graph of queries: {instead}")
    if token_names(model.tokenization_of("query").backend, model.settings.size) != model.terms:
        raise ModelError(
            f"{collection.place}: terms of {collection.models.name} are not its tokens, which a page needs"
        )
    return model


def write_encoder(files: SiteFiles, model: GraphModel, runtime: WebRuntime) -> QueryGraph:
    """Write the files of an encoder, and describe it."""
    of_role, tokenizer = model.settings.roles["query"], model.tokenization_of("query").backend
    graph = regular(model.place / of_role.folder / GRAPHS["onnx"][True]).read_bytes()
    terms = json.dumps(model.terms, ensure_ascii=False, separators=(",", ":")).encode()
    names = [files.add(content) for content in (runtime.binary, graph, terms)]
    # The page puts the special tokens around a text, which leave fewer tokens for it.
    sample = tokenizer.encode("a")
    ordinary = [position for position, special in enumerate(sample.special_tokens_mask) if not special]
    prefix, suffix = sample.ids[: ordinary[0]], sample.ids[ordinary[-1] + 1 :]
    longest = None if of_role.max_length is None else of_role.max_length - len(prefix) - len(suffix)
    nbytes = sum(map(size_of, names)) + sum(map(len, runtime.scripts.values()))
    return QueryGraph(
        prompt=of_role.prompt or "",
        longest=longest,
        before=prefix,
        after=suffix,
        files=names,
        nbytes=nbytes,
        runtime=runtime.version,
    )
