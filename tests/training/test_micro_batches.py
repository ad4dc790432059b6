"""A batch in parts: the vectors and gradients of the whole, the same bits from any number of threads, errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from torch import Tensor, nn

from vocable.torch_models.fuse import fuse, without_logits
from vocable.training import micro_batches
from vocable.training.callbacks import set_dropout
from vocable.training.micro_batches import by_length, call_twice, embedded, in_threads, part_size, threads_pay
from vocable.training.pretraining.masking import IGNORED
from vocable.training.pretraining.mlm import masked_states

THREADS = (1, 2, 3, 7)


@pytest.fixture
def with_threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def model(backbone: Path) -> SparseEncoder:
    model = fuse(SparseEncoder(str(backbone), device="cpu")).train()
    set_dropout(model, 0.0)
    return model


def gradients(model: nn.Module) -> dict[str, Tensor]:
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return found


def columns_of(model: SparseEncoder, texts: list[str]) -> list[dict[str, Any]]:
    return [dict(model.preprocess(part)) for part in (texts[:8], texts[8:16], texts[16:24])]


@pytest.mark.slow
def test_threads_give_the_gradients_of_the_whole_and_any_number_of_them_the_same_bits(
    model: SparseEncoder,
    toy_texts: list[str],
    with_threads: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PART_TOKENS", "MIN_PART_TOKENS"):
        monkeypatch.setattr(micro_batches, name, 30)  # two texts or three, a dozen parts
    columns = columns_of(model, toy_texts)
    expected = [model(dict(column))["sentence_embedding"] for column in columns]
    torch.stack([vectors.square().sum() for vectors in expected]).sum().backward()
    whole = gradients(model)
    found = []
    for threads in (*THREADS, 3):
        with_threads(threads)
        vectors = embedded(model, columns)
        torch.stack([one.square().sum() for one in vectors]).sum().backward()
        found.append((vectors, gradients(model)))
        assert torch.get_num_threads() == threads
    for one, other in zip(found[0][0], expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert found[0][1].keys() == whole.keys()
    largest = max(float(gradient.abs().max()) for gradient in whole.values())
    for name, gradient in whole.items():
        torch.testing.assert_close(found[0][1][name], gradient, rtol=1e-4, atol=3e-6 * largest, msg=name)
    for vectors, grads in found[1:]:
        assert all(map(torch.equal, vectors, found[0][0]))
        assert all(torch.equal(grads[name], found[0][1][name]) for name in whole)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_in_bfloat16_give_the_bits_of_one_part_after_the_other(
    model: SparseEncoder, toy_texts: list[str], with_threads: Callable[[int], None], threads: int
) -> None:
    parts = [dict(model.preprocess(toy_texts[start : start + 3])) for start in range(0, 15, 3)]
    with_threads(1)
    for part in parts:
        with torch.autocast("cpu", torch.bfloat16):
            vectors = model(dict(part))["sentence_embedding"]
        vectors.square().sum().backward()
    expected = gradients(model)
    with_threads(threads)
    with torch.autocast("cpu", torch.bfloat16):
        made = in_threads(model, lambda part: model(dict(part))["sentence_embedding"], parts)
    torch.stack([one.square().sum() for one in made]).sum().backward()
    found = gradients(model)
    assert found.keys() == expected.keys()
    again = model[0].auto_model.config.model_type == "albert"  # its layers are one, which a part uses several times
    for name, gradient in expected.items():
        near = 2e-2 * float(gradient.abs().max()) if again else 0.0
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=near, msg=name)


def test_masked_states_of_any_number_of_threads(
    toy_model: SparseEncoder, toy_texts: list[str], with_threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PART_TOKENS", "MIN_PART_TOKENS"):
        monkeypatch.setattr(micro_batches, name, 30)
    mlm, batch = toy_model[0].auto_model, dict(toy_model[0].tokenizer(toy_texts[:9], padding=True, return_tensors="pt"))
    hidden = (torch.rand(batch["input_ids"].shape, generator=torch.Generator().manual_seed(0)) < 0.3) & (
        batch["attention_mask"] > 0
    )
    labels = torch.where(hidden, batch["input_ids"], IGNORED)
    with without_logits(mlm):
        expected = mlm(**batch).logits[hidden]
        for threads in THREADS:
            with_threads(threads)
            states, found = masked_states(mlm, batch | {"labels": labels})
            # In another order, in which labels and states stand alike.
            rows = [
                tuple(row) for row in torch.cat([found[:, None], states.detach().round(decimals=4)], dim=1).tolist()
            ]
            wanted = torch.cat([labels[hidden][:, None], expected.detach().round(decimals=4)], dim=1).tolist()
            torch.testing.assert_close(sorted(rows), sorted(map(tuple, wanted)), rtol=0, atol=2e-4)


class Drawn(nn.Module):
    """Weights of which each part uses some: what is asked of parts that are unlike."""

    def __init__(self, count: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weights = nn.ParameterList(torch.randn(5, generator=generator) for _ in range(count))

    def forward(self, used: list[int]) -> Tensor:
        made = torch.ones(5)
        for number in used:
            made = (made * self.weights[number]).sin() + self.weights[number]
        return made


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=2, max_size=9), st.sampled_from(THREADS), st.booleans()
)
def test_parts_may_use_different_weights_or_none(parts: list[list[int]], threads: int, twice: bool) -> None:
    model, before = Drawn(5), torch.get_num_threads()
    model.weights[3].requires_grad_(False)
    factors = torch.linspace(0.1, 3.0, len(parts))
    for part, factor in zip(parts, factors, strict=True):  # one after the other
        if (made := model(part)).requires_grad:
            (made * factor).sum().backward()
    expected = gradients(model)
    torch.set_num_threads(threads)
    try:
        if twice:
            found = torch.stack(call_twice(model, lambda part, known: model(part), parts, 5000))
        else:
            found = torch.stack(in_threads(model, model, parts))
        if found.requires_grad:
            (found * factors[:, None]).sum().backward()
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found, torch.stack([model(part) for part in parts]))
    assert {name: grad.tolist() for name, grad in gradients(model).items()} == {
        name: grad.tolist() for name, grad in expected.items()
    }


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vector: Tensor) -> Tensor:
        return vector.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise ArithmeticError("on the way back")


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("which", [0, 3, 8])
def test_an_error_in_a_thread_is_raised_and_nobody_waits(
    threads: int, which: int, with_threads: Callable[[int], None]
) -> None:
    model, alive = Drawn(3), threading.active_count()
    with_threads(threads)

    def forwards(number: int) -> Tensor:
        if number == which:
            raise ArithmeticError("on the way there")
        return model([0, 1, 2])

    with pytest.raises(ArithmeticError):
        in_threads(model, forwards, range(9))
    made = in_threads(model, lambda number: Fails.apply(model([0, 1])) if number == which else model([2]), range(9))
    with pytest.raises(ArithmeticError):
        torch.stack(made).sum().backward()
    assert threading.active_count() <= alive
    assert not any(weight._backward_hooks or weight._post_accumulate_grad_hooks for weight in model.parameters())


def test_threads_compute_as_the_caller_does(with_threads: Callable[[int], None]) -> None:
    model = Drawn(1)
    with_threads(2)

    def seen(number: int) -> Tensor:
        product = torch.ones(2, 5) @ model.weights[0][:, None]
        return torch.tensor([product.dtype == torch.bfloat16, product.requires_grad, torch.get_num_threads() == 1])

    for casts in (True, False):
        for learns in (True, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=casts), torch.set_grad_enabled(learns):
                assert [one.tolist() for one in in_threads(model, seen, range(3))] == [[casts, learns, True]] * 3
    with torch.inference_mode():
        assert not any(one.requires_grad for one in in_threads(model, lambda number: model([0]), range(3)))


def test_a_model_that_drops_activations_draws_as_one_thread_does(with_threads: Callable[[int], None]) -> None:
    model = nn.Sequential(Drawn(2), nn.Dropout(0.5)).train()
    found = []
    for threads in THREADS:
        with_threads(threads)
        torch.manual_seed(3)
        found.append(torch.stack(in_threads(model, model, [[0], [1], [0, 1], [1, 0]])))
    assert all(torch.equal(one, found[0]) for one in found)
    assert (found[0] == 0).any()


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 200))
def test_parts_are_all_rows_once_within_the_size(lengths: list[int], size: int) -> None:
    width = max(lengths)
    mask = (torch.arange(width)[None, :] < torch.tensor(lengths)[:, None]).long()
    batch = {"input_ids": mask * torch.arange(1, len(lengths) + 1)[:, None], "attention_mask": mask, "task": "query"}
    seen = []
    for rows, part in by_length(batch, size):
        ids = part["input_ids"]
        assert part["task"] == "query"
        assert ids.shape == part["attention_mask"].shape
        assert len(ids) == 1 or ids.numel() <= size
        assert ids.shape[1] == max(lengths[row] for row in rows)
        assert [int((row > 0).sum()) for row in ids] == [lengths[row] for row in rows]
        assert (ids[:, 0] == rows + 1).all()
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(lengths)))


def test_parts_are_smaller_where_each_thread_has_some(with_threads: Callable[[int], None]) -> None:
    sizes = {}
    for threads in (1, 2, 4, 16):
        with_threads(threads)
        sizes[threads] = [part_size(tokens) for tokens in (100, 2048, 6000, 100_000)]
    assert sizes == {
        1: [100, 2048, 2048, 2048],
        2: [100, 1024, 2048, 2048],
        4: [100, 2048, 1500, 2048],
        16: [100, 2048, 2048, 2048],
    }


def test_threads_are_for_large_batches_enough_parts_and_gradients_that_fit(
    with_threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Drawn(3)  # 15 weights of 4 bytes
    with_threads(4)
    assert threads_pay(model, 4, 1025)
    assert not threads_pay(model, 4, 1024)
    assert not threads_pay(model, 3, 5000)
    monkeypatch.setattr(micro_batches, "MEMORY", 4 * 60)
    assert threads_pay(model, 4, 1025)
    monkeypatch.setattr(micro_batches, "MEMORY", 4 * 60 - 1)
    assert not threads_pay(model, 4, 1025)
    model.weights[0].requires_grad_(False)
    assert threads_pay(model, 4, 1025)
