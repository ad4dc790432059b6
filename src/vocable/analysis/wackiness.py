"""What is found about the wackiness of an expander: its scores, its curve and W-AUC, and how they depend on the choices
that the paper leaves open.

Letters: m inputs, v terms.

The Normalized Wackiness Curve and the area below it, W-AUC: how wacky a model is, whatever its vocabulary and
sparsity ("Understanding Wacky Weights: A Dissection of SPLADE's Learned Term Importance", section 3.3, table 2).

Letters: m inputs, v terms, N bins, u terms that have a score.

Wackiness Scores on disk: one Parquet file, a row for each term that has a score, the wackiest first.

Its metadata says which model and vocabulary the scores are of, and how they were measured.

Letters: v output terms.

The texts on which wackiness is measured, and what each expander makes of them; a model's vectors are kept on disk
until the work is done, so that a run that was killed does not encode again.

Letters: m inputs, n documents of the collection.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.analysis.expanders import measured_expander, open_expander
from vocable.analysis.expansion_data import Measured, measured_vectors, proper_names, term_kinds
from vocable.data import Document, read_corpus, read_queries, read_texts
from vocable.encoder.encode import DType, TextEncoder
from vocable.encoder.roles import Formula, Role
from vocable.encoder.stream import encode_stream
from vocable.encoder.terms import Words, own_terms
from vocable.errors import ArgumentError, DataError, VectorsError
from vocable.evaluation.wackiness import Wackiness, lexical_importance, ranked, scored
from vocable.search.exact import ExactIndex
from vocable.storage import replacing
from vocable.vectors import StoredVectors, read_vectors

BINS = 100


def curve(scores: np.ndarray, bins: int = BINS, *, vocabulary: bool = False) -> np.ndarray:
    """The mean Wackiness Score of each of N equal bins of the terms, the wackiest first.

    Bin i has the terms from rank floor(i u / N) up to floor((i + 1) u / N), and one term at least: where there are
    fewer terms than bins, neighbouring bins share one.

    Args:
        scores: [v], nan for a term that has none.
        bins: N.
        vocabulary: cut the whole vocabulary into bins instead of the u terms that have a score. The others come last
            and are left out of the means; a bin that has none but these is 0.

    Returns:
        float64 [N], which never rises; nan where no term has a score.

    Raises:
        ArgumentError: bins below 1.

    >>> curve(np.array([0.5, 1.0, np.nan, 0.0, 0.9]), bins=2)
    array([0.95, 0.25])
    >>> curve(np.array([0.5, 1.0, np.nan, 0.0, 0.9, np.nan]), bins=3, vocabulary=True)
    array([0.95, 0.25, 0.  ])
    """
    if bins < 1:
        raise ArgumentError(f"bins must be at least 1, not {bins}")
    ordered = scores[ranked(scores)]
    if not len(ordered):
        return np.full(bins, np.nan)
    cut = len(scores) if vocabulary else len(ordered)
    first = np.arange(bins) * cut // bins
    last = np.maximum(np.arange(1, bins + 1) * cut // bins, first + 1)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    first, last = np.minimum(first, len(ordered)), np.minimum(last, len(ordered))
    means: np.ndarray = (sums[last] - sums[first]) / np.maximum(last - first, 1)
    return means.clip(0, 1)  # differences of sums may be off by the last digit


def area(heights: np.ndarray) -> float:
    """W-AUC: the area below a curve [N] over 0 to 1, by the trapezoidal rule; between 0 and 1.

    >>> area(np.array([1.0, 0.5, 0.0]))
    0.5
    """
    return float(heights[0]) if len(heights) == 1 else float(np.trapezoid(heights, dx=1 / (len(heights) - 1)))


def bootstrap(
    importance: csr_array,
    draws: int = 100,
    *,
    bins: int = BINS,
    vocabulary: bool = False,
    seed: int = 0,
    advance: Callable[[int], object] = lambda done: None,
) -> np.ndarray:
    """W-AUC of other inputs like these: of m inputs drawn from the m with repetition, again and again.

    The paper does not say what stands after its ±; here it is the standard deviation of these. A draw misses a third
    of the inputs and so some terms, so that the areas may lie beside that of all inputs: they tell how far the inputs
    move it, not where it is.

    Args:
        importance: [m, v], from `vocable.evaluation.wackiness.lexical_importance`.
        draws: how often.
        bins, vocabulary: as for `curve`.
        seed: decides what is drawn.
        advance: called with 1 after every draw.

    Returns:
        float64 [draws].

    Raises:
        ArgumentError: draws below 2, or bins below 1.
    """
    if draws < 2:
        raise ArgumentError(f"a bootstrap needs 2 draws at least, not {draws}")
    rng, m = np.random.default_rng(seed), importance.shape[0]
    areas = np.full(draws, np.nan)
    for draw in range(draws if m else 0):
        times = rng.multinomial(m, np.full(m, 1 / m))
        areas[draw] = area(curve(scored(importance, times).scores, bins, vocabulary=vocabulary))
        advance(1)
    return areas


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
        kinds: what each of them is (`vocable.analysis.expansion_data`).
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


logger = logging.getLogger(__name__)
Advance = Callable[[int], object]


class Inputs(NamedTuple):
    """m inputs and n documents, and the proper names that texts write (`vocable.analysis.expansion_data`).

    `itself` [m] is the row that each input is among the documents, None of queries.
    """

    texts: list[str]
    ids: list[str]
    documents: list[Document]
    itself: np.ndarray | None
    names: set[str]


def read_inputs(
    queries: str | None,
    corpus: str,
    role: Role = "query",
    *,
    names: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Inputs:
    """Read the collection and the inputs, or draw `limit` of these at random.

    Args:
        queries: place of queries, if they are the inputs.
        corpus: place of documents; of the role "document", inputs are among them.
        role: what is expanded.
        names: place of texts that show proper names, besides the documents.
        limit: inputs at most; they stay in their order.
        seed: decides which.

    Raises:
        ArgumentError: queries are missing or too much, or a limit below 1.
        DataError: there are no documents or no queries, or texts cannot be read.
    """
    if (queries is None) == (role == "query"):
        raise ArgumentError("--role query needs --queries, and --role document takes its inputs from --corpus")
    if limit is not None and limit < 1:
        raise ArgumentError(f"--limit must be at least 1, not {limit}")
    documents = list(read_corpus(corpus))
    if not documents:
        raise DataError("there are no documents", place=corpus)
    pairs = [(one.id, one.full) for one in documents] if queries is None else list(read_queries(queries))
    if not pairs:
        raise DataError("there are no queries", place=queries)
    rows = np.arange(len(pairs))
    if limit is not None and limit < len(pairs):
        rows = np.sort(np.random.default_rng(seed).choice(len(pairs), limit, replace=False))
    ids, texts = [pairs[row][0] for row in rows], [pairs[row][1] for row in rows]
    named = proper_names(chain((one.full for one in documents), read_texts(names) if names else ()))
    return Inputs(texts, ids, documents, rows if queries is None else None, named)


def measure_model(
    name: str,
    model: SparseEncoder,
    inputs: Inputs,
    work: Path,
    k: int,
    *,
    place: str,
    source: str = "",
    words: Words = "any",
    dtype: DType = "auto",
) -> Measured:
    """Encode the texts into the folder `work`, or go on there, and search exactly.

    Args:
        name: as the model is to be called.
        model: from `vocable.load`.
        inputs: from `read_inputs`.
        work: for the vectors; a call with the same texts and model finds them there.
        k: documents that an input retrieves.
        place, source: of the model and the texts, written down with the vectors.
        words: as in `own_terms`.
        dtype: as in `vocable.encode`.

    Raises:
        ArgumentError, VectorsError: as of `encode_stream`, or an argument out of its range.
    """
    documents, itself = inputs.documents, inputs.itself

    def encoded(role: Role, texts: Iterable[Document]) -> StoredVectors:
        encoder, folder = TextEncoder(model, role, dtype=dtype), work / role
        done = encode_stream(encoder, texts, folder, model=place, source=source, title=name)
        if done.truncated:
            message = "%s: %d of %d %s texts were cut at %d tokens"
            logger.warning(message, name, done.truncated, done.texts, role, encoder.max_length)
        return read_vectors(folder)

    collection = encoded("document", documents)
    counts = own_terms(model, [document.full for document in documents], words=words)
    if itself is None:
        vectors = encoded("query", map(Document, inputs.ids, inputs.texts)).matrix
        own = own_terms(model, inputs.texts, words=words)
    else:
        vectors, own = collection.matrix[itself], counts[itself]
    index = ExactIndex(collection.matrix, collection.ids)
    return measured_vectors(name, model, vectors, own, index, counts, k, itself=itself)


def measure_expander(name: str, inputs: Inputs, k: int, *, advance: Advance = lambda done: None) -> Measured:
    """Expand the texts as an expander around BM25 does (`vocable.analysis.expanders`), and search with them.

    Raises:
        ArgumentError: no such expander, or an argument out of its range.
        ModelError: its model cannot be loaded.
    """
    documents = [document.full for document in inputs.documents]
    role: Role = "query" if inputs.itself is None else "document"
    expander = open_expander(name, documents, role, advance=advance)
    return measured_expander(name, expander, inputs.texts, documents, k, itself=inputs.itself, advance=advance)


WACKIEST = 20  # terms that are listed


@dataclass(frozen=True)
class Choices:
    """How wackiness is measured, where the paper leaves it open; `k` is for whoever retrieves."""

    k: int = 100
    idf: Formula = "log"
    special: bool = True  # special tokens can be expansions
    bins: int = BINS
    vocabulary: bool = False  # the bins are of the whole vocabulary


@dataclass(frozen=True)
class Finding:
    """The wackiness of one expander; `std` is None where the inputs were not drawn again."""

    name: str
    terms: Sequence[str]
    kinds: Sequence[str]
    wackiness: Wackiness
    curve: np.ndarray
    w_auc: float  # nan where nothing is expanded
    std: float | None
    active: float  # mean terms of an input (L0)
    expansions: float  # mean expansions of an input
    sensitivity: tuple[tuple[str, float], ...] = ()  # what is chosen otherwise, and the W-AUC that it gives

    @property
    def wackiest(self) -> list[int]:
        """The columns of the wackiest terms."""
        columns: list[int] = ranked(self.wackiness.scores, self.wackiness.inputs)[:WACKIEST].tolist()
        return columns

    @property
    def scored(self) -> int:
        """How many terms have a score."""
        return int((self.wackiness.inputs > 0).sum())

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON values, without the terms that are not among the wackiest."""
        scores, importance, inputs = self.wackiness
        wackiest = [
            {
                "term": self.terms[column],
                "kind": self.kinds[column],
                "score": float(scores[column]),
                "importance": float(importance[column]),
                "inputs": int(inputs[column]),
            }
            for column in self.wackiest
        ]
        return {
            "name": self.name,
            "w_auc": known(self.w_auc),
            "std": self.std,
            "terms": len(self.terms),
            "scored_terms": self.scored,
            "active_terms": self.active,
            "expansions": self.expansions,
            "curve": None if np.isnan(self.w_auc) else self.curve.tolist(),
            "wackiest": wackiest,
            "sensitivity": [{"choice": choice, "w_auc": known(value)} for choice, value in self.sensitivity],
        }


def find(
    measured: Measured,
    choices: Choices | None = None,
    *,
    names: Collection[str] = (),
    draws: int = 100,
    seed: int = 0,
    sensitivity: bool = False,
    advance: Callable[[int], object] = lambda done: None,
) -> Finding:
    """Measure an expander.

    Args:
        measured: what it does to the inputs. Of the documents that an input retrieves, the first `choices.k` count.
        choices: how.
        names: proper names, from `vocable.analysis.expansion_data.proper_names`.
        draws: of the bootstrap; 0 for none.
        seed: decides what is drawn.
        sensitivity: also measure with one choice another at a time.
        advance: called with 1 after every draw.

    Raises:
        ArgumentError: a choice out of its range, or a single draw.
        VectorsError: the parts of `measured` do not fit together.
    """
    choices = choices or Choices()
    importance = _importance(measured, choices)
    found = scored(importance)
    options: dict[str, Any] = {"bins": choices.bins, "vocabulary": choices.vocabulary}
    heights = curve(found.scores, **options)
    areas = bootstrap(importance, draws, seed=seed, advance=advance, **options) if draws else None
    m = max(1, measured.vectors.shape[0])
    return Finding(
        name=measured.name,
        terms=measured.terms,
        kinds=term_kinds(measured.surfaces, names),
        wackiness=found,
        curve=heights,
        w_auc=area(heights),
        std=None if areas is None or np.isnan(areas).all() else float(np.nanstd(areas, ddof=1)),
        active=measured.vectors.nnz / m,
        expansions=importance.nnz / m,
        sensitivity=tuple(_otherwise(measured, choices)) if sensitivity else (),
    )


def other_choices(choices: Choices) -> dict[str, Choices]:
    """The choices with one of them another, by what is another.

    >>> ", ".join(other_choices(Choices(k=100)))
    'k = 10, k = 1000, idf = bm25, bins = 10, bins = 1000, no special tokens, whole vocabulary'
    """
    k, bins = choices.k, choices.bins
    idf: Formula = "bm25" if choices.idf == "log" else "log"
    others = {f"k = {other}": replace(choices, k=other) for other in (max(1, k // 10), 10 * k)}
    others[f"idf = {idf}"] = replace(choices, idf=idf)
    others |= {f"bins = {other}": replace(choices, bins=other) for other in (max(1, bins // 10), 10 * bins)}
    label = "no special tokens" if choices.special else "special tokens"
    others[label] = replace(choices, special=not choices.special)
    label = "scored terms only" if choices.vocabulary else "whole vocabulary"
    others[label] = replace(choices, vocabulary=not choices.vocabulary)
    return others


def deepest(choices: Choices) -> int:
    """How many documents an input has to retrieve for all of `other_choices`."""
    return max(other.k for other in other_choices(choices).values())


def _importance(measured: Measured, choices: Choices) -> csr_array:
    special = () if choices.special else measured.special
    parts = measured.vectors, measured.own, measured.rows[:, : choices.k], measured.counts
    return lexical_importance(*parts, idf=choices.idf, special=special)


def _otherwise(measured: Measured, choices: Choices) -> list[tuple[str, float]]:
    found = []
    for label, other in other_choices(choices).items():
        scores = scored(_importance(measured, other)).scores
        found.append((label, area(curve(scores, other.bins, vocabulary=other.vocabulary))))
    return found


def known(value: float) -> float | None:
    """The value, or None for nan, which JSON does not have."""
    return None if np.isnan(value) else value
