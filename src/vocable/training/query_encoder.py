"""The queries of a recipe, where they do not go through the encoder of the documents."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field, model_validator
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vocable.data import read_texts
from vocable.encoder.asymmetric import asymmetric
from vocable.encoder.inference_free import inference_free, trainable_tables
from vocable.encoder.load import load
from vocable.encoder.routes import route
from vocable.training.part import Part
from vocable.unfinished import partial_of

PARAMETERS = r"sub_modules\.query\."  # the host library's names of what encodes queries


class Queries(Part):
    """Queries of another kind than documents: their tokens' weights, looked up, or an encoder of their own."""

    weights: Literal["idf", "ones"] | None = Field(default=None, description="of the tokens; no encoder reads a query")
    corpus: str | None = Field(default=None, description="place of the texts whose document frequencies give the IDF")
    trainable: bool = Field(default=False, description="the weights learn, too")
    model: str | None = Field(default=None, description="an encoder with the same terms: folder or Hub id")
    learning_rate: float | None = Field(default=None, gt=0, description="of what encodes queries, where it is another")

    @model_validator(mode="after")
    def _one_kind(self) -> Queries:
        if (self.weights is None) == (self.model is None):
            raise ValueError("queries have either weights or a model")
        if (self.weights == "idf") != (self.corpus is not None):
            raise ValueError("a corpus goes with weights: idf, and idf with a corpus")
        if self.model is not None and self.trainable:
            raise ValueError("trainable is for weights: a model of its own learns in any case")
        if self.learning_rate is not None and self.weights is not None and not self.trainable:
            raise ValueError("weights that are not trainable have no learning_rate")
        return self


def with_queries(settings: Queries, documents: str, corpus: str | None, folder: Path) -> str:
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


def _with_queries(settings: Queries, documents: SparseEncoder, corpus: str | None) -> SparseEncoder:
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
