"""From a recipe's backbone to the model that the retrieval training starts from (`stages.py`, `query_encoder.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.calibrate import calibrate
from vocable.adapt.checkpoint import load_checkpoint, load_tokenizer, save_checkpoint
from vocable.adapt.expand import expand
from vocable.adapt.lowercase import lowercased
from vocable.adapt.mlm_head import add_mlm_head
from vocable.adapt.provenance import new_tokens, splitter_name
from vocable.adapt.rescale import rescale
from vocable.adapt.target import load_target
from vocable.adapt.transfer import transfer
from vocable.adapt.words import frequent_words, read_words
from vocable.data import read_texts
from vocable.encoder.load import locate
from vocable.encoder.splitters import splitter
from vocable.training.pretrain import pretrain
from vocable.training.query_encoder import with_queries
from vocable.training.recipe import Recipe
from vocable.training.stages import Expansion, Transfer

PROBE_TEXTS = 1000  # read at most, of which calibrate and rescale use the first that serve them
PRETRAIN = "pretrain"  # the folder of pre-training within that of the run


def starting_point(recipe: Recipe, work: Path) -> str:
    """Carry out the stages before the retrieval training, and name the result.

    Args:
        work: the run's folder. Pre-training goes on from its checkpoints there, and what is finished is used as it is.

    Returns:
        `recipe.model` itself where the recipe has no such stage, else a folder in `work`.

    Raises:
        DataError, ModelError, ArgumentError: as the verbs of the stages do.
    """
    adapted = _adapted(recipe, work)
    if recipe.queries is None:
        return adapted
    corpus = None if recipe.queries.corpus is None else recipe.place(recipe.queries.corpus)
    return with_queries(recipe.queries, adapted, corpus, work / "with-queries")


def _adapted(recipe: Recipe, work: Path) -> str:
    stages = (recipe.lowercase, recipe.transfer, recipe.expand, recipe.rescale, recipe.pretrain, recipe.calibrate)
    if recipe.head == "own" and not any(stages):
        return recipe.model
    adapted = work / "adapted"
    if not adapted.exists():
        mlm, tokenizer = _carry_out(recipe, work)
        save_checkpoint(mlm, tokenizer, adapted)
    return str(adapted)


def _carry_out(recipe: Recipe, work: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    mlm, tokenizer = _backbone(recipe)
    new = new_tokens(locate(recipe.model))
    if recipe.lowercase:
        tokenizer = lowercased(tokenizer)
    if recipe.transfer is not None:
        mlm, tokenizer, new = _transferred(mlm, tokenizer, recipe.transfer, recipe)
    words = splitter_name(locate(recipe.model))
    if recipe.expand is not None:
        words = recipe.expand.splitter
        mlm = _expanded(mlm, tokenizer, recipe.expand, recipe)
    if recipe.rescale is not None:
        texts = _probe(recipe, recipe.rescale.texts)
        mlm = rescale(mlm, recipe.rescale.factor, tokenizer=tokenizer, texts=texts)
    if recipe.pretrain is not None:
        learned = _texts(recipe, recipe.pretrain.texts)
        split, folder = splitter(tokenizer, words), work / PRETRAIN
        mlm = pretrain(
            mlm, tokenizer, learned, recipe.pretrain, folder, new_tokens=new, split=split, seed=recipe.seed
        ).mlm
    if recipe.calibrate is not None:
        settings = recipe.calibrate
        texts = _probe(recipe, settings.texts)
        mlm = calibrate(
            mlm,
            tokenizer,
            texts,
            activation_rate=settings.activation_rate,
            shift=settings.shift,
            level=settings.level,
            pooling=recipe.pooling,
        ).mlm
    return mlm, tokenizer


def _backbone(recipe: Recipe) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if recipe.head == "own":
        return load_checkpoint(recipe.model)
    place = locate(recipe.model)
    return add_mlm_head(place), load_tokenizer(place)


def _transferred(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: Transfer, recipe: Recipe
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, NDArray[np.int64]]:
    """The transferred model, its tokenizer, and which of its terms are new."""
    target = load_target(settings.target)
    moved = transfer(
        mlm,
        tokenizer,
        target.tokenizer,
        target_model=target.model,
        head_only=settings.head_only,
        init=settings.init,
        bias=settings.bias,
        texts=_texts(recipe, settings.texts) if settings.texts else None,
        seed=recipe.seed,
    )
    return moved.mlm, moved.tokenizer, moved.alignment.new


def _expanded(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: Expansion, recipe: Recipe
) -> PreTrainedModel:
    """The model with whole words for output terms."""
    if settings.words is not None:
        words = read_words(recipe.place(settings.words))
    else:
        split, texts = splitter(tokenizer, settings.splitter), _texts(recipe, settings.texts)
        words = frequent_words(texts, tokenizer, size=settings.size, min_count=settings.min_count, split=split).words
    target = None if settings.target is None else load_target(settings.target)
    return expand(mlm, tokenizer, words, init=settings.init, target=target, seed=recipe.seed)


def _probe(recipe: Recipe, place: str | None) -> list[str]:
    return [] if place is None else list(islice(_texts(recipe, [place]), PROBE_TEXTS))


def _texts(recipe: Recipe, places: Sequence[str]) -> Iterator[str]:
    return chain.from_iterable(read_texts(recipe.place(place)) for place in places)
