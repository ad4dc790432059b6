"""A model as a query encoder of Pyserini, for an impact index of vectors that `vocable export` wrote for Anserini.

from pyserini.search.lucene import LuceneImpactSearcher
from vocable.integrations.pyserini import QueryEncoder

searcher = LuceneImpactSearcher("my-lucene-index", QueryEncoder(vocable.load("vocable-mini")), min_idf=-1)
hits = searcher.search("no duplicates")
"""

from __future__ import annotations

from typing import Any

from sentence_transformers import SparseEncoder

from vocable.encoder.encode import TextEncoder
from vocable.vectors import quantize


class QueryEncoder:
    """A query as {term: weight}: terms are named, and weights scaled and rounded, as `vocable.export` does it.

    `scale` is that of the export; `limits` are those of `vocable.encode`: `top_k`, `min_weight`, `mass`, `dtype`,
    `max_length`. Pyserini needs no more of an encoder than `encode`, so that this module does without Pyserini.
    """

    def __init__(self, model: SparseEncoder, scale: float = 100.0, **limits: Any) -> None:
        self._encoder, self._scale = TextEncoder(model, "query", **limits), scale

    def encode(self, query: str, **_: Any) -> dict[str, int]:
        """The terms of a query, by column, and their weights; those that round to 0 are left out."""
        vector = quantize(self._encoder.encode([query]), scale=self._scale)
        return dict(zip(map(str, vector.indices.tolist()), vector.data.tolist(), strict=True))
