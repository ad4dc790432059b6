"""Exported models: graphs of ONNX or OpenVINO with their pooling, which encode without PyTorch.

`vocable.torch_models.export` writes them. The folder of a model has `graph.json`, the settings of each role. For each
encoder it has tokenizer.json and the graph, in the folder itself or, for separate encoders, in a folder named as the
role. For looked-up queries it has `query_weights.safetensors` instead of a graph.

Letters: b texts, s tokens, v output terms.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from tokenizers import Tokenizer
from tokenizers.normalizers import Normalizer

from vocable.core.storage import regular
from vocable.core.threads import cpu_threads
from vocable.encoding.graph_settings import GRAPH_SETTINGS, GraphRole, GraphSettings, read_graph_settings
from vocable.encoding.graph_weights import check_weights, files_checksum
from vocable.encoding.lookup import TableEncoder
from vocable.encoding.model_fingerprint import of_role, relevant, tokenizer_digest
from vocable.encoding.own_terms import TERMS_FILE, read_terms
from vocable.encoding.protocol import (
    TOKENIZING,
    EncodedTexts,
    EncodingModel,
    Role,
    RoleEncoder,
    RoleSettings,
    Side,
    Token,
    Tokenization,
)
from vocable.encoding.tokens import Surface, special_columns_of, special_ids, token_surfaces
from vocable.encoding.vectors import Parts, token_names
from vocable.errors import ArgumentError, ModelError, VocableError, require_extra
from vocable.options import DType

# The file of a graph, in float32 and with 8-bit weights, as Transformers.js and Optimum name it.
GRAPHS = {
    "onnx": ("onnx/model.onnx", "onnx/model_quantized.onnx"),
    "openvino": ("openvino/openvino_model.xml", "openvino/openvino_model_int8.xml"),
}
TOKENIZER, QUERY_WEIGHTS = "tokenizer.json", "query_weights.safetensors"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT, DENSE_OUTPUT = "weights", "dense"  # the weights of all terms, and the dense vectors; others are of one role
GRAPH_BATCH_TOKENS = 512  # padding included: a batch should stay in the cache
EXPORTED = "an exported model only encodes: adapt or train the model that it was made from"

Run = Callable[[dict[str, NDArray[np.int64]]], list[NDArray[np.float32]]]


class Session(NamedTuple):
    """A loaded graph: the names of its inputs, v, d, and the function that returns weights and dense vectors."""

    inputs: list[str]
    size: int | None
    dimensions: int | None
    run: Run


class GraphModel(EncodingModel):
    """An exported model. It only encodes, on a CPU: verbs that read or change weights refuse it."""

    device, refusal = "cpu", EXPORTED

    def __init__(self, place: str | Path, name: str | None = None, *, query_weights: Path | None = None) -> None:
        """Open the folder of an exported model; `query_weights` is a table of token weights for its queries.

        Raises `ModelError` if a file is missing or damaged.
        """
        self.place, self._name, self._query_weights = Path(place), name or str(Path(place).resolve()), query_weights
        self.settings = read_graph_settings(self.place)
        self.runtime = self.settings.format
        self.dtype = "int8" if self.settings.int8 else "float32"
        self.prompts, self.default_prompt = self.settings.prompts, self.settings.default_prompt
        self._tokenizations: dict[Role, GraphTokenization] = {}
        self._sessions: dict[str, Future[Session]] = {}
        self._weights: Future[None] | None = None  # the comparison with weights in the folder of the graph

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self.place, self._name, self._query_weights)

    def __repr__(self) -> str:
        return f"GraphModel({self.name!r}, {self.runtime}, {self.dtype})"

    def save_pretrained(self, folder: str | Path) -> None:
        """Copy the files of the model to a folder."""
        shutil.copytree(self.place, folder, dirs_exist_ok=True)

    def looks_up(self, role: Role) -> bool:
        """Return whether a table of token weights encodes a role."""
        return self.settings.roles[role].looked_up or (role == "query" and self._query_weights is not None)

    @property
    def name(self) -> str:
        return self._name

    @property
    def notes(self) -> Mapping[str, Any]:
        return self.settings.notes

    @property
    def parameters(self) -> int | None:
        return None

    @property
    def dimensions(self) -> int | None:
        sizes = {None if self.looks_up(role) else of_role.dimensions for role, of_role in self.settings.roles.items()}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def own_terms(self) -> Sequence[str] | None:
        return self._own_terms

    @cached_property
    def _own_terms(self) -> list[str] | None:
        path = self.place / self.settings.roles["document"].folder / TERMS_FILE
        return read_terms(path) if path.exists() else None

    @cached_property
    def terms(self) -> list[str]:
        if self.own_terms is not None:
            return list(self.own_terms)
        return token_names(self.tokenization_of("document").tokenizer, self.settings.size)

    @property
    def tokenization(self) -> Tokenization:
        return self.tokenization_of("document" if self.looks_up("query") else "query")

    @property
    def special_terms(self) -> NDArray[np.int64]:
        if self.own_terms is not None:
            return special_columns_of(self.own_terms)
        return self.tokenization_of("document").special_ids(self.settings.size)

    def fingerprint(self, number_type: str | None = None) -> Parts:
        graph = GRAPHS[self.settings.format][self.settings.int8]
        files = [file for folder in self.place.rglob(Path(graph).parent.name) for file in folder.iterdir()]
        tables = [file for file in self.place.rglob("*") if file.name == QUERY_WEIGHTS]
        tables += [] if self._query_weights is None else [self._query_weights]
        parts: dict[str, Any] = {"graph": files_checksum(sorted(files)), "query_weights": files_checksum(tables)}
        for role, settings in self.settings.roles.items():
            read = relevant(asdict(settings)) | self._role_settings(role)._asdict()
            table = role == "query" and self._query_weights is not None
            read["tokenizer"] = tokenizer_digest(self.tokenization_of("document" if table else role).tokenizer)
            parts |= of_role(role, {name: value for name, value in read.items() if name not in ("role", "folder")})
        return parts

    def tokenization_of(self, role: Role) -> GraphTokenization:
        """Return the tokenizer of a role, opened on first use."""
        of_role, known = self.settings.roles[role], self._tokenizations
        if role not in known:
            shared = next((other for other in known if self.settings.roles[other].folder == of_role.folder), None)
            path = self.place / of_role.folder / TOKENIZER
            known[role] = GraphTokenization(path, of_role) if shared is None else known[shared]
        return known[role]

    def load_graphs(self) -> None:
        """Load the graphs of all roles now, so that errors are raised early."""
        for role in self.settings.roles:
            if not self.looks_up(role):
                self.session(role)

    def begin_loading(self) -> None:
        """Load the graph of queries in a thread, while the caller reads other files."""
        if not self.looks_up("query"):
            self._begin(self.settings.roles["query"].folder)

    def session(self, role: Role) -> Session:
        """Return the graph of a role, loaded on first use; raise `ModelError` if weights in its folder have changed."""
        session = self._begin(self.settings.roles[role].folder).result()
        assert self._weights is not None
        self._weights.result()
        return session

    def _begin(self, folder: str) -> Future[Session]:
        if folder not in self._sessions:
            path = self.place / folder / GRAPHS[self.settings.format][self.settings.int8]
            pool = ThreadPoolExecutor(2)
            self._weights = self._weights or pool.submit(check_weights, self.place, self.settings.weights)
            self._sessions[folder] = pool.submit(_load_graph, path, self.settings, folder)
            pool.shutdown(wait=False)
        return self._sessions[folder]

    def encoder(self, role: Role, dtype: DType = "auto", max_length: int | None = None) -> RoleEncoder:
        if dtype not in ("auto", self.dtype):
            raise ArgumentError(f"dtype {dtype}: this exported model computes in {self.dtype}")
        of_role, settings = self.settings.roles[role], self._role_settings(role, max_length)
        if max_length is not None and of_role.positions is not None and max_length > of_role.positions:
            limit = f"at most {of_role.positions}, the positions of this model"
            raise ArgumentError(f"max_length must be {limit}, not {max_length}")
        if not self.looks_up(role):
            return GraphEncoder(self, of_role, settings)
        if self._query_weights is not None:
            tokenizer, path = self.tokenization_of("document"), self._query_weights
        else:
            tokenizer, path = self.tokenization_of(role), self.place / of_role.folder / QUERY_WEIGHTS
        weights = _read_weights(path)
        return TableEncoder(self, tokenizer, lambda: weights, settings)

    def _role_settings(self, role: Role, max_length: int | None = None) -> RoleSettings:
        of_role = self.settings.roles[role]
        kept = of_role.query_idf, of_role.keeps_special, None if self.looks_up(role) else of_role.dimensions
        if role == "query" and self._query_weights is not None:  # a table for the tokenizer of documents
            return RoleSettings(role, "", max_length or of_role.positions, None, *kept)
        return RoleSettings(role, of_role.prompt, max_length or of_role.max_length, of_role.max_terms, *kept)


def _reopened(place: Path, name: str, query_weights: Path | None) -> GraphModel:
    return GraphModel(place, name, query_weights=query_weights)


def _read_weights(path: Path) -> NDArray[np.float32]:
    """Return a table of token weights, float32 [v]."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        weights: NDArray[np.float32] = load_file(regular(path))["weights"].astype(np.float32)
    except (OSError, KeyError, SafetensorError) as error:
        raise ModelError(f"{path}: the weights of queries are missing or damaged ({error})") from error
    return weights


class GraphEncoder(RoleEncoder):
    """The encoder of a role by a graph."""

    looked_up, batch_tokens = False, GRAPH_BATCH_TOKENS

    def __init__(self, model: GraphModel, of_role: GraphRole, settings: RoleSettings) -> None:
        self.model, self.settings = model, settings
        self.pooling, self._padding = of_role.pooling, of_role.padding
        self.tokenization = self._tokenizer = model.tokenization_of(settings.role)
        self._session, self._place = model.session(settings.role), model.place

    @property
    def threads(self) -> int:
        """The number of cores: a graph computes a batch in one thread."""
        return cpu_threads()

    def encode(
        self, texts: Sequence[str], ids: Sequence[Sequence[int]], prompt: str | None, side: Side
    ) -> EncodedTexts:
        length = self.settings.max_length
        if length is not None and any(len(text_ids) > length for text_ids in ids):
            ids = self._tokenizer.truncated([(prompt or "") + text for text in texts], length, side)
        tokens = np.full((len(ids), max(map(len, ids))), self._padding, dtype=np.int64)
        mask = np.zeros_like(tokens)
        for row, text_ids in enumerate(ids):
            tokens[row, : len(text_ids)], mask[row, : len(text_ids)] = text_ids, 1
        given = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
        weights, *dense = self._run({name: given[name] for name in self._session.inputs})
        places = np.flatnonzero(weights > 0)
        rows, columns = np.divmod(places, weights.shape[1])
        indptr = np.searchsorted(rows, np.arange(len(weights) + 1)).astype(np.int32)
        sparse = csr_array((weights.ravel()[places], columns.astype(np.int32), indptr), shape=weights.shape)
        return EncodedTexts(sparse, dense[0] if dense else None)

    def _run(self, given: dict[str, NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        try:
            return self._session.run(given)
        except Exception as error:  # the runtimes raise errors of their own
            refused = f"the graph refuses tokens of {TOKENIZER} or a length of {given[INPUTS[0]].shape[1]} tokens"
            raise ModelError(f"{self._place}: {refused}: copy or export the model again") from error


class GraphTokenization(Tokenization):
    """A tokenizer of the tokenizers library, from tokenizer.json."""

    has_places = True

    def __init__(self, path: Path, of_role: GraphRole) -> None:
        self.special, self.unknown = frozenset(of_role.special), of_role.unknown
        try:
            self.tokenizer = Tokenizer.from_file(str(regular(path)))
        except Exception as error:  # the library raises nothing more precise
            raise ModelError(f"{path}: the tokenizer is missing or damaged ({error})") from error
        if (tokens := self.tokenizer.get_vocab_size()) > of_role.tokens:
            raise ModelError(f"{path}: another model's: it has {tokens:,} tokens, the graph {of_role.tokens:,}")
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    @property
    def backend(self) -> Tokenizer:
        return self.tokenizer

    @property
    def added(self) -> int:
        count: int = self.tokenizer.num_special_tokens_to_add(False)
        return count

    @property
    def normalizer(self) -> Normalizer | None:
        normalizer: Normalizer | None = self.tokenizer.normalizer
        return normalizer

    @property
    def vocabulary(self) -> Mapping[str, int]:
        vocabulary: dict[str, int] = self.tokenizer.get_vocab()
        return vocabulary

    def ids(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        with TOKENIZING:
            encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=special)
            return [encoding.ids for encoding in encodings]

    def truncated(self, texts: list[str], length: int, side: Side) -> list[list[int]]:
        """Return the token ids of each text, with special tokens, truncated on a side."""
        with TOKENIZING:
            self.tokenizer.enable_truncation(length, direction=side)
            try:
                return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)]
            finally:
                self.tokenizer.no_truncation()

    def places(self, text: str) -> list[Token]:
        with TOKENIZING:
            cut = self.tokenizer.encode(text, add_special_tokens=False)
        return [Token(i, *place) for i, place in zip(cut.ids, cut.offsets, strict=True)]

    def word_numbers(self, text: str) -> list[int | None]:
        with TOKENIZING:
            numbers: list[int | None] = self.tokenizer.encode(text, add_special_tokens=False).word_ids
        return numbers

    def special_ids(self, size: int | None = None) -> NDArray[np.int64]:
        added = {i for i, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}
        return special_ids(self.vocabulary, self.special | added, size)

    def surfaces(self) -> list[Surface | None]:
        return token_surfaces(self.tokenizer, self.special)


def _load_graph(path: Path, settings: GraphSettings, folder: str) -> Session:
    if not path.is_file():
        other = "; or name the runtime torch, for its weights" if has_weights(path.parent.parent) else ""
        raise ModelError(f"{path}: the graph is missing: copy or export the model again{other}")
    try:
        session = (_onnx if settings.format == "onnx" else _openvino)(path)
    except VocableError:
        raise
    except Exception as error:  # the runtimes raise errors of their own
        raise ModelError(f"{path}: the graph is damaged ({str(error).strip().partition(chr(10))[0]})") from error
    sizes = {role.dimensions for role in settings.roles.values() if role.folder == folder}
    if not set(session.inputs) <= set(INPUTS) or session.size != settings.size or session.dimensions not in sizes:
        read = ", ".join(session.inputs)
        raise ModelError(f"{path}: not a graph that vocable export-model wrote: it reads {read}")
    return session


def _onnx(path: Path) -> Session:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    # Level "all" fuses sums and layer norms into an operation that is slower on a CPU.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4  # an error is raised, and not written to stderr as well
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    sizes = {output.name: output.shape[-1] for output in session.get_outputs() if isinstance(output.shape[-1], int)}
    outputs = [name for name in (OUTPUT, DENSE_OUTPUT) if name in sizes]
    names = [graph_input.name for graph_input in session.get_inputs()]
    return Session(names, sizes.get(OUTPUT), sizes.get(DENSE_OUTPUT), lambda given: session.run(outputs, given))


def import_openvino() -> ModuleType:
    """Import OpenVINO without its telemetry, which would report its use over the network."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return require_extra("openvino", "openvino")


def _openvino(path: Path) -> Session:
    openvino = import_openvino()
    # On a CPU with bfloat16, OpenVINO would compute in bfloat16 by default, and its results would differ from the
    # results that the export checked.
    # All threads on one batch, 114 texts/s on two cores, are faster than a batch in each thread, 92.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": cpu_threads()}
    core = openvino.Core()
    graph = core.read_model(path)
    results = graph.get_results()
    named = {
        name: result for name in (OUTPUT, DENSE_OUTPUT) for result in results if name in result.output(0).get_names()
    }
    reduced = openvino.Model([*named.values()], graph.get_parameters(), OUTPUT)  # without the other outputs
    compiled = core.compile_model(reduced, "CPU", {"PERFORMANCE_HINT": "LATENCY", **settings})
    shapes = {name: output.partial_shape[1] for name, output in zip(named, compiled.outputs, strict=True)}
    sizes = {name: size.get_length() for name, size in shapes.items() if size.is_static}

    def run(given: dict[str, NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        results = compiled.create_infer_request().infer(given)  # threads do not share requests
        return [results[place].copy() for place in range(len(named))]

    names = [graph_input.get_any_name() for graph_input in compiled.inputs]
    return Session(names, sizes.get(OUTPUT), sizes.get(DENSE_OUTPUT), run)


def is_exported(place: str | Path) -> bool:
    """Return whether a folder holds an exported model."""
    return Path(place, GRAPH_SETTINGS).is_file()


def has_weights(place: str | Path) -> bool:
    """Return whether a folder has weights for PyTorch, with or without a graph."""
    return any(Path(place).rglob("model*.safetensors"))


def refuse_exported(model: object) -> None:
    """Raise `ModelError` for a model that only encodes, or for an exported folder without weights for PyTorch."""
    if isinstance(model, EncodingModel) and model.refusal:
        raise ModelError(model.refusal)
    if isinstance(model, str | Path) and is_exported(model) and not has_weights(model):
        raise ModelError(EXPORTED)
