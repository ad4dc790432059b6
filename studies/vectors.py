"""Datasets as vectors of a run's model: encoded once, kept on disk, and searched by shards of bounded memory.

A sample of the documents is encoded before all of them, so that a run that does not fit on the disk or in memory is
refused before hours of work.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from studies.cost import Resources, check_room, free_memory
from studies.dense import load_retriever, rank
from studies.restriction import Restriction, restricted
from vocable.core.storage import partial_of, replacing_folder
from vocable.data import Document, read_corpus
from vocable.encoding.load import load
from vocable.encoding.protocol import Role
from vocable.encoding.pruning import prune
from vocable.encoding.stream import encode_stream
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.vectors import StoredVectors, read_shards, read_vectors
from vocable.errors import VectorsError
from vocable.evaluation.cost import spread
from vocable.evaluation.dataset import Convention, Dataset, load_dataset
from vocable.indexes.exact_shards import SHARD_POSTINGS, Exact, load_exact, save_exact
from vocable.indexes.ranking import Ranking
from vocable.training.teachers import embed

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer, SparseEncoder

    from studies.runs import Run

SAMPLE = 256  # documents that are encoded before all others
FEW = 10_000  # documents that fit everywhere


class Place(NamedTuple):
    """The source of a dataset, the dataset whose document vectors it shares, and the convention of its measures."""

    source: str
    corpus: str
    convention: Convention | None = None  # None: that of the source
    postings: int = SHARD_POSTINGS  # of a shard of an index


class Encoders:
    """The trained model of a run, loaded once, the folder of its vectors, and the datasets of one collection."""

    def __init__(self, run: Run, places: Mapping[str, Place]) -> None:
        self.run, self.vectors = run, run.root / "vectors" / run.name
        self._places, self._opened = places, dict[str, OnDataset]()

    @cached_property
    def model(self) -> SparseEncoder:
        return load(self.run.model)

    @cached_property
    def retriever(self) -> SentenceTransformer:
        """The model of a row of dense vectors."""
        return load_retriever(self.run.model)

    def open(self, name: str) -> OnDataset:
        """Return the dataset of this name; open the dataset whose documents it shares first."""
        if name not in self._opened:
            place = self._places[name]
            first = None if place.corpus == name else self.open(place.corpus)
            self._opened[name] = OnDataset(name, place, self, first)
        return self._opened[name]

    def let_go(self) -> None:
        """Forget the texts of the datasets, for a verb that reads them itself."""
        for opened in self._opened.values():
            vars(opened).pop("dataset", None)

    def close(self) -> None:
        """Forget the datasets of a collection, and remove its vectors."""
        self._opened.clear()
        shutil.rmtree(self.vectors, ignore_errors=True)

    def encode(self, name: str, role: Role, texts: Sequence[Document]) -> Path:
        """Encode texts of the dataset `name`, and return the folder of their vectors.

        Raises:
            ArgumentError: by the vectors of a sample, all do not fit on the disk, or their index not in memory.
        """
        folder = self.vectors / f"{name}-{role}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        encoder = TextEncoder(self.model, role, dtype=self.run.dtype)
        begun = folder.exists() or partial_of(folder).exists()  # what is on the disk is not needed once more
        if len(texts) > FEW and not begun:
            sample = encoder.encode([texts[row].full for row in spread(len(texts), SAMPLE)])
            needed = Resources.of(len(texts), sample.nnz / sample.shape[0])
            check_room(name, needed, shutil.disk_usage(folder.parent).free, free_memory())
        encode_stream(encoder, texts, folder, model=self.run.model, source=f"{name} {role}", total=len(texts))
        return folder

    def embed(self, name: str, role: Role, texts: Sequence[str]) -> np.ndarray:
        """Return the dense vectors [n, d] of texts of the dataset `name`, float16 in a file."""
        place = self.vectors / f"{name}-{role}.npy"
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            prompt = self.retriever.prompts.get(role)
            embed(texts, self.retriever, place, self.run.dtype, unit=False, prompt=prompt)
        vectors: np.ndarray = np.load(place, mmap_mode="r")
        return vectors


class OnDataset:
    """A dataset and its vectors by the model of a run; documents that `first` has are not encoded again."""

    def __init__(self, name: str, place: Place, encoders: Encoders, first: OnDataset | None) -> None:
        self.name, self.source, self._encoders, self._first = name, place.source, encoders, first
        self._convention, self._postings = place.convention, place.postings
        self._indexes = dict[str, Exact]()

    @cached_property
    def folder(self) -> Path:
        """The folder of reports."""
        folder = self._encoders.run.reports(self.name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @cached_property
    def dataset(self) -> Dataset:
        """Documents, judged queries and judgments; documents that `first` has are held once."""
        if self._first is None:
            return load_dataset(self.source, convention=self._convention)
        known = {document.id: document for document in self._first.dataset.documents}
        documents = [one if (one := known.get(own.id)) == own else own for own in read_corpus(self.source)]
        alone = load_dataset(self.source, documents=False, convention=self._convention)
        return replace(alone, documents=documents).judged()

    @cached_property
    def query_vectors(self) -> list[str]:
        """The folders of the queries' vectors."""
        queries = [Document(query.id, query.text) for query in self.dataset.queries]
        return [str(self._encoders.encode(self.name, "query", queries))]

    @cached_property
    def document_vectors(self) -> list[str]:
        """The folders of the documents' vectors."""
        documents, shared = self._own(), [] if self._first is None else self._first.document_vectors
        here = [str(self._encoders.encode(self.name, "document", documents))] if documents or not shared else []
        return [*here, *shared]

    def _own(self) -> list[Document]:
        """The documents that `first` has not."""
        if self._first is None:
            return list(self.dataset.documents)
        others = {document.id: document.full for document in self._first.dataset.documents}
        return [document for document in self.dataset.documents if others.get(document.id) != document.full]

    @cached_property
    def dense_documents(self) -> list[tuple[list[str], np.ndarray]]:
        """The ids of documents and their dense vectors [n, d]; documents that no other dataset shares come first."""
        documents = self._own()
        vectors = self._encoders.embed(self.name, "document", [document.full for document in documents])
        shared = [] if self._first is None else self._first.dense_documents
        return [([document.id for document in documents], vectors), *shared]

    def rank_densely(self, k: int) -> Ranking:
        """Return the k best documents of each judged query by the dense vectors of the run's model."""
        queries = self._encoders.embed(self.name, "query", [query.text for query in self.dataset.queries])
        ids = [document.id for document in self.dataset.documents]
        row_of, parts = {name: row for row, name in enumerate(ids)}, []
        for names, vectors in self.dense_documents:
            rows = np.array([row_of.pop(name, -1) for name in names], dtype=np.int64)  # of the first part that has it
            parts.append((rows[rows >= 0], vectors[rows >= 0]) if (rows < 0).any() else (rows, vectors))
        return rank(self._encoders.retriever, queries, parts, min(k, len(ids)), ids)

    @cached_property
    def queries(self) -> csr_array:
        """The vectors of the judged queries, in their order, with the collection's IDF where the model asks for it."""
        vectors = read_vectors(self.query_vectors).matrix
        encoder = TextEncoder(self._encoders.model, "query")
        if encoder.query_idf:
            whole = self.index()
            encoder.know_collection(whole.document_frequency, len(whole))
        return encoder.weighed(vectors)

    def index(self, max_terms: int = 0, only: Restriction | None = None) -> Exact:
        """Return an exact index of the documents with `max_terms` terms each (0: all), or `only` with some terms."""
        key = only or str(max_terms)
        if key not in self._indexes:
            place = self._encoders.vectors / f"{self.name}-index-{key.replace(' ', '-')}"
            if not place.exists():
                with replacing_folder(place) as work:
                    save_exact(self._parts(max_terms, only), work / "postings", postings=self._postings)
            index = load_exact(place / "postings")
            if len(index) != len(self.dataset.documents):
                raise VectorsError(
                    f"{place}: the index has {len(index):,} documents, the dataset {self.name} "
                    f"{len(self.dataset.documents):,}: remove {place} and repeat the command"
                )
            self._indexes[key] = index
        return self._indexes[key]

    def restricted_queries(self, only: Restriction) -> csr_array:
        """The vectors of the judged queries with some terms only."""
        return restricted(self._encoders.model, only, self.queries, [query.text for query in self.dataset.queries])

    def let_go(self) -> None:
        """Forget the texts of this dataset and of those that share its documents."""
        self._encoders.let_go()

    def _parts(self, max_terms: int, only: Restriction | None) -> Iterator[StoredVectors]:
        """Yield the vectors of the documents, pruned or restricted, each from the first folder that has it."""
        folders = self.document_vectors
        texts = {} if only is None else {document.id: document.full for document in self.dataset.documents}
        left = {document.id for document in self.dataset.documents} if self._first is not None else set[str]()
        for folder in folders:
            for part in read_shards(folder):
                if self._first is not None:
                    rows = [row for row, name in enumerate(part.ids) if name in left]
                    left.difference_update(part.ids)
                    if len(rows) < len(part.ids):
                        names = part.ids.take(np.array(rows, dtype=np.int64))
                        part = part._replace(ids=names, matrix=part.matrix[rows])
                matrix = prune(part.matrix, max_terms or None)
                if only is not None:
                    matrix = restricted(self._encoders.model, only, matrix, [texts[name] for name in part.ids])
                yield part._replace(matrix=matrix)
        if left:
            raise VectorsError(f"{', '.join(folders)}: no vector of the text {min(left)!r}")
