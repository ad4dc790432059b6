from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vocable.errors import ArgumentError
from vocable.options import Activation
from vocable.torch_models import cpu, head
from vocable.torch_models.head import max_logits, sparse_head

BLOCK = 7  # small and odd: a few blocks and a rest even in small cases
DRAWN: dict[str, Any] = {
    "lengths": st.lists(st.integers(1, 9), min_size=1, max_size=5),
    "d": st.integers(1, 6),
    "v": st.integers(1, 3 * BLOCK),
    "seed": st.integers(0, 1000),
    "bias": st.booleans(),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "TERM_BLOCK", BLOCK)


def dense(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: list[int], pooling: str, activation: str
) -> Tensor:
    """The reference: all the logits [n, v], then activation, then pooling; differentiable by autograd."""
    logits = hidden @ weight.T + (0 if bias is None else bias)
    weights = logits.relu().log1p()
    if activation == "log1p_relu":
        weights = weights.log1p()
    texts = [weights[start:end] for start, end in pairwise(offsets)]
    return torch.stack([text.amax(dim=0) if pooling == "max" else text.sum(dim=0) for text in texts])


def drawn(
    lengths: list[int], d: int, v: int, seed: int = 0, bias: bool = True
) -> tuple[Tensor, Tensor, Tensor | None, list[int]]:
    """Random float64 hidden [n, d], weight [v, d], bias [v] and offsets; about half of the logits are positive."""
    generator = torch.Generator().manual_seed(seed)
    offsets = [0, *np.cumsum(lengths).tolist()]
    hidden = torch.randn(offsets[-1], d, generator=generator, dtype=torch.float64)
    weight = torch.randn(v, d, generator=generator, dtype=torch.float64)
    shift = torch.randn(v, generator=generator, dtype=torch.float64) if bias else None
    return hidden, weight, shift, offsets


def with_gradients(function: Any, inputs: tuple[Tensor | None, ...], *rest: Any) -> list[Tensor]:
    """Output and the gradients of a fixed random sum of it, in the order hidden, weight, bias (if there is one)."""
    leaves = [None if x is None else x.clone().requires_grad_() for x in inputs]
    output = function(*leaves, *rest)
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    (output * upstream.to(output)).sum().backward()
    return [output.detach(), *(leaf.grad for leaf in leaves if leaf is not None and leaf.grad is not None)]


def assert_all_close(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        scale = other.abs().max().clamp(min=1)
        torch.testing.assert_close(one.double() / scale, other.double() / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("pooling", ["max", "sum"])
@given(**DRAWN, dtype=st.sampled_from([torch.float32, torch.float64]))
def test_outputs_and_gradients_are_those_of_the_dense_head(
    pooling: str, activation: str, lengths: list[int], d: int, v: int, seed: int, bias: bool, dtype: torch.dtype
) -> None:
    *inputs, offsets = drawn(lengths, d, v, seed, bias)
    expected = with_gradients(dense, tuple(inputs), offsets, pooling, activation)
    typed = tuple(None if x is None else x.to(dtype) for x in inputs)
    found = with_gradients(sparse_head, typed, offsets, pooling, activation)
    assert found[0].dtype == torch.float32
    assert [gradient.dtype for gradient in found[1:]] == [dtype] * (2 + bias)
    assert_all_close(found, expected, 2e-5)


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_known_vectors_are_returned_with_the_same_gradients(
    activation: Activation, monkeypatch: pytest.MonkeyPatch
) -> None:
    *inputs, offsets = drawn([3, 1, 4], d=4, v=20)
    expected = with_gradients(sparse_head, tuple(inputs), offsets, "max", activation)
    monkeypatch.setattr(head, "_largest", lambda *inputs: pytest.fail("the vectors are computed again"))
    assert_all_close(with_gradients(sparse_head, tuple(inputs), offsets, "max", activation, expected[0]), expected, 0)


@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_gradient_agrees_with_finite_differences_of_numpy(pooling: str) -> None:
    hidden, weight, bias, offsets = drawn([3, 1, 4], d=3, v=10, seed=3)
    direction = [torch.randn(x.shape, generator=torch.Generator().manual_seed(5)).double() for x in (hidden, weight)]

    def total(step: float) -> float:
        logits = (hidden + step * direction[0]).numpy() @ (weight + step * direction[1]).numpy().T + bias.numpy()
        weights = np.log1p(np.maximum(logits, 0))
        reduce = np.max if pooling == "max" else np.sum
        return float(sum(reduce(weights[start:end], axis=0).sum() for start, end in pairwise(offsets)))

    leaves = [x.float().requires_grad_() for x in (hidden, weight)]
    sparse_head(*leaves, bias.float(), offsets, pooling).sum().backward()
    slope = sum(float((leaf.grad.double() * along).sum()) for leaf, along in zip(leaves, direction, strict=True))
    assert slope == pytest.approx((total(1e-6) - total(-1e-6)) / 2e-6, rel=1e-4)


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_bfloat16_stays_near_the_exact_result(pooling: str, activation: str) -> None:
    *inputs, offsets = drawn([5, 1, 8], d=16, v=40)
    rounded = tuple(None if x is None else x.bfloat16() for x in inputs)
    # The reference sees the same rounded inputs, so that what is compared is the arithmetic alone.
    exact = with_gradients(dense, tuple(x.double() for x in rounded), offsets, pooling, activation)
    found = with_gradients(sparse_head, rounded, offsets, pooling, activation)
    assert found[0].dtype == torch.float32
    assert all(gradient.dtype == torch.bfloat16 for gradient in found[1:])
    for one, other in zip(found, exact, strict=True):
        assert torch.linalg.norm(one.double() - other) < 0.02 * torch.linalg.norm(other)


def test_autocast_computes_in_its_type_and_keeps_gradients_in_float32() -> None:
    *inputs, offsets = drawn([5, 2], d=16, v=30)
    single = tuple(x.float() for x in inputs)
    exact = with_gradients(sparse_head, single, offsets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = with_gradients(sparse_head, single, offsets)
    assert all(x.dtype == torch.float32 for x in found)
    assert not torch.equal(found[0], exact[0])
    for one, other in zip(found, exact, strict=True):
        assert torch.linalg.norm(one - other) < 0.03 * torch.linalg.norm(other)


def test_nothing_active_gives_zeros_and_no_gradient() -> None:
    hidden, weight, _, offsets = drawn([2, 3], d=4, v=20)
    low = torch.full((20,), -100.0, dtype=torch.float64)
    for pooling in ("max", "sum"):
        output, *gradients = with_gradients(sparse_head, (hidden, weight, low), offsets, pooling)
        assert torch.equal(output, torch.zeros(2, 20))
        assert all(not gradient.any() for gradient in gradients)


@pytest.mark.parametrize("screened", [False, True])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_diverged_model_is_not_hidden(bad: float, screened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "can_screen", lambda hidden, weight: screened)
    monkeypatch.setenv("VOCABLE_HEAD", "screened")
    hidden, weight, bias, offsets = (x.float() if isinstance(x, Tensor) else x for x in drawn([3, 2], d=4, v=20))
    hidden[0, 1] = bad
    output = sparse_head(hidden, weight, bias - 100, offsets)
    assert not output[0].isfinite().all()


def test_gradients_of_frozen_inputs_are_not_asked_for() -> None:
    hidden, weight, bias, offsets = drawn([2, 3], d=4, v=20)
    hidden.requires_grad_()
    sparse_head(hidden, weight, bias, offsets).sum().backward()
    expected = drawn([2, 3], d=4, v=20)[0].requires_grad_()
    dense(expected, weight, bias, offsets, "max", "relu").sum().backward()
    torch.testing.assert_close(hidden.grad, expected.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("offsets", [[0, 0, 3], [0, 3, 3]])
def test_text_without_a_token_is_refused(offsets: list[int]) -> None:
    with pytest.raises(ArgumentError):
        sparse_head(torch.ones(3, 2), torch.ones(4, 2), None, offsets)


def test_max_logits_are_the_largest_logits_of_each_text() -> None:
    hidden, weight, bias, offsets = drawn([4, 1, 2], d=3, v=2 * BLOCK + 1)
    logits = (hidden @ weight.T + bias).numpy()
    expected = np.stack([logits[start:end].max(axis=0) for start, end in pairwise(offsets)])
    assert (expected < 0).any()
    np.testing.assert_allclose(max_logits(hidden, weight, bias, offsets), expected, rtol=1e-5, atol=1e-6)


@given(**DRAWN)
def test_gradients_of_max_logits_are_those_of_all_logits(
    lengths: list[int], d: int, v: int, seed: int, bias: bool
) -> None:
    def of_all(hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: list[int]) -> Tensor:
        logits = hidden @ weight.T if bias is None else hidden @ weight.T + bias
        return torch.stack([logits[start:end].amax(dim=0) for start, end in pairwise(offsets)])

    *inputs, offsets = drawn(lengths, d, v, seed, bias)
    expected = with_gradients(of_all, tuple(inputs), offsets)
    found = with_gradients(max_logits, tuple(None if x is None else x.float() for x in inputs), offsets)
    assert_all_close(found, expected, 2e-5)


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements that one operation's result had."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, list | tuple) else (result,):
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


@pytest.mark.parametrize(("pooling", "screened"), [("max", False), ("max", True), ("sum", False)])
def test_the_logits_are_never_built(pooling: str, screened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "TERM_BLOCK", 64)
    monkeypatch.setattr(cpu, "PRODUCT_NUMBERS", 64)
    monkeypatch.setattr(cpu, "MIN_TERMS", 64)
    monkeypatch.setattr(cpu, "can_screen", lambda hidden, weight: screened)
    monkeypatch.setenv("VOCABLE_HEAD", "screened")
    b, s, d, v = 6, 50, 8, 2000
    hidden, weight, bias, offsets = drawn([s] * b, d, v)
    pooled = dense(hidden, weight, bias, offsets, "max", "relu")
    bias -= pooled.expm1().flatten().kthvalue(int(0.95 * pooled.numel())).values  # 5 % of the terms stay active
    leaves = tuple(x.float() for x in (hidden, weight, bias))
    with LargestTensor() as dense_largest:
        with_gradients(dense, leaves, offsets, pooling, "relu")
    assert dense_largest.numel == b * s * v  # the instrument sees a matrix of logits where there is one
    with LargestTensor() as largest:
        output, *_ = with_gradients(sparse_head, leaves, offsets, pooling)
    assert (output > 0).float().mean() == pytest.approx(0.05, abs=0.01)
    assert largest.numel <= max(b * s * 64, b * v, v * d)
    assert largest.numel < b * s * v / 20
