"""The file of the scores of terms, which tells the wackiest terms.

Letters: v terms.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vocable.core.records import WrongRecordError, as_record
from vocable.encoding.vectors import read_table, vocabulary_fingerprint
from vocable.errors import VectorsError, require_extra
from vocable.options import WACKY_SHARE, Share, checked

if TYPE_CHECKING:
    import pyarrow as pa

SCORES_KEY = b"vocable wackiness"


@cache
def scores_schema() -> pa.Schema:
    """Return the columns of a file of scores."""
    pa = require_extra("pyarrow", "parquet")
    kinds = {"term": pa.string(), "column": pa.int32(), "score": pa.float64(), "importance": pa.float64()}
    kinds |= {"inputs": pa.int64(), "kind": pa.string()}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


@dataclass(frozen=True)
class ScoresMeta:
    """The origin of scores; `vocabulary` is the fingerprint of the v = `size` terms, `w_auc` is nan without a score."""

    model: str
    vocabulary: str
    size: int
    role: str
    k: int
    idf: str
    queries: str
    corpus: str
    w_auc: float


def ranked(scores: np.ndarray, inputs: np.ndarray | None = None) -> np.ndarray:
    """Return the columns of the scored terms, the wackiest first; `scores` [v] are nan for other terms.

    All terms absent from every retrieved document have equal scores. With equal scores, the term that expands more
    `inputs` [v] comes first, then the term with the lower column.

    >>> scores = np.array([0.2, np.nan, 1.0, 0.2])
    >>> ranked(scores).tolist(), ranked(scores, np.array([1, 0, 1, 5])).tolist()
    ([2, 0, 3], [2, 3, 0])
    """
    columns = np.flatnonzero(~np.isnan(scores))
    often = np.zeros(len(columns)) if inputs is None else -inputs[columns]
    return columns[np.lexsort((columns, often, -scores[columns]))]


def read_scores(
    path: str | os.PathLike[str], vocabulary: str | None = None
) -> tuple[np.ndarray, np.ndarray, ScoresMeta]:
    """Read a file of `write_scores`.

    Returns the scores, float64 [v], nan for a term without a score; the number of inputs that each term expands, int64
    [v]; and the origin. Raises `VectorsError` if the file is missing, damaged or another kind of file, or its
    vocabulary does not have the fingerprint `vocabulary`.
    """
    place = Path(path)
    if place.is_dir():
        raise VectorsError(f"{place}: a folder: name the file of scores in it, {place / 'scores.parquet'}")
    table, values = read_table(place, scores_schema(), SCORES_KEY, "scores", "measure-wackiness")
    try:
        meta = as_record(values, ScoresMeta, forbid=False)
    except WrongRecordError as error:
        raise VectorsError(f"{place}: metadata: {error}") from error
    if vocabulary is not None and vocabulary != meta.vocabulary:
        raise VectorsError(f"{place}: the scores are of {meta.model}, which has another vocabulary")
    # The file has only terms with a score; the arrays have all terms [v].
    columns = table["column"].to_numpy()
    scores = np.full(meta.size, np.nan)
    inputs = np.zeros(meta.size, np.int64)
    if len(columns) and not 0 <= columns.min() <= columns.max() < meta.size:
        raise VectorsError(f"{place}: a term lies outside the vocabulary of {meta.size}")
    scores[columns] = table["score"].to_numpy()
    inputs[columns] = table["inputs"].to_numpy()
    return scores, inputs, meta


def read_wackiest(path: str | os.PathLike[str], names: Sequence[str]) -> np.ndarray:
    """Return the columns of the scored terms in a file, the wackiest first, for a model with the v terms `names`.

    Raises `VectorsError` as `read_scores` does.
    """
    scores, inputs, _ = read_scores(path, vocabulary_fingerprint(list(names)))
    return ranked(scores, inputs)


@checked
def read_wacky_terms(path: str | os.PathLike[str], names: Sequence[str], share: Share = WACKY_SHARE) -> frozenset[str]:
    """Return the wackiest `share` of the scored terms in a file, rounded up; raise the errors of `read_wackiest`."""
    columns = read_wackiest(path, names)
    return frozenset(names[column] for column in columns[: math.ceil(share * len(columns) - 1e-9)].tolist())
