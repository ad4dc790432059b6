"""Cross encoders as graphs, which score a query together with texts without PyTorch.

`vocable.torch_models.export_cross` writes their folder, which has `cross_graph.json`, tokenizer.json and the graph.

Letters: p pairs of a query and a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from vocable.core.storage import read_record
from vocable.encoding.graph import TOKENIZER, GraphTokenization
from vocable.encoding.graph_sessions import GRAPHS, SCORES, in_batches, open_session
from vocable.encoding.graph_settings import Length, files_checksum
from vocable.encoding.model_fingerprint import relevant
from vocable.encoding.protocol import TOKENIZING
from vocable.encoding.vectors import FingerprintParts
from vocable.errors import ModelError
from vocable.options import Count, CountOrZero

CROSS_GRAPH = "cross_graph.json"


@dataclass(frozen=True)
class CrossGraphSettings:
    """The settings of a cross encoder's graph."""

    int8: bool
    model: str  # name of the model that was exported
    max_length: Length  # tokens of a pair, special tokens included
    tokens: Count  # rows of the table of tokens
    padding: CountOrZero  # id of the token for padding


class CrossGraph:
    """A graph of a cross encoder, with the method of `CrossEncoder` that a reranking calls."""

    def __init__(self, place: str | Path) -> None:
        """Open the folder of a graph; `ModelError` if a file is missing or damaged."""
        self.place = Path(place)
        self.settings = read_record(self.place / CROSS_GRAPH, CrossGraphSettings, error=ModelError)
        self.tokenization = GraphTokenization(self.place / TOKENIZER, [], None, self.settings.tokens)
        self._graph = self.place / GRAPHS["onnx"][self.settings.int8]
        self._session = open_session(self._graph, "onnx", None, 1, SCORES)

    def predict(
        self, pairs: Sequence[tuple[str, str]], *, batch_size: int = 32, show_progress_bar: bool = False
    ) -> NDArray[np.float32]:
        """Return the scores of pairs, float32 [p], as `CrossEncoder.predict` does; the graph sizes its batches."""
        encoded = self.tokens(pairs)
        ids, types = [pair.ids for pair in encoded], [pair.type_ids for pair in encoded]
        return in_batches(self._session, ids, self.settings.padding, 1, types)[:, 0]

    def tokens(self, pairs: Sequence[tuple[str, str]]) -> list[Encoding]:
        """Return the tokens of pairs as far as they are read; the longer text of a pair is cut first."""
        tokenizer = self.tokenization.tokenizer  # other models may share it
        with TOKENIZING:
            tokenizer.enable_truncation(self.settings.max_length)
            try:
                encodings: list[Encoding] = tokenizer.encode_batch_fast(list(pairs))
                return encodings
            finally:
                tokenizer.no_truncation()

    def fingerprint(self) -> FingerprintParts:
        """Return the parts of the model that its scores depend on."""
        graph = files_checksum(sorted(self._graph.parent.iterdir()))
        settings = relevant({name: value for name, value in asdict(self.settings).items() if name != "model"})
        return {"graph": graph, "tokenizer": self.tokenization.digest, **settings}


def is_cross_graph(place: str | Path) -> bool:
    """Return whether a folder holds the graph of a cross encoder."""
    return Path(place, CROSS_GRAPH).is_file()
