"""A model for MTEB's retrieval and reranking tasks: exact search with its sparse vectors.

from vocable.integrations.mteb import SparseSearch

mteb.evaluate(SparseSearch(vocable.load("vocable-mini")), mteb.get_tasks(["SciFact", "NFCorpus"]))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vocable.data import Document
from vocable.encoding.encode import encode
from vocable.encoding.models import Model, model_digest, model_name
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, require_extra
from vocable.indexes.exact_index import ExactIndex
from vocable.options import DType, LongDocuments

DEFAULTS = {"dtype": "auto", "max_length": None, "long_documents": "truncate", "query_idf": None}


class SparseSearch:
    """A search model for mteb: `index` a corpus, then `search` it; the model adds its own prompts.

    mteb files results under `name`, in the form ORGANIZATION/MODEL, the digest of the model's fingerprint, and the
    further arguments, which mean the same as in `vocable.evaluate`. A document that shares no term with a query is not
    a hit, except in a reranking task, where its score is 0.
    """

    def __init__(
        self,
        model: Model,
        name: str | None = None,
        *,
        dtype: DType = "auto",
        max_length: int | None = None,
        long_documents: LongDocuments = "truncate",
        query_idf: float | None = None,
    ) -> None:
        self._model, self._name = model, name or model_name(model)
        self._encoding: dict[str, Any] = {"dtype": dtype, "max_length": max_length, "long_documents": long_documents}
        self._query_encoder = TextEncoder(model, "query", query_idf=query_idf, dtype=dtype, max_length=max_length)
        settings = {**self._encoding, "query_idf": query_idf}
        self._changed = {name: value for name, value in settings.items() if value != DEFAULTS[name]}
        self._index: ExactIndex | None = None

    @cached_property
    def mteb_model_meta(self) -> Any:
        """Return the record of the model in mteb's results."""
        meta = require_extra("mteb", "mteb").models.ModelMeta
        name = self._name if self._name.count("/") == 1 else f"vocable/{Path(self._name).name}"
        model = {"name": name, "revision": model_digest(self._model), "model_type": ["sparse"]}
        return meta.create_empty(model | {"similarity_fn_name": "dot", "experiment_kwargs": self._changed or None})

    def index(self, corpus: Iterable[Mapping[str, Any]], *, encode_kwargs: Mapping[str, Any], **_: Any) -> None:
        """Encode a corpus, rows with id, title and text, and index it in memory; replace the previous corpus."""
        if "precision" in encode_kwargs:
            raise ArgumentError("precision: vectors are float32 here; the argument of SparseSearch is dtype")
        documents = [Document(row["id"], row["text"], row.get("title") or "") for row in corpus]
        texts = [document.full for document in documents]
        vectors = encode(self._model, texts, "document", **self._encoding)
        self._index = ExactIndex(vectors, [document.id for document in documents])
        self._query_encoder.know_collection(self._index.document_frequency, len(self._index))

    def search(
        self,
        queries: Iterable[Mapping[str, Any]],
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Return {query id: {document id: score}} for the `top_k` documents, among `top_ranked` if it is given."""
        if self._index is None:
            raise ArgumentError("search comes after index")
        rows = {row["id"]: _text(row) for row in queries}
        vectors = self._query_encoder.encode(list(rows.values()))
        # Search all documents.
        if top_ranked is None:
            ranking = self._index.search(vectors, top_k)
            return {query: dict(ranking.hits(number)) for number, query in enumerate(rows)}
        # Rank the candidates alone: a candidate without a shared term has the score 0.
        rows_by_id = {identifier: row for row, identifier in enumerate(self._index.ids or ())}
        scores: dict[str, dict[str, float]] = {}
        for number, query in enumerate(rows):
            candidates = top_ranked.get(query, ())
            allowed = np.zeros(len(self._index), dtype=bool)
            allowed[[rows_by_id[identifier] for identifier in candidates]] = True
            hits = self._index.search(vectors[[number]], top_k, allowed=allowed).hits(0)
            scores[query] = {**dict.fromkeys(candidates, 0.0), **dict(hits)}
        return scores


def _text(row: Mapping[str, Any]) -> str:
    """Return the text of a query followed by its instruction, as mteb's models read it."""
    if not isinstance(row["text"], str):
        raise ArgumentError(f"query {row['id']!r} is a conversation: this model reads texts")
    return " ".join(filter(None, [row["text"], row.get("instruction")]))
