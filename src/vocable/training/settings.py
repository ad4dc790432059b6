"""The sections of a recipe, each a class with its keys, their defaults and what they mean (docs/recipe-keys.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import (
    AliasChoices,
    BeforeValidator,
    Discriminator,
    Field,
    PositiveInt,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from vocable.adapt.stages import Stage, register
from vocable.encoder.cpu import in_bfloat16
from vocable.errors import ArgumentError
from vocable.evaluation.quality import parse_measures
from vocable.objectives import Settings
from vocable.objectives.losses import AnyLoss, InfoNCE, QueueSettings
from vocable.objectives.regularizers import Regularizers
from vocable.options import DType


class HardNegatives(Settings):
    """Examples as ids, in the layout of the msmarco-hard-negatives data set, and where the texts of the ids are."""

    file: str = Field(description="place of the ids: positives and, by system, negatives of each query")
    corpus: str = Field(description="place of the documents")
    queries: str = Field(description="place of the queries")
    scores: str | None = Field(default=None, description="place of a teacher's scores; what has none is left out")
    systems: list[str] | None = Field(default=None, min_length=1, description="whose negatives; null for all systems")


Source = Annotated[
    Annotated[str, Tag("place")] | Annotated[HardNegatives, Tag("hard_negatives")],
    Discriminator(lambda given: "place" if isinstance(given, str) else "hard_negatives"),
]


def located(source: str | HardNegatives, locate: Callable[[str], str]) -> str | HardNegatives:
    """The same source with `locate` applied to every place in it."""
    if isinstance(source, str):
        return locate(source)
    places = {name: getattr(source, name) for name in ("file", "corpus", "queries", "scores")}
    return source.model_copy(update={name: place and locate(place) for name, place in places.items()})


class TeacherSettings(Settings):
    """Who scores every query of a batch with every document: several are standardized per query and averaged."""

    models: list[str] = Field(
        default=[], description="dense or sparse encoders: folder, Hub id, or package:NAME/FOLDER"
    )
    lexical: bool = Field(default=False, description="BM25 over the examples' documents is one of the teachers")
    weights: list[Annotated[float, Field(gt=0)]] | None = Field(
        default=None, description="of the mean: one for each of models, then that of BM25; equal by default"
    )
    max_length: PositiveInt = Field(default=128, description="tokens of a text that each of models reads, at most")

    @model_validator(mode="after")
    def _somebody(self) -> TeacherSettings:
        if not self.models and not self.lexical:
            raise ValueError("a teacher is at least one of models, or lexical")
        teachers = len(self.models) + self.lexical
        if self.weights is not None and len(self.weights) != teachers:
            raise ValueError(f"weights are one for each teacher, {teachers} of them, not {len(self.weights)}")
        return self


class MaxTermsSettings(Settings):
    """The losses see the heaviest terms alone."""

    query: PositiveInt | None = Field(default=None, description="q_K, terms of a query; null for all")
    document: PositiveInt | None = Field(default=None, description="d_K, terms of a document; null for all")
    full: bool = Field(default=True, description="the losses of the full vectors are added")

    @model_validator(mode="after")
    def _something_is_masked(self) -> MaxTermsSettings:
        if self.query is None and self.document is None:
            raise ValueError("max_terms masks nothing: give query, document, or both")
        return self


class OptimizerSettings(Settings):
    """What pre-training and retrieval training have in common."""

    steps: PositiveInt = Field(description="optimizer steps")
    batch_size: PositiveInt = Field(default=32, description="texts of a batch")
    gradient_accumulation: PositiveInt = Field(default=1, description="batches of a step")
    learning_rate: float = Field(default=2e-5, gt=0, description="highest rate, after the warm-up")
    weight_decay: float = Field(default=0.01, ge=0, description="weight decay of AdamW")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="share of the activations that are dropped")
    warmup_share: float = Field(default=0.06, ge=0, lt=1, description="share of the steps in which the rate rises")
    dtype: DType = Field(
        default="auto", description="number type of products: auto is bfloat16 where native, else float32"
    )
    log_every: PositiveInt = Field(default=10, description="steps between lines of the log")
    save_every: PositiveInt = Field(default=200, description="steps between checkpoints")

    def trainer_arguments(self, device: torch.device, folder: Path, seed: int) -> dict[str, Any]:
        """Return what both trainings tell the host library's trainer."""
        return {
            "output_dir": str(folder),
            "max_steps": self.steps,
            "per_device_train_batch_size": self.batch_size,
            "gradient_accumulation_steps": self.gradient_accumulation,
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "warmup_steps": self.warmup_share,
            "bf16": in_bfloat16(self.dtype, device),
            "use_cpu": device.type == "cpu",  # has to be said for bfloat16 there
            "logging_steps": self.log_every,
            "logging_nan_inf_filter": False,  # it would hide them
            "save_steps": self.save_every,
            "save_total_limit": 2,
            "seed": seed,
            "dataloader_pin_memory": device.type == "cuda",
            "disable_tqdm": True,
            "report_to": "none",
        }


class TrainingSettings(OptimizerSettings):
    """How the retrieval training goes: by default InfoNCE over in-batch and hard negatives, with FLOPS."""

    batch_size: int = Field(default=32, ge=2, description="what a loss sees, on all devices together")
    micro_batch: PositiveInt | None = Field(default=None, description="what fits in memory at once; null for all")
    query_length: PositiveInt = 64
    document_length: PositiveInt = 128
    losses: list[AnyLoss] = Field(default=[InfoNCE()], min_length=1)
    teacher: TeacherSettings | None = None
    sparse_teacher: str | None = Field(default=None, description="of alignment: a model with the same output terms")
    query_idf: float | None = Field(
        default=None,
        gt=0,
        description="losses see queries as a search of their source weighs them, by its terms' IDF to this power",
    )
    max_terms: MaxTermsSettings | None = None
    regularizers: Regularizers = Regularizers()
    # YAML reads a bare `off` as false.
    guard: Annotated[
        Literal["stop", "warn", "off"], BeforeValidator(lambda given: "off" if given is False else given)
    ] = "stop"

    @model_validator(mode="after")
    def _whole_micro_batches(self) -> TrainingSettings:
        if self.micro_batch is not None and self.batch_size % self.micro_batch:
            raise ValueError(f"micro_batch {self.micro_batch} does not divide batch_size {self.batch_size}")
        return self

    @model_validator(mode="after")
    def _losses_and_teacher(self) -> TrainingSettings:
        names = [loss.name for loss in self.losses]
        if len(set(names)) < len(names):
            raise ValueError("each of losses can be there once")
        losses = [loss.name for loss in self.losses if loss.needs == "teacher_vectors"]
        if losses and self.sparse_teacher is None:
            raise ValueError(f"the loss {losses[0]} needs sparse_teacher, the model whose vectors are aligned with")
        if self.sparse_teacher is not None and not losses:
            raise ValueError("sparse_teacher teaches nothing without alignment among the losses")
        if losses and self.query_idf is not None:
            raise ValueError("query_idf weighs scores, and alignment compares vectors: not both")
        return self

    @property
    def needs_scores(self) -> bool:
        """Whether a loss needs a teacher's scores: of `teacher`, or those that the examples carry."""
        return any(loss.needs == "teacher_scores" for loss in self.losses)

    @property
    def queue(self) -> QueueSettings | None:
        """The queue of the in-batch loss, if it has one."""
        return next((loss.queue for loss in self.losses if isinstance(loss, InfoNCE)), None)

    @property
    def yardstick(self) -> InfoNCE:
        """The InfoNCE by which a training is watched, on the scores as the losses see them."""
        return next((found for loss in self.losses if (found := loss.yardstick()) is not None), InfoNCE())


WHOLE_TERMS = ("whole-word", "longest-span")  # ways of masking that hide terms of an output vocabulary


class PretrainSettings(OptimizerSettings):
    """Masked language modelling, or what a teacher says of whole texts, before the retrieval training."""

    texts: list[str] = Field(min_length=1, description="sources of the texts that the model learns from")
    max_length: int = Field(default=128, ge=8, description="tokens of a window, special tokens included")
    masking: Literal["uniform", "overlap-aware", "whole-word", "longest-span"] = Field(
        default="uniform",
        description="which tokens are guessed: overlap-aware: new ones of a transferred model more often; "
        "whole-word: words of an expanded one; longest-span: terms of a new head, continuations too",
    )
    masking_rate: float = Field(
        default_factory=lambda given: 0.15 if given.get("masking") in WHOLE_TERMS else 0.3,
        gt=0,
        le=1,
        description="share of the tokens to be guessed, by default 0.3; of words or terms, 0.15",
    )
    new_token_weight: float = Field(
        default=2.0, gt=0, description="overlap-aware: how often a new token is masked for each shared one"
    )
    teacher: str | None = Field(
        default=None,
        description="nothing is masked: the largest logits of this sparse model, of the same output terms, are learned",
    )
    classes: int | None = Field(
        default=None,
        ge=2,
        description="instead, with a dense teacher: its embeddings of the texts are put into so many clusters, and the "
        "cluster of a text is learned",
    )
    trainable: Literal["all", "embeddings"] = Field(default="all", description="what learns; the rest is frozen")
    train_bias: bool = Field(default=False, description="with embeddings alone, let the output bias learn, too")
    held_out: int = Field(default=256, ge=0, description="windows kept apart for the report, at most a tenth of all")
    passes: PositiveInt | None = Field(
        default=None, description="how often a text is seen at most, under other masks each time; no limit by default"
    )
    learning_rate: float = Field(default=3e-4, gt=0, description="highest rate, after the warm-up")
    schedule: Literal["cosine", "linear"] = Field(default="cosine", description="how the rate falls")
    schedule_steps: PositiveInt | None = Field(
        default=None, description="steps in which the rate would fall to 0, if not those of the run: more of them"
    )

    @field_validator("schedule_steps")
    @classmethod
    def _no_shorter_than_the_run(cls, value: int | None, others: ValidationInfo) -> int | None:
        steps = others.data.get("steps")
        if value is not None and steps is not None and value < steps:
            raise ValueError(f"the schedule cannot be shorter than the run of {steps} steps")
        return value

    @model_validator(mode="after")
    def _no_mask_before_a_teacher(self) -> PretrainSettings:
        if self.teacher is not None and self.masking != "uniform":
            raise ValueError(f"with a teacher nothing is masked: leave masking {self.masking} out")
        if self.classes is not None and self.teacher is None:
            raise ValueError("classes are clusters of a teacher's embeddings: name a dense model as teacher")
        return self

    @model_validator(mode="after")
    def _bias_beside_embeddings(self) -> PretrainSettings:
        if self.train_bias and self.trainable == "all":
            raise ValueError("train_bias goes with trainable: embeddings, everything learns without it")
        return self


register(Stage("pretrain", PretrainSettings, 50, models=("teacher",)))


class DataSettings(Settings):
    """What the retrieval training learns from."""

    examples: list[Source] = Field(min_length=1, description="places of query, positive and negatives, or ids of them")
    negatives: int = Field(default=0, ge=0, description="hard negatives taken from each example")
    sampling: Literal["first", "random"] = Field(default="first", description="random: other negatives in every pass")
    false_negative_margin: float | None = Field(
        default=None, description="negatives whose teacher's score is above the positive's less this are left out"
    )
    size_exponent: float = Field(
        default=1.0, ge=0, le=1, description="a source of n examples is drawn in proportion to n to this power"
    )
    held_out: int = Field(
        default=64, ge=0, description="examples kept apart for the report at the end, at most a tenth of each source"
    )
    topical: bool = Field(default=False, description="batches of examples that the teacher finds near each other")
    skip_bad: int = Field(default=0, ge=0, description="bad lines in all that a run reads that are left out")

    @model_validator(mode="after")
    def _choice_of_negatives(self) -> DataSettings:
        if not self.negatives and (self.sampling == "random" or self.false_negative_margin is not None):
            raise ValueError("sampling and false_negative_margin choose among negatives: say how many with negatives")
        if self.false_negative_margin is not None and any(
            isinstance(source, HardNegatives) and source.scores is None for source in self.examples
        ):
            raise ValueError("false_negative_margin needs the scores of every source")
        return self


class EvaluationSettings(Settings):
    """Quality by exact search over whole datasets, in training and of variants; `dataset: PLACE` will do for one."""

    datasets: Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)] = Field(
        min_length=1, validation_alias=AliasChoices("datasets", "dataset")
    )
    measures: list[str] = Field(default=["nDCG@10"], min_length=1)
    wackiness: bool = Field(default=False, description="also W-AUC, the wackiness of the queries' expansions")
    every: PositiveInt | None = Field(default=500, description="steps; null: not during the training")
    best: bool = Field(
        default=False, description="the result is the state with the best mean of the first measure, not the last one"
    )

    @model_validator(mode="after")
    def _measured_during_training(self) -> EvaluationSettings:
        if self.best and self.every is None:
            raise ValueError("best is chosen during the training: say with every how often it is measured")
        return self

    @field_validator("measures")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        try:
            parse_measures(names)
        except ArgumentError as error:
            raise ValueError(str(error)) from error
        return names


class SavedSettings(Settings):
    """Settings that are saved with the model; by default those of the model that the training started from."""

    query_length: PositiveInt | None = Field(
        default=None, description="tokens of a query that the model reads; null for as many as its start"
    )
    document_length: PositiveInt | None = Field(default=None, description="tokens of a document, in the same way")
    query_terms: PositiveInt | None = Field(
        default=None, description="the heaviest terms of a query that are kept; null for as many as its start keeps"
    )
    document_terms: PositiveInt | None = Field(default=None, description="those of a document, in the same way")
    query_idf: float | None = Field(
        default=None,
        ge=0,
        description="a search multiplies a query's weights by the collection's IDF to this power; null for its start's",
    )
    start_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the start's weights in a mean with those of the end",
    )
    dtype: Literal["float32", "bfloat16"] = "float32"
