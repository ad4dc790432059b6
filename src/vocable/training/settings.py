"""The `training` part of a recipe: what the loss of a batch is made of, and how it is minimized."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from vocable.encoder.precision import DType
from vocable.encoder.routes import Role
from vocable.training.part import Part

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]


class QueueSettings(Part):
    """Documents of earlier batches, encoded by a copy of the encoder that follows it slowly (paper 004, J.4)."""

    size: PositiveInt = Field(description="how many documents, the newest ones")
    momentum: float = Field(default=0.999, ge=0, lt=1, description="share of the copy's weights that a step keeps")
    terms: PositiveInt = Field(default=1000, description="a document is kept with so many of its heaviest terms")


class InfoNCE(Part):
    """A query's own document against all others of the batch."""

    name: Literal["info_nce"] = "info_nce"
    weight: Positive = 1.0
    temperature: Positive = Field(default=1.0, description="what the scores are divided by")
    margin: Weight = Field(default=0.0, description="what is taken from the positive's score")
    cosine: bool = Field(default=False, description="of vectors of length 1")
    queue: QueueSettings | None = Field(default=None, description="further negatives, from earlier batches")


class MarginMSE(Part):
    """The teacher's margins between positive and negatives."""

    name: Literal["margin_mse"] = "margin_mse"
    weight: Positive = 1.0


class KL(Part):
    """The teacher's distribution over a query's documents."""

    name: Literal["kl"] = "kl"
    weight: Positive = 1.0
    temperature: Positive = Field(default=1.0, description="what the student's scores are divided by")
    teacher_temperature: Positive = Field(default=1.0, description="what the teacher's scores are divided by")


class Alignment(Part):
    """A sparse teacher's vectors."""

    name: Literal["alignment"] = "alignment"
    weight: Positive = 1.0
    kind: Literal["mse", "kl"] = Field(default="mse", description="over shared terms, or of vectors with sum 1")


Loss = Annotated[InfoNCE | MarginMSE | KL | Alignment, Field(discriminator="name")]
MEASURING = ("every", "sample", "k")  # how wackiness_flops measures
TAUGHT = ("kl", "margin_mse")  # losses that need a teacher's scores


class TeacherSettings(Part):
    """Who scores every query of a batch with every document: several are standardized per query and averaged."""

    models: list[str] = Field(default=[], description="dense bi-encoders: folder, Hub id, or package:NAME/FOLDER")
    lexical: bool = Field(default=False, description="BM25 over the examples' documents is one of the teachers")
    max_length: PositiveInt = Field(default=128, description="tokens of a text that a dense teacher reads")

    @model_validator(mode="after")
    def _somebody(self) -> TeacherSettings:
        if not self.models and not self.lexical:
            raise ValueError("a teacher is at least one of models, or lexical")
        return self


class TopK(Part):
    """The losses see the heaviest terms alone."""

    query: PositiveInt | None = Field(default=None, description="q_K, terms of a query; null for all")
    document: PositiveInt | None = Field(default=None, description="d_K, terms of a document; null for all")
    full: bool = Field(default=True, description="the losses of the full vectors are added")

    @model_validator(mode="after")
    def _something_is_masked(self) -> TopK:
        if self.query is None and self.document is None:
            raise ValueError("top_k masks nothing: give query, document, or both")
        return self


def _as_part(given: Any) -> Any:
    """A number alone is the weight."""
    return given if isinstance(given, Part | dict | bool) else {"weight": given}


class Joint(Part):
    """What queries and documents cost together: joint FLOPS, or that a query and its positive differ in terms."""

    weight: Weight = 0.0
    ramp: Literal["constant", "linear", "quadratic"] = "quadratic"
    share: Share = Field(default=1 / 3, description="of the steps, in which the weight rises")


class Regularizer(Joint):
    """What makes one side's vectors sparse."""

    name: Literal["flops", "l1", "df_flops", "idf_flops", "wackiness_flops"] = "flops"
    threshold: int = Field(default=0, ge=0, description="texts with so many active terms or fewer are left in peace")
    every: PositiveInt = Field(default=100, description="wackiness_flops: steps between two measurements")
    sample: PositiveInt = Field(default=1000, description="wackiness_flops: examples on which wackiness is measured")
    k: PositiveInt = Field(default=100, description="wackiness_flops: documents that are retrieved for a text")

    @model_validator(mode="after")
    def _threshold_of_flops(self) -> Regularizer:
        if self.threshold and self.name == "l1":
            raise ValueError("l1 has no threshold: take another regularizer, or leave it out")
        return self

    @model_validator(mode="after")
    def _measurements_of_wackiness(self) -> Regularizer:
        others = [key for key in MEASURING if getattr(self, key) != type(self).model_fields[key].default]
        if others and self.name != "wackiness_flops":
            raise ValueError(f"{' and '.join(others)} is for wackiness_flops, not for {self.name}")
        return self


class Regularizers(Part):
    """The weights of queries, of documents and of both together, or all that there is to say about each."""

    query: Annotated[Regularizer, BeforeValidator(_as_part)] = Regularizer(weight=5e-5)
    document: Annotated[Regularizer, BeforeValidator(_as_part)] = Regularizer(weight=3e-5)
    joint: Annotated[Joint, BeforeValidator(_as_part)] = Joint()
    overlap: Annotated[Joint, BeforeValidator(_as_part)] = Joint()

    @property
    def names(self) -> set[str]:
        """Which kinds are in use."""
        return {part.name for part in (self.query, self.document) if part.weight}

    @property
    def measured(self) -> dict[Role, Regularizer]:
        """The sides whose terms' wackiness is measured."""
        sides: dict[Role, Regularizer] = {"query": self.query, "document": self.document}
        return {side: part for side, part in sides.items() if part.weight and part.name == "wackiness_flops"}


class Training(Part):
    """How the retrieval training goes: by default InfoNCE over in-batch and hard negatives, with FLOPS."""

    steps: PositiveInt
    batch_size: int = Field(default=32, ge=2, description="what a loss sees, on all devices together")
    micro_batch: PositiveInt | None = Field(default=None, description="what fits in memory at once; null for all")
    gradient_accumulation: PositiveInt = 1
    query_length: PositiveInt = 64
    document_length: PositiveInt = 128
    losses: list[Loss] = Field(default=[InfoNCE()], min_length=1)
    teacher: TeacherSettings | None = None
    sparse_teacher: str | None = Field(default=None, description="of alignment: a model with the same output terms")
    top_k: TopK | None = None
    regularizers: Regularizers = Regularizers()
    learning_rate: float = Field(default=2e-5, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    warmup_share: float = Field(default=0.06, ge=0, lt=1)
    dtype: DType = Field(default="auto", description="of products: auto is bfloat16 where native, else float32")
    # YAML reads a bare `off` as false.
    guard: Annotated[
        Literal["stop", "warn", "off"], BeforeValidator(lambda given: "off" if given is False else given)
    ] = "stop"
    log_every: PositiveInt = 10
    save_every: PositiveInt = 200

    @model_validator(mode="after")
    def _whole_micro_batches(self) -> Training:
        if self.micro_batch is not None and self.batch_size % self.micro_batch:
            raise ValueError(f"micro_batch {self.micro_batch} does not divide batch_size {self.batch_size}")
        return self

    @model_validator(mode="after")
    def _each_loss_once(self) -> Training:
        names = [loss.name for loss in self.losses]
        if len(set(names)) < len(names):
            raise ValueError("each of losses can be there once")
        return self

    @model_validator(mode="after")
    def _alignment_and_its_teacher(self) -> Training:
        if self.aligned and self.sparse_teacher is None:
            raise ValueError("the loss alignment needs sparse_teacher, the model whose vectors are aligned with")
        if self.sparse_teacher is not None and not self.aligned:
            raise ValueError("sparse_teacher teaches nothing without alignment among the losses")
        return self

    @property
    def taught(self) -> bool:
        """Whether a loss needs a teacher's scores: of `teacher`, or those that the examples carry."""
        return any(loss.name in TAUGHT for loss in self.losses)

    @property
    def queue(self) -> QueueSettings | None:
        """The queue of the in-batch loss, if it has one."""
        return next((loss.queue for loss in self.losses if isinstance(loss, InfoNCE)), None)

    @property
    def aligned(self) -> bool:
        """Whether a loss needs a sparse teacher's vectors."""
        return any(loss.name == "alignment" for loss in self.losses)

    @property
    def yardstick(self) -> InfoNCE:
        """The InfoNCE by which a training is watched, on the scores as the losses see them."""
        for loss in self.losses:
            if isinstance(loss, InfoNCE | KL):
                return InfoNCE(temperature=loss.temperature, cosine=isinstance(loss, InfoNCE) and loss.cosine)
        return InfoNCE()
