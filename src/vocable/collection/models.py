"""The models of a collection's sparse and dense vectors, loaded on first use.

Letters: q queries, d dimensions of dense vectors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Unpack, cast

import numpy as np

from vocable.collection.settings import CollectionSettings, of_one_text, of_vocabulary
from vocable.core.locks import thread_lock
from vocable.encoding.dense_models import count_cut, dense_fingerprint, document_vectors, load_dense, query_vectors
from vocable.encoding.hub import BUILT_IN_DENSE
from vocable.encoding.load import load_encoder
from vocable.encoding.model_fingerprint import refuse_differences
from vocable.encoding.models import Model, check_unchanged
from vocable.encoding.protocol import EncodingModel
from vocable.encoding.text_encoder import TextEncoder, warn_of_cut
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError, MissingExtraError, ModelError
from vocable.options import QueryEncoding

if TYPE_CHECKING:
    from vocable.encoding.dense_models import DenseModel

logger = logging.getLogger(__name__)

INDEX_AGAIN = "index again, or use allow_changed_model"


class CollectionModels:
    """The models of a collection at a place; `name` is the sparse model's, by default as stored.

    A model that has changed since then is refused unless `allow_changed`. `term_idf` returns the IDF of t terms in the
    documents, float32 [t].
    """

    def __init__(
        self,
        place: str,
        settings: CollectionSettings,
        term_idf: Callable[[np.ndarray], np.ndarray],
        *,
        name: str | None = None,
        device: str | None = None,
        allow_changed: bool = False,
    ) -> None:
        self.name, self.device, self.allow_changed = name or settings.model, device, allow_changed
        self._place, self._settings, self._term_idf = place, settings, term_idf
        self._encoding = thread_lock()
        # The sparse model gives both vectors in one pass: no other model could change.
        self.dense_inside = settings.dense is not None and settings.dense_fingerprint is None

    @property
    def of_one_vocabulary(self) -> set[Space]:
        """The spaces whose vectors come from texts in the sparse model's tokens; another dense model has its own."""
        return {"sparse", "dense"} if self.dense_inside or self._settings.dense == BUILT_IN_DENSE else {"sparse"}

    @cached_property
    def loaded(self) -> EncodingModel:
        """The model that made the collection, in its runtime; `VectorsError` if it has changed."""
        if "sparse" not in self._settings.spaces:
            raise ArgumentError(
                f"{self._place}: the model's vectors are not searched: the indexes have different models"
            )
        model = load_encoder(self.name, self.device, self._settings.meta.runtime)
        if not self.allow_changed:
            is_other = self.name != self._settings.model
            check_unchanged(model, self._settings.meta, self._place, INDEX_AGAIN, only_documents=is_other)
        return model

    @cached_property
    def terms(self) -> list[str]:
        """The v output terms of the model, by column."""
        return self.loaded.terms

    @cached_property
    def dense(self) -> DenseModel:
        """The model of the dense vectors."""
        if self._settings.dense is None or self.dense_inside:
            raise ArgumentError(f"{self._place}: it was made without dense vectors of another model")
        model = load_dense(self._settings.dense, self.device, sparse=self.name)
        if not self.allow_changed:
            stored, now = self._settings.dense_fingerprint or {}, dense_fingerprint(model)
            refuse_differences(stored, now, f"{self._place}: {self._settings.dense}", INDEX_AGAIN)
        return model

    def begin_loading_dense(self) -> None:
        """Open the dense model: its graph loads in a thread, beside what the caller does next."""
        _ = self.dense

    @cached_property
    def documents(self) -> TextEncoder:
        """The encoder of documents with the options of the collection; `VectorsError` for another vocabulary.

        Passages are never truncated.
        """
        return self._checked(TextEncoder(self.loaded, "document", **of_one_text(self._settings.limits)))

    def queries(self, model: Model | None = None, **options: Unpack[QueryEncoding]) -> TextEncoder:
        """Return an encoder of queries with `model`, by default the collection's own.

        The weights of queries are multiplied by the terms' IDF in the collection to the power `query_idf`, by default
        the model's. Raises `VectorsError` for a model of another vocabulary.
        """
        encoder = self._checked(
            TextEncoder(model or self.loaded, "query", dtype=self._settings.limits["dtype"], **options)
        )
        if encoder.query_idf:
            encoder.term_idf = self._term_idf
        return encoder

    def _checked(self, encoder: TextEncoder) -> TextEncoder:
        return of_vocabulary(encoder, self._settings.meta, self.name)

    @cached_property
    def query_spaces(self) -> tuple[Space, ...]:
        """The spaces of the queries' vectors: without the dense space, and with a warning, if its model is missing."""
        spaces = self._settings.spaces
        try:
            if "dense" in spaces and not self.dense_inside:
                _ = self.dense
        except (ModelError, MissingExtraError) as error:
            logger.warning("%s: %s: the dense vectors of the documents are left out", self._place, error)
            return tuple(space for space in spaces if space != "dense")
        return spaces

    def dense_queries(self, queries: Sequence[str]) -> np.ndarray:
        """Return the vectors [q, d] of texts as queries in the space dense."""
        if not self.dense_inside:
            with self._encoding:  # tokenizers are not for several threads at once
                cut = count_cut(self.dense, queries, "query")
                warn_of_cut(cut, len(queries), "queries", self.dense.get_max_seq_length())
                return query_vectors(self.dense, queries)
        return cast(np.ndarray, self.queries().encode_both(queries).dense)

    def dense_documents(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors [m, d] of m texts by the model of the dense vectors; zeros for a blank text."""
        return document_vectors(self.dense, texts)

    def count_cut(self, texts: Sequence[str]) -> int:
        """Return how many documents are longer than what the model of the dense vectors reads."""
        return count_cut(self.dense, texts, "document")
