"""Steps of work that resumes (`core.storage.resumable`): what a step has made in the work folder is not made again.

A step writes its file or folder atomically, so that it is there if and only if the step was carried out.

Long work that would lose hours as one step resumes inside: a stream of documents or examples counts what is valid in a
record after each part (`encoding.stream`, `training.example_files`), an index asks its store for the ids that it has
(`collection.writer`), the vectors of a teacher are a file of zeros that is filled from the top (`training.teachers`),
and a training has the trainer's checkpoints and cuts its log at the last of them (`training.callbacks`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from vocable.core.storage import read_record, replacing, write_record

T = TypeVar("T")


def made_once(path: Path, make: Callable[[], object]) -> Path:
    """Return the path of a file or folder, which `make` writes there unless an earlier run has."""
    if not path.exists():
        make()
    return path


def record_once(path: Path, kind: type[T], compute: Callable[[], T]) -> T:
    """Return the record in a JSON file; without the file, compute the record and write it.

    >>> folder = Path(getfixture("tmp_path"))
    >>> [record_once(folder / "n.json", dict[str, int], lambda: {"n": n}) for n in (1, 2)]
    [{'n': 1}, {'n': 1}]
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(path, compute())
    return read_record(path, kind)


def record_so_far(path: Path, kind: type[T]) -> T:
    """Return the record in a JSON file; without the file, a new record, which counts nothing."""
    return read_record(path, kind) if path.exists() else kind()


def array_once(path: Path, compute: Callable[[], np.ndarray]) -> np.ndarray:
    """Return the array in a NumPy file; without the file, compute the array and write it."""
    if not path.exists():
        computed = compute()
        with replacing(path) as file:
            np.save(file, computed)
    return np.load(path)
