"""The wackiness of an expander: its scores, Normalized Wackiness Curve and W-AUC, and the file of scores.

`WackinessOptions` has the settings that Polyakov et al. 2026 (section 3.3, table 2) leave open.

Letters: m inputs, v terms, N bins, u scored terms.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Collection, Sequence
from dataclasses import asdict
from textwrap import shorten
from typing import Any, NamedTuple, NotRequired

import numpy as np
from scipy.sparse import csr_array
from typing_extensions import TypedDict

from vocable.core.fingerprint import fingerprint
from vocable.core.progress import track
from vocable.core.storage import replacing
from vocable.data import Document, read_corpus, read_queries
from vocable.encoding.load import model_of
from vocable.encoding.models import Model, check_unchanged, encoding_model
from vocable.encoding.term_scores import SCORES_KEY, ScoresMeta, ranked, read_wackiest, scores_schema
from vocable.encoding.terms import input_terms, remove_expansions, terms
from vocable.encoding.vectors import FORMAT, Sources, read_shards, vocabulary_fingerprint
from vocable.errors import DataError, require_extra
from vocable.options import Count, check, checked
from vocable.training_options import WackinessOptions
from vocable.wackiness.expansions import TERM_KINDS, ExpansionData, term_kind
from vocable.wackiness.score import Wackiness, area, curve_of, expanded, importance, scored, variants

WACKIEST = 20  # number of listed terms
CARD_EXAMPLES, EXAMPLE_LETTERS, NEAREST = 3, 60, 5  # a card's number of inputs, their length, and nearest terms
TINY = 1e-12  # replaces the norm of a row of zeros


def bootstrap_areas(importances: csr_array, settings: WackinessOptions) -> np.ndarray:
    """Return the W-AUC of each bootstrap draw, float64; a draw takes m of the m inputs, with replacement.

    The paper does not define the value after its ±; here it is the standard deviation of these areas. Each resample
    omits about a third of the inputs and their terms, so its W-AUC is biased: use the spread, not the mean.
    `importances` [m, v] are from `vocable.wackiness.score.importance`.
    """
    rng, m = np.random.default_rng(settings["seed"]), importances.shape[0]
    areas = np.full(settings["bootstrap"], np.nan)
    for draw in track(range(settings["bootstrap"] if m else 0), "bootstrap"):
        times = rng.multinomial(m, np.full(m, 1 / m))
        areas[draw] = area(curve_of(scored(importances, times).scores, settings))
    return areas


def term_cards(
    data: ExpansionData,
    columns: Sequence[int],
    inputs: Sequence[str],
    rows: np.ndarray | None,
    settings: WackinessOptions,
) -> list[dict[str, Any]]:
    """Return a card of each of these terms; `inputs` are the m texts, `rows` [v, d] the output layer, if known.

    A card has the number of `documents` with the term and its mean `weight` in the inputs that it expands. `examples`
    of these inputs have the greatest weights first. `nearest` are the nearest terms by the cosine of the output layer's
    rows.
    """
    # Weights of expansion terms [m, v], number of documents by term [v], rows of length 1 [v, d].
    added = expanded(data, settings).tocsc()
    containing = np.bincount(data.counts.indices, minlength=len(data.terms))
    units = None if rows is None else rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(min=TINY)
    cards = []
    for column in columns:
        # The inputs that the term expands, the heaviest first.
        entries = slice(*added.indptr[column : column + 2])
        texts, weights = added.indices[entries], added.data[entries]
        heaviest = texts[np.lexsort((texts, -weights))[:CARD_EXAMPLES]]
        nearest: list[int] = []
        if units is not None:
            by_cosine = np.argsort(-(units @ units[column]), kind="stable").tolist()
            nearest = [other for other in by_cosine if other != column]
        card = {"documents": int(containing[column]), "weight": float(weights.mean()) if len(weights) else 0.0}
        examples = [shorten(inputs[text], EXAMPLE_LETTERS, placeholder="...") for text in heaviest.tolist()]
        cards.append({**card, "examples": examples, "nearest": [data.terms[other] for other in nearest[:NEAREST]]})
    return cards


class KindRow(TypedDict):
    """A kind of terms: the number of its scored terms, the number of their expansions, and the mean score of these."""

    kind: str
    terms: int
    expansions: int
    score: float


class AreaDifference(TypedDict):
    """The W-AUC of an expander minus the W-AUC of the expander `to`, with its 95 % interval."""

    to: str
    value: float
    low: float
    high: float


class WackinessRecord(TypedDict):
    """The wackiness of an expander as JSON values; of the terms, only the wackiest are listed."""

    name: str
    w_auc: float | None  # None if nothing is expanded
    std: float | None  # None without a bootstrap
    terms: int
    scored_terms: int
    absent_terms: int  # scored terms that no document contains
    active_terms: float  # mean terms of an input (L0)
    expansions: float  # mean expansions of an input
    curve: list[float] | None
    wackiest: list[dict[str, Any]]  # each term with its card
    kinds: list[KindRow]
    sensitivity: list[dict[str, Any]]  # each changed setting, and the W-AUC with it
    difference: NotRequired[AreaDifference]


class ExpanderWackiness(NamedTuple):
    """The wackiness of an expander: the record of a report, and the values of all v terms."""

    record: WackinessRecord
    terms: Sequence[str]
    kinds: Sequence[str]
    wackiness: Wackiness
    areas: np.ndarray  # W-AUC of the bootstrap draws, which are the same for all expanders of the same inputs


def wackiness_of(
    data: ExpansionData,
    settings: WackinessOptions | None = None,
    *,
    names: Collection[str] = (),
    sensitivity: bool = False,
    inputs: Sequence[str] = (),
    rows: np.ndarray | None = None,
) -> ExpanderWackiness:
    """Measure the wackiness of an expander.

    `names` are proper names, from `vocable.wackiness.expansions.proper_names`. With `sensitivity`, wackiness is also
    measured with each setting changed in turn. With the m texts `inputs`, the wackiest terms have cards; `inputs` and
    `rows` are passed to `term_cards`.
    """
    settings = settings or check(WackinessOptions, {})
    # Scores of the terms [v], areas for resampled inputs, and the curve with its area.
    importances, m = importance(data, settings), max(1, data.vectors.shape[0])
    measured, areas = scored(importances), bootstrap_areas(importances, settings)
    heights, kinds = curve_of(measured.scores, settings), [term_kind(surface, names) for surface in data.surfaces]
    w_auc = _known(area(heights))
    # The wackiest terms, and documents that have each term [v].
    columns = ranked(measured.scores, measured.inputs)[:WACKIEST].tolist()
    contained = np.bincount(data.counts.indices, minlength=len(data.terms))
    cards = term_cards(data, columns, inputs, rows, settings) if inputs else [{} for _ in columns]
    # The area with one setting changed at a time.
    others = {
        label: _known(area(curve_of(scored(importance(data, other)).scores, other)))
        for label, other in (variants(settings) if sensitivity else {}).items()
    }
    record: WackinessRecord = {
        "name": data.name,
        "w_auc": w_auc,
        "std": None if np.isnan(areas).all() else float(np.nanstd(areas, ddof=1)),
        "terms": len(data.terms),
        "scored_terms": int((measured.inputs > 0).sum()),
        "absent_terms": int(((measured.inputs > 0) & (contained == 0)).sum()),
        "active_terms": data.vectors.nnz / m,
        "expansions": importances.nnz / m,
        "curve": None if w_auc is None else heights.tolist(),
        "wackiest": [
            {"term": data.terms[i], "kind": kinds[i], "score": float(measured.scores[i])}
            | {"importance": float(measured.importance[i]), "inputs": int(measured.inputs[i]), **card}
            for i, card in zip(columns, cards, strict=True)
        ],
        "kinds": by_kind(kinds, measured),
        "sensitivity": [{"setting": label, "w_auc": value} for label, value in others.items()],
    }
    return ExpanderWackiness(record, data.terms, kinds, measured, areas)


def _known(value: float) -> float | None:
    """Return the value, or None for nan, which JSON lacks."""
    return None if np.isnan(value) else value


def by_kind(kinds: Sequence[str], measured: Wackiness) -> list[KindRow]:
    """Return a row for each kind that has scored terms; `kinds` has the kind of each of the v terms."""
    rows: list[KindRow] = []
    for kind in TERM_KINDS:
        columns = np.flatnonzero((np.array(kinds) == kind) & (measured.inputs > 0))
        if len(columns):
            inputs = measured.inputs[columns]
            score = float(np.average(measured.scores[columns], weights=inputs))
            rows.append({"kind": kind, "terms": len(columns), "expansions": int(inputs.sum()), "score": score})
    return rows


def area_difference(other: ExpanderWackiness, first: ExpanderWackiness) -> AreaDifference | None:
    """Return the difference from the W-AUC of the `first` expander of the same inputs; None without bootstrap draws.

    The 95 % interval is a paired bootstrap: percentiles of the differences in each draw.
    """
    drawn = other.areas - first.areas
    drawn, w_aucs = drawn[~np.isnan(drawn)], (other.record["w_auc"], first.record["w_auc"])
    if not len(drawn) or w_aucs[0] is None or w_aucs[1] is None:
        return None
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    return {"to": first.record["name"], "value": w_aucs[0] - w_aucs[1], "low": low, "high": high}


def write_scores(
    path: str | os.PathLike[str],
    measured: ExpanderWackiness,
    settings: WackinessOptions,
    *,
    model: str,
    role: str = "query",
    queries: str = "",
    corpus: str = "",
) -> None:
    """Write the scores and their origin to a Parquet file, atomically: a row per scored term, the wackiest first."""
    pa, pq = require_extra("pyarrow", "parquet"), require_extra("pyarrow.parquet", "parquet")
    names, (scores, importance, inputs) = list(measured.terms), measured.wackiness
    vocabulary, w_auc = vocabulary_fingerprint(names), measured.record["w_auc"]
    w_auc = math.nan if w_auc is None else w_auc
    meta = ScoresMeta(
        model=model,
        vocabulary=vocabulary,
        size=len(names),
        role=role,
        k=settings["k"],
        idf=settings["idf"],
        queries=queries,
        corpus=corpus,
        w_auc=w_auc,
    )
    # Terms with a score, the wackiest first.
    columns = ranked(scores, inputs)
    values = {
        "term": [names[column] for column in columns],
        "column": columns,
        "score": scores[columns],
        "importance": importance[columns],
        "inputs": inputs[columns],
        "kind": [measured.kinds[column] for column in columns],
    }
    schema = scores_schema().with_metadata({SCORES_KEY: json.dumps({"format": FORMAT, **asdict(meta)})})
    with replacing(path) as file:
        pq.write_table(pa.table(values, schema), file, compression="zstd", write_page_checksum=True)


class WackyPruner:
    """A shard filter for `vocable.prune` that removes the `wackiest` terms where they are expansions.

    `scores` is a file of `vocable measure-wackiness`. `texts` is the source of the encoded texts, whose own terms stay.
    It is read once, in the order of the vectors, and may have further texts in between. `model` replaces the model that
    made the vectors, if it has moved. A call raises `DataError` if a vector's id has no text.

    Raises:
        ArgumentError: `wackiest` is below 1, or the vectors have another vocabulary than the model.
        VectorsError: the scores have another vocabulary than the model.
    """

    @checked
    def __init__(
        self,
        vectors: Sources,
        scores: str | os.PathLike[str],
        *,
        wackiest: Count,
        texts: str,
        model: str | Model | None = None,
    ) -> None:
        meta = next(read_shards(vectors)).meta
        self._encoder, self._source = model_of(meta, model), texts
        if model is None:
            check_unchanged(encoding_model(self._encoder), meta, str(vectors), "encode again, or name their `model`")
        self._columns = read_wackiest(scores, terms(self._encoder))[:wackiest]
        self._documents = iter(read_corpus(texts))
        if meta.role == "query":
            self._documents = (Document(query.id, query.text) for query in read_queries(texts))
        removed = zlib.crc32(self._columns.tobytes())
        self.made_from = {"removed": removed, "texts": texts, "texts_inputs": fingerprint(texts)}

    def __call__(self, ids: Sequence[str], matrix: csr_array) -> csr_array:
        input_counts = input_terms(self._encoder, [self._text_of(name) for name in ids])
        return remove_expansions(matrix, input_counts, self._columns)

    def _text_of(self, name: str) -> str:
        for document in self._documents:
            if document.id == name:
                return document.full
        raise DataError(f"no text {name!r}, or not in the order of the vectors", source=self._source)
