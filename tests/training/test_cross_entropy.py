from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from vocable.training.pretraining import mlm as cross_entropy
from vocable.training.pretraining.mlm import guess, mean_cross_entropy


def inputs(m: int, d: int, v: int, *, bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    torch.manual_seed(m)
    drawn = torch.randn(m, d), torch.randn(v, d), torch.randn(v) if bias else None
    return *drawn, torch.randint(v, (m,))


@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize("bias", [False, True])
def test_loss_and_gradients_are_those_of_all_logits_at_once(
    monkeypatch: pytest.MonkeyPatch, rows: int, bias: bool
) -> None:
    states, weight, offset, labels = inputs(10, 6, 17, bias=bias)
    monkeypatch.setattr(cross_entropy, "ENTRIES", rows * 17)
    given = [part.requires_grad_() for part in (states, weight, offset) if part is not None]
    expected = nn.functional.cross_entropy(nn.functional.linear(states, weight, offset), labels)
    gradients = torch.autograd.grad(3 * expected, given)
    found = mean_cross_entropy(states, weight, offset, labels)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(torch.autograd.grad(3 * found, given), gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_in_bfloat16_gradients_come_in_the_types_of_their_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "ENTRIES", 4 * 17)
    states, weight, offset, labels = inputs(10, 6, 17, bias=True)
    layer = [part.requires_grad_() for part in (states, weight, offset) if part is not None]
    with torch.autocast("cpu", torch.bfloat16):
        found = mean_cross_entropy(states, weight, offset, labels)
        expected = nn.functional.cross_entropy(nn.functional.linear(states, weight, offset).float(), labels)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    gradients = torch.autograd.grad(found, layer)
    assert (gradients[1] != gradients[1].bfloat16()).any()  # a sum over blocks, not rounded afterwards
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, layer), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=0.03, atol=0.01)


def test_what_is_held_is_a_block_and_not_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []
    linear = nn.functional.linear

    def seen(*given: Tensor) -> Tensor:
        made = linear(*given)
        shapes.append(tuple(made.shape))
        return made

    monkeypatch.setattr(cross_entropy, "ENTRIES", 4000)
    monkeypatch.setattr(nn.functional, "linear", seen)
    states, weight, offset, labels = inputs(50, 2, 1000, bias=True)
    mean_cross_entropy(states.requires_grad_(), weight, offset, labels)
    assert shapes == [(4, 1000)] * 12 + [(2, 1000)]


def test_guesses_are_losses_and_largest_logits_token_by_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "ENTRIES", 3 * 17)
    states, weight, offset, labels = inputs(10, 6, 17, bias=True)
    logits = nn.functional.linear(states, weight, offset)
    labels[:5] = logits[:5].argmax(dim=1)
    losses, right = guess(states, weight, offset, labels)
    torch.testing.assert_close(losses, nn.functional.cross_entropy(logits, labels, reduction="none"))
    assert torch.equal(right, logits.argmax(dim=1) == labels)
    assert right[:5].all()
