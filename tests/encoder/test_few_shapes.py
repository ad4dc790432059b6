from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForMaskedLM

from vocable.encoder.cpu import filled, product, rounded, use_few_shapes
from vocable.encoder.fuse import fuse
from vocable.encoder.load import load
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ModelError


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
    assert torch.equal(product(rows, weight), rows @ weight.T)
    rows, weight = rows.bfloat16(), weight.bfloat16()
    exact = rows.double() @ weight.double().T
    assert torch.allclose(product(rows, weight).double(), exact, rtol=2**-8, atol=1e-5)


def test_only_what_is_multiplied_in_bfloat16_on_a_processor_is_filled() -> None:
    rows = torch.ones(3, 4)
    assert filled(rows) is rows
    assert filled(rows.bfloat16()).shape == (8, 4)
    assert filled(rows.bfloat16())[3:].count_nonzero() == 0
    with torch.autocast("cpu", torch.bfloat16):
        assert filled(rows).shape == (8, 4)
    assert filled(rows.bfloat16().to("meta")).shape == (3, 4)


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
            encoder._encode_batch(["fox " * words] * (1 + words % 7))
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
    with pytest.raises(ModelError, match="changes its logits after the output layer"):
        fuse(model)


def test_a_model_on_another_device_is_left_as_it_is(backbones: dict[str, Path]) -> None:
    mlm = AutoModelForMaskedLM.from_pretrained(backbones["bert"]).to("meta")
    use_few_shapes(mlm)
    assert not any("forward" in layer.__dict__ for layer in mlm.modules())
