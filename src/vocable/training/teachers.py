"""Teachers: models that score pairs of texts (`make_scorer`), and teachers of a training, by their scores or vectors.

Embeddings and vectors of all examples are made once, before the training.

Letters: p pairs, m examples of a run, b of a batch, c negatives of each, n = b (1 + c) documents, v terms.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import numpy as np
import torch
from datasets import Dataset
from huggingface_hub.errors import HFValidationError
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.util import load_file_path
from torch import Tensor, nn
from transformers import AutoConfig

from vocable.data import Document
from vocable.encoder.encode import TextEncoder
from vocable.encoder.load import load, locate, open_model
from vocable.encoder.stream import encode_stream
from vocable.encoder.terms import fingerprint, terms
from vocable.errors import ModelError
from vocable.objectives.losses import ensemble
from vocable.progress import progress
from vocable.search.bm25 import BM25Index
from vocable.training.recipe import TeacherSettings
from vocable.vectors import read_vectors

ModelKind = Literal["cross", "dense", "sparse"]
SAVED_AS: dict[str, ModelKind] = {"CrossEncoder": "cross", "SentenceTransformer": "dense", "SparseEncoder": "sparse"}
ARCHITECTURES: dict[str, ModelKind] = {"ForSequenceClassification": "cross", "ForMaskedLM": "sparse"}

Model: TypeAlias = CrossEncoder | SentenceTransformer | SparseEncoder
Scorer: TypeAlias = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]


class CrossScorer:
    """A cross-encoder's scores as they leave its head: an activation such as the sigmoid would flatten the margins.

    Raises:
        ModelError: it has several labels, so that a pair has no one score.
    """

    def __init__(self, model: CrossEncoder) -> None:
        if model.num_labels != 1:
            raise ModelError(f"a cross-encoder with {model.num_labels} labels gives a pair no single score")
        self._model = model

    def __call__(self, queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float32]:
        """The scores [p] of p queries, each with its text."""
        pairs = list(zip(queries, texts, strict=True))
        scores: NDArray[np.float32] = self._model.predict(pairs, activation_fn=nn.Identity(), show_progress_bar=False)
        return scores


class DenseScorer:
    """A dense bi-encoder's similarities, each text encoded once a call."""

    def __init__(self, model: SentenceTransformer) -> None:
        self._model = model

    def __call__(self, queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float32]:
        """The scores [p] of p queries, each with its text."""
        (distinct_queries, query_rows), (distinct_texts, text_rows) = _distinct(queries), _distinct(texts)
        encoded = self._model.encode_query(distinct_queries, show_progress_bar=False, convert_to_tensor=True)
        others = self._model.encode_document(distinct_texts, show_progress_bar=False, convert_to_tensor=True)
        scores = self._model.similarity_pairwise(encoded[query_rows], others[text_rows])
        found: NDArray[np.float32] = scores.float().cpu().numpy()
        return found


class SparseScorer:
    """A sparse encoder's dot products, each text encoded once a call."""

    def __init__(self, model: SparseEncoder) -> None:
        self._queries, self._texts = TextEncoder(model, "query"), TextEncoder(model, "document")

    def __call__(self, queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float32]:
        """The scores [p] of p queries, each with its text."""
        (distinct_queries, query_rows), (distinct_texts, text_rows) = _distinct(queries), _distinct(texts)
        encoded, others = self._queries.encode(distinct_queries), self._texts.encode(distinct_texts)
        scores: NDArray[np.float32] = encoded[query_rows].multiply(others[text_rows]).sum(axis=1)
        return scores


def make_scorer(model: Model) -> Scorer:
    """Return what scores pairs with a loaded model."""
    if isinstance(model, CrossEncoder):
        return CrossScorer(model)
    return SparseScorer(model) if isinstance(model, SparseEncoder) else DenseScorer(model)


def load_scoring_model(name: str | Path, kind: ModelKind | None = None) -> Model:
    """Load a model that can score pairs.

    Args:
        name: a folder, a Hub id, `package:NAME/FOLDER` or "vocable-mini".
        kind: what it is; by default what its configuration says.

    Raises:
        ModelError: nothing is there, it cannot be loaded, lacks weights, or does not say what kind it is.
    """
    place = locate(name)
    try:
        kind = kind or _kind(place)
    except (OSError, ValueError, HFValidationError) as error:
        raise ModelError(f"{name}: {str(error).strip().partition(chr(10))[0]}") from error
    if kind == "sparse":
        return load(name)
    return open_model(name, CrossEncoder if kind == "cross" else SentenceTransformer)


def _kind(place: str) -> ModelKind:
    saved_as = load_file_path(place, "config_sentence_transformers.json")
    if saved_as is not None:
        return SAVED_AS[json.loads(Path(saved_as).read_text(encoding="utf-8")).get("model_type", "SentenceTransformer")]
    if load_file_path(place, "modules.json") is not None:
        return "dense"  # of a time when there were no others
    architectures = AutoConfig.from_pretrained(place).architectures or []
    for architecture in architectures:
        for ending, kind in ARCHITECTURES.items():
            if architecture.endswith(ending):
                return kind
    found = ", ".join(architectures) or "no architecture"
    raise ModelError(f"{place}: its configuration names {found}: say with --kind whether it is cross, dense or sparse")


def _distinct(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the distinct texts, and the place among them of every text."""
    places = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return list(places), [places[text] for text in texts]


CHUNK = 1024  # examples embedded at a time, and lost at most when a run is killed


class Teacher(Protocol):
    """Whatever scores the queries of a batch with its documents."""

    def scores(self, rows: NDArray[np.int64]) -> Tensor:
        """Of the b examples in `rows`: every query with every document [b, n], column by column, positives first."""


class DenseTeacher:
    """A bi-encoder, by its embeddings [m, 2 + c, d] of the query, positive and negatives of m examples."""

    def __init__(self, embeddings: NDArray[np.float16]) -> None:
        self.embeddings = embeddings

    def scores(self, rows: NDArray[np.int64]) -> Tensor:
        """Cosines; shapes as `Teacher`."""
        embeddings = torch.from_numpy(self.embeddings[rows].astype(np.float32))
        return embeddings[:, 0] @ embeddings[:, 1:].transpose(0, 1).flatten(0, 1).T


class LexicalTeacher:
    """BM25 over the documents of all examples: it keeps the student to the words that a query and a document share."""

    def __init__(self, examples: Dataset) -> None:
        query, *documents = examples.column_names
        self._size = len(examples)
        index = BM25Index([text for column in documents for text in examples[column]])
        self._documents = index.get()  # column by column
        self._queries = index.query_vectors(examples[query][:])

    def scores(self, rows: NDArray[np.int64]) -> Tensor:
        """BM25 scores; shapes as `Teacher`."""
        numbers = np.concatenate([rows + start for start in range(0, self._documents.shape[0], self._size)])
        return torch.from_numpy((self._queries[rows] @ self._documents[numbers].T).toarray())


class Ensemble:
    """Several teachers as one."""

    def __init__(self, teachers: Sequence[Teacher]) -> None:
        self._teachers = teachers

    def scores(self, rows: NDArray[np.int64]) -> Tensor:
        """Means of standardized scores; shapes as `Teacher`."""
        return ensemble([teacher.scores(rows) for teacher in self._teachers])


class OwnScores:
    """The scores that the examples carry: a column `label` of 1 + c floats, of the positive and of each negative."""

    def __init__(self, examples: Dataset) -> None:
        self._examples = examples.select_columns("label")

    def scores(self, rows: NDArray[np.int64]) -> Tensor:
        """Of each example's own documents alone: [b, 1 + c]."""
        return torch.tensor(self._examples[rows.tolist()]["label"], dtype=torch.float32)


def load_teachers(examples: Dataset, settings: TeacherSettings, folder: Path) -> tuple[Teacher, list[DenseTeacher]]:
    """Load the teachers of a recipe, with their embeddings of all examples.

    Args:
        examples: columns query, positive, negative_1, ...
        settings: their names.
        folder: keeps the embeddings (float16, memory-mapped); what a killed run left there is used.

    Returns:
        all teachers as one, and the dense ones among them.

    Raises:
        ModelError: a teacher cannot be read.
    """
    dense = []
    for number, name in enumerate(settings.models):
        finished = folder / f"teacher-{number}.npy"
        if not finished.exists():
            _embed(examples, name, settings.max_length, finished)
        dense.append(DenseTeacher(np.load(finished, mmap_mode="r")))
    teachers: list[Teacher] = [*dense, *([LexicalTeacher(examples)] if settings.lexical else [])]
    return (teachers[0] if len(teachers) == 1 else Ensemble(teachers)), dense


def _embed(examples: Dataset, name: str, max_length: int, finished: Path) -> None:
    model = open_model(name, partial(SentenceTransformer, model_kwargs={"dtype": "float32"}))
    model.max_seq_length = max_length
    columns = examples.column_names
    unfinished = finished.with_suffix(".partial")
    if unfinished.exists():
        embeddings = open_memmap(unfinished, mode="r+")
    else:
        shape = (len(examples), len(columns), model.get_embedding_dimension())
        embeddings = open_memmap(unfinished, mode="w+", dtype=np.float16, shape=shape)
    # No text has the zero vector for an embedding: rows of zeros are those that a killed run did not come to.
    done = int(embeddings.any(axis=(1, 2)).sum()) // CHUNK * CHUNK
    with progress("teacher", len(examples)) as advance:
        advance(done)
        for begin in range(done, len(examples), CHUNK):
            chunk = examples[begin : begin + CHUNK]
            for number, column in enumerate(columns):
                vectors = model.encode(chunk[column], normalize_embeddings=True, show_progress_bar=False)
                embeddings[begin : begin + CHUNK, number] = vectors
            embeddings.flush()
            advance(len(chunk[columns[0]]))
    os.replace(unfinished, finished)


class SparseTeacher:
    """A sparse encoder, by its vectors of m examples: of each column a matrix [m, v] whose arrays lie on disk.

    Args:
        folders: of each column, with indptr.npy [m + 1], indices.npy and values.npy.
        v: output terms.
    """

    def __init__(self, folders: Sequence[Path], v: int) -> None:
        names = ("indptr", "indices", "values")
        self._columns = [[np.load(folder / f"{name}.npy", mmap_mode="r") for name in names] for folder in folders]
        self._v = v

    def vectors(self, rows: NDArray[np.int64]) -> Tensor:
        """Of the b examples in `rows`: the vectors [c b, v] of their queries, then of their documents by column."""
        full = np.zeros((len(self._columns), len(rows), self._v), dtype=np.float32)
        for column, (indptr, indices, values) in zip(full, self._columns, strict=True):
            for vector, start, end in zip(column, indptr[rows], indptr[rows + 1], strict=True):
                vector[indices[start:end]] = values[start:end]
        return torch.from_numpy(full.reshape(-1, self._v))


def load_sparse_teacher(name: str, student: SparseEncoder, examples: Dataset, folder: Path) -> SparseTeacher:
    """Load a sparse encoder as a teacher, with its vectors of the texts of all examples.

    Args:
        student: who is to learn from it.
        examples: columns query, positive, negative_1, ...
        folder: keeps the vectors; what a killed run left there is used.

    Raises:
        ModelError: the teacher cannot be read, or its output terms are not the student's.
    """
    teacher = load(name)
    names = terms(teacher)
    if fingerprint(names) != fingerprint(terms(student)):
        raise ModelError(
            f"sparse teacher {name}: its {len(names)} output terms are not those of the model that is trained "
            f"({len(terms(student))}): alignment compares vectors term by term"
        )
    encoders = {role: TextEncoder(teacher, role) for role in ("query", "document")}
    folders = [folder / column for column in examples.column_names]
    for column, finished in zip(examples.column_names, folders, strict=True):
        if not finished.exists():
            encoder, parts = encoders["query" if column == "query" else "document"], folder / "parts"
            texts = (Document(str(row), text) for row, text in enumerate(examples[column]))
            title = f"sparse teacher: {column}"
            encode_stream(encoder, texts, parts, model=name, source=column, title=title, total=len(examples))
            _lay_open(parts, finished)
    return SparseTeacher(folders, len(names))


def _lay_open(parts: Path, finished: Path) -> None:
    """Bring shards of vectors into arrays that can be read row by row, and remove them."""
    work = finished.with_name(f"{finished.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    shards = sorted(parts.glob("part-*.parquet"))
    lengths = np.concatenate([np.diff(read_vectors(shard).matrix.indptr) for shard in shards])
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    np.save(work / "indptr.npy", indptr)
    size = (max(1, int(indptr[-1])),)  # nothing at all cannot be mapped
    indices = open_memmap(work / "indices.npy", mode="w+", dtype=np.int32, shape=size)
    values = open_memmap(work / "values.npy", mode="w+", dtype=np.float32, shape=size)
    done = 0
    for shard in shards:
        matrix = read_vectors(shard).matrix
        there = slice(done, done + matrix.nnz)
        indices[there], values[there] = matrix.indices, matrix.data
        done = there.stop
    indices.flush()
    values.flush()
    os.replace(work, finished)
    shutil.rmtree(parts)
