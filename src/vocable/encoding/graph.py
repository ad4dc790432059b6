"""Exported models: graphs of ONNX or OpenVINO with their pooling, which encode without PyTorch.

`vocable.torch_models.export` writes them. The folder of a model has `graph.json`, the settings of each role. For each
encoder it has tokenizer.json and the graph, in the folder itself or, for separate encoders, in a folder named as the
role. For looked-up queries it has `query_weights.safetensors` instead of a graph.

Letters: b texts, s tokens, v output terms.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import tokenizers
from numpy.typing import NDArray
from scipy.sparse import csr_array
from tokenizers import Tokenizer
from tokenizers.normalizers import Normalizer

from vocable.core.storage import regular
from vocable.core.threads import cpu_threads
from vocable.core.verified import remembered
from vocable.encoding.graph_sessions import GRAPH_BATCH_TOKENS, GRAPHS, INPUTS, Session, open_session, padded
from vocable.encoding.graph_settings import (
    GRAPH_SETTINGS,
    GraphRole,
    check_weights,
    files_checksum,
    has_weights,
    read_graph_settings,
)
from vocable.encoding.lookup import TableEncoder, read_tables
from vocable.encoding.model_fingerprint import of_role, relevant, tokenizer_digest
from vocable.encoding.own_terms import TERMS_FILE, read_terms
from vocable.encoding.protocol import (
    TOKENIZING,
    EncodedTexts,
    EncodingModel,
    PaddingSide,
    Role,
    RoleEncoder,
    RoleSettings,
    Token,
    Tokenization,
)
from vocable.encoding.tokens import Surface, special_columns_of, special_ids, token_surfaces
from vocable.encoding.vectors import FingerprintParts, token_names, vocabulary_fingerprint
from vocable.errors import ArgumentError, ModelError
from vocable.options import DType

TOKENIZER, QUERY_WEIGHTS = "tokenizer.json", "query_weights.safetensors"
EXPORTED = "an exported model only encodes: adapt or train the model that it was made from"


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
        return partial(GraphModel, query_weights=self._query_weights), (self.place, self._name)

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

    @cached_property
    def vocabulary(self) -> str:
        if self.own_terms is not None:
            return vocabulary_fingerprint(self.terms)
        path = self.tokenization_of("document").path
        return remembered(f"terms {self.settings.size}", [path], lambda: vocabulary_fingerprint(self.terms))

    @property
    def tokenization(self) -> Tokenization:
        return self.tokenization_of("document" if self.looks_up("query") else "query")

    @property
    def special_terms(self) -> NDArray[np.int64]:
        if self.own_terms is not None:
            return special_columns_of(self.own_terms)
        tokenization = self.tokenization_of("document")
        return special_ids(tokenization.tokenizer.get_vocab(), tokenization.marked, self.settings.size)

    def fingerprint(self, number_type: str | None = None) -> FingerprintParts:
        graph = GRAPHS[self.settings.format][self.settings.int8]
        files = [file for folder in self.place.rglob(Path(graph).parent.name) for file in folder.iterdir()]
        tables = [file for file in self.place.rglob("*") if file.name == QUERY_WEIGHTS]
        tables += [] if self._query_weights is None else [self._query_weights]
        parts: dict[str, Any] = {"graph": files_checksum(sorted(files)), "query_weights": files_checksum(tables)}
        for role, settings in self.settings.roles.items():
            read = relevant(asdict(settings)) | self._role_settings(role)._asdict()
            table = role == "query" and self._query_weights is not None
            read["tokenizer"] = self.tokenization_of("document" if table else role).digest
            parts |= of_role(role, {name: value for name, value in read.items() if name not in ("role", "folder")})
        return parts

    def tokenization_of(self, role: Role) -> GraphTokenization:
        """Return the tokenizer of a role, opened on first use."""
        of_role, known = self.settings.roles[role], self._tokenizations
        if role not in known:
            shared = next((other for other in known if self.settings.roles[other].folder == of_role.folder), None)
            path = self.place / of_role.folder / TOKENIZER
            tokenizer = of_role.special, of_role.unknown, of_role.tokens
            known[role] = GraphTokenization(path, *tokenizer) if shared is None else known[shared]
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
            self._sessions[folder] = pool.submit(self._opened, path, folder)
            pool.shutdown(wait=False)
        return self._sessions[folder]

    def _opened(self, path: Path, folder: str) -> Session:
        return open_session(path, self.settings.format, self.settings.size, None)

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
            tokenizer = self.tokenization_of(role)
            path = self.place / of_role.folder / QUERY_WEIGHTS
        [weights] = read_tables(path, "weights")
        weights = weights.astype(np.float32)
        return TableEncoder(self, tokenizer, lambda: weights, settings)

    def _role_settings(self, role: Role, max_length: int | None = None) -> RoleSettings:
        of_role = self.settings.roles[role]
        kept = of_role.query_idf, of_role.keeps_special
        if role == "query" and self._query_weights is not None:  # a table for the tokenizer of documents
            return RoleSettings(role, "", max_length or of_role.positions, None, *kept)
        return RoleSettings(role, of_role.prompt, max_length or of_role.max_length, of_role.max_terms, *kept)


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
        self, texts: Sequence[str], ids: Sequence[Sequence[int]], prompt: str | None, side: PaddingSide
    ) -> EncodedTexts:
        length = self.settings.max_length
        if length is not None and any(len(text_ids) > length for text_ids in ids):
            ids = self._tokenizer.truncated([(prompt or "") + text for text in texts], length, side)
        [weights] = self._run(padded(ids, self._padding, self._session.inputs))
        places = np.flatnonzero(weights > 0)
        rows, columns = np.divmod(places, weights.shape[1])
        indptr = np.searchsorted(rows, np.arange(len(weights) + 1)).astype(np.int32)
        sparse = csr_array((weights.ravel()[places], columns.astype(np.int32), indptr), shape=weights.shape)
        return EncodedTexts(sparse)

    def _run(self, given: dict[str, NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        try:
            return self._session.run(given)
        except Exception as error:  # the runtimes raise errors of their own
            refused = f"the graph refuses tokens of {TOKENIZER} or a length of {given[INPUTS[0]].shape[1]} tokens"
            raise ModelError(f"{self._place}: {refused}: copy or export the model again") from error


class GraphTokenization(Tokenization):
    """A tokenizer of the tokenizers library, from tokenizer.json."""

    has_places = True

    def __init__(self, path: Path, special: Sequence[int], unknown: int | None, tokens: int) -> None:
        """Open a tokenizer; raise `ModelError` if it is damaged or has more than `tokens` tokens, the graph's number.

        `special` has the ids of the special tokens, `unknown` is the id of the unknown token.
        """
        self.path, self.special, self.unknown = path, frozenset(special), unknown
        try:
            self.tokenizer = _tokenizer(regular(path).read_bytes())
        except Exception as error:  # the library raises nothing more precise
            raise ModelError(f"{path}: the tokenizer is missing or damaged ({error})") from error
        if (read := self.tokenizer.get_vocab_size()) > tokens:
            raise ModelError(f"{path}: another model's: it has {read:,} tokens, the graph {tokens:,}")
        added = self.tokenizer.get_added_tokens_decoder().items()
        self.marked = self.special | {i for i, token in added if token.special}

    @cached_property
    def digest(self) -> str:
        """The digest of the tokenizer as it was opened."""
        return remembered(f"tokenizer {tokenizers.__version__}", [self.path], lambda: tokenizer_digest(self.tokenizer))

    @property
    def backend(self) -> Tokenizer:
        return self.tokenizer

    @property
    def added(self) -> int:
        return self.tokenizer.num_special_tokens_to_add(False)

    @property
    def normalizer(self) -> Normalizer | None:
        return self.tokenizer.normalizer

    def ids(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        with TOKENIZING:
            encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=special)
            return [encoding.ids for encoding in encodings]

    def truncated(self, texts: list[str], length: int, side: PaddingSide) -> list[list[int]]:
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

    def names(self, ids: Sequence[int]) -> list[str]:
        return [cast(str, self.tokenizer.id_to_token(i)) for i in ids]

    def surfaces(self) -> list[Surface | None]:
        return token_surfaces(self.tokenizer, self.special)


@lru_cache(2)  # the sparse and the dense model of an index share one
def _tokenizer(content: bytes) -> Tokenizer:
    """Return the tokenizer of a file's content, without truncation and padding."""
    tokenizer = Tokenizer.from_buffer(content)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def is_exported(place: str | Path) -> bool:
    """Return whether a folder holds an exported model."""
    return Path(place, GRAPH_SETTINGS).is_file()


def refuse_exported(model: object) -> None:
    """Raise `ModelError` for a model that only encodes, or for an exported folder without weights for PyTorch."""
    if isinstance(model, EncodingModel) and model.refusal:
        raise ModelError(model.refusal)
    if isinstance(model, str | Path) and is_exported(model) and not has_weights(model):
        raise ModelError(EXPORTED)
