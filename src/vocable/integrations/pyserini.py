"""A model as a Pyserini query encoder, for an impact index of vectors that `vocable export` wrote for Anserini.

from pyserini.search.lucene import LuceneImpactSearcher
from vocable.integrations.pyserini import QueryEncoder

encoder = QueryEncoder(vocable.load("vocable-mini"), documents="vectors")
searcher = LuceneImpactSearcher("my-lucene-index", encoder, min_idf=-1)
hits = searcher.search("no duplicates")
"""

from __future__ import annotations

from typing import Any

from vocable.encoding.models import Model
from vocable.encoding.pruning import quantize
from vocable.encoding.vectors import Sources
from vocable.integrations.embedder import query_encoder


class QueryEncoder:
    """Encode a query as {term: weight}, with the names of terms and the rounded weights of `vocable.export`.

    Pyserini calls only `encode`, so this module does not import Pyserini.

    Args:
        model: from `vocable.load`.
        scale: the scale of the export.
        documents: the exported vectors; they provide the IDF of the terms for a model's `query_idf`. Without them,
            `query_idf` is not applied, and the first query logs a warning.
        options: `max_terms`, `min_weight`, `mass`, `query_idf`, `dtype` and `max_length`, as in `TextEncoder`.

    Raises:
        VectorsError: the vectors of `documents` cannot be read, or have another vocabulary.
    """

    def __init__(self, model: Model, scale: float = 100.0, *, documents: Sources | None = None, **options: Any) -> None:
        self._encoder, self._scale = query_encoder(model, documents, **options), scale

    def encode(self, query: str, **_: object) -> dict[str, int]:
        """Return the weights of a query's terms by column; weights that round to 0 are left out."""
        vector = quantize(self._encoder.encode([query]), scale=self._scale)
        return dict(zip(map(str, vector.indices.tolist()), vector.data.tolist(), strict=True))
