"""A model as a query encoder of Pyserini, for an impact index of vectors that `vocable export` wrote for Anserini.

from pyserini.search.lucene import LuceneImpactSearcher
from vocable.integrations.pyserini import QueryEncoder

encoder = QueryEncoder(vocable.load("vocable-mini"), documents="vectors")
searcher = LuceneImpactSearcher("my-lucene-index", encoder, min_idf=-1)
hits = searcher.search("no duplicates")
"""

from __future__ import annotations

import logging
from typing import Any

from sentence_transformers import SparseEncoder

from vocable.encoder.provenance import describe
from vocable.encoder.text_encoder import TextEncoder
from vocable.pruning import quantize
from vocable.retrieval.export import term_counts
from vocable.vectors import Sources

logger = logging.getLogger(__name__)


class QueryEncoder:
    """A query as {term: weight}: terms are named, and weights scaled and rounded, as `vocable.export` does it.

    `scale` is that of the export. `documents` are the vectors that were exported: a model's `query_idf` is applied with
    the IDF of the terms there; without them it is not, which a line of the log says. `limits` are those of
    `vocable.encode`: `max_terms`, `min_weight`, `mass`, `dtype`, `max_length`; and `query_idf`. Pyserini needs no more
    of an encoder than `encode`, so that this module does without Pyserini. Raises what `vocable.export` raises of
    `documents`.
    """

    def __init__(
        self, model: SparseEncoder, scale: float = 100.0, *, documents: Sources | None = None, **limits: Any
    ) -> None:
        self._encoder, self._scale = TextEncoder(model, "query", **limits), scale
        if documents is not None:
            self._encoder.know_collection(*term_counts(documents, describe(self._encoder, "the model")))
        elif power := self._encoder.query_idf:
            logger.warning("query_idf %g of the model is not applied without documents, the exported vectors", power)

    def encode(self, query: str, **_: Any) -> dict[str, int]:
        """The terms of a query, by column, and their weights; those that round to 0 are left out."""
        vector = quantize(self._encoder.encode([query]), scale=self._scale)
        return dict(zip(map(str, vector.indices.tolist()), vector.data.tolist(), strict=True))
