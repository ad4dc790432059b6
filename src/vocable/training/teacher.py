"""A dense bi-encoder as teacher: the embeddings of all examples, made once, give its score of every pair in a batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, DatasetDict, concatenate_datasets
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from vocable.encoder.load import locate
from vocable.errors import ModelError
from vocable.objectives.kl import kl
from vocable.progress import progress
from vocable.training.recipe import Distillation

CHUNK = 1024  # examples embedded at a time, and lost at most when a run is killed


class Teacher:
    """The teacher's embeddings [n, c, d] of n examples with c columns: query, positive, negatives."""

    def __init__(self, embeddings: NDArray[np.float16]) -> None:
        self.embeddings = embeddings

    def scores(self, rows: NDArray[np.int64]) -> Tensor:
        """Of the b examples in `rows`: every query with every document [b, b (c - 1)], positives first."""
        embeddings = torch.from_numpy(self.embeddings[rows].astype(np.float32))
        return embeddings[:, 0] @ embeddings[:, 1:].transpose(0, 1).flatten(0, 1).T


class DistilledRanking(nn.Module):
    """KL distillation of a teacher over all documents of the batch, beside a ranking loss if that has a weight.

    An example's label is its row in the teacher's embeddings.
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


def teach(examples: DatasetDict, settings: Distillation, folder: Path) -> tuple[DatasetDict, Teacher]:
    """Embed all examples with the teacher, and give them labels: their rows in its embeddings.

    Args:
        examples: columns query, positive, negative_1, ...
        settings: the teacher is a sentence-transformers model: a folder, a Hub id, or `package:NAME/FOLDER`.
        folder: keeps the embeddings (float16, memory-mapped); what a killed run left there is used.

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
    if not finished.exists():
        _embed(concatenate_datasets(sources), settings, finished)
    return DatasetDict(labelled), Teacher(np.load(finished, mmap_mode="r"))


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
