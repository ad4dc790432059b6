"""Dense models as graphs with their pooling, which encode without PyTorch.

`vocable.torch_models.export_dense` writes them. The folder has `dense_graph.json`, tokenizer.json and the graph.

Letters: b texts, d dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from vocable.core.storage import read_record
from vocable.core.threads import cpu_threads
from vocable.encoding.graph import GRAPH_BATCH_TOKENS, TOKENIZER, GraphTokenization
from vocable.encoding.graph_sessions import GRAPHS, Session, open_session, padded
from vocable.encoding.graph_settings import GraphFormat
from vocable.encoding.graph_weights import files_checksum
from vocable.encoding.model_fingerprint import relevant, tokenizer_digest
from vocable.encoding.protocol import Role
from vocable.encoding.vectors import Parts
from vocable.errors import ModelError
from vocable.options import Count, CountOrZero

DENSE_GRAPH = "dense_graph.json"


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

    def __init__(self, place: str | Path) -> None:
        """Open the folder of a graph; raise `ModelError` if a file is missing or damaged."""
        self.place = Path(place)
        self.settings = read_record(self.place / DENSE_GRAPH, DenseGraphSettings, error=ModelError)
        self.tokenization = GraphTokenization(self.place / TOKENIZER, [], None, self.settings.tokens)
        self._graph = self.place / GRAPHS[self.settings.format][self.settings.int8]
        pool = ThreadPoolExecutor(1)  # loads the graph while the caller reads other files
        expected = self._graph, self.settings.format, None, [self.settings.dimensions]
        self._session: Future[Session] = pool.submit(open_session, *expected)
        pool.shutdown(wait=False)

    def get_embedding_dimension(self) -> int:
        """Return d."""
        return self.settings.dimensions

    def encode_query(self, texts: Sequence[str], *, show_progress_bar: bool = False) -> np.ndarray:
        """Return the unit vectors of queries, float32 [b, d]."""
        return self._encoded(texts, "query")

    def encode_document(self, texts: Sequence[str], *, show_progress_bar: bool = False) -> np.ndarray:
        """Return the unit vectors of documents, float32 [b, d]."""
        return self._encoded(texts, "document")

    def fingerprint(self) -> Parts:
        """Return the parts of the model that its vectors depend on."""
        graph = files_checksum(sorted(self._graph.parent.iterdir()))
        settings = relevant({name: value for name, value in asdict(self.settings).items() if name != "model"})
        return {"graph": graph, "tokenizer": tokenizer_digest(self.tokenization.tokenizer), **settings}

    def _encoded(self, texts: Sequence[str], role: Role) -> np.ndarray:
        """Encode texts in batches, longest texts first, each batch in one thread."""
        prompt = self.settings.prompts.get(role, "")
        ids = self.tokenization.truncated([prompt + text for text in texts], self.settings.max_length, "right")
        vectors = np.zeros((len(texts), self.settings.dimensions), dtype=np.float32)
        order, batches = sorted(range(len(ids)), key=lambda row: -len(ids[row])), list[list[int]]()
        while order:
            size = max(1, GRAPH_BATCH_TOKENS // max(1, len(ids[order[0]])))
            batches.append(order[:size])
            order = order[size:]

        session = self._session.result()

        def encode(batch: list[int]) -> None:
            [vectors[batch]] = session.run(padded([ids[row] for row in batch], self.settings.padding, session.inputs))

        if len(batches) == 1:
            encode(batches[0])
        else:
            with ThreadPoolExecutor(cpu_threads()) as pool:
                list(pool.map(encode, batches))
        return vectors


def is_dense_graph(place: str | Path) -> bool:
    """Return whether a folder holds the graph of a dense model."""
    return Path(place, DENSE_GRAPH).is_file()
