"""The queries of a recipe, where they do not go through the encoder of the documents.

From a recipe's backbone to the model that the retrieval training starts from (`stages.py`, `query_encoder.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from vocable.adapt.calibrate import calibrate
from vocable.adapt.expand import expand, frequent_words, read_words
from vocable.adapt.provenance import new_tokens, splitter_name
from vocable.adapt.rescale import rescale
from vocable.adapt.transfer import transfer
from vocable.adapt.vocabulary import lowercased
from vocable.data import read_texts
from vocable.encoder.inference_free import inference_free, trainable_tables
from vocable.encoder.load import (
    add_mlm_head,
    load,
    load_checkpoint,
    load_target,
    load_tokenizer,
    locate,
    save_checkpoint,
)
from vocable.encoder.roles import asymmetric, route
from vocable.encoder.terms import splitter
from vocable.storage import partial_of
from vocable.training.pretrain import pretrain
from vocable.training.recipe import ExpandSettings, QuerySettings, Recipe, TransferSettings

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
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: TransferSettings, recipe: Recipe
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
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: ExpandSettings, recipe: Recipe
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


PARAMETERS = r"sub_modules\.query\."  # the host library's names of what encodes queries


def with_queries(settings: QuerySettings, documents: str, corpus: str | None, folder: Path) -> str:
    """Make the model of a recipe with such queries in `folder`, and name the folder; what is there is used as it is.

    Args:
        documents: the model that encodes documents.
        corpus: the place of the IDF's texts, where it is asked for.

    Raises:
        ModelError, DataError: what the recipe names cannot be read, or does not fit together.
    """
    if not folder.exists():
        unfinished = partial_of(folder)
        shutil.rmtree(unfinished, ignore_errors=True)
        _with_queries(settings, load(documents), corpus).save_pretrained(str(unfinished), create_model_card=False)
        unfinished.rename(folder)
    return str(folder)


def _with_queries(settings: QuerySettings, documents: SparseEncoder, corpus: str | None) -> SparseEncoder:
    if settings.model is not None:
        return asymmetric(load(settings.model), documents)
    texts = None if corpus is None else read_texts(corpus)
    return inference_free(documents, texts, trainable=settings.trainable)


def queries_learn_apart(model: SparseEncoder) -> bool:
    """Whether a training moves weights that encode queries alone."""
    first = model[0]
    return isinstance(first, Router) and any(
        weight.requires_grad for module in route(model, "query") for weight in module.parameters()
    )


class ValidWeights(TrainerCallback):
    """After every step, no looked-up weight is negative, and special tokens weigh nothing.

    A sparse vector has no negative weights: what the training would gain by them, a search would lose.
    """

    @torch.no_grad()
    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: SparseEncoder | None = None,
        **kwargs: object,
    ) -> None:
        if model is None:
            return
        for table in trainable_tables(model):
            table.weight.clamp_(min=0)
            table.weight[table.tokenizer.all_special_ids] = 0
