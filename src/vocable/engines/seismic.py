"""Seismic: approximate search of clustered postings (Bruch et al. 2024), filled once and searched in memory.

The index also has exact postings. Seismic finds candidates with weights in float16, and the exact postings score the
candidates. A search with a filter or `minimum_match`, which Seismic lacks, uses the exact postings alone. Building the
index chooses the effort of a search: it searches for a sample of queries, made of documents, with rising effort, and
compares the results with exact search.

Letters: n documents, m of them, q queries, v output vocabulary, k results.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias, Unpack

import numpy as np
from scipy.sparse import csr_array

from vocable.core.arrays import read_arrays, typed, write_arrays
from vocable.core.processes import worker_pool
from vocable.core.progress import progress
from vocable.core.storage import ANOTHER_VERSION
from vocable.core.tables import counted
from vocable.encoding.idf import idf
from vocable.encoding.pruning import prune
from vocable.encoding.vectors import VectorsMeta, as_vectors
from vocable.engines.base import Vectors
from vocable.engines.filters import Filter
from vocable.engines.folder import FolderStore
from vocable.engines.protocols import Space
from vocable.engines.snapshot import Snapshot
from vocable.errors import ArgumentError, VectorsError, require_extra
from vocable.indexes import exact_kernels
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.exact_numpy import Sparse
from vocable.indexes.postings import Postings, query_arrays
from vocable.indexes.ranking import Ranking, best
from vocable.options import Count, Matching, Share, checked

EFFORTS = (  # (number of the heaviest query terms to search, share of the k-th score below which a cluster is skipped)
    (5, 1.0),
    (5, 0.8),
    (10, 1.0),
    (10, 0.8),
    (15, 0.8),
    (20, 0.7),
    (30, 0.7),
    (40, 0.6),
    (80, 0.5),
)
# Postings of a list on average, for a million documents: with 500, no effort had a recall of 0.9 for the sample; with
# 3,500, Seismic's default, building was stopped at 9.7 GB (2,000: 9.3). CLUSTERS is its recipe for SPLADE on MS MARCO.
POSTINGS = 2000
CLUSTERS = {"centroid_fraction": 0.2, "summary_energy": 0.5, "max_fraction": 6.0, "min_cluster_size": 2}
TRIALS = 400  # queries at each effort
PARTS, PART_TERMS = 4, 10  # documents that a query is made of, and terms of each
TRIAL_DEPTH = 10  # k of the measured recall
MAX_STORED_WEIGHT = float(np.finfo(np.float16).max)
SMALL = 1 << 16  # largest number of columns of Seismic's small form
KIND, CLUSTERS_FILE = "clusters", "seismic.clusters"  # kind and name of the file of the clusters
FEW_POSTINGS = 500_000  # that are built in about a second
# Of building: 168,357 documents with 17 million postings took 48 s; 36 million random ones 4.4 GB, and over 6 minutes.
POSTING_SECONDS, POSTING_BYTES = 3e-6, 120
SUFFIX = ".index.seismic"  # Seismic appends it to the name of a file
Arrays: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]  # columns, weights and starts of sparse vectors

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)


@dataclass(frozen=True)
class SeismicOptions:
    """Options of the seismic engine.

    `recall` is the average share of the ten best documents that a search finds; 1 means exact search.
    """

    recall: Share = 0.99


class Effort(NamedTuple):
    """One of `EFFORTS`, with the recall that a sample of documents had at this effort."""

    terms: int
    factor: float
    recall: float


class SeismicIndex(ExactIndex):
    """Clustered and exact postings of n document vectors.

    `recall` is the share of the best documents to find. `efforts` has the measured recall of each effort.
    """

    def __init__(
        self,
        vectors: csr_array,
        ids: Sequence[str] | None = None,
        meta: VectorsMeta | None = None,
        *,
        recall: float = SeismicOptions.recall,
    ) -> None:
        """Index `vectors` [n, v] as `ExactIndex` does; raise `ArgumentError` for a weight beyond float16."""
        require_extra("seismic", "seismic")
        self.recall = recall
        vectors = as_vectors(vectors, "the documents")
        if vectors.data.max(initial=0) > MAX_STORED_WEIGHT:
            row = int(np.searchsorted(vectors.indptr, vectors.data.argmax(), side="right")) - 1
            name = row if ids is None else ids[row]
            raise ArgumentError(
                f"document {name!r}: a weight of {vectors.data.max():.6g}, Seismic stores {MAX_STORED_WEIGHT:.0f}"
            )
        super().__init__(vectors, ids, meta)
        # Seismic's names are row numbers of the postings.
        ordered = vectors[self._order] if len(self._order) else vectors
        arrays = ordered.indices.astype(np.int64), ordered.data, ordered.indptr.astype(np.int64)
        self._clusters = self._built(arrays)
        self.efforts = self._measured(ordered)

    def _built(self, arrays: Arrays) -> Any:
        """Return the clusters of documents; a long building is another process's, which an interrupt ends at once."""
        if (postings := len(arrays[1])) < FEW_POSTINGS:
            return _clusters(arrays, self.shape[1])
        minutes, gigabytes = postings * POSTING_SECONDS / 60, postings * POSTING_BYTES / 1e9
        time = counted(max(1, round(minutes)), "minute")
        cost = f"about {time} and {gigabytes:.1f} GB; random vectors take much longer"
        logger.info("clusters of %s documents: %s", f"{self.shape[0]:,}", cost)
        with tempfile.TemporaryDirectory() as folder, progress("clusters, seconds") as advance:
            np.savez(given := os.fspath(Path(folder, "documents.npz")), *arrays)
            with worker_pool(1, int) as pool:
                building = pool.submit(_build, given, self.shape[1])
                while not wait([building], 1).done:
                    advance(1)
            file = building.result()
            with _silent():
                return kind("Index", self.shape[1]).load(file)

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
        """Return the k best documents that Seismic finds, with exact scores, at the lowest effort that has `recall`.

        The search is exact with `allowed` documents, with an option of `matching`, or if no effort reached `recall`.
        """
        effort = self.effort
        if effort is None or allowed is not None or any(matching.values()):
            return super().search(queries, k, allowed=allowed, threads=threads, **matching)
        return self._approximate(queries, k, effort, threads)

    @property
    def effort(self) -> Effort | None:
        """The lowest effort that reached `recall`; None if no effort did, so that searches are exact."""
        return next((effort for effort in self.efforts if effort.recall >= self.recall < 1), None)

    def _candidates(self, queries: Sparse, k: int, effort: Effort, threads: int) -> np.ndarray:
        """Return the numbers of k documents that Seismic finds for each query, int32 [q, k], padded with -1."""
        (starts, terms, weights), text = queries, require_extra("seismic", "seismic").get_seismic_string()
        bounds = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        parts = [(terms[start:end].astype(text), weights[start:end]) for start, end in bounds]
        options = {"k": k, "query_cut": effort.terms, "heap_factor": effort.factor}
        if len(parts) == 1:  # a pool of threads takes longer to start than a search
            answers = [self._clusters.search("0", *parts[0], **options)]
        else:
            names = np.arange(len(parts)).astype(text)
            answers = self._clusters.batch_search(
                names, [terms for terms, _ in parts], [weights for _, weights in parts], **options, num_threads=threads
            )
        numbers = np.full((len(parts), k), -1, dtype=np.int32)
        for hits in answers:
            for rank, (query, score, number) in enumerate(hits):
                numbers[int(query), rank] = int(number) if score > 0 else -1
        return numbers

    def _approximate(self, queries: csr_array, k: int, effort: Effort, threads: int | None = None) -> Ranking:
        """Return the k best documents that Seismic finds for each of `queries` [q, v], with exact scores."""
        arrays = query_arrays(queries, self.shape[1])
        numbers = self._candidates(arrays, k, effort, threads or 0)
        scores = np.zeros(numbers.shape, dtype=np.float32)
        exact_kernels.score_candidates(self.postings.lists, len(self), arrays, numbers, scores)
        ranking = best(numbers, scores, k, None)  # the numbers are in the order of the ids
        rows = np.where(ranking.rows < 0, np.int32(-1), self._order[ranking.rows]) if len(self._order) else ranking.rows
        return Ranking(rows, ranking.scores, self.ids)

    def _measured(self, documents: csr_array) -> list[Effort]:
        """Search for a sample of queries, made of `documents` [n, v], at rising effort until the recall is 1.

        The documents of a query are no results, and documents that tie with the last result also count.
        """
        queries, sources = self._sample(documents)
        exact = super().search(queries, k := TRIAL_DEPTH + PARTS)
        counts = _without(sources, exact.rows).sum(axis=1)
        last, efforts = np.where(exact.rows < 0, np.inf, exact.scores).min(axis=1), list[Effort]()
        for terms, factor in EFFORTS:
            ranking = self._approximate(queries, k, Effort(terms, factor, 0))
            good = _without(sources, ranking.rows) & (ranking.scores >= last[:, None])
            recall = float(np.minimum(good.sum(axis=1), counts).sum() / max(1, counts.sum()))
            efforts.append(Effort(terms, factor, recall))
            if recall == 1:
                break
        return efforts

    def _sample(self, documents: csr_array) -> tuple[csr_array, np.ndarray]:
        """Return `TRIALS` queries [t, v], each of random terms of `PARTS` documents, and their rows, int32 [t, PARTS].

        A weight is the square root of weight times IDF. Such queries are as hard as real ones, or a little harder; the
        heaviest terms of a document are far easier (research/search.md).
        """
        random, n = np.random.default_rng(0), len(self)
        chosen = random.integers(0, max(1, n), (TRIALS if n else 0, PARTS))
        factors = idf(self.document_frequency, max(1, n))
        queries = csr_array((len(chosen), self.shape[1]), dtype=np.float32)
        for numbers in chosen.T:
            part = documents[numbers]
            part.data = 1 - random.random(part.nnz, np.float32)  # above 0
            drawn, whole = prune(part, PART_TERMS).astype(bool), documents[numbers]
            whole.data = np.sqrt(whole.data * factors[whole.indices])
            queries = queries.maximum(drawn.multiply(whole))
        queries = csr_array(queries)
        queries.eliminate_zeros()
        queries.sort_indices()
        return queries.astype(np.float32), self._order[chosen] if len(self._order) else chosen

    def clusters(self) -> np.ndarray:
        """Return the bytes of Seismic's file."""
        with tempfile.TemporaryDirectory() as folder:
            with _silent():
                self._clusters.save(os.fspath(Path(folder, "clusters")))
            return np.frombuffer(Path(folder, f"clusters{SUFFIX}").read_bytes(), dtype=np.uint8)

    @classmethod
    def stored(cls, postings: Postings, clusters: np.ndarray, header: Mapping[str, Any], place: str) -> Self:
        """Return the index of posting lists and the result of `clusters`; `VectorsError` if they do not fit."""
        index = cls.__new__(cls)
        index.postings, index.shape, index.ids, index.meta = postings, postings.shape, None, None
        index._order = np.empty(0, dtype=np.int32)
        try:
            index.recall = float(header["recall"])
            index.efforts = [Effort(int(row[0]), float(row[1]), float(row[2])) for row in header["efforts"]]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise VectorsError(f"{place}: {ANOTHER_VERSION} ({error!r})") from error
        with tempfile.NamedTemporaryFile(suffix=SUFFIX) as file:
            file.write(clusters.data)
            file.flush()
            try:
                with _silent():
                    index._clusters = kind("Index", index.shape[1]).load(file.name)
            except BaseException as error:  # a panic of the engine is not an Exception
                if isinstance(error, KeyboardInterrupt):
                    raise
                raise VectorsError(f"{place}: damaged: {error}") from error
        if index._clusters.len > len(index):
            raise VectorsError(f"{place}: belongs to other documents (the index is damaged)")
        return index


def _build(documents: str, columns: int) -> str:
    """Build the clusters of saved arrays in a worker process, and return their file."""
    with np.load(documents) as saved:
        arrays = saved["arr_0"], saved["arr_1"], saved["arr_2"]
    clusters = _clusters(arrays, columns)
    with _silent():
        clusters.save(documents)
    return f"{documents}{SUFFIX}"


def _clusters(arrays: Arrays, columns: int) -> Any:
    """Return Seismic's clusters of documents [n, columns], named by their rows."""
    documents = kind("Dataset", columns)(columns)
    documents.add_documents_by_id(list(map(str, range(len(arrays[2]) - 1))), *arrays)  # skips empty vectors
    with _silent():
        return kind("Index", columns).build_from_dataset(documents, n_postings=POSTINGS, **CLUSTERS)


def kind(name: str, columns: int) -> Any:
    """Return Seismic's class with this name that fits the number of columns."""
    return getattr(require_extra("seismic", "seismic"), f"Seismic{name}{'' if columns <= SMALL else 'LV'}")


def _without(sources: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return whether each of `rows` [q, k] is a document, and none of the query's `sources` [q, PARTS]."""
    other: np.ndarray = (rows[:, :, None] != sources[:, None, :]).all(axis=2)
    return other & (rows >= 0)


@contextmanager
def _silent() -> Iterator[None]:
    """Keep Seismic's messages off the standard output, which is for results."""
    sys.stdout.flush()
    stdout, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(null)


class SeismicStore(FolderStore):
    """Documents in one segment of a folder that is filled once, with Seismic's clusters of them."""

    about = replace(
        FolderStore.about,
        engine="seismic",
        exact=False,
        changes=False,
        durable=False,
        spaces=("sparse", "bm25"),
        options=SeismicOptions,
    )
    largest = 1 << 62  # one segment, whose rows the clusters number
    _index: tuple[Snapshot, SeismicIndex] | None = None

    def optimize(self) -> None:
        """Merge all segments, and build the clusters."""
        with self.changing():
            super().optimize()
            assert self._draft is not None
            if self._draft.parts:
                segment = self._draft.parts[0].segment
                assert segment.postings is not None
                recall = self.settings.get("engine_options", {}).get("recall", SeismicOptions.recall)
                index = SeismicIndex(segment.postings.get(), segment.ids, recall=recall)
                header = {"recall": index.recall, "efforts": index.efforts, "documents": len(index)}
                with self._directory.writing(CLUSTERS_FILE) as file:
                    write_arrays(file, KIND, {"clusters": index.clusters()}, header)

    def _search(self, queries: Vectors, k: int, space: Space, filter: Filter | None, matching: Matching) -> Ranking:
        snapshot = self.now()
        if space != "sparse" or filter is not None or any(matching.values()) or not self.settings.get("whole"):
            return super()._search(queries, k, space, filter, matching)
        ranking = self._seismic(snapshot).search(csr_array(queries), k)
        return replace(ranking, ids=snapshot.ids)

    def _seismic(self, snapshot: Snapshot) -> SeismicIndex:
        """Return the index of a commit, loaded once."""
        if self._index is None or self._index[0].parts != snapshot.parts:
            place = str(self.folder / CLUSTERS_FILE)
            try:
                descriptor = self._directory.open(CLUSTERS_FILE)
            except FileNotFoundError as error:
                raise VectorsError(f"{self.place}: the index is damaged: {CLUSTERS_FILE} is missing") from error
            try:
                arrays, header = read_arrays(descriptor, KIND, place)
            finally:
                os.close(descriptor)
            postings = snapshot.parts[0].segment.postings
            if len(snapshot.parts) != 1 or postings is None or header.get("documents") != len(postings):
                raise VectorsError(f"{place}: belongs to other documents (the index is damaged)")
            clusters = typed(arrays, "clusters", np.uint8, place)
            self._index = snapshot, SeismicIndex.stored(postings, clusters, header, place)
        return self._index[1]


ENGINE = SeismicStore
