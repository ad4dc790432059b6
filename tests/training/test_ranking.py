"""Losses of a batch: whose scores they compare, on which vectors, and with which weights."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from tests.objectives.test_packed import heaviest
from vocable.objectives.losses import KL, InfoNCE, MarginMSE, SparseAlignment
from vocable.training.objective import WeightedLosses
from vocable.training.settings import MaxTermsSettings

B, C, V = 4, 2, 9
ROWS = np.array([7, 0, 3, 5])


class Known:
    """A teacher, sparse or not, that knows something of every row."""

    def __init__(self, values, wanted=lambda values: values):
        self._values, self._wanted = values, wanted

    def __call__(self, rows):
        return torch.from_numpy(self._wanted(self._values[rows]))


@pytest.fixture
def vectors():
    rng = np.random.default_rng(0)
    queries, documents = (np.maximum(rng.normal(size=(n, V)), 0) for n in (B, B * (1 + C)))
    return queries, documents


def value(ranking, vectors):
    found = ranking(*map(torch.from_numpy, vectors), torch.from_numpy(ROWS))
    return {name: float(loss) for name, loss in found.items()}


def divergence(scores, taught):
    p, q = log_softmax(taught, axis=1), log_softmax(scores, axis=1)
    return (np.exp(p) * (p - q)).sum(axis=1).mean()


def test_a_teacher_of_the_batch_is_compared_on_all_documents(vectors):
    queries, documents = vectors
    taught = np.random.default_rng(1).normal(size=(10, B * (1 + C)))
    losses = [KL(weight=2, temperature=0.8, teacher_temperature=0.5), MarginMSE(weight=3), InfoNCE(temperature=0.8)]
    scores, lesson = queries @ documents.T, taught[ROWS]
    margins = [np.delete(x[i, i] - x[i], i) for x in (scores, lesson) for i in range(B)]
    expected = {
        "kl": 2 * divergence(scores / 0.8, lesson / 0.5),
        "margin_mse": 3 * np.mean((np.array(margins[:B]) - np.array(margins[B:])) ** 2),
        "info_nce": -log_softmax(scores / 0.8, axis=1).diagonal().mean(),
    }
    assert value(WeightedLosses(losses, teacher=Known(taught)), vectors) == pytest.approx(expected)


def test_scores_of_examples_are_compared_on_their_own_documents(vectors):
    queries, documents = vectors
    taught = np.random.default_rng(1).normal(size=(10, 1 + C))
    scores = np.array([[queries[i] @ documents[i + column * B] for column in range(1 + C)] for i in range(B)])
    lesson = taught[ROWS]
    differences = (scores[:, :1] - scores[:, 1:]) - (lesson[:, :1] - lesson[:, 1:])
    expected = {"kl": divergence(scores, lesson), "margin_mse": (differences**2).mean()}
    assert value(WeightedLosses([KL(), MarginMSE()], teacher=Known(taught)), vectors) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "full"), [({"query": 2, "document": 3}, True), ({"document": 3, "full": False}, False)]
)
def test_the_heaviest_terms_count_alone_or_beside_all(vectors, settings, full):
    queries, documents = vectors
    masked = heaviest(queries, settings.get("query", V)), heaviest(documents, 3)
    views = [masked, vectors] if full else [masked]
    expected = sum(-log_softmax(q @ d.T, axis=1).diagonal().mean() for q, d in views)
    assert value(WeightedLosses([InfoNCE()], max_terms=MaxTermsSettings(**settings)), vectors)[
        "info_nce"
    ] == pytest.approx(expected)


def test_vectors_are_aligned_with_those_of_queries_and_documents(vectors):
    taught = np.maximum(np.random.default_rng(2).normal(size=(10, 2 + C, V)), 0)
    teacher = Known(taught, lambda values: values.transpose(1, 0, 2).reshape(-1, V))
    student = np.concatenate(vectors)
    lesson = np.concatenate([taught[ROWS, column] for column in range(2 + C)])
    shared = (student > 0) & (lesson > 0)
    expected = 0.5 * ((student - lesson)[shared] ** 2).mean()
    losses = WeightedLosses([SparseAlignment(weight=0.5)], sparse_teacher=teacher)
    assert value(losses, vectors)["alignment"] == pytest.approx(expected)
