"""Seismic: approximate search of clustered postings (Bruch et al. 2024), filled once and searched in memory.

It is built beside an exact index: the exact postings return vectors and document frequencies, Seismic searches. It
stores weights as float16.

Letters: n documents, q queries, v output vocabulary, k results.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
from scipy.sparse import csr_array

from vocable.errors import ArgumentError, VectorsError, require_extra
from vocable.options import Count, Matching, checked
from vocable.retrieval.engines.exact import ExactStore
from vocable.retrieval.exact_index import ExactIndex, typed
from vocable.retrieval.protocols import About
from vocable.retrieval.ranking import Ranking, best
from vocable.vectors import VectorsMeta, as_vectors

HEAP_FACTOR = 0.9  # clusters are skipped if their summary scores less than this share of the k-th hit's bound
MAX_STORED_WEIGHT = float(np.finfo(np.float16).max)
SMALL = 1 << 16  # largest number of columns of Seismic's small form
SUFFIX = ".index.seismic"  # which it appends to the name of a file


class SeismicIndex(ExactIndex):
    """Clustered postings of n document vectors, beside the exact ones."""

    kind = "seismic"

    def __init__(self, vectors: csr_array, ids: Sequence[str] | None = None, meta: VectorsMeta | None = None) -> None:
        """Index `vectors` [n, v] as `ExactIndex` does; `ArgumentError` for a weight beyond float16."""
        self._seismic = require_extra("seismic", "seismic")
        vectors = as_vectors(vectors, "the documents")
        if vectors.data.max(initial=0) > MAX_STORED_WEIGHT:
            row = int(np.searchsorted(vectors.indptr, vectors.data.argmax(), side="right")) - 1
            name = row if ids is None else ids[row]
            raise ArgumentError(
                f"document {name!r}: a weight of {vectors.data.max():.6g}, Seismic stores {MAX_STORED_WEIGHT:.0f}"
            )
        super().__init__(vectors, ids, meta)
        documents = self._kind("Dataset")(vectors.shape[1])
        arrays = vectors.indices.astype(np.int64), vectors.data, vectors.indptr.astype(np.int64)
        documents.add_documents_by_id(list(map(str, range(vectors.shape[0]))), *arrays)  # without the empty ones
        with _silent():
            self._clusters = self._kind("Index").build_from_dataset(documents)

    @checked
    def search(
        self,
        queries: csr_array,
        k: Count = 10,
        *,
        allowed: np.ndarray | None = None,
        threads: Count | None = None,
        **matching: Unpack[Matching],
    ) -> Ranking:
        """Return the k best documents that Seismic finds; scores are of weights in float16.

        Raises `ArgumentError` for `allowed` documents or an option of `matching`, which Seismic does not support.
        """
        conditions = {"a filter": allowed is not None, **matching}
        if name := next((name for name, value in conditions.items() if value), None):
            raise ArgumentError(f"{name}: not supported by the seismic engine: index to exact:FOLDER")
        queries = as_vectors(queries, "the queries")
        if queries.shape[1] != self.shape[1]:
            raise VectorsError(f"the queries have {queries.shape[1]} terms, the documents {self.shape[1]}")
        text = self._seismic.get_seismic_string()
        parts = list(zip(queries.indptr[:-1].tolist(), queries.indptr[1:].tolist(), strict=True))
        rows, scores = np.full((len(parts), k), -1, dtype=np.int32), np.zeros((len(parts), k), dtype=np.float32)
        found = self._clusters.batch_search(
            np.arange(len(parts)).astype(text),
            [queries.indices[start:end].astype(text) for start, end in parts],
            [queries.data[start:end] for start, end in parts],
            k=k,
            query_cut=max(1, int(np.diff(queries.indptr).max(initial=0))),
            heap_factor=HEAP_FACTOR,
            num_threads=threads or 0,
        )
        for hits in found:
            for place, (query, score, row) in enumerate(hits):
                rows[int(query), place], scores[int(query), place] = (int(row), score) if score > 0 else (-1, 0)
        return best(rows, scores, k, self.ids)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the exact index, and the bytes of Seismic's own file."""
        with tempfile.TemporaryDirectory() as folder:
            with _silent():
                self._clusters.save(os.fspath(Path(folder, "clusters")))
            content = Path(folder, f"clusters{SUFFIX}").read_bytes()
        return super().arrays() | {"clusters": np.frombuffer(content, dtype=np.uint8)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], header: dict[str, object], place: str) -> Self:
        index = super().from_arrays(arrays, header, place)
        index._seismic = require_extra("seismic", "seismic")
        with tempfile.NamedTemporaryFile(suffix=SUFFIX) as file:
            file.write(typed(arrays, "clusters", np.uint8, place).data)
            file.flush()
            try:
                with _silent():
                    index._clusters = index._kind("Index").load(file.name)
            except BaseException as error:  # a panic of the engine is no Exception
                if isinstance(error, KeyboardInterrupt):
                    raise
                raise VectorsError(f"{Path(place, 'clusters.npy')}: damaged: {error}") from error
        if index._clusters.len > len(index):
            raise VectorsError(f"{Path(place, 'clusters.npy')}: belongs to other documents (the index is damaged)")
        return index

    def _kind(self, name: str) -> Any:
        """Return Seismic's class of this name for the number of columns."""
        return getattr(self._seismic, f"Seismic{name}{'' if self.shape[1] <= SMALL else 'LV'}")


@contextmanager
def _silent() -> Iterator[None]:
    """Keep what Seismic prints off the standard output, which is for results."""
    sys.stdout.flush()
    before, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)
        os.close(nothing)


class SeismicStore(ExactStore):
    """Documents in a Seismic index, with BM25 of their words."""

    about = About(
        "seismic",
        exact=False,
        precision="float16",
        changes=False,
        in_folder=True,
        weighs_words=True,
        spaces=("sparse", "bm25"),
        part=2048,
    )
    index = SeismicIndex


ENGINE = SeismicStore
