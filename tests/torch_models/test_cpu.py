"""CPU machinery: products of few shapes change nothing, and screening gives the same weights."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForMaskedLM

from vocable.encoding.load import load
from vocable.encoding.pooling import Activation
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ModelError
from vocable.torch_models import cpu, head
from vocable.torch_models.cpu import padded_rows, product_of_few_shapes, rounded, use_few_shapes
from vocable.torch_models.fuse import fuse


class Products(TorchDispatchMode):
    """The shapes of the matrices in bfloat16 that are multiplied, [n, d] by [d, k]."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, matrices = func.name(), [one for one in args if isinstance(one, torch.Tensor) and one.ndim > 1]
        if name in ("aten::linear", "aten::addmm", "aten::mm") and matrices[0].dtype == torch.bfloat16:
            first, second = matrices
            rows = first.shape[:-1].numel()
            self.shapes.add((rows, first.shape[-1], second.numel() // first.shape[-1]))
        return func(*args, **(kwargs or {}))


@given(st.integers(1, 1 << 20))
def test_a_number_is_filled_up_by_little_and_to_one_of_few(rows: int) -> None:
    assert rows <= rounded(rows) < rows + max(8, rows / 8)
    assert rounded(rounded(rows)) == rounded(rows)


def test_there_are_few_numbers_that_are_filled_up_to() -> None:
    assert len({rounded(rows) for rows in range(1, 1025)}) == 32 + 16 + 16


@given(st.integers(1, 40), st.integers(1, 600), st.integers(0, 1000))
def test_products_are_those_of_the_rows_that_are_there(n: int, k: int, seed: int) -> None:
    numbers = torch.Generator().manual_seed(seed)
    rows, weight = (torch.randn(count, 16, generator=numbers) for count in (n, k))
    assert torch.equal(product_of_few_shapes(rows, weight), rows @ weight.T)
    rows, weight = rows.bfloat16(), weight.bfloat16()
    exact = rows.double() @ weight.double().T
    assert torch.allclose(product_of_few_shapes(rows, weight).double(), exact, rtol=2**-8, atol=1e-5)


def test_only_what_is_multiplied_in_bfloat16_on_a_processor_is_filled() -> None:
    rows = torch.ones(3, 4)
    assert padded_rows(rows) is rows
    assert padded_rows(rows.bfloat16()).shape == (8, 4)
    assert padded_rows(rows.bfloat16())[3:].count_nonzero() == 0
    with torch.autocast("cpu", torch.bfloat16):
        assert padded_rows(rows).shape == (8, 4)
    assert padded_rows(rows.bfloat16().to("meta")).shape == (3, 4)


def test_outputs_and_gradients_stay(backbone: Path, toy_texts: list[str]) -> None:
    stock = load(backbone, device="cpu")
    model = copy.deepcopy(stock)
    use_few_shapes(model[0].auto_model)
    runs = []
    for one in (stock, model):
        with torch.autocast("cpu", torch.bfloat16):
            pooled = one(one.preprocess(toy_texts[:5]))["sentence_embedding"]
        pooled.square().sum().backward()
        parameters = {name: part.grad for name, part in one.named_parameters() if part.grad is not None}
        runs.append((pooled.detach(), parameters))
    (expected, gradients), (found, others) = runs
    assert torch.allclose(found, expected, atol=2e-2)
    assert others.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(others[name], gradient, atol=2e-2 * float(gradient.abs().max()) + 1e-6), name


def test_encoding_in_bfloat16_has_few_shapes_of_products(toy_model: SparseEncoder) -> None:
    encoder = TextEncoder(toy_model, dtype="bfloat16")
    widths: dict[tuple[int, ...], set[int]] = {}
    with Products() as products:
        for words in range(1, 60):
            encoder.encode(["fox " * words] * (1 + words % 7))
    assert products.shapes
    for rows, *weight in products.shapes:
        widths.setdefault(tuple(weight), set()).add(rows)
    assert all(rounded(rows) == rows for found in widths.values() for rows in found)
    assert max(map(len, widths.values())) < 40  # of 59 batches that are all of another shape


def test_a_head_that_cannot_be_bypassed_is_still_found(backbones: dict[str, Path]) -> None:
    model = SparseEncoder(str(backbones["bert"]), device="cpu")
    mlm = model[0].auto_model
    use_few_shapes(mlm)
    assert "forward" not in mlm.get_output_embeddings().__dict__
    mlm.get_output_embeddings().register_forward_hook(lambda layer, inputs, output: output * 2)
    mlm.cls.register_forward_hook(lambda layer, inputs, output: output + 1)
    with pytest.raises(ModelError):
        fuse(model)


def test_a_model_on_another_device_is_left_as_it_is(backbones: dict[str, Path]) -> None:
    mlm = AutoModelForMaskedLM.from_pretrained(backbones["bert"]).to("meta")
    use_few_shapes(mlm)
    assert not any("forward" in layer.__dict__ for layer in mlm.modules())


SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def inputs(
    lengths: list[int], d: int, v: int, seed: int, spread: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, list[int]]:
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(sum(lengths), d)) * np.exp(spread * rng.normal(size=(sum(lengths), 1)))
    weight = rng.normal(size=(v, d)) * np.exp(spread * rng.normal(size=(v, 1)))
    bias = rng.normal(size=v) - 2 * np.sqrt(d)
    return *(torch.tensor(part, dtype=torch.float32) for part in (hidden, weight, bias)), [0, *accumulate(lengths)]


def largest(hidden: Tensor, weight: Tensor, bias: Tensor, offsets: list[int]) -> np.ndarray:
    logits = hidden.double().numpy() @ weight.double().numpy().T + bias.double().numpy()
    return np.stack([logits[start:end].max(axis=0) for start, end in pairwise(offsets)])


@given(SIZES, st.integers(2, 40), st.integers(1, 90), st.integers(0, 2**31), st.floats(0, 3))
def test_no_logit_exceeds_its_bound(lengths: list[int], d: int, v: int, seed: int, spread: float) -> None:
    hidden, weight, bias, offsets = inputs(lengths, d, v, seed, spread)
    upper = cpu.upper_bounds(hidden, weight, bias, offsets).numpy()
    exact = largest(hidden, weight, bias, offsets)
    assert (upper >= exact - 1e-5 * np.abs(exact)).all()


@given(SIZES, st.integers(2, 40), st.integers(1, 90), st.integers(0, 2**31))
def test_no_rounded_logit_exceeds_its_bound(lengths: list[int], d: int, v: int, seed: int) -> None:
    *numbers, offsets = inputs(lengths, d, v, seed)
    hidden, weight, bias = (part.bfloat16() for part in numbers)
    upper = cpu.upper_bounds(hidden, weight, bias, offsets)
    assert upper.dtype == torch.float32
    # As the head computes them: a product rounded to bfloat16, then the bias.
    products = (hidden.double() @ weight.double().T).bfloat16().float()
    logits = torch.stack([products[start:end].amax(dim=0) for start, end in pairwise(offsets)]) + bias.float()
    assert (upper >= logits - 1e-5 * logits.abs()).all()


def test_the_bound_is_close_enough_to_be_of_use() -> None:
    hidden, weight, bias, offsets = inputs([20, 30], 384, 2000, seed=0, spread=0.0)
    excess = cpu.upper_bounds(hidden, weight, bias, offsets).numpy() - largest(hidden, weight, bias, offsets)
    assert excess.mean() < 0.02 * float(hidden.norm(dim=1).mean() * weight.norm(dim=1).mean())


@pytest.mark.parametrize("terms", [1, 7, 64, 99])
def test_bounds_are_the_same_in_blocks_of_any_size(terms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, bias, offsets = inputs([3, 3, 1, 4], 8, 100, seed=3)
    whole = cpu.upper_bounds(hidden, weight, bias, offsets)  # so small a vocabulary is one block
    monkeypatch.setattr(cpu, "PRODUCT_NUMBERS", 1)
    monkeypatch.setattr(cpu, "MIN_TERMS", terms)
    assert torch.equal(cpu.upper_bounds(hidden, weight, bias, offsets), whole)


def test_only_the_wanted_terms_are_computed() -> None:
    hidden, weight, bias, offsets = inputs([3, 1, 4], 8, 30, seed=1)
    wanted = torch.rand(3, 30, generator=torch.Generator().manual_seed(0)) < 0.3
    found = cpu.logits_where(wanted, hidden, weight, bias, offsets).numpy()
    np.testing.assert_allclose(found, np.where(wanted, largest(hidden, weight, bias, offsets), 0), rtol=1e-4, atol=1e-4)


def test_weights_that_changed_are_quantized_anew() -> None:
    hidden, weight, bias, offsets = inputs([4], 16, 50, seed=2)
    before = cpu.upper_bounds(hidden, weight, bias, offsets)
    weight.mul_(2)
    after = cpu.upper_bounds(hidden, weight, bias, offsets)
    torch.testing.assert_close(after - bias, 2 * (before - bias), rtol=1e-4, atol=1e-4)
    weight.data.mul_(2)  # adapters and Module.to write past torch's count of changes
    torch.testing.assert_close(
        cpu.upper_bounds(hidden, weight, bias, offsets) - bias, 4 * (before - bias), rtol=1e-4, atol=1e-4
    )
    for row in range(len(weight)):
        weight.data[row] *= -3
        again = cpu.upper_bounds(hidden, weight.clone(), bias, offsets)
        assert torch.equal(cpu.upper_bounds(hidden, weight, bias, offsets), again)


def test_weights_are_quantized_alike_in_parts_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, bias, offsets = inputs([3, 4], 8, 50, seed=0)
    whole = cpu.upper_bounds(hidden, weight, bias, offsets)
    monkeypatch.setattr(cpu, "QUANTIZED_ROWS", 7)
    assert torch.equal(cpu.upper_bounds(hidden, weight.clone(), bias, offsets), whole)


def test_weights_made_in_inference_mode_are_screened_as_well() -> None:
    hidden, weight, bias, offsets = inputs([4], 16, 50, seed=2)
    expected = cpu.upper_bounds(hidden, weight, bias, offsets)
    with torch.inference_mode():
        assert torch.equal(cpu.upper_bounds(hidden, weight.clone(), bias, offsets), expected)


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("all_zero", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_head_gives_the_same_with_and_without(
    monkeypatch: pytest.MonkeyPatch, activation: Activation, all_zero: bool, dtype: torch.dtype
) -> None:
    *numbers, offsets = inputs([7, 1, 12], 64, 3000, seed=3, spread=0.3)
    numbers[2] -= 1000 if all_zero else 16
    hidden, weight, bias = (part.to(dtype) for part in numbers)
    results, asked = [], []
    picked = cpu.logits_where
    monkeypatch.setenv("VOCABLE_HEAD", "screened")
    monkeypatch.setattr(cpu, "logits_where", lambda *parts: asked.append(parts) or picked(*parts))
    for fast in (True, False):
        monkeypatch.setattr(cpu, "fast_integers", lambda fast=fast: fast)
        parts = [part.clone().requires_grad_() for part in (hidden, weight, bias)]
        pooled = head.sparse_head(*parts, offsets, "max", activation)
        pooled.square().sum().backward()
        results.append((pooled.detach(), *(part.grad for part in parts)))
    assert len(asked) == 1  # screened once, and its result was sparse enough to be used
    assert bool((results[0][0] > 0).any()) != all_zero
    rtol, atol = (1e-4, 1e-5) if dtype == torch.float32 else (2**-7, 2**-7)
    for with_screening, without in zip(*results, strict=True):
        torch.testing.assert_close(with_screening, without, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("slow", "way"), [("max_logits", "screened"), ("upper_bounds", "direct")])
def test_the_faster_way_is_measured_once(slow: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *numbers, offsets = inputs([7, 1, 700], 64, 3000, seed=3, spread=0.3)
    hidden, weight, bias = (part.float() for part in numbers)
    bias -= 80  # few terms are active
    expected = head.sparse_head(hidden, weight, bias, offsets)
    monkeypatch.delenv("VOCABLE_HEAD", raising=False)
    monkeypatch.setattr(cpu, "fast_integers", lambda: True)
    monkeypatch.setattr(cpu, "measured_paths", {})
    calls = dict.fromkeys(("max_logits", "upper_bounds"), 0)

    def counted(name: str, run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def called(*parts: Any) -> Tensor:
            calls[name] += 1
            time.sleep(0.05 if name == slow else 0)
            return run(*parts)

        return called

    for module, name in ((head, "max_logits"), (cpu, "upper_bounds")):
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    for number in range(3):
        found = head.sparse_head(hidden, weight, bias, offsets)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        if number == 0:
            calls.update(max_logits=0, upper_bounds=0)
    assert calls == {"max_logits": 2 * (way == "direct"), "upper_bounds": 2 * (way == "screened")}
    assert list(cpu.measured_paths.values()) == [way]
    monkeypatch.setenv("VOCABLE_HEAD", "direct" if way == "screened" else "screened")
    calls.update(max_logits=0, upper_bounds=0)
    head.sparse_head(hidden, weight, bias, offsets)
    assert calls == {"max_logits": way == "screened", "upper_bounds": way == "direct"}


def test_weights_cast_for_a_single_call_are_not_screened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "fast_integers", lambda: True)
    hidden, weight = torch.ones(3, 4).bfloat16(), torch.ones(5, 4).bfloat16()
    assert cpu.can_screen(hidden, weight)
    with torch.autocast("cpu", torch.bfloat16):
        assert not cpu.can_screen(hidden, weight)


def test_a_single_column_is_not_screened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "fast_integers", lambda: True)
    assert [cpu.can_screen(torch.ones(3, d), torch.ones(5, d)) for d in (1, 2)] == [False, True]


def test_a_dense_result_is_computed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, bias, offsets = inputs([3], 8, 40, seed=4)
    monkeypatch.setattr(cpu, "fast_integers", lambda: True)
    monkeypatch.setattr(cpu, "logits_where", None)  # calling it would fail
    pooled = head.sparse_head(hidden, weight, bias + 100, offsets)
    expected = np.log1p(largest(hidden, weight, bias + 100, offsets).clip(0))
    np.testing.assert_allclose(pooled.numpy(), expected, rtol=1e-5)
