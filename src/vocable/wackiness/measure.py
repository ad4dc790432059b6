"""The wackiness of one expander: its scores, its Normalized Wackiness Curve and the area below it, W-AUC, and how these
depend on the choices that Polyakov et al. 2026 (section 3.3, table 2) leaves open; the scores on disk.

Letters: m inputs, v terms, N bins, u terms that have a score.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError
from scipy.sparse import csr_array

from vocable.encoder.idf import Formula
from vocable.errors import ArgumentError, VectorsError
from vocable.evaluation.expansion_data import KINDS, ExpansionData, term_kind
from vocable.options import Share, checked
from vocable.progress import track
from vocable.storage import replacing
from vocable.vectors import FORMAT, prune, read_table, vocabulary_fingerprint
from vocable.wackiness.score import (
    BINS,
    Wackiness,
    area,
    curve,
    expansions,
    lexical_importance,
    ranked,
    scored,
)

WACKIEST = 20  # terms that are listed
EXAMPLES, LETTERS, NEAREST = 3, 60, 5  # of a card: inputs, what is quoted of each, terms
TINY = 1e-12  # in place of the norm of a row of zeros
SHARE = 0.1  # our reading: the score says which of two terms is the wackier, and nowhere where wacky begins


def bootstrap(
    importance: csr_array, draws: int = 100, *, bins: int = BINS, whole_vocabulary: bool = False, seed: int = 0
) -> np.ndarray:
    """Return the W-AUC of m inputs drawn from the m with repetition, float64 [draws].

    The paper does not say what stands after its ±; here it is the standard deviation of these. A draw misses a third
    of the inputs and so some terms, so that the areas may lie beside that of all inputs: they tell how far the inputs
    move it, not where it is. `importance` [m, v] is from `vocable.wackiness.score.lexical_importance`.
    """
    if draws < 2:
        raise ArgumentError(f"a bootstrap needs 2 draws at least, not {draws}")
    rng, m = np.random.default_rng(seed), importance.shape[0]
    areas = np.full(draws, np.nan)
    for draw in track(range(draws if m else 0), "bootstrap"):
        times = rng.multinomial(m, np.full(m, 1 / m))
        areas[draw] = area(curve(scored(importance, times).scores, bins, whole_vocabulary=whole_vocabulary))
    return areas


@dataclass(frozen=True)
class Choices:
    """How wackiness is measured, where the paper leaves it open; `k` is for whoever retrieves."""

    k: int = 100
    idf: Formula = "log"
    special: bool = True  # special tokens can be expansions
    bins: int = BINS
    whole_vocabulary: bool = False  # the bins are of the whole vocabulary
    expansions: int | None = None  # of an input that count, the heaviest; all by default

    def settings(self) -> dict[str, Any]:
        """Return the choices as settings of a report; those of before there was `expansions` have none."""
        return {name: value for name, value in vars(self).items() if (name, value) != ("expansions", None)}

    def others(self) -> dict[str, Choices]:
        """Return the choices with one of them another, by what is another.

        >>> ", ".join(Choices(k=100).others())
        'k = 10, k = 1000, idf = bm25, bins = 10, bins = 1000, no special tokens, whole vocabulary'
        """
        k, bins = self.k, self.bins
        idf: Formula = "bm25" if self.idf == "log" else "log"
        others = {f"k = {other}": replace(self, k=other) for other in (max(1, k // 10), 10 * k)}
        others[f"idf = {idf}"] = replace(self, idf=idf)
        others |= {f"bins = {other}": replace(self, bins=other) for other in (max(1, bins // 10), 10 * bins)}
        label = "no special tokens" if self.special else "special tokens"
        others[label] = replace(self, special=not self.special)
        label = "scored terms only" if self.whole_vocabulary else "whole vocabulary"
        others[label] = replace(self, whole_vocabulary=not self.whole_vocabulary)
        return others

    def expanded(self, data: ExpansionData) -> csr_array:
        """Return the weights [m, v] of the expansions that count."""
        added = expansions(data.vectors, data.own, () if self.special else data.special)
        return added if self.expansions is None else prune(added, self.expansions)

    def importance(self, data: ExpansionData) -> csr_array:
        """Return the lexical importance [m, v] of the expansions; of what is retrieved, the first k count."""
        return lexical_importance(self.expanded(data), data.own, data.rows[:, : self.k], data.counts, idf=self.idf)

    def curve(self, scores: np.ndarray) -> np.ndarray:
        """Return the curve [N] of scores [v]."""
        return curve(scores, self.bins, whole_vocabulary=self.whole_vocabulary)


class TermCard(NamedTuple):
    """One term as an expansion: where it stands, where it is added, and what is like it."""

    documents: int  # of the collection, in which it stands
    weight: float  # mean, where it is added
    examples: Sequence[str]  # beginnings of the inputs to which it is added with the greatest weights
    nearest: Sequence[str]  # terms by the cosine of the output layer's rows; none of what has no such layer


def term_cards(
    data: ExpansionData, columns: Sequence[int], inputs: Sequence[str], rows: np.ndarray | None, choices: Choices
) -> list[TermCard]:
    """Return a card of each of these terms; `inputs` are the m texts, `rows` [v, d] those of the output layer."""
    added = choices.expanded(data).tocsc()
    standing = np.bincount(data.counts.indices, minlength=len(data.terms))
    units = None if rows is None else rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(min=TINY)
    cards = []
    for column in columns:
        entries = slice(*added.indptr[column : column + 2])
        texts, weights = added.indices[entries], added.data[entries]
        heaviest = texts[np.lexsort((texts, -weights))[:EXAMPLES]]
        nearest: list[int] = []
        if units is not None:
            nearest = [one for one in np.argsort(-(units @ units[column]), kind="stable").tolist() if one != column]
        cards.append(
            TermCard(
                documents=int(standing[column]),
                weight=float(weights.mean()) if len(weights) else 0.0,
                examples=[shorten(inputs[text], LETTERS, placeholder="...") for text in heaviest.tolist()],
                nearest=[data.terms[one] for one in nearest[:NEAREST]],
            )
        )
    return cards


@dataclass(frozen=True)
class Finding:
    """The wackiness of one expander; `std` is None where the inputs were not drawn again.

    `areas` are the W-AUC of these draws. The draws of expanders of the same inputs are the same, one by one.
    """

    name: str
    terms: Sequence[str]
    kinds: Sequence[str]
    wackiness: Wackiness
    curve: np.ndarray
    w_auc: float  # nan where nothing is expanded
    std: float | None
    active: float  # mean terms of an input (L0)
    expansions: float  # mean expansions of an input
    sensitivity: tuple[tuple[str, float], ...] = ()  # the choice that is another, and the W-AUC that it gives
    areas: tuple[float, ...] = ()
    cards: Sequence[TermCard] = ()  # of the wackiest terms

    @property
    def wackiest(self) -> list[int]:
        """The columns of the wackiest terms."""
        columns: list[int] = ranked(self.wackiness.scores, self.wackiness.inputs)[:WACKIEST].tolist()
        return columns

    def by_kind(self) -> list[dict[str, Any]]:
        """Return, of each kind that there is, how many terms have a score, how often they are an expansion, and the
        mean Wackiness Score of these expansions, each counted once.
        """
        scores, _, inputs = self.wackiness
        found = []
        for kind in KINDS:
            columns = np.flatnonzero((np.array(self.kinds) == kind) & (inputs > 0))
            if len(columns):
                count, mean = int(inputs[columns].sum()), float(np.average(scores[columns], weights=inputs[columns]))
                found.append({"kind": kind, "terms": len(columns), "expansions": count, "score": mean})
        return found

    def difference(self, first: Finding) -> dict[str, Any] | None:
        """Return how much W-AUC is above that of another expander of the same inputs, with the 95 % interval.

        The interval is that of a paired bootstrap: the differences, draw by draw. None where nothing was drawn.
        """
        drawn: np.ndarray = np.array(self.areas) - np.array(first.areas)
        drawn = drawn[~np.isnan(drawn)]
        if not len(drawn):
            return None
        low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
        return {"to": first.name, "value": self.w_auc - first.w_auc, "low": low, "high": high}

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON values, without the terms that are not among the wackiest."""
        scores, importance, inputs = self.wackiness
        wackiest = [
            {"term": self.terms[i], "kind": self.kinds[i], "score": float(scores[i])}
            | {"importance": float(importance[i]), "inputs": int(inputs[i])}
            for i in self.wackiest
        ]
        for listed, card in zip(wackiest, self.cards, strict=False):  # without cards none
            listed |= card._asdict()
        found: dict[str, Any] = {
            "name": self.name,
            "w_auc": known(self.w_auc),
            "std": self.std,
            "terms": len(self.terms),
        }
        found |= {"scored_terms": int((inputs > 0).sum()), "active_terms": self.active, "expansions": self.expansions}
        found |= {"curve": None if np.isnan(self.w_auc) else self.curve.tolist(), "wackiest": wackiest}
        found["kinds"] = self.by_kind()
        others = [{"choice": choice, "w_auc": known(value)} for choice, value in self.sensitivity]
        return found | {"sensitivity": others}


def find(
    data: ExpansionData,
    choices: Choices | None = None,
    *,
    names: Collection[str] = (),
    draws: int = 100,
    seed: int = 0,
    sensitivity: bool = False,
) -> Finding:
    """Measure the wackiness of an expander.

    `data` is what it does to the inputs; of the documents that an input retrieves, the first `choices.k` count. `names`
    are proper names, from `vocable.evaluation.expansion_data.proper_names`. `draws` of the bootstrap are 0 for none. With
    `sensitivity` it is also measured with one choice another at a time.
    """
    choices = choices or Choices()
    importance = choices.importance(data)
    found = scored(importance)
    heights = choices.curve(found.scores)
    std, areas, others = None, np.empty(0), choices.others() if sensitivity else {}
    if draws:
        areas = bootstrap(importance, draws, bins=choices.bins, whole_vocabulary=choices.whole_vocabulary, seed=seed)
        std = None if np.isnan(areas).all() else float(np.nanstd(areas, ddof=1))
    m = max(1, data.vectors.shape[0])
    return Finding(
        name=data.name,
        terms=data.terms,
        kinds=[term_kind(surface, names) for surface in data.surfaces],
        wackiness=found,
        curve=heights,
        w_auc=area(heights),
        std=std,
        active=data.vectors.nnz / m,
        expansions=importance.nnz / m,
        sensitivity=tuple(
            (label, area(other.curve(scored(other.importance(data)).scores))) for label, other in others.items()
        ),
        areas=tuple(areas.tolist()),
    )


def known(value: float) -> float | None:
    """Return the value, or None for nan, which JSON does not have."""
    return None if np.isnan(value) else value


METADATA_KEY = b"vocable wackiness"
TYPES = {"term": pa.string(), "column": pa.int32(), "score": pa.float64(), "importance": pa.float64()}
TYPES |= {"inputs": pa.int64(), "kind": pa.string()}
SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in TYPES.items()])


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


def write_scores(
    path: str | os.PathLike[str],
    finding: Finding,
    choices: Choices,
    *,
    model: str,
    role: str = "query",
    queries: str = "",
    corpus: str = "",
) -> None:
    """Write the scores of a finding to a Parquet file, whole or not at all: a row per scored term, the wackiest first.

    With them are written down `choices`, those of the finding, and what they are of.
    """
    names, (scores, importance, inputs) = list(finding.terms), finding.wackiness
    meta: dict[str, Any] = {
        "model": model,
        "vocabulary": vocabulary_fingerprint(names),
        "size": len(names),
        "role": role,
    }
    meta |= {"k": choices.k, "idf": choices.idf, "queries": queries, "corpus": corpus, "w_auc": finding.w_auc}
    columns = ranked(scores, inputs)
    values = [[names[column] for column in columns], columns, scores[columns], importance[columns], inputs[columns]]
    values.append([finding.kinds[column] for column in columns])
    arrays = [pa.array(value, type=field.type) for value, field in zip(values, SCHEMA, strict=True)]
    schema = SCHEMA.with_metadata({METADATA_KEY: json.dumps({"format": FORMAT, **asdict(ScoresMeta(**meta))})})
    with replacing(path) as file:
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), file, compression="zstd", write_page_checksum=True)


def read_scores(
    path: str | os.PathLike[str], vocabulary: str | None = None
) -> tuple[np.ndarray, np.ndarray, ScoresMeta]:
    """Read what `write_scores` wrote.

    Returns the scores, float64 [v], nan for a term that has none; how many inputs each term expands, int64 [v]; and
    what they are of. Raises `VectorsError` if there is no such file, it is damaged or something else, or `vocabulary`,
    a fingerprint, is not that of the scores.
    """
    place = Path(path)
    if place.is_dir():
        raise VectorsError(f"{place}: a folder: name the scores in it, {place / 'scores.parquet'}")
    table, values = read_table(place, SCHEMA, METADATA_KEY, "scores", "wackiness")
    try:
        meta = TypeAdapter(ScoresMeta).validate_python(values)
    except ValidationError as error:
        [first, *_] = error.errors()
        raise VectorsError(f"{place}: its metadata does not say {first['loc'][0]}: {first['msg']}") from error
    if vocabulary is not None and vocabulary != meta.vocabulary:
        raise VectorsError(f"{place}: the scores are of {meta.model}, which has another vocabulary")
    columns, scores, inputs = table["column"].to_numpy(), np.full(meta.size, np.nan), np.zeros(meta.size, np.int64)
    if len(columns) and not 0 <= columns.min() <= columns.max() < meta.size:
        raise VectorsError(f"{place}: a term lies outside the vocabulary of {meta.size}")
    scores[columns], inputs[columns] = table["score"].to_numpy(), table["inputs"].to_numpy()
    return scores, inputs, meta


def read_wackiest(path: str | os.PathLike[str], names: Sequence[str]) -> np.ndarray:
    """Return the columns of the scored terms in a file of scores, the wackiest first; `names` are the model's v terms.

    Raises `VectorsError` if it is no file of scores, or they are of another vocabulary.
    """
    scores, inputs, _ = read_scores(path, vocabulary_fingerprint(list(names)))
    return ranked(scores, inputs)


@checked
def read_wacky_terms(path: str | os.PathLike[str], names: Sequence[str], share: Share = SHARE) -> frozenset[str]:
    """Return the wackiest terms in a file of scores, as `vocable.retrieval.explain` marks them.

    `share` is of the terms that have a score, rounded up. Raises `ArgumentError` if it is not above 0 and at most 1,
    and what `read_wackiest` does.
    """
    columns = read_wackiest(path, names)
    return frozenset(names[column] for column in columns[: math.ceil(share * len(columns) - 1e-9)].tolist())
