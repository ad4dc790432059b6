"""KL distillation: the definition, gradients, and the host library's loss."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax
from sentence_transformers.sparse_encoder.losses import SparseDistillKLDivLoss

from vocable.objectives.losses import kl


def reference(scores, taught, tau, teacher_tau):
    student, teacher = log_softmax(scores / tau, axis=1), log_softmax(taught / teacher_tau, axis=1)
    return (np.exp(teacher) * (teacher - student)).sum(axis=1).mean()


@given(st.integers(0, 99), st.integers(1, 5), st.integers(1, 7), st.floats(0.05, 3), st.floats(0.05, 3))
def test_it_is_the_divergence_of_the_two_softmaxes(seed, queries, candidates, tau, teacher_tau):
    rng = np.random.default_rng(seed)
    scores, taught = rng.normal(size=(2, queries, candidates))
    found = kl(torch.tensor(scores), torch.tensor(taught), temperature=tau, teacher_temperature=teacher_tau)
    assert float(found) == pytest.approx(reference(scores, taught, tau, teacher_tau), rel=1e-9, abs=1e-12)


def test_its_gradient():
    rng = np.random.default_rng(0)
    scores, taught = (torch.tensor(rng.normal(size=(3, 4))) for _ in range(2))
    assert torch.autograd.gradcheck(
        lambda s: kl(s, taught, temperature=0.7, teacher_temperature=0.3), scores.requires_grad_()
    )


@pytest.mark.parametrize(("tau", "teacher_tau"), [(1.0, 1.0), (0.5, 0.5), (2.0, 0.3)])
def test_the_host_library_multiplies_it_by_the_temperature_squared(toy_model, tau, teacher_tau):
    rng = np.random.default_rng(0)
    query, *documents = (torch.tensor(rng.random((5, 9)), dtype=torch.float32) for _ in range(4))
    taught = torch.tensor(rng.normal(size=(5, 3)), dtype=torch.float32)
    host = SparseDistillKLDivLoss(toy_model, student_temperature=tau, teacher_temperature=teacher_tau)
    theirs = host.compute_loss_from_embeddings([query, *documents], taught)
    scores = torch.stack([(query * document).sum(dim=1) for document in documents], dim=1)
    ours = kl(scores, taught, temperature=tau, teacher_temperature=teacher_tau)
    assert tau**2 * float(ours) == pytest.approx(float(theirs), rel=1e-5)
