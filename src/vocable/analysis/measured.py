"""What the measure of wackiness needs of an expander: a model's vectors of inputs, and what they retrieve.

Letters: m inputs, n documents of the collection, v terms, k retrieved documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.adapt.surfaces import Surface, surfaces
from vocable.encoder.encode import encode
from vocable.encoder.fuse import splade_modules
from vocable.encoder.output_vocabulary import output_vocabulary
from vocable.encoder.own_terms import own_terms, special_columns
from vocable.encoder.precision import DType
from vocable.encoder.terms import terms
from vocable.errors import check_texts
from vocable.evaluation.wackiness import check_depth, without_itself
from vocable.search.exact import ExactIndex


class Measured(NamedTuple):
    """An expander at work on m inputs and n documents; the arguments of `vocable.evaluation.wackiness.wackiness`."""

    name: str
    vectors: csr_array  # [m, v], the inputs
    own: csr_array  # [m, v], how often the terms stand in the inputs themselves
    rows: np.ndarray  # int32 [m, k], what each input retrieves, -1 where there is no k-th
    counts: csr_array  # [n, v], how often the terms stand in the documents
    surfaces: Sequence[Surface]  # v, what each term stands for in a text
    terms: Sequence[str]  # v, by column
    special: np.ndarray = np.empty(0, dtype=np.int64)  # columns of special tokens


def measured_model(
    name: str,
    model: SparseEncoder,
    queries: Sequence[str],
    documents: Sequence[str],
    k: int = 100,
    *,
    dtype: DType = "auto",
) -> Measured:
    """Encode queries and documents with a model from `vocable.load`, and search exactly; `dtype` is that of `encode`.

    Raises:
        ArgumentError: k below 1.
    """
    check_texts(queries, "queries")
    check_texts(documents, "documents")
    check_depth(k)
    counts, found = own_terms(model, documents), encode(model, documents, dtype=dtype)
    vectors = encode(model, queries, role="query", dtype=dtype)
    return measured_vectors(name, model, vectors, own_terms(model, queries), ExactIndex(found), counts, k)


def measured_vectors(
    name: str,
    model: SparseEncoder,
    vectors: csr_array,
    own: csr_array,
    index: ExactIndex,
    counts: csr_array,
    k: int = 100,
    *,
    itself: np.ndarray | None = None,
) -> Measured:
    """The same from what is encoded already.

    Args:
        name: of the model, as it is to be called.
        model: whose terms the vectors have.
        vectors: [m, v], the inputs.
        own: [m, v], their own terms.
        index: the n documents.
        counts: [n, v], the documents' own terms.
        k: documents that an input retrieves.
        itself: [m], for inputs that are documents of the collection, the row of each: it is not among the k that it
            retrieves. (Its expansions do not stand in it, so that it could only take the place of another.)

    Raises:
        ArgumentError: k below 1.
        VectorsError: the shapes do not fit together.
    """
    check_depth(k)
    rows = index.search(vectors, k if itself is None else k + 1).rows
    if itself is not None:
        rows = without_itself(rows, itself)
    return Measured(name, vectors, own, rows, counts, model_surfaces(model), terms(model), special_columns(model))


def word_surfaces(words: Sequence[str]) -> list[Surface]:
    """The surfaces of terms that are words."""
    return [Surface(word, True, "word" if any(map(str.isalnum, word)) else "punctuation") for word in words]


def model_surfaces(model: SparseEncoder) -> list[Surface]:
    """What each of the v output terms of `model` stands for in a text; a column without a token is a special one."""
    [(transformer, _), *_] = splade_modules(model)
    names = terms(model)
    if output_vocabulary(transformer.auto_model) is not None:
        return word_surfaces(names)
    found = surfaces(transformer.tokenizer)[: len(names)]
    found += [None] * (len(names) - len(found))
    return [surface or Surface(name, False, "special") for surface, name in zip(found, names, strict=True)]
