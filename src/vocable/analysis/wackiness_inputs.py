"""The texts on which wackiness is measured, and what each expander makes of them; a model's vectors are kept on disk
until the work is done, so that a run that was killed does not encode again.

Letters: m inputs, n documents of the collection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sentence_transformers import SparseEncoder

from vocable.analysis.expanders import measured_expander, open_expander
from vocable.analysis.measured import Measured, measured_vectors
from vocable.analysis.term_kinds import proper_names
from vocable.data import Document, read_corpus, read_queries, read_texts
from vocable.encoder.encode import TextEncoder
from vocable.encoder.own_terms import Words, own_terms
from vocable.encoder.precision import DType
from vocable.encoder.routes import Role
from vocable.encoder.stream import encode_stream
from vocable.errors import ArgumentError, DataError
from vocable.search.exact import ExactIndex
from vocable.vectors import StoredVectors, read_vectors

logger = logging.getLogger(__name__)
Advance = Callable[[int], object]


class Inputs(NamedTuple):
    """m inputs and n documents, and the proper names that texts write (`vocable.analysis.term_kinds`).

    `itself` [m] is the row that each input is among the documents, None of queries.
    """

    texts: list[str]
    ids: list[str]
    documents: list[Document]
    itself: np.ndarray | None
    names: set[str]


def read_inputs(
    queries: str | None,
    corpus: str,
    role: Role = "query",
    *,
    names: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Inputs:
    """Read the collection and the inputs, or draw `limit` of these at random.

    Args:
        queries: place of queries, if they are the inputs.
        corpus: place of documents; of the role "document", inputs are among them.
        role: what is expanded.
        names: place of texts that show proper names, besides the documents.
        limit: inputs at most; they stay in their order.
        seed: decides which.

    Raises:
        ArgumentError: queries are missing or too much, or a limit below 1.
        DataError: there are no documents or no queries, or texts cannot be read.
    """
    if (queries is None) == (role == "query"):
        raise ArgumentError("--role query needs --queries, and --role document takes its inputs from --corpus")
    if limit is not None and limit < 1:
        raise ArgumentError(f"--limit must be at least 1, not {limit}")
    documents = list(read_corpus(corpus))
    if not documents:
        raise DataError("there are no documents", place=corpus)
    pairs = [(one.id, one.full) for one in documents] if queries is None else list(read_queries(queries))
    if not pairs:
        raise DataError("there are no queries", place=queries)
    rows = np.arange(len(pairs))
    if limit is not None and limit < len(pairs):
        rows = np.sort(np.random.default_rng(seed).choice(len(pairs), limit, replace=False))
    ids, texts = [pairs[row][0] for row in rows], [pairs[row][1] for row in rows]
    named = proper_names(chain((one.full for one in documents), read_texts(names) if names else ()))
    return Inputs(texts, ids, documents, rows if queries is None else None, named)


def measure_model(
    name: str,
    model: SparseEncoder,
    inputs: Inputs,
    work: Path,
    k: int,
    *,
    place: str,
    source: str = "",
    words: Words = "any",
    dtype: DType = "auto",
    advance: Advance = lambda done: None,
) -> Measured:
    """Encode the texts into the folder `work`, or go on there, and search exactly.

    Args:
        name: as the model is to be called.
        model: from `vocable.load`.
        inputs: from `read_inputs`.
        work: for the vectors; a call with the same texts and model finds them there.
        k: documents that an input retrieves.
        place, source: of the model and the texts, written down with the vectors.
        words: as in `own_terms`.
        dtype: as in `vocable.encode`.
        advance: called with the number of texts encoded.

    Raises:
        ArgumentError, VectorsError: as of `encode_stream`, or an argument out of its range.
    """
    documents, itself = inputs.documents, inputs.itself

    def encoded(role: Role, texts: Iterable[Document]) -> StoredVectors:
        encoder, folder = TextEncoder(model, role, dtype=dtype), work / role
        done = encode_stream(encoder, texts, folder, model=place, source=source, advance=advance)
        if done.truncated:
            message = "%s: %d of %d %s texts were cut at %d tokens"
            logger.warning(message, name, done.truncated, done.texts, role, encoder.max_length)
        return read_vectors(folder)

    collection = encoded("document", documents)
    counts = own_terms(model, [document.full for document in documents], words=words)
    if itself is None:
        vectors = encoded("query", map(Document, inputs.ids, inputs.texts)).matrix
        own = own_terms(model, inputs.texts, words=words)
    else:
        vectors, own = collection.matrix[itself], counts[itself]
    index = ExactIndex(collection.matrix, collection.ids)
    return measured_vectors(name, model, vectors, own, index, counts, k, itself=itself)


def measure_expander(name: str, inputs: Inputs, k: int, *, advance: Advance = lambda done: None) -> Measured:
    """Expand the texts as an expander around BM25 does (`vocable.analysis.expanders`), and search with them.

    Raises:
        ArgumentError: no such expander, or an argument out of its range.
        ModelError: its model cannot be loaded.
    """
    documents = [document.full for document in inputs.documents]
    role: Role = "query" if inputs.itself is None else "document"
    expander = open_expander(name, documents, role, advance=advance)
    return measured_expander(name, expander, inputs.texts, documents, k, itself=inputs.itself, advance=advance)
