"""A searchable collection: what an index on disk or in a server has in common, whatever holds its documents.

Letters: m documents, q queries, v output vocabulary, d dimensions of dense vectors, k results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.data import Document
from vocable.data.texts import Texts, as_texts
from vocable.encoder.encode import EncodedCorpus
from vocable.encoder.load import load
from vocable.encoder.provenance import checksum, describe
from vocable.encoder.terms import terms
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ArgumentError, VectorsError
from vocable.options import Count, DType, Fusion, checked
from vocable.retrieval.filters import Filter, check_fields, parse_filter
from vocable.retrieval.fusion import aligned, fused, fusion_depth, parse_weights
from vocable.retrieval.protocols import Space
from vocable.retrieval.ranking import Ranking
from vocable.vectors import VectorsMeta

COUNTED = 1000  # documents that tell how frequent terms are, where the engine does not


class Collection(ABC):
    """An opened collection at a `place`: the name of its `model`, the vectors it has (`spaces`), its documents.

    `weights` is the checksum of the model that made it, in the type that it encoded in; "" where that is not known.
    """

    place: str
    model: str
    meta: VectorsMeta | None
    spaces: tuple[Space, ...] = ("sparse",)
    weights: str = ""
    built: EncodedCorpus | None = None  # what its making counted, just after it
    allow_changed_model: bool = False
    device: str | None = None
    dtype: DType = "auto"  # that the model computes in

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """The documents with these ids, None where there is none."""

    @abstractmethod
    def vectors(self, ids: Sequence[str]) -> csr_array:
        """The stored sparse vectors [m, v] of documents."""

    @property
    @abstractmethod
    def known_fields(self) -> frozenset[str] | None:
        """The names by which filters can ask for fields: those of all documents, perhaps more; None if not known."""

    def check_filter(self, filter: Filter) -> None:
        """Raise `ArgumentError` if a filter asks for a field that no document has."""
        if (known := self.known_fields) is not None:
            check_fields(filter, known)

    @abstractmethod
    def rank(
        self,
        queries: csr_array | np.ndarray,
        k: int,
        *,
        space: Space = "sparse",
        filter: Filter | None = None,
        minimum_match: float = 0.0,
    ) -> Ranking:
        """The k best documents that pass the filter for each of `queries` [q, columns], by the vectors of one space."""

    @abstractmethod
    def lexical_queries(self, queries: Sequence[str]) -> csr_array:
        """The vectors [q, columns] of texts as queries of the space bm25."""

    def dense_queries(self, queries: Sequence[str]) -> np.ndarray:
        """The vectors [q, d] of texts as queries of the space dense."""
        raise ArgumentError(f"{self.place}: it was made without dense vectors")

    def shown(self, documents: Sequence[Document], query: Callable[[], csr_array]) -> list[Document]:
        """Return the passages to show of documents that a query found, under the ids of their vectors.

        Here these are the documents. `query` gives the query's vector [1, v].
        """
        return list(documents)

    @abstractmethod
    def stored(self) -> Iterator[csr_array]:
        """All stored sparse vectors, a part [m, v] at a time."""

    @cached_property
    def document_frequencies(self) -> tuple[np.ndarray, int]:
        """How many documents have each term, int64 [v], and of how many: here, of the first thousand stored vectors."""
        vectors: list[csr_array] = []
        for part in self.stored():
            vectors.append(part)
            if sum(one.shape[0] for one in vectors) >= COUNTED:
                break
        terms = np.concatenate([one.indices for one in vectors] or [np.empty(0, dtype=np.int32)])
        return np.bincount(terms, minlength=len(self.terms)), sum(one.shape[0] for one in vectors)

    def with_model(self, **how: Any) -> Self:
        """The same collection with another `device` or `allow_changed_model`, whose model is loaded anew."""
        other = copy(self)
        for name in ("loaded_model", "terms", "document_encoder", "dense_model"):
            vars(other).pop(name, None)
        vars(other).update(how)
        return other

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give back what the collection holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r}, {len(self):,} documents, model={self.model!r})"

    def __str__(self) -> str:
        return f"{self.place}: {self.built or f'{len(self):,} documents'}"

    def to_json(self) -> dict[str, Any]:
        """How it was built, as JSON values."""
        return {"output": self.place, **({"texts": len(self)} if self.built is None else self.built.to_json())}

    @cached_property
    def loaded_model(self) -> SparseEncoder:
        """The model that made the collection, loaded when it is first needed; `VectorsError` if it has changed."""
        model = load(self.model, device=self.device)
        found = (checksum(model, kind) for kind in (None, torch.float32, torch.bfloat16))
        if self.weights and not self.allow_changed_model and self.weights not in found:
            what = f"the weights of {self.model} have changed since it was made"
            raise VectorsError(f"{self.place}: {what}: index again, or say allow_changed_model")
        return model

    @cached_property
    def terms(self) -> list[str]:
        """The v output terms of the model, by column."""
        return terms(self.loaded_model)

    def query_encoder(
        self,
        model: SparseEncoder | None = None,
        *,
        max_terms: int | None = None,
        min_weight: float = 0.0,
        mass: float | None = None,
        query_idf: float | None = None,
    ) -> TextEncoder:
        """`model`, by default the collection's own, made ready for queries, which are cut as in `vocable.prune`.

        Their weights are multiplied by the terms' IDF in the collection to the power `query_idf`, by default the
        model's. Raises `VectorsError` if it has another vocabulary than the index.
        """
        limits: dict[str, Any] = {"max_terms": max_terms, "min_weight": min_weight, "mass": mass}
        limits |= {"query_idf": query_idf, "dtype": self.dtype}
        encoder = TextEncoder(model or self.loaded_model, "query", **limits)
        if self.meta is not None and self.meta.vocabulary != describe(encoder, self.model).vocabulary:
            raise VectorsError(f"the vocabulary of {self.model} is not the one that the index was made with")
        if encoder.query_idf:
            encoder.know_collection(*self.document_frequencies)
        return encoder

    @checked
    def search(
        self,
        queries: Texts,
        k: Count = 10,
        *,
        vectors: csr_array | None = None,
        hybrid: bool = False,
        weights: str | Mapping[Space, float] | None = None,
        fusion: Fusion = "weighted",
        filter: str | Filter | None = None,
        minimum_match: float = 0.0,
    ) -> Ranking:
        """The ranking that `vocable.search` makes its answers of.

        `vectors` are those of the queries [q, v]; unless given, the collection's model encodes them. The spaces that
        have `weights` are fused, with `hybrid` alone all that the collection has, each with weight 1.
        """
        texts = as_texts(queries, "queries")
        if fusion != "weighted" and not hybrid and weights is None:
            raise ArgumentError("`fusion` goes with `hybrid` or `weights`")
        chosen = self.weighting(hybrid, weights)
        k = min(k, max(1, len(self)))
        depth = fusion_depth(k) if len(chosen) > 1 else k
        passing = parse_filter(filter) if isinstance(filter, str) else filter
        how: dict[str, Any] = {"vectors": vectors, "filter": passing, "minimum_match": minimum_match}
        found = self.rankings(texts, depth, list(chosen), **how)
        return fused(found, chosen, fusion, k) if len(chosen) > 1 else next(iter(found.values()))

    def weighting(self, hybrid: bool, weights: str | Mapping[Space, float] | None) -> dict[Space, float]:
        """Return the weights of the spaces that a search fuses; a space with weight 0 is left out.

        Raises `ArgumentError` for a space that the collection does not have.
        """
        if hybrid and len(self.spaces) == 1:
            raise ArgumentError("a hybrid search needs the lexical index: build this index with --bm25 or --dense")
        if weights is None:
            weights = dict.fromkeys(self.spaces if hybrid else ["sparse"], 1.0)
        return parse_weights(weights, self.spaces)

    def rankings(
        self,
        queries: Sequence[str],
        k: int,
        spaces: Sequence[Space],
        *,
        vectors: csr_array | None = None,
        filter: Filter | None = None,
        minimum_match: float = 0.0,
    ) -> dict[Space, Ranking]:
        """The k best documents by the vectors of each of `spaces`, with one list of ids.

        `vectors` are the queries' sparse ones [q, v]; `minimum_match` is of these alone.
        """
        found = []
        for space in spaces:
            if space == "sparse":
                sparse = self.query_encoder().encode(queries) if vectors is None else vectors
                found.append(self.rank(sparse, k, filter=filter, minimum_match=minimum_match))
            else:
                encoded = self.lexical_queries(queries) if space == "bm25" else self.dense_queries(queries)
                found.append(self.rank(encoded, k, space=space, filter=filter))
        return dict(zip(spaces, aligned(found), strict=True))
