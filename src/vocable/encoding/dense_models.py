"""Models that give a collection its dense vectors, in addition to the sparse model.

A graph with its pooling encodes without PyTorch. `vocable.torch_models.export_dense` writes its folder, which has
`dense_graph.json`, tokenizer.json and the graph. vocable-mini-dense also has a table for looked-up queries.

Letters: b or m texts, d dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Protocol, cast

import numpy as np
from annotated_types import Ge, Le

from vocable.core.storage import read_record
from vocable.encoding.graph import TOKENIZER, GraphTokenization
from vocable.encoding.graph_sessions import GRAPHS, Session, in_batches, open_session
from vocable.encoding.graph_settings import GraphFormat, files_checksum
from vocable.encoding.hub import BUILT_IN_DENSE, BY_LOOKUP, check_files, locate
from vocable.encoding.lookup import VectorTable, read_tables
from vocable.encoding.model_fingerprint import relevant
from vocable.encoding.protocol import EncodingModel, Role
from vocable.encoding.torch_library import torch_library
from vocable.encoding.vectors import FingerprintParts
from vocable.errors import ModelError, require_extra
from vocable.options import Count, CountOrZero

DENSE_GRAPH, QUERY_VECTORS = "dense_graph.json", "query_vectors.safetensors"


@dataclass(frozen=True)
class DenseGraphSettings:
    """The settings of a dense model's graph."""

    format: GraphFormat
    int8: bool
    model: str  # name of the model that was exported
    dimensions: Count
    max_length: Annotated[int, Ge(1), Le(2**31 - 1)]  # tokens of a text, special tokens included
    tokens: Count  # rows of the table of tokens
    padding: CountOrZero  # id of the token for padding
    prompts: dict[Role, str]  # text before the texts of a role


class DenseGraph:
    """A graph of a dense model, with the methods of `SentenceTransformer` that a collection calls."""

    def __init__(self, place: str | Path, *, looks_up: bool = False) -> None:
        """Open the folder of a graph, whose queries may be looked up; `ModelError` if a file is missing or damaged."""
        self.place = Path(place)
        self.settings = read_record(self.place / DENSE_GRAPH, DenseGraphSettings, error=ModelError)
        self.tokenization = GraphTokenization(self.place / TOKENIZER, [], None, self.settings.tokens)
        self._graph = self.place / GRAPHS[self.settings.format][self.settings.int8]
        self._table = VectorTable(*read_tables(self.place / QUERY_VECTORS, "rows", "scales")) if looks_up else None
        if not looks_up:  # a search loads the graph while it reads other files
            _ = self.session

    def get_embedding_dimension(self) -> int:
        """Return d."""
        return self.settings.dimensions

    def get_max_seq_length(self) -> int:
        """Return the number of tokens that are read of a text."""
        return self.settings.max_length

    def encode_query(self, texts: Sequence[str], *, show_progress_bar: bool = False) -> np.ndarray:
        """Return the unit vectors of queries, float32 [b, d]."""
        if self._table is not None:
            return self._table.looked_up(self._tokens(texts, "query"))
        return self._encoded(texts, "query")

    def encode_document(self, texts: Sequence[str], *, show_progress_bar: bool = False) -> np.ndarray:
        """Return the unit vectors of documents, float32 [b, d]."""
        return self._encoded(texts, "document")

    def fingerprint(self) -> FingerprintParts:
        """Return the parts of the model that its vectors depend on."""
        graph = files_checksum(sorted(self._graph.parent.iterdir()))
        settings = relevant({name: value for name, value in asdict(self.settings).items() if name != "model"})
        table = {} if self._table is None else {"query_vectors": files_checksum([self.place / QUERY_VECTORS])}
        return {"graph": graph, "tokenizer": self.tokenization.digest, **table, **settings}

    @cached_property
    def session(self) -> Future[Session]:
        """The graph, which a thread loads."""
        pool = ThreadPoolExecutor(1)
        expected = self._graph, self.settings.format, None, self.settings.dimensions
        session = pool.submit(open_session, *expected)
        pool.shutdown(wait=False)
        return session

    def _tokens(self, texts: Sequence[str], role: Role) -> list[list[int]]:
        """Return the token ids of texts as far as they are read, special tokens included."""
        prompt = self.settings.prompts.get(role, "")
        return self.tokenization.truncated([prompt + text for text in texts], self.settings.max_length, "right")

    def _encoded(self, texts: Sequence[str], role: Role) -> np.ndarray:
        ids, session = self._tokens(texts, role), self.session.result()
        return in_batches(session, ids, self.settings.padding, self.settings.dimensions)


def is_dense_graph(place: str | Path) -> bool:
    """Return whether a folder holds the graph of a dense model."""
    return Path(place, DENSE_GRAPH).is_file()


class DenseModel(Protocol):
    """A `DenseGraph` or a `SentenceTransformer`: the methods that a collection calls."""

    def encode_query(self, texts: list[str], /, *, show_progress_bar: bool) -> Any:
        """Return the vectors [m, d] of queries."""

    def encode_document(self, texts: list[str], /, *, show_progress_bar: bool) -> Any:
        """Return the vectors [m, d] of documents."""

    def get_embedding_dimension(self) -> int | None:
        """Return d."""

    def get_max_seq_length(self) -> int | None:
        """Return the number of tokens that are read of a text; None without a limit."""


def dense_beside(model: EncodingModel) -> str | None:
    """Return the name of the dense model that goes with a sparse model by default; None if there is no such model.

    vocable-mini-dense goes with a model that has the same English tokens and no dense vectors. With vocable-mini, dense
    vectors gain 0.03 nDCG@10 on cacm and 0.01 on scifact over the hybrid with BM25.
    """
    if model.dimensions is not None:
        return None
    try:
        tokenizer = model.tokenization.backend
    except ModelError:  # a tokenizer in Python
        return None
    place = Path(locate(BUILT_IN_DENSE))
    settings = read_record(place / DENSE_GRAPH, DenseGraphSettings, error=ModelError)
    built_in = GraphTokenization(place / TOKENIZER, [], None, settings.tokens).tokenizer
    # Equal files are one tokenizer; sizes, which mostly differ, are compared before 30,522 tokens.
    same = tokenizer is built_in or (
        tokenizer.get_vocab_size() == built_in.get_vocab_size() and tokenizer.get_vocab() == built_in.get_vocab()
    )
    return BUILT_IN_DENSE if same else None


def load_dense(name: str, device: str | None = None, *, sparse: str | None = None) -> DenseModel:
    """Load a model of dense vectors: a graph, which computes on a CPU, or a model of sentence-transformers.

    `sparse` names the sparse model of the collection: vocable-mini-dense looks up queries with vocable-mini-doc. Raises
    `ModelError` if the model cannot be loaded, and `MissingExtraError` if it needs PyTorch, which is not installed.
    """
    if name == BUILT_IN_DENSE or is_dense_graph(name):
        check_files(name)
        return DenseGraph(locate(name), looks_up=name == BUILT_IN_DENSE and sparse == BY_LOOKUP)
    library = require_extra("sentence_transformers", "train")
    try:
        with torch_library().without_bars():
            return library.SentenceTransformer(name, device=device)
    except Exception as error:  # the library passes on any error
        raise ModelError(f"{name}: cannot be loaded as a model of dense vectors: {error}") from error


def dense_fingerprint(model: object) -> FingerprintParts:
    """Return the fingerprint of a dense model or a reranker, its own or of a model of sentence-transformers."""
    fingerprint: Callable[[], FingerprintParts] | None = getattr(model, "fingerprint", None)
    return torch_library().fingerprint(cast(Any, model)) if fingerprint is None else fingerprint()


def load_dense_beside(model: EncodingModel) -> DenseModel | None:
    """Load the dense model that goes with a sparse model by default; errors as in `load_dense`."""
    name = dense_beside(model)
    return None if name is None else load_dense(name, sparse=model.name)


def document_vectors(model: DenseModel, texts: Sequence[str]) -> np.ndarray:
    """Return the unit vectors [m, d] of documents; zeros for a blank text, which is never a hit."""
    vectors = normalized(model.encode_document(list(texts), show_progress_bar=False))
    vectors[[not text.strip() for text in texts]] = 0  # hits have scores above 0
    return vectors


def query_vectors(model: DenseModel, texts: Sequence[str]) -> np.ndarray:
    """Return the unit vectors [m, d] of queries."""
    return normalized(model.encode_query(list(texts), show_progress_bar=False))


def count_cut(model: DenseModel, texts: Sequence[str], role: Role) -> int:
    """Return how many texts have more tokens than a model reads."""
    length = model.get_max_seq_length()
    if isinstance(model, DenseGraph):
        prompt = model.settings.prompts.get(role, "")
        ids = model.tokenization.ids([prompt + text for text in texts], special=True)
    else:
        stock = cast(Any, model)
        prompted = [(stock.prompts.get(role) or "") + text for text in texts]
        ids = stock.tokenizer(prompted, truncation=False, verbose=False)["input_ids"]
    return sum(length is not None and len(tokens) > length for tokens in ids)


def normalized(vectors: Any) -> np.ndarray:
    """Return dense vectors [m, d] of length 1, whose dot products are cosines."""
    matrix = np.asarray(vectors, dtype=np.float32)
    return matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
