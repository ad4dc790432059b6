"""The outcome of a retrieval training on held-out pairs: before and after, and the likely cause of a loss."""

from __future__ import annotations

import logging
from typing import NamedTuple

from datasets import Dataset
from sentence_transformers import SparseEncoder

from vocable.adapt.statistics import RULES
from vocable.encoding.protocol import Role
from vocable.encoding.text_encoder import TextEncoder
from vocable.training.advice import PLURAL, USUAL_TERMS, known_cause, likely_cause
from vocable.training.detector import History
from vocable.training.recipe import Recipe

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)  # the outcome of a training is shown to everybody

ENOUGH_PAIRS = 8  # fewest held-out pairs for which an accuracy is reported
FEW_TERMS = 1 / 3  # a smaller share of the initial terms is few
GUESSED = 2  # queries of many whose own document a model finds first by guessing, at most
MANY = 32


class HeldOutAnswers(NamedTuple):
    """A model's answers to the queries of held-out pairs."""

    pairs: int
    accuracy: float  # share of the queries whose own positive scores highest among the positives of all pairs
    terms: dict[Role, float]  # mean number of active terms


def measure_held_out(model: SparseEncoder, pairs: Dataset) -> HeldOutAnswers:
    """Search the positives of held-out pairs by their queries; too few pairs are only counted."""
    if len(pairs) < ENOUGH_PAIRS:
        return HeldOutAnswers(len(pairs), 0.0, {})
    sides: tuple[tuple[Role, str], ...] = ("query", "query"), ("document", "positive")
    queries, documents = (TextEncoder(model, role).encode(list(pairs[column])) for role, column in sides)
    scores = (queries @ documents.T).toarray()
    accuracy = float((scores.argmax(axis=1) == range(len(scores))).mean())
    terms: dict[Role, float] = {"query": queries.nnz / len(pairs), "document": documents.nnz / len(pairs)}
    return HeldOutAnswers(len(pairs), accuracy, terms)


def report(start: HeldOutAnswers, end: HeldOutAnswers, recipe: Recipe, history: History) -> None:
    """Log the outcome: a warning with the likely cause if the model is worse, or lost most of its terms."""
    if not end.pairs:  # the recipe holds out no examples
        return
    if end.pairs < ENOUGH_PAIRS:
        logger.info("no accuracy: %d examples are held out, and %d are needed", end.pairs, ENOUGH_PAIRS)
        return
    hits = f"{end.accuracy:.0%} of {end.pairs} held-out queries find their own document first"
    terms = ", ".join(f"{end.terms[side]:.0f} a {side} ({start.terms[side]:.0f})" for side in PLURAL)
    message = f"{hits}, {start.accuracy:.0%} before; terms: {terms}"
    cause = known_cause(history, recipe)
    side = min(PLURAL, key=lambda side: end.terms[side] / start.terms[side] if start.terms[side] else 1.0)
    if end.pairs >= MANY and max(start.accuracy, end.accuracy) * end.pairs <= GUESSED:
        logger.warning("%s: no better than guessing; see whether each positive answers its query", message)
    elif RULES["worse"].beyond(start.accuracy - end.accuracy):
        logger.warning("%s: a worse model; %s", message, likely_cause(history, recipe))
    elif (
        start.terms[side] <= USUAL_TERMS[side][1]
        and end.terms[side] < FEW_TERMS * start.terms[side]
        and cause is not None
    ):
        logger.warning("%s: few terms are left; %s", message, cause)
    else:
        logger.info(message)
