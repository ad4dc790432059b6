"""Sections of a recipe: keys, defaults and descriptions (docs/recipe-keys.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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
    """Examples as ids, in the layout of the msmarco-hard-negatives data set, and the sources of their texts."""

    file: str = Field(description="place of the ids: positives and, by system, negatives of each query")
    corpus: str = Field(description="place of the documents")
    queries: str = Field(description="place of the queries")
    scores: str | None = Field(
        default=None, description="place of a teacher's scores; documents without a score are left out"
    )
    systems: list[str] | None = Field(
        default=None, min_length=1, description="systems whose negatives are used; null for all"
    )


Source = Annotated[
    Annotated[str, Tag("place")] | Annotated[HardNegatives, Tag("hard_negatives")],
    Discriminator(lambda given: "place" if isinstance(given, str) else "hard_negatives"),
]


class TeacherSettings(Settings):
    """Teachers that score every query of a batch with every document; several are standardized and averaged."""

    models: list[str] = Field(
        default=[], description="dense or sparse encoders: folder, Hub id, or package:NAME/FOLDER"
    )
    lexical: bool = Field(default=False, description="add BM25 over the examples' documents as a teacher")
    weights: list[Annotated[float, Field(gt=0)]] | None = Field(
        default=None, description="weights of the mean: one per model, then that of BM25; equal by default"
    )
    max_length: PositiveInt = Field(default=128, description="tokens of a text that the models read")

    @model_validator(mode="after")
    def _check(self) -> TeacherSettings:
        if not self.models and not self.lexical:
            raise ValueError("teacher needs models or lexical")
        teachers = len(self.models) + self.lexical
        if self.weights is not None and len(self.weights) != teachers:
            raise ValueError(f"weights needs one value for each of {teachers} teachers, not {len(self.weights)}")
        return self


class MaxTermsSettings(Settings):
    """Losses on the heaviest terms alone."""

    query: PositiveInt | None = Field(default=None, description="q_K, terms of a query; null for all")
    document: PositiveInt | None = Field(default=None, description="d_K, terms of a document; null for all")
    full: bool = Field(default=True, description="add the losses of the full vectors")

    @model_validator(mode="after")
    def _check(self) -> MaxTermsSettings:
        if self.query is None and self.document is None:
            raise ValueError("max_terms needs query, document, or both")
        return self


class OptimizerSettings(Settings):
    """Settings that pre-training and retrieval training share."""

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

    def trainer_arguments(self, device: torch.device, folder: Path, seed: int) -> dict[str, object]:
        """Return the arguments that both trainings give to the trainer of transformers."""
        return {
            "output_dir": str(folder),
            "max_steps": self.steps,
            "per_device_train_batch_size": self.batch_size,
            "gradient_accumulation_steps": self.gradient_accumulation,
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "warmup_steps": self.warmup_share,
            "bf16": in_bfloat16(self.dtype, device),
            "use_cpu": device.type == "cpu",  # required for bfloat16 on a CPU
            "logging_steps": self.log_every,
            "logging_nan_inf_filter": False,  # the filter would hide losses that are not finite
            "save_steps": self.save_every,
            "save_total_limit": 2,
            "seed": seed,
            "dataloader_pin_memory": device.type == "cuda",
            "disable_tqdm": True,
            "report_to": "none",
        }


class TrainingSettings(OptimizerSettings):
    """Retrieval training, by default InfoNCE over in-batch and hard negatives, with FLOPS."""

    batch_size: int = Field(default=32, ge=2, description="examples of a batch, on all devices together")
    micro_batch: PositiveInt | None = Field(default=None, description="examples in memory at once; null for all")
    query_length: PositiveInt = 64
    document_length: PositiveInt = 128
    losses: list[AnyLoss] = Field(default=[InfoNCE()], min_length=1)
    teacher: TeacherSettings | None = None
    sparse_teacher: str | None = Field(
        default=None, description="teacher of the loss alignment: a model with the same output terms"
    )
    query_idf: float | None = Field(
        default=None,
        gt=0,
        description="multiply query weights in the losses by the IDF of their source to this power, as a search does",
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
            raise ValueError("losses must have different names")
        losses = [loss.name for loss in self.losses if loss.needs == "teacher_vectors"]
        if losses and self.sparse_teacher is None:
            raise ValueError(f"the loss {losses[0]} needs sparse_teacher")
        if self.sparse_teacher is not None and not losses:
            raise ValueError("sparse_teacher needs the loss alignment")
        if losses and self.query_idf is not None:
            raise ValueError("query_idf and the loss alignment exclude each other")
        return self

    @property
    def needs_scores(self) -> bool:
        """True if a loss needs the scores of `teacher` or of the examples."""
        return any(loss.needs == "teacher_scores" for loss in self.losses)

    @property
    def queue(self) -> QueueSettings | None:
        """The queue of the in-batch loss, if it has one."""
        return next((loss.queue for loss in self.losses if isinstance(loss, InfoNCE)), None)

    @property
    def monitored_loss(self) -> InfoNCE:
        """The InfoNCE that monitors the training, on the scores that the losses use."""
        return next((found for loss in self.losses if (found := loss.monitored_loss()) is not None), InfoNCE())


WHOLE_TERMS = ("whole-word", "longest-span")  # kinds of masking that hide terms of an output vocabulary


class PretrainSettings(OptimizerSettings):
    """Masked language modelling, or learning from a teacher, before the retrieval training."""

    texts: list[str] = Field(min_length=1, description="sources of the texts that the model learns from")
    max_length: int = Field(default=128, ge=8, description="tokens of a window, special tokens included")
    masking: Literal["uniform", "overlap-aware", "whole-word", "longest-span"] = Field(
        default="uniform",
        description="tokens to hide: overlap-aware: new ones of a transferred model more often; "
        "whole-word: words of an expanded one; longest-span: terms of a new head, continuations too",
    )
    masking_rate: float = Field(
        default_factory=lambda values: 0.15 if values.get("masking") in WHOLE_TERMS else 0.3,
        gt=0,
        le=1,
        description="share of the tokens to hide, by default 0.3; of words or terms, 0.15",
    )
    new_token_weight: float = Field(
        default=2.0, gt=0, description="overlap-aware: rate of new tokens, relative to shared ones"
    )
    teacher: str | None = Field(
        default=None,
        description="learn the largest logits of this sparse model with the same output terms; nothing is masked",
    )
    classes: int | None = Field(
        default=None,
        ge=2,
        description="with a dense teacher: cluster its embeddings of the texts into this number of classes, and learn "
        "the class of a text",
    )
    trainable: Literal["all", "embeddings"] = Field(
        default="all", description="weights that learn; the others are frozen"
    )
    train_bias: bool = Field(default=False, description="with trainable embeddings, let the output bias learn, too")
    held_out: int = Field(default=256, ge=0, description="windows held out for the report, at most a tenth of all")
    passes: PositiveInt | None = Field(
        default=None, description="largest number of passes over the texts, each with other masks; no limit by default"
    )
    learning_rate: float = Field(default=3e-4, gt=0, description="highest rate, after the warm-up")
    schedule: Literal["cosine", "linear"] = Field(default="cosine", description="decay of the rate")
    schedule_steps: PositiveInt | None = Field(
        default=None, description="steps until the rate is 0, at least those of the run, its default"
    )

    @field_validator("schedule_steps")
    @classmethod
    def _no_shorter_than_the_run(cls, value: int | None, others: ValidationInfo) -> int | None:
        steps = others.data.get("steps")
        if value is not None and steps is not None and value < steps:
            raise ValueError(f"schedule_steps must be at least steps, {steps}")
        return value

    @model_validator(mode="after")
    def _check(self) -> PretrainSettings:
        if self.teacher is not None and self.masking != "uniform":
            raise ValueError(f"teacher and masking {self.masking} exclude each other")
        if self.classes is not None and self.teacher is None:
            raise ValueError("classes needs a dense teacher")
        if self.train_bias and self.trainable == "all":
            raise ValueError("train_bias goes with trainable: embeddings")
        return self


register(Stage("pretrain", PretrainSettings, 50, models=("teacher",)))


class DataSettings(Settings):
    """Data of the retrieval training."""

    examples: list[Source] = Field(
        min_length=1, description="sources of query, positive and negatives, or of their ids"
    )
    negatives: int = Field(default=0, ge=0, description="hard negatives taken from each example")
    sampling: Literal["first", "random"] = Field(default="first", description="random: other negatives in each pass")
    false_negative_margin: float | None = Field(
        default=None, description="leave out negatives that score above the positive's score minus this"
    )
    size_exponent: float = Field(
        default=1.0, ge=0, le=1, description="share of a source of n examples is proportional to n to this power"
    )
    held_out: int = Field(
        default=64, ge=0, description="examples held out for the report, at most a tenth of each source"
    )
    topical: bool = Field(default=False, description="batches of examples that are similar by the dense teacher")
    skip_bad: int = Field(
        default=0, ge=0, description="bad lines to skip in all sources of a run; one more is an error"
    )

    @model_validator(mode="after")
    def _check(self) -> DataSettings:
        if not self.negatives and (self.sampling == "random" or self.false_negative_margin is not None):
            raise ValueError("sampling and false_negative_margin need negatives")
        if self.false_negative_margin is not None and any(
            isinstance(source, HardNegatives) and source.scores is None for source in self.examples
        ):
            raise ValueError("false_negative_margin needs the scores of every source")
        return self


class EvaluationSettings(Settings):
    """Evaluation by exact search over whole datasets, in training and of variants; `dataset: PLACE` for one."""

    datasets: Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)] = Field(
        min_length=1, validation_alias=AliasChoices("datasets", "dataset")
    )
    measures: list[str] = Field(default=["nDCG@10"], min_length=1)
    wackiness: bool = Field(default=False, description="measure W-AUC, the wackiness of the queries' expansions, too")
    every: PositiveInt | None = Field(
        default=500, description="steps between evaluations; null: not during the training"
    )
    best: bool = Field(
        default=False, description="save the weights with the best mean of the first measure, in place of the last ones"
    )

    @model_validator(mode="after")
    def _check(self) -> EvaluationSettings:
        if self.best and self.every is None:
            raise ValueError("best needs every")
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
    """Settings that are saved with the model; the defaults are the settings of the initial model."""

    query_length: PositiveInt | None = Field(
        default=None, description="tokens of a query that the model reads; null: as the initial model"
    )
    document_length: PositiveInt | None = Field(
        default=None, description="tokens of a document that the model reads; null: as the initial model"
    )
    query_terms: PositiveInt | None = Field(
        default=None, description="heaviest terms of a query to keep; null: as the initial model"
    )
    document_terms: PositiveInt | None = Field(
        default=None, description="heaviest terms of a document to keep; null: as the initial model"
    )
    query_idf: float | None = Field(
        default=None,
        ge=0,
        description="power of the collection's IDF in a search's query weights; null: as the initial model",
    )
    start_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the initial weights in a mean with the trained ones",
    )
    dtype: Literal["float32", "bfloat16"] = "float32"
