"""Regularizers: costs of the terms of a batch's vectors, which make them sparse.

Each side, queries or documents, has a `SideRegularizer`; `joint` and `overlap` concern both sides. A new regularizer is
a class here, listed in `SideRegularizer` for one side or in `Regularizers` for both sides. A new statistic of terms is
a name in `Statistic` and a class in `vocable.training.term_statistics`.

Letters: b queries, n documents, m texts of one side, v terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from vocable.errors import ArgumentError
from vocable.objectives import Settings, Share, Weight

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


def flops(vectors: Tensor, *, threshold: int = 0, term_weights: Tensor | None = None) -> Tensor:
    """Return sum_j (mean_i w_j(i))^2 (Paria et al. 2020, arXiv 2004.05665; Kim et al. 2026, eq. 3).

    Gather the vectors of a batch that is spread over devices first.

    Args:
        vectors: [m, v].
        threshold: texts with at most this many active terms count as empty vectors in the mean (L0-masked FLOPS,
            arXiv 2504.14839).
        term_weights: [v] factors of the terms' weights: inverse document frequencies (arXiv 2504.14839), or the result
            of `df_weights`.

    >>> vectors = torch.tensor([[2.0, 0.0, 0.0], [2.0, 4.0, 1.0]])
    >>> float(flops(vectors))  # 2^2 + 2^2 + 0.5^2
    8.25
    >>> float(flops(vectors, threshold=1))  # 1^2 + 2^2 + 0.5^2
    5.25
    >>> float(flops(vectors, term_weights=torch.tensor([0.0, 1.0, 2.0])))
    5.0
    """
    if threshold:
        vectors = vectors * ((vectors > 0).sum(dim=1, keepdim=True) > threshold)
    means = vectors.mean(dim=0)
    if term_weights is not None:
        means = means * term_weights
    return means.square().sum()


def df_weights(frequencies: Tensor, *, alpha: float = 0.1, beta: float = 10.0) -> Tensor:
    """Return g = 1 / (1 + (x^{log_alpha 2} - 1)^beta), the term weights of DF-FLOPS (arXiv 2505.15070).

    `frequencies` [v] are x, the share of documents whose vectors have each term; the result [v] lies between 0 and 1.
    It is one half at the share `alpha`, and steeper there with a larger `beta`. A term that no document has costs
    nothing, and a term that every document has costs as much as in FLOPS.

    >>> df_weights(torch.tensor([0.0, 0.05, 0.1, 0.2, 1.0])).round(decimals=3)
    tensor([0.0000, 0.0220, 0.5000, 0.9910, 1.0000])
    """
    if not 0 < alpha < 1 or beta <= 0:
        raise ArgumentError(f"alpha must be between 0 and 1 and beta above 0, not {alpha} and {beta}")
    if not bool(((frequencies >= 0) & (frequencies <= 1)).all()):
        raise ArgumentError("document frequencies must be shares of the documents, from 0 to 1")
    exponent = math.log(2) / math.log(alpha)
    return 1 / (1 + (frequencies**exponent - 1) ** beta)


def joint_flops(queries: Tensor, documents: Tensor) -> Tensor:
    """Return sum_j mean_q w_j(q) · mean_d w_j(d), the mean score of all pairs (Kim et al. 2026, eq. 4).

    `queries` are [b, v], `documents` [n, v].

    >>> float(joint_flops(torch.tensor([[1.0, 0.0], [3.0, 2.0]]), torch.tensor([[4.0, 0.0]])))
    8.0
    """
    return queries.mean(dim=0) @ documents.mean(dim=0)


def l1(vectors: Tensor) -> Tensor:
    """Return mean_i sum_j w_j(i) of vectors [m, v] without negative weights (Polyakov et al. 2026, section 3.1).

    >>> float(l1(torch.tensor([[2.0, 0.0], [1.0, 4.0]])))
    3.5
    """
    return vectors.sum(dim=1).mean()


def overlap_distance(queries: Tensor, documents: Tensor) -> Tensor:
    """Return 1 - sum_j min(a_j(q), a_j(d)) / sum_j max(a_j(q), a_j(d)), a = 1 - e^-w, averaged over pairs.

    Kim et al. 2026, appendix J.3, name the Jaccard distance; computing it on a is our interpretation. With weights of 0
    and infinity only, it is the Jaccard distance of two sets. The distance of a pair of empty vectors is 1.
    `queries` and `documents` are [b, v] without negative weights; document i is query i's positive.

    >>> inf = float("inf")
    >>> float(overlap_distance(torch.tensor([[inf, inf, inf, 0.0]]), torch.tensor([[0.0, inf, inf, inf]])))  # 1 - 2 / 4
    0.5
    >>> half, most = torch.tensor([[2.0, 0.0]]).log(), torch.tensor([[4.0, 2.0]]).log()
    >>> round(float(overlap_distance(half.clamp(min=0), most)), 4)  # 1 - (1/2 + 0) / (3/4 + 1/2)
    0.6
    """
    queries, documents = -torch.expm1(-queries), -torch.expm1(-documents)
    shared = torch.minimum(queries, documents).sum(dim=1)
    either = torch.maximum(queries, documents).sum(dim=1)
    return (1 - shared / torch.where(either > 0, either, 1)).mean()


def differing_terms(queries: Tensor, documents: Tensor) -> Tensor:
    """Return sum_j |a_j(q) - a_j(d)|, a = 1 - e^-w, averaged over pairs.

    Kim et al. 2026, appendix J.3, name the Hamming distance; computing it on a is our interpretation. With weights of 0
    and infinity only, it is the number of terms that exactly one vector of the pair has. Arguments as in
    `overlap_distance`.

    >>> inf = float("inf")
    >>> float(differing_terms(torch.tensor([[inf, inf, inf, 0.0]]), torch.tensor([[0.0, inf, inf, inf]])))
    2.0
    """
    return (torch.expm1(-queries) - torch.expm1(-documents)).abs().sum(dim=1).mean()


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
        return flops(vectors, threshold=self.threshold, term_weights=statistic)


class Flops(AnyFlops):
    """FLOPS with equal weights of all terms."""

    name: Literal["flops"] = "flops"


class L1(OneSide):
    """The sum of a text's weights."""

    name: Literal["l1"] = "l1"

    def value(self, vectors: Tensor, statistic: Tensor | None) -> Tensor:
        return l1(vectors)


class DFFlops(AnyFlops):
    """FLOPS weighted by the share of documents that have a term, estimated in the training."""

    name: Literal["df_flops"] = "df_flops"
    needs = "document_frequencies"

    def value(self, vectors: Tensor, statistic: Tensor | None) -> Tensor:
        return super().value(vectors, None if statistic is None else df_weights(statistic))


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
        return joint_flops(queries, documents)


class Overlap(BothSides):
    """The distance between the terms of a query and the terms of its positive."""

    distance: Literal["jaccard", "hamming"] = Field(
        default="jaccard", description="share of the terms that differ, or their number"
    )

    def value(self, queries: Tensor, documents: Tensor) -> Tensor:
        distance = overlap_distance if self.distance == "jaccard" else differing_terms
        return distance(queries, documents[: len(queries)])


def _weight_alone(value: object) -> Any:
    """Read a bare number as the weight."""
    return value if isinstance(value, Settings | Mapping | bool) else {"weight": value}


def _one_side(value: object) -> Any:
    """Read a bare number as the weight of FLOPS, the regularizer of a section without a name."""
    value = _weight_alone(value)
    return {"name": "flops", **value} if isinstance(value, Mapping) else value


Side = Annotated[Annotated[SideRegularizer, Field(discriminator="name")], BeforeValidator(_one_side)]


class Regularizers(Settings):
    """Regularizers of queries, of documents and of both: weights, or sections with all settings."""

    query: Side = Flops(weight=5e-5)
    document: Side = Flops(weight=3e-5)
    joint: Annotated[JointFlops, BeforeValidator(_weight_alone)] = JointFlops()
    overlap: Annotated[Overlap, BeforeValidator(_weight_alone)] = Overlap()

    @property
    def active(self) -> dict[str, OneSide | BothSides]:
        """The regularizers with a weight, by key, in a fixed order."""
        parts = {key: getattr(self, key) for key in type(self).model_fields}
        return {key: part for key, part in parts.items() if part.weight}
