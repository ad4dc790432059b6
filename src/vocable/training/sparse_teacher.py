"""A sparse encoder as teacher: its vectors of all examples' texts, made once before the training.

Letters: m examples of a run, b of a batch, c columns of an example: query, positive, negatives; v terms.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from torch import Tensor

from vocable.data import Document
from vocable.encoder.encode import TextEncoder
from vocable.encoder.load import load
from vocable.encoder.stream import encode_stream
from vocable.encoder.terms import fingerprint, terms
from vocable.errors import ModelError
from vocable.progress import progress
from vocable.vectors import read_vectors


class SparseRows:
    """The rows of a sparse matrix [m, v] whose arrays lie on disk.

    Args:
        folder: of indptr.npy [m + 1], indices.npy and values.npy.
    """

    def __init__(self, folder: Path, v: int) -> None:
        self._indptr, self._indices, self._values = (
            np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices", "values")
        )
        self._v = v

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows [b] in full: [b, v]."""
        full = np.zeros((len(rows), self._v), dtype=np.float32)
        for vector, start, end in zip(full, self._indptr[rows], self._indptr[rows + 1], strict=True):
            vector[self._indices[start:end]] = self._values[start:end]
        return full


class SparseTeacher:
    """A sparse encoder, by its vectors of m examples, one matrix [m, v] a column."""

    def __init__(self, columns: list[SparseRows]) -> None:
        self._columns = columns

    def vectors(self, rows: NDArray[np.int64]) -> Tensor:
        """Of the b examples in `rows`: the vectors [c b, v] of their queries, then of their documents by column."""
        return torch.from_numpy(np.concatenate([column[rows] for column in self._columns]))


def teach_sparsely(name: str, student: SparseEncoder, examples: Dataset, folder: Path) -> SparseTeacher:
    """Encode the texts of all examples with the model `name`.

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
    columns = []
    for column in examples.column_names:
        finished = folder / column
        if not finished.exists():
            encoder = encoders["query" if column == "query" else "document"]
            texts, parts = _documents(examples, column), folder / "parts"
            with progress(f"sparse teacher: {column}", len(examples)) as advance:
                encode_stream(encoder, texts, parts, model=name, source=column, advance=advance)
            _lay_open(parts, finished)
        columns.append(SparseRows(finished, len(names)))
    return SparseTeacher(columns)


def _documents(examples: Dataset, column: str) -> Iterator[Document]:
    for row, text in enumerate(examples[column]):
        yield Document(str(row), text)


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
