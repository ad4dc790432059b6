"""The model of a retrieval training: prepared before, measured on held-out pairs, and saved after it."""

from __future__ import annotations

import logging
from typing import NamedTuple

import torch
from datasets import Dataset
from sentence_transformers import SparseEncoder

from vocable.adapt.statistics import RULES
from vocable.encoder.asymmetric import Role, positions, static_embedding
from vocable.encoder.cpu import use_few_shapes
from vocable.encoder.fuse import splade_modules
from vocable.encoder.text_encoder import TextEncoder
from vocable.training import distributed
from vocable.training.callbacks import lower_rate, set_dropout
from vocable.training.settings import SavedSettings, TrainingSettings

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)  # the outcome of a training is shown to everybody

ENOUGH_PAIRS = 8  # held-out pairs, for an accuracy to be reported


class MaxLengths(NamedTuple):
    """Tokens that a model reads of a query and of a document; None for the model's maximum."""

    query: int | None
    document: int | None


def prepare(model: SparseEncoder, settings: TrainingSettings) -> MaxLengths:
    """Set dropout and lengths of the model for its training; return the lengths that it had."""
    set_dropout(model, settings.dropout)
    for transformer, _ in splade_modules(model):
        use_few_shapes(transformer.auto_model)
    own = _lengths(model)
    _set_lengths(model, settings.query_length, settings.document_length)
    limit = min(positions(transformer) for transformer, _ in splade_modules(model))
    for key in {"query_length", "document_length"} & settings.model_fields_set if distributed.is_first() else ():
        if (length := getattr(settings, key)) > limit:
            logger.warning("training.%s: the model has %d positions, where texts are cut, not %d", key, limit, length)
    card = model.model_card_data  # nothing is looked up, or encoded again at every checkpoint
    card.local_files_only, card.generate_widget_examples = True, False
    return own


def accuracy(model: SparseEncoder, pairs: Dataset) -> float:
    """Return the share of queries whose own positive scores highest among the positives of all pairs."""
    if len(pairs) < ENOUGH_PAIRS:
        return 0.0
    sides: tuple[tuple[Role, str], ...] = ("query", "query"), ("document", "positive")
    queries, documents = (TextEncoder(model, role).encode(list(pairs[column])) for role, column in sides)
    scores = (queries @ documents.T).toarray()
    return float((scores.argmax(axis=1) == range(len(scores))).mean())


def report(before: float, after: float, pairs: int, rate: float) -> None:
    """Log the accuracy on held-out `pairs` before and after a training at this rate, if there are enough pairs."""
    if pairs < ENOUGH_PAIRS:
        logger.info("no accuracy: %d examples are held out, and %d are needed", pairs, ENOUGH_PAIRS)
        return
    found = f"{after:.0%} of {pairs} held-out queries find their own document first, {before:.0%} before"
    if RULES["lost_accuracy"].beyond(before - after):
        logger.warning("%s: a worse model, %s", found, lower_rate(rate))
    else:
        logger.info(found)


@torch.no_grad()
def average_with(start: SparseEncoder, model: SparseEncoder, share: float) -> None:
    """Replace the weights of `model`, in place, by their mean with the weights of `start`, which count for `share`.

    The mean is often better than both, above all for texts unlike the training texts (Wortsman et al. 2022, arXiv
    2109.01903).
    """
    before = dict(start.named_parameters())
    for name, weight in model.named_parameters():
        weight.lerp_(before[name].to(weight), share)


def save(model: SparseEncoder, saved: SavedSettings, own: MaxLengths, folder: str) -> None:
    """Write a model with the lengths and limits of the recipe, by default its own."""
    _set_lengths(model, saved.query_length or own.query, saved.document_length or own.document)
    limits = {"query": saved.query_terms, "document": saved.document_terms}
    changed = {role: k for role, k in limits.items() if k is not None}
    for transformer, _ in splade_modules(model):
        if changed:
            kept = getattr(transformer.auto_model.config, "active_terms", None) or {}
            transformer.auto_model.config.active_terms = {**kept, **changed}
        if saved.query_idf is not None:
            transformer.auto_model.config.query_idf = saved.query_idf
        transformer.to(getattr(torch, saved.dtype))  # a table of weights is small and stays exact
    model.similarity_fn_name = model.similarity_fn_name  # otherwise set when a checkpoint's card first reads it
    model.save_pretrained(folder)


def _lengths(model: SparseEncoder) -> MaxLengths:
    (queries, _), (documents, _) = splade_modules(model)[0], splade_modules(model)[-1]
    table = static_embedding(model, "query")
    query = queries.query_length if table is None else table.tokenizer.model_max_length
    return MaxLengths(query, documents.document_length)


def _set_lengths(model: SparseEncoder, query: int | None, document: int | None) -> None:
    for transformer, _ in splade_modules(model):
        transformer.query_length, transformer.document_length = query, document
    table = static_embedding(model, "query")
    if table is not None:
        table.tokenizer.model_max_length = query
