"""Teachers, which score the queries of a batch with its documents: dense bi-encoders, BM25, several together, or
whoever gave the examples their scores.

A bi-encoder's embeddings of all examples are made once, before the training.

Letters: b examples of a batch, c negatives of each, n = b (1 + c) documents.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from datasets import Dataset
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from vocable.encoder.load import locate, open_whole
from vocable.objectives.ensemble import ensemble
from vocable.progress import progress
from vocable.search.bm25 import BM25Index
from vocable.training.settings import TeacherSettings

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
        self._documents = index.vectors()  # column by column
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


def teach(examples: Dataset, settings: TeacherSettings, folder: Path) -> tuple[Teacher, list[DenseTeacher]]:
    """Let the teachers read all examples.

    Args:
        examples: columns query, positive, negative_1, ...
        settings: who teaches.
        folder: keeps the embeddings (float16, memory-mapped); what a killed run left there is used.

    Returns:
        who is to be learned from, and the dense teachers among them.

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
    place = locate(name)
    model = open_whole(f"teacher {name}", lambda: SentenceTransformer(place, model_kwargs={"dtype": "float32"}))
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
