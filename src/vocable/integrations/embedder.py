"""The shared part of all frameworks' embedders: sparse vectors of documents and queries for any store."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from typing_extensions import Doc

from vocable.core.locks import thread_lock
from vocable.data.texts import Texts
from vocable.encoding.load import load_encoder
from vocable.encoding.models import Model, model_name
from vocable.encoding.text_encoder import TextEncoder, describe
from vocable.encoding.vectors import Sources
from vocable.engines.base import rows_of
from vocable.indexes.export import term_counts
from vocable.options import Encoding, IdfPower, checked, select

logger = logging.getLogger(__name__)


class EmbedderOptions(Encoding, total=False):
    """Options for encoding documents, and the IDF of queries; queries keep the model's length and number of terms."""

    documents: Annotated[
        Sources | None, Doc("Stored vectors of the documents, or of a sample, for the IDF of queries.")
    ]
    query_idf: Annotated[
        IdfPower,
        Doc("Power of the IDF; by default the model's. 0 where the store multiplies by it."),
    ]


class SparseRow(NamedTuple):
    """The vector of a text, with the same attributes as FastEmbed's vectors."""

    indices: NDArray[np.int32]  # columns, ascending
    values: NDArray[np.float32]  # weights > 0

    def as_object(self) -> dict[str, NDArray[Any]]:
        """Return both arrays by name."""
        return self._asdict()

    def as_lists(self) -> dict[str, list[Any]]:
        """Return both arrays as lists, by name."""
        return {name: array.tolist() for name, array in self._asdict().items()}

    def as_dict(self) -> dict[int, float]:
        """Return the weights by column."""
        return dict(zip(self.indices.tolist(), self.values.tolist(), strict=True))


class Embedder:
    """A model that turns documents and queries into sparse vectors, in batches; calls take turns."""

    @checked
    def __init__(self, model: Model | str | Path, **options: Unpack[EmbedderOptions]) -> None:
        """`model` is a model or its name.

        Raises `VectorsError` if the vectors of `documents` cannot be read, or have another vocabulary.
        """
        dtype, documents, power = options["dtype"], options["documents"], options["query_idf"]
        loaded = load_encoder(model, options["device"], options["runtime"], dtype)
        self.encoder = TextEncoder(loaded, "document", **select(Encoding, options))
        self.query_encoder = query_encoder(loaded, documents, query_idf=power, dtype=dtype)
        self._lock = thread_lock()

    def documents(self, texts: Texts) -> list[SparseRow]:
        """Return the vectors of documents in order; a text whose words are all unknown has no terms."""
        return self._rows(self.encoder, texts)

    def queries(self, texts: Texts) -> list[SparseRow]:
        """Return the vectors of queries in order; the first call warns if the model's IDF is not applied."""
        return self._rows(self.query_encoder, texts)

    def _rows(self, encoder: TextEncoder, texts: Texts) -> list[SparseRow]:
        with self._lock:
            return [SparseRow(*row) for row in rows_of(encoder.encode(texts))]


class _WithoutIDF(TextEncoder):
    """A query encoder without documents; it warns once if the model needs the IDF of the documents."""

    _said = False

    def weighed(self, vectors: csr_array) -> csr_array:
        """Return the vectors unchanged."""
        if self.query_idf and not self._said:
            self._said = True
            logger.warning(
                "%s: queries are encoded without IDF (query_idf %g): give documents=VECTORS, or query_idf=0 where the "
                "store applies it",
                model_name(self.model),
                self.query_idf,
            )
        return vectors


def query_encoder(model: Model, documents: Sources | None, **options: Any) -> TextEncoder:
    """Return the query encoder with options of `TextEncoder`; it knows the IDF of the stored vectors `documents`.

    Without `documents`, the model's `query_idf` is not applied, and the first query logs a warning. Raises
    `VectorsError` if the vectors cannot be read, or have another vocabulary.
    """
    if documents is None:
        return _WithoutIDF(model, "query", **options)
    encoder = TextEncoder(model, "query", **options)
    encoder.know_collection(*term_counts(documents, describe(encoder, "the model")))
    return encoder
