"""Wackiness Scores on disk: one Parquet file, a row for each term that has a score, the wackiest first.

Its metadata says which model and vocabulary the scores are of, and how they were measured.

Letters: v output terms.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vocable.errors import VectorsError
from vocable.evaluation.wackiness import Wackiness, ranked
from vocable.storage import replacing

METADATA_KEY = b"vocable wackiness"
FORMAT = 1
SCHEMA = pa.schema(
    [
        pa.field("term", pa.string(), nullable=False),
        pa.field("column", pa.int32(), nullable=False),
        pa.field("score", pa.float64(), nullable=False),
        pa.field("importance", pa.float64(), nullable=False),
        pa.field("inputs", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class ScoresMeta:
    """What the scores are of. `vocabulary` is the fingerprint of the v = `size` terms, `w_auc` nan without a score."""

    model: str
    vocabulary: str
    size: int
    role: str
    k: int
    idf: str
    queries: str
    corpus: str
    w_auc: float


class StoredScores(NamedTuple):
    """Scores as read from disk: float64 [v], nan for a term that has none; how many `inputs` each term expands,
    int64 [v]; and what they are of. `ranked(scores, inputs)` is the order of the file.
    """

    scores: np.ndarray
    inputs: np.ndarray
    meta: ScoresMeta


def write_scores(
    path: str | os.PathLike[str], found: Wackiness, terms: Sequence[str], kinds: Sequence[str], meta: ScoresMeta
) -> None:
    """Write the scores of v terms, whole or not at all.

    Args:
        path: the Parquet file.
        found: from `vocable.evaluation.wackiness`.
        terms: the v terms by column.
        kinds: what each of them is (`vocable.analysis.term_kinds`).
        meta: what they are of.

    Raises:
        VectorsError: not as many scores, terms, kinds and `meta.size`.
    """
    if not len(found.scores) == len(terms) == len(kinds) == meta.size:
        raise VectorsError(f"{len(found.scores)} scores for {len(terms)} terms of a vocabulary of {meta.size}")
    columns = ranked(found.scores, found.inputs)
    values = [
        [terms[column] for column in columns],
        columns,
        found.scores[columns],
        found.importance[columns],
        found.inputs[columns],
        [kinds[column] for column in columns],
    ]
    arrays = [pa.array(value, type=field.type) for value, field in zip(values, SCHEMA, strict=True)]
    schema = SCHEMA.with_metadata({METADATA_KEY: json.dumps({"format": FORMAT, **asdict(meta)})})
    with replacing(path) as file:
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), file, compression="zstd", write_page_checksum=True)


def read_scores(path: str | os.PathLike[str], vocabulary: str | None = None) -> StoredScores:
    """Read what `write_scores` wrote.

    Args:
        path: the Parquet file.
        vocabulary: the fingerprint (`vocable.encoder.terms.fingerprint`) of the model that the scores are wanted for.

    Raises:
        VectorsError: there is no such file, it is damaged or something else, or it is of another vocabulary.
    """
    place = Path(path)
    if place.is_dir():
        raise VectorsError(f"{place}: a folder: name the scores in it, {place / 'scores.parquet'}")
    try:
        with pq.ParquetFile(place, page_checksum_verification=True) as file:
            table = file.read()
    except FileNotFoundError as error:
        raise VectorsError(f"{place}: no such file: make it with vocable wackiness") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise VectorsError(f"{place}: not a whole file of scores (cut short or damaged): {error}") from error
    meta = _read_meta(table.schema, str(place))
    if vocabulary is not None and vocabulary != meta.vocabulary:
        raise VectorsError(f"{place}: the scores are of {meta.model}, which has another vocabulary")
    if not table.schema.equals(SCHEMA) or any(column.null_count for column in table.columns):
        raise VectorsError(f"{place}: expected the columns {', '.join(SCHEMA.names)}, without nulls")
    columns, scores, inputs = table["column"].to_numpy(), np.full(meta.size, np.nan), np.zeros(meta.size, np.int64)
    if len(columns) and not 0 <= columns.min() <= columns.max() < meta.size:
        raise VectorsError(f"{place}: a term lies outside the vocabulary of {meta.size}")
    scores[columns], inputs[columns] = table["score"].to_numpy(), table["inputs"].to_numpy()
    return StoredScores(scores, inputs, meta)


def _read_meta(schema: pa.Schema, place: str) -> ScoresMeta:
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        raise VectorsError(f"{place}: a Parquet file, but not one of vocable wackiness")
    values: dict[str, Any] = json.loads(text)
    if values.get("format") != FORMAT:
        raise VectorsError(f"{place}: stored in format {values.get('format')}; this version reads format {FORMAT}")
    try:
        return ScoresMeta(**{field.name: values[field.name] for field in fields(ScoresMeta)})
    except KeyError as error:
        raise VectorsError(f"{place}: its metadata does not say {error}") from error
