"""What is found about the wackiness of an expander: its scores, its curve and W-AUC, and how they depend on the choices
that the paper leaves open.

Letters: m inputs, v terms.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from vocable.analysis.measured import Measured
from vocable.analysis.term_kinds import term_kinds
from vocable.analysis.wackiness_curve import BINS, area, bootstrap, curve
from vocable.encoder.idf import Formula
from vocable.evaluation.wackiness import Wackiness, lexical_importance, ranked, scored

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
        names: proper names, from `vocable.analysis.term_kinds.proper_names`.
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
