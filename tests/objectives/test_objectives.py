"""Every objective is one number of the vectors' type, finite with its gradients whatever the start."""

import pytest
import torch

from vocable.objectives.losses import alignment, info_nce, kl, margin_mse, top_k_mask
from vocable.objectives.regularizers import flops, joint_flops, l1

OBJECTIVES = {
    "info_nce": info_nce,
    "info_nce, cosine": lambda q, d: info_nce(q, d, temperature=0.05, margin=0.1, cosine=True),
    "margin_mse": lambda q, d: margin_mse(q @ d.T, (d @ q.T).T.detach().flip(0)),
    "kl": lambda q, d: kl(q @ d.T, (q @ d.T).detach().flip(0), temperature=0.05, teacher_temperature=0.05),
    "alignment, mse": lambda q, d: alignment(q, d[: len(q)].detach(), kind="mse"),
    "alignment, kl": lambda q, d: alignment(q, d[: len(q)].detach(), kind="kl"),
    "flops": lambda q, d: flops(q, threshold=2) + flops(d, term_weights=torch.ones_like(d[0])),
    "l1": lambda q, d: l1(q) + l1(d),
    "joint_flops": joint_flops,
    "top_k_mask": lambda q, d: info_nce(top_k_mask(q, 2), top_k_mask(d, 3)),
}
STARTS = {
    "no text has a term": (torch.zeros(3, 8), torch.zeros(6, 8)),
    "all terms are active, scores beyond 1e4": (60 + torch.arange(24.0).view(3, 8), 50 + torch.arange(48.0).view(6, 8)),
    "some texts are empty": (torch.eye(3, 8), torch.eye(6, 8).roll(1, dims=0) * torch.arange(6).view(6, 1)),
}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_finite(objective, start, dtype):
    queries, documents = (vectors.to(dtype).requires_grad_() for vectors in start)
    loss = objective(queries, documents)
    assert loss.shape == ()
    assert loss.dtype == dtype
    assert loss.isfinite()
    gradients = torch.autograd.grad(loss, (queries, documents), allow_unused=True)
    assert all(gradient.isfinite().all() for gradient in gradients if gradient is not None)
