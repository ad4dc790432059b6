"""Teachers, which score every query of a batch with every document: a dense bi-encoder, BM25, and both together.

The bi-encoder's embeddings of all examples are made once, before the training.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from datasets import Dataset, DatasetDict, concatenate_datasets
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from vocable.encoder.load import locate
from vocable.errors import ModelError
from vocable.objectives.ensemble import ensemble
from vocable.objectives.kl import kl
from vocable.progress import progress
from vocable.search.bm25 import BM25Index
from vocable.training.recipe import Distillation

CHUNK = 1024  # examples embedded at a time, and lost at most when a run is killed


class Teacher(Protocol):
    """Whatever scores the queries of a batch with its documents."""

    def scores(self, rows: NDArray[np.int64]) -> Tensor:
        """Of the b examples in `rows`: every query with every document [b, b (c - 1)], positives first."""


class DenseTeacher:
    """A bi-encoder, by its embeddings [n, c, d] of n examples with c columns: query, positive, negatives."""

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
        self._documents = index.vectors()  # [(c - 1) n, v], column by column
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


class DistilledRanking(nn.Module):
    """KL distillation of a teacher over all documents of the batch, beside a ranking loss if that has a weight.

    An example's label is its row, by which the teacher knows it.
    """

    def __init__(self, loss: nn.Module, teacher: Teacher, settings: Distillation, temperature: float) -> None:
        super().__init__()
        self.loss: Any = loss
        self._teacher, self._settings, self._temperature = teacher, settings, temperature

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor) -> Tensor:
        """The loss of embeddings[0] (queries [b, v]), embeddings[1] (positives [b, v]) and further negatives."""
        queries, documents = embeddings[0], torch.cat(embeddings[1:])
        taught = self._teacher.scores(labels.cpu().numpy()).to(queries.device)
        temperatures = {"temperature": self._temperature, "teacher_temperature": self._settings.temperature}
        total: Tensor = self._settings.weight * kl(queries @ documents.T, taught, **temperatures)
        if self._settings.info_nce_weight:
            total = total + self._settings.info_nce_weight * self.loss.compute_loss_from_embeddings(embeddings, None)
        return total


def teach(examples: DatasetDict, settings: Distillation, folder: Path) -> tuple[DatasetDict, DenseTeacher, Teacher]:
    """Embed all examples with the dense teacher, and give them labels: their rows in its embeddings.

    Args:
        examples: columns query, positive, negative_1, ...
        settings: the teacher is a sentence-transformers model: a folder, a Hub id, or `package:NAME/FOLDER`.
        folder: keeps the embeddings (float16, memory-mapped); what a killed run left there is used.

    Returns:
        the examples with labels, the dense teacher, and who is to be learned from: it, or its ensemble with BM25.

    Raises:
        ModelError: the teacher cannot be read.
    """
    labelled, sources, start = {}, [], 0
    for name, source in examples.items():
        rows = Dataset.from_dict({"label": np.arange(start, start + len(source))})
        labelled[name] = concatenate_datasets([source, rows], axis=1)
        sources.append(source)
        start += len(source)
    finished = folder / "teacher.npy"
    together = concatenate_datasets(sources)
    if not finished.exists():
        _embed(together, settings, finished)
    dense = DenseTeacher(np.load(finished, mmap_mode="r"))
    teacher = Ensemble([dense, LexicalTeacher(together)]) if settings.lexical else dense
    return DatasetDict(labelled), dense, teacher


def _embed(examples: Dataset, settings: Distillation, finished: Path) -> None:
    try:
        model = SentenceTransformer(locate(settings.teacher), model_kwargs={"dtype": "float32"})
    except (OSError, ValueError) as error:
        raise ModelError(f"teacher {settings.teacher}: {str(error).strip().splitlines()[0]}") from error
    model.max_seq_length = settings.max_length
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
