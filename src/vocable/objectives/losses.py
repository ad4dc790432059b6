"""Losses of a batch: ranking losses, and distances from the scores or vectors of teachers.

`vocable.objectives.settings` has the losses of a recipe, which compute these functions.

Letters: b queries, c negatives of an example, n = b (1 + c) documents, m vectors, v terms, z weights above zero in all
vectors. The documents come column by column: the b positives, then the first negatives of all examples, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from vocable.errors import ArgumentError
from vocable.objectives import Divergence


class Packed(NamedTuple):
    """The rows of a sparse matrix [m, v], with 8 bytes per weight and no gradients."""

    offsets: Tensor  # [m + 1] int32, row i has the entries offsets[i] to offsets[i + 1]
    terms: Tensor  # [z] int32, the heaviest term of a row first
    weights: Tensor  # [z]


def pack(vectors: Tensor, k: int) -> Packed:
    """Return the k heaviest active terms of each vector [m, v].

    >>> offsets, terms, weights = pack(torch.tensor([[0.0, 3.0, 4.0], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]), 2)
    >>> offsets.tolist(), terms.tolist(), weights.tolist()
    ([0, 2, 2, 3], [2, 1, 0], [4.0, 3.0, 2.0])
    """
    weights, terms = vectors.detach().topk(min(k, vectors.shape[1]), dim=1)
    active = weights > 0
    offsets = functional.pad(active.sum(dim=1).cumsum(dim=0), (1, 0))
    return Packed(offsets.int(), terms[active].int(), weights[active])


def empty(like: Tensor) -> Packed:
    """Return a matrix without rows, with the type and device of `like`."""
    return Packed(like.new_zeros(1, dtype=torch.int32), like.new_empty(0, dtype=torch.int32), like.new_empty(0))


def join(first: Packed, second: Packed) -> Packed:
    """Return the rows of both matrices."""
    offsets = torch.cat([first.offsets, second.offsets[1:] + first.offsets[-1]])
    return Packed(offsets, torch.cat([first.terms, second.terms]), torch.cat([first.weights, second.weights]))


def last_rows(packed: Packed, count: int) -> Packed:
    """Return the last `count` rows, or all if there are fewer."""
    offsets = packed.offsets[-count - 1 :]
    return Packed(offsets - offsets[0], packed.terms[offsets[0] :], packed.weights[offsets[0] :])


def unit(packed: Packed) -> Packed:
    """Return the rows normalized to length 1; empty rows stay empty."""
    row = torch.repeat_interleave(packed.offsets.diff())
    squares = packed.weights.new_zeros(len(packed.offsets) - 1).index_add(0, row, packed.weights.square())
    return packed._replace(weights=packed.weights / squares.sqrt()[row])


def packed_scores(queries: Tensor, packed: Packed) -> Tensor:
    """Return the inner products of queries [b, v] with m vectors: [b, m], differentiable in the queries.

    >>> float(packed_scores(torch.tensor([[1.0, 2.0]]), pack(torch.tensor([[0.0, 3.0]]), 2)))
    6.0
    """
    if not len(packed.offsets) - 1:
        return queries.new_empty(len(queries), 0)
    weights = packed.weights.to(queries.dtype)
    return functional.embedding_bag(  # a weighted sum of rows of [v, b]
        packed.terms, queries.T, packed.offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
    ).T


class Queue(NamedTuple):
    """Negatives from earlier batches."""

    documents: Packed  # m rows
    left_out: Tensor  # [b, m], True where a document is the query's positive


def info_nce(
    queries: Tensor,
    documents: Tensor,
    *,
    temperature: float = 1.0,
    margin: float = 0.0,
    cosine: bool = False,
    queue: Queue | None = None,
) -> Tensor:
    """Return -log of the positive's share of e^{s / tau} over all documents, averaged over queries.

    Kim et al. 2026, eq. 2.

    Args:
        queries: [b, v].
        documents: [n, v] with n >= b: document i is query i's positive, the others are negatives.
        temperature: tau, the divisor of the scores.
        margin: taken from the positive's score before the division (Kim et al. 2026, J.4).
        cosine: s is the cosine, 0 for an empty vector, instead of the inner product.
        queue: further negatives without gradients (ibid., after arXiv 1911.05722).

    >>> queries, documents = torch.eye(2), torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    >>> round(float(info_nce(queries, documents)), 4)  # log(e^2 + e^0 + e^1) - 2
    0.4076
    >>> round(float(info_nce(queries, documents, margin=2.0)), 4)  # log(e^0 + e^0 + e^1) - 0
    1.5514
    """
    if len(documents) < len(queries):
        raise ArgumentError(f"each query needs a positive: {len(documents)} documents for {len(queries)} queries")
    if cosine:
        queries, documents = _unit(queries), _unit(documents)
        queue = None if queue is None else queue._replace(documents=unit(queue.documents))
    # [b, n]; the positives are on the diagonal.
    scores = queries @ documents.T
    if margin:
        scores = scores - margin * torch.eye(*scores.shape, dtype=scores.dtype, device=scores.device)
    if queue is not None:
        # [b, n + queue]; a document of the query itself is no negative.
        further = packed_scores(queries, queue.documents)
        scores = torch.cat([scores, further.masked_fill(queue.left_out, -torch.inf)], dim=1)
    positives = torch.arange(len(queries), device=scores.device)
    return functional.cross_entropy(scores / temperature, positives)


def _unit(vectors: Tensor) -> Tensor:
    """Return the rows normalized to length 1; rows of zeros stay zero, with a finite gradient."""
    lengths = vectors.norm(dim=1, keepdim=True)
    return vectors / torch.where(lengths > 0, lengths, 1)


def margin_mse(scores: Tensor, teacher_scores: Tensor) -> Tensor:
    """Return ((s(q,d+) - s(q,d-)) - (t+ - t-))^2, averaged over triples (Hofstätter et al. 2020, arXiv 2010.02666).

    s are the student's scores of each query's k candidates, the positive first, and t the teacher's scores of the same
    candidates, both [b, k]. The student learns the scale of the teacher's scores.

    >>> scores, taught = torch.tensor([[5.0, 3.0, 1.0]]), torch.tensor([[9.0, 6.0, 6.0]])
    >>> float(margin_mse(scores, taught))  # margins 2 and 4 where 3 and 3 are taught
    1.0
    """
    if scores.shape != teacher_scores.shape or scores.shape[1] < 2:
        shapes = f"{list(scores.shape)} and {list(teacher_scores.shape)}"
        raise ArgumentError(f"MarginMSE needs scores [b, k] of a positive and negatives in equal shapes, not {shapes}")
    return functional.mse_loss(scores[:, :1] - scores[:, 1:], teacher_scores[:, :1] - teacher_scores[:, 1:])


def kl(scores: Tensor, teacher_scores: Tensor, *, temperature: float = 1.0, teacher_temperature: float = 1.0) -> Tensor:
    """Return KL(softmax(t / T) || softmax(s / tau)), the mean over queries.

    SparseDistillKLDivLoss of sentence-transformers is this value times tau squared.

    s are the student's scores of each query's k candidates, and t the teacher's scores of the same candidates, both
    [b, k]. tau is `temperature`. T is `teacher_temperature`, which should have the size of the score differences that
    matter to the teacher.

    >>> same = torch.tensor([[2.0, 1.0, 0.0]])
    >>> round(float(kl(same, same)), 6)
    0.0
    >>> round(float(kl(torch.zeros(1, 3), same)), 4)  # log(3) less the entropy of the teacher's distribution
    0.2662
    """
    student = functional.log_softmax(scores / temperature, dim=1)
    teacher = functional.log_softmax(teacher_scores / teacher_temperature, dim=1)
    return functional.kl_div(student, teacher, log_target=True, reduction="batchmean")


ABSENT = 1e-8  # share of an absent term, in a logarithm


def alignment(student: Tensor, teacher: Tensor, *, kind: Divergence = "mse") -> Tensor:
    """Return the distance of the student's vectors from the teacher's.

    `vocable.pretrain` with a `teacher` aligns logits instead, before the training (SAP of Geng and Yang 2026).

    - `mse`: the mean squared difference over terms that are active in both vectors; 0 without such a term.
    - `kl`: KL(teacher || student) of the vectors normalized to sum 1, averaged over texts. A term that the
      student lacks has the share 1e-8; an empty vector of the teacher counts 0.

    Both are [m, v], of the same texts over the same terms, without negative weights.

    >>> student, teacher = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[1.0, 4.0, 5.0]])
    >>> float(alignment(student, teacher, kind="mse"))  # over two terms
    2.0
    >>> float(alignment(teacher, 3 * teacher, kind="kl"))
    0.0
    """
    if student.shape != teacher.shape:
        raise ArgumentError(f"vectors of shapes {list(student.shape)} and {list(teacher.shape)} cannot be aligned")
    if kind == "mse":
        shared = (student > 0) & (teacher > 0)
        return ((student - teacher).square() * shared).sum() / shared.sum().clamp(min=1)
    if kind == "kl":
        # Shares of terms [m, v]; an empty vector stays empty.
        sums = [vectors.sum(dim=1, keepdim=True) for vectors in (teacher, student)]
        sums = [torch.where(each > 0, each, 1) for each in sums]
        target, shares = teacher / sums[0], student / sums[1]
        return torch.xlogy(target, target).sub(target * shares.clamp(min=ABSENT).log()).sum(dim=1).mean()
    raise ArgumentError(f"alignment is mse or kl, not {kind}")


def ensemble(scores: Sequence[Tensor], weights: Sequence[float] | None = None) -> Tensor:
    """Return the mean of the teachers' scores, after each teacher's scores are standardized over a query's candidates.

    The scores of each teacher are [b, k]; the result has the same shape, in standard deviations. A teacher with equal
    scores for all candidates of a query has no influence. `weights`, one per teacher, weight the mean.

    >>> ensemble([torch.tensor([[0.1, 0.1, 0.4, 0.2]]), torch.tensor([[0.0, 0.0, 30.0, 0.0]])]).round(decimals=2)
    tensor([[-0.7000, -0.7000,  1.6800, -0.2900]])
    """
    centred = [each - each.mean(dim=1, keepdim=True) for each in scores]
    spreads = [each.square().mean(dim=1, keepdim=True).sqrt() for each in centred]
    standardized = [each / torch.where(spread > 0, spread, 1) for each, spread in zip(centred, spreads, strict=True)]
    shares = scores[0].new_tensor(weights or [1.0] * len(scores))
    return torch.einsum("t,tbk->bk", shares / shares.sum(), torch.stack(standardized))


def top_k_mask(vectors: Tensor, k: int) -> Tensor:
    """Set all but the k heaviest terms of each vector [m, v] without negative weights to 0 (arXiv 2112.09628).

    A vector with fewer active terms does not change. Of terms with the weight of the k-th term, the terms with the
    lower ids are kept. A weight that is not finite makes the result not finite.

    >>> top_k_mask(torch.tensor([[3.0, 1.0, 2.0, 2.0], [0.0, 5.0, 0.0, 0.0]]), 2)
    tensor([[3., 0., 2., 0.],
            [0., 5., 0., 0.]])
    """
    if k < 1:
        raise ArgumentError(f"k must be at least 1, not {k}")
    if k >= vectors.shape[1]:
        return vectors
    lightest = vectors.detach().topk(k, dim=1).values[:, -1:]
    heavier, tied = vectors > lightest, vectors == lightest
    ties = k - heavier.sum(dim=1, keepdim=True)
    kept = heavier | (tied & (tied.cumsum(dim=1, dtype=torch.int32) <= ties))
    return vectors * kept


class Batch(NamedTuple):
    """Input of a loss: vectors, and the scores and vectors of teachers, which are empty if no loss needs them."""

    queries: Tensor  # [b, v]
    documents: Tensor  # [n, v]
    teacher_scores: Tensor  # [b, n] of all documents, or [b, 1 + c] of each example's documents, the positive first
    teacher_vectors: Tensor  # [b + n, v] of the queries and documents
    queue: Queue | None = None

    def vectors(self) -> Tensor:
        """Return the queries and documents [b + n, v]."""
        return torch.cat([self.queries, self.documents])

    def compared_scores(self) -> tuple[Tensor, Tensor]:
        """Return the student's and the teacher's scores of the same candidates, the positive first."""
        if self.teacher_scores.shape[1] == len(self.documents):  # more than 1 + c: a batch has two examples at least
            return positive_first(self.queries @ self.documents.T), positive_first(self.teacher_scores)
        candidates = self.documents.unflatten(0, (-1, len(self.queries)))
        return torch.einsum("bv,cbv->bc", self.queries, candidates), self.teacher_scores


def positive_first(scores: Tensor) -> Tensor:
    """Return scores [b, n] of every query with every document, with the column i of query i moved to the front.

    >>> positive_first(torch.tensor([[1, 2, 3], [4, 5, 6]]))
    tensor([[1, 2, 3],
            [5, 4, 6]])
    """
    diagonal = torch.eye(*scores.shape, dtype=torch.bool, device=scores.device)
    return torch.cat([scores.diagonal()[:, None], scores[~diagonal].view(len(scores), -1)], dim=1)
