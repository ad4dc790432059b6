"""Losses and regularizers of a recipe: their names, settings and inputs; `value` computes them with PyTorch.

The module does not import PyTorch, so that a recipe is checked without it. A new loss is a class and its name in
`AnyLoss`; a new regularizer is a class, listed in `SideRegularizer` for queries or documents, or in `Regularizers` for
both sides. A new statistic of terms is a name in `Statistic` and a class in `vocable.training.term_statistics`.

Letters: b queries, n documents, m texts of one side, v terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field, PositiveInt

from vocable.errors import ArgumentError
from vocable.objectives import Divergence, Positive, Settings, Weight
from vocable.options import Share

if TYPE_CHECKING:
    from torch import Tensor

    from vocable.objectives.losses import Batch

Shape = Literal["constant", "linear", "quadratic"]
POWERS = {"constant": 0, "linear": 1, "quadratic": 2}


def ramp(step: int, total_steps: int, *, shape: Shape = "quadratic", share: float = 1 / 3) -> float:
    """Return min(1, step / (T · share))^p, the factor of a weight in a training of T = `total_steps` steps.

    `step` counts from 0; p is 0, 1 or 2 for the shapes "constant", "linear" and "quadratic".
    Jang et al. 2026 use a quadratic ramp over the first third.

    >>> [ramp(step, 300) for step in (0, 50, 100, 200)]
    [0.0, 0.25, 1.0, 1.0]
    >>> ramp(75, 300, shape="linear", share=0.5), ramp(0, 300, shape="constant")
    (0.5, 1.0)
    """
    if shape not in POWERS:
        raise ArgumentError(f"ramp must be {', '.join(POWERS)}, not {shape}")
    if step < 0 or total_steps < 1 or not 0 < share <= 1:
        raise ArgumentError(f"no ramp at step {step} of {total_steps} over a share of {share}")
    return float(min(1.0, step / (total_steps * share)) ** POWERS[shape])


class Loss(Settings):
    """A loss of a batch, and its weight in the sum of the losses."""

    needs: ClassVar[Literal["teacher_scores", "teacher_vectors"] | None] = None  # of `Batch`
    weight: Positive = 1.0

    def value(self, batch: Batch) -> Tensor:
        """Return the loss, without its weight."""
        raise NotImplementedError

    def monitored_loss(self) -> InfoNCE | None:
        """Return an InfoNCE with the scores of this loss to monitor a training; None for a loss without such scores."""
        return None


class QueueSettings(Settings):
    """Documents of earlier batches, encoded by a momentum copy of the encoder (Kim et al. 2026, appendix J.4)."""

    size: PositiveInt = Field(description="newest documents to keep")
    momentum: float = Field(default=0.999, ge=0, lt=1, description="share of the copy's weights that a step keeps")
    terms: PositiveInt = Field(default=1000, description="heaviest terms of a document to keep")


class InfoNCE(Loss):
    """A query's positive against all other documents of the batch."""

    name: Literal["info_nce"] = "info_nce"
    temperature: Positive = Field(default=1.0, description="divisor of the scores")
    margin: Weight = Field(default=0.0, description="margin subtracted from the positive's score")
    cosine: bool = Field(default=False, description="cosine in place of the inner product")
    queue: QueueSettings | None = Field(default=None, description="further negatives, from earlier batches")

    def value(self, batch: Batch) -> Tensor:
        from vocable.objectives import losses

        settings: Any = self.model_dump(include={"temperature", "margin", "cosine"})
        return losses.info_nce(batch.queries, batch.documents, **settings, queue=batch.queue)

    def monitored_loss(self) -> InfoNCE:
        return InfoNCE(temperature=self.temperature, cosine=self.cosine)


class Cosine(Loss):
    """InfoNCE of the cosines, in addition to InfoNCE of the inner products (Kim et al. 2026, J.3)."""

    name: Literal["cosine"] = "cosine"
    temperature: Positive = Field(default=0.05, description="divisor of the cosines")
    margin: Weight = Field(default=0.0, description="margin subtracted from the positive's cosine")

    def value(self, batch: Batch) -> Tensor:
        from vocable.objectives import losses

        return losses.info_nce(
            batch.queries, batch.documents, temperature=self.temperature, margin=self.margin, cosine=True
        )

    def monitored_loss(self) -> InfoNCE:
        return InfoNCE(temperature=self.temperature, cosine=True)


class MarginMSE(Loss):
    """The teacher's margins between positive and negatives."""

    name: Literal["margin_mse"] = "margin_mse"
    needs = "teacher_scores"

    def value(self, batch: Batch) -> Tensor:
        from vocable.objectives import losses

        return losses.margin_mse(*batch.compared_scores())


class KL(Loss):
    """The teacher's distribution over a query's documents."""

    name: Literal["kl"] = "kl"
    needs = "teacher_scores"
    temperature: Positive = Field(default=1.0, description="divisor of the student's scores")
    teacher_temperature: Positive = Field(default=1.0, description="divisor of the teacher's scores")

    def value(self, batch: Batch) -> Tensor:
        from vocable.objectives import losses

        student, teacher = batch.compared_scores()
        return losses.kl(student, teacher, temperature=self.temperature, teacher_temperature=self.teacher_temperature)

    def monitored_loss(self) -> InfoNCE:
        return InfoNCE(temperature=self.temperature)


class SparseAlignment(Loss):
    """The distance from a sparse teacher's vectors."""

    name: Literal["alignment"] = "alignment"
    needs = "teacher_vectors"
    kind: Divergence = Field(default="mse", description="mse over shared terms, or kl of vectors with sum 1")

    def value(self, batch: Batch) -> Tensor:
        from vocable.objectives import losses

        return losses.alignment(batch.vectors(), batch.teacher_vectors, kind=self.kind)


AnyLoss: TypeAlias = Annotated[InfoNCE | Cosine | MarginMSE | KL | SparseAlignment, Field(discriminator="name")]


Statistic = Literal["document_frequencies", "idf"]


class Regularizer(Settings):
    """A regularizer's weight, and the ramp of its rise."""

    weight: Weight = 0.0
    ramp: Shape = "quadratic"
    share: Share = Field(default=1 / 3, description="share of the steps in which the weight rises")

    def weight_at(self, step: int, steps: int) -> float:
        """Return the weight in a step, counted from 0, of a training of `steps`."""
        return self.weight * ramp(step, steps, shape=self.ramp, share=self.share)


class OneSide(Regularizer):
    """A regularizer of queries, or of documents."""

    needs: ClassVar[Statistic | None] = None  # statistic of each term

    def value(self, vectors: Tensor, statistic: Tensor | None) -> Tensor:
        """Return the unweighted cost of vectors [m, v]; `statistic` [v] is the statistic that the class `needs`."""
        raise NotImplementedError


class AnyFlops(OneSide):
    """FLOPS over texts with more than `threshold` terms."""

    threshold: int = Field(default=0, ge=0, description="texts with at most this many active terms cost nothing")

    def value(self, vectors: Tensor, statistic: Tensor | None) -> Tensor:
        from vocable.objectives import regularizers

        return regularizers.flops(vectors, threshold=self.threshold, term_weights=statistic)


class Flops(AnyFlops):
    """FLOPS with equal weights of all terms."""

    name: Literal["flops"] = "flops"


class L1(OneSide):
    """The sum of a text's weights."""

    name: Literal["l1"] = "l1"

    def value(self, vectors: Tensor, statistic: Tensor | None) -> Tensor:
        from vocable.objectives import regularizers

        return regularizers.l1(vectors)


class DFFlops(AnyFlops):
    """FLOPS weighted by the share of documents that have a term, estimated in the training."""

    name: Literal["df_flops"] = "df_flops"
    needs = "document_frequencies"

    def value(self, vectors: Tensor, statistic: Tensor | None) -> Tensor:
        from vocable.objectives import regularizers

        return super().value(vectors, None if statistic is None else regularizers.df_weights(statistic))


class IDFFlops(AnyFlops):
    """FLOPS weighted by the inverse document frequencies of the training's documents."""

    name: Literal["idf_flops"] = "idf_flops"
    needs = "idf"


SideRegularizer: TypeAlias = Flops | L1 | DFFlops | IDFFlops


class BothSides(Regularizer):
    """A regularizer of queries and documents together."""

    def value(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Return the unweighted cost of queries [b, v] and documents [n, v]."""
        raise NotImplementedError


class JointFlops(BothSides):
    """Joint FLOPS: the cost of terms that queries and documents share."""

    def value(self, queries: Tensor, documents: Tensor) -> Tensor:
        from vocable.objectives import regularizers

        return regularizers.joint_flops(queries, documents)


class Overlap(BothSides):
    """The distance between the terms of a query and the terms of its positive."""

    distance: Literal["jaccard", "hamming"] = Field(
        default="jaccard", description="share of the terms that differ, or their number"
    )

    def value(self, queries: Tensor, documents: Tensor) -> Tensor:
        from vocable.objectives import regularizers

        distance = regularizers.overlap_distance if self.distance == "jaccard" else regularizers.differing_terms
        return distance(queries, documents[: len(queries)])


def _weight_alone(value: object) -> Any:
    """Read a bare number as the weight."""
    return value if isinstance(value, Settings | Mapping | bool) else {"weight": value}


def _one_side(value: object) -> Any:
    """Read a bare number as the weight of FLOPS, the regularizer of a section without a name."""
    value = _weight_alone(value)
    return {"name": "flops", **value} if isinstance(value, Mapping) else value


EncoderSide = Annotated[
    Annotated[SideRegularizer, Field(discriminator="name")],
    BeforeValidator(_one_side, json_schema_input_type=Weight | SideRegularizer),
]


class Regularizers(Settings):
    """Regularizers of queries, of documents and of both: weights, or sections with all settings."""

    query: EncoderSide = Flops(weight=5e-5)
    document: EncoderSide = Flops(weight=3e-5)
    joint: Annotated[JointFlops, BeforeValidator(_weight_alone, json_schema_input_type=Weight | JointFlops)] = (
        JointFlops()
    )
    overlap: Annotated[Overlap, BeforeValidator(_weight_alone, json_schema_input_type=Weight | Overlap)] = Overlap()

    @property
    def active(self) -> dict[str, OneSide | BothSides]:
        """The regularizers with a weight, by key, in a fixed order."""
        parts = {key: getattr(self, key) for key in type(self).model_fields}
        return {key: part for key, part in parts.items() if part.weight}
