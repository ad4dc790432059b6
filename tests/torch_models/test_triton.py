"""The CUDA head, under Triton's interpreter; `TRITON_INTERPRET=0 pytest ...` runs the same tests on a CUDA device."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor, nn

from tests.torch_models.test_head import dense, drawn, with_gradients

pytest.importorskip("triton", reason="Triton is not installed: it exists for Linux alone")


from vocable.encoding.pooling import blocks
from vocable.errors import ArgumentError
from vocable.torch_models import fuse, head, triton, triton_kernels
from vocable.torch_models.head import max_logits, sparse_head

DEVICE = "cpu" if triton_kernels.INTERPRETED.value else "cuda"
GATHERED, MULTIPLIED = 2.0, -1.0  # no share of the logits is above the one, every share is above the other
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton for all, and a few chunks and blocks of credit even in small cases."""
    monkeypatch.setattr(head, "_triton_serves", lambda *kind: True)
    monkeypatch.setattr(triton, "CHUNK_TOKENS", 24)
    monkeypatch.setattr(triton, "CREDIT_NUMBERS", 1)
    monkeypatch.setattr(triton, "blocks", lambda size, step: blocks(size, 13))
    monkeypatch.setattr(head, "TERM_BLOCK", 13)


def assert_near(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.linalg.norm(one.double().cpu() - other) <= tolerance * torch.linalg.norm(other).clamp(min=1)


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("pooling", ["max", "sum"])
@settings(max_examples=4)
@example([40], 17, 17, 0, True, torch.float32, GATHERED)  # a text of several tiles
@example([1] * 18, 5, 16, 0, False, torch.float32, MULTIPLIED)  # several texts in every tile, of one token each
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    d=st.integers(1, 20),
    v=st.integers(1, 20),
    seed=st.integers(0, 1000),
    bias=st.booleans(),
    dtype=st.sampled_from(list(TOLERANCE)),
    share=st.sampled_from([GATHERED, MULTIPLIED]),
)
def test_outputs_and_gradients_are_those_of_the_dense_head(
    pooling: str, activation: str, lengths: list[int], d: int, v: int, seed: int, bias: bool, dtype: Any, share: float
) -> None:
    *drawn_inputs, offsets = drawn(lengths, d, v, seed, bias)
    inputs = [None if x is None else x.to(DEVICE, dtype) for x in drawn_inputs]
    # The reference sees the same rounded inputs, so that what is compared is the arithmetic alone.
    exact = with_gradients(
        dense, tuple(None if x is None else x.cpu().double() for x in inputs), offsets, pooling, activation
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton, "DENSE_SHARE", share)
        found = with_gradients(sparse_head, tuple(inputs), offsets, pooling, activation)
    assert found[0].dtype == torch.float32
    assert [gradient.dtype for gradient in found[1:]] == [dtype] * (2 + bias)
    assert_near(found[:1], exact[:1], 2e-6)  # the sums are float32, whatever the inputs
    assert_near(found[1:], exact[1:], TOLERANCE[dtype])


def test_the_first_of_equal_tokens_wins() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randint(-1, 2, (41, 3), generator=generator).float()
    weight = torch.randint(-1, 2, (19, 3), generator=generator).float()
    offsets = [0, 35, 36, 41]
    largest, winners = triton.largest_logits(hidden.to(DEVICE), weight.to(DEVICE), None, offsets, winners=True)
    logits = (hidden @ weight.T).numpy()
    texts = [logits[start:end] for start, end in pairwise(offsets)]
    assert any((text == text.max(axis=0)).sum(axis=0).max() > 1 for text in texts)
    np.testing.assert_array_equal(largest.cpu(), [text.max(axis=0) for text in texts])
    first = [start + text.argmax(axis=0) for start, text in zip(offsets, texts, strict=False)]
    np.testing.assert_array_equal(winners.cpu(), first)


def test_max_logits_are_the_largest_logits_of_each_text() -> None:
    hidden, weight, bias, offsets = drawn([4, 1, 20], d=3, v=21)
    logits = (hidden @ weight.T + bias).numpy()
    expected = np.stack([logits[start:end].max(axis=0) for start, end in pairwise(offsets)])
    found = max_logits(hidden.float().to(DEVICE), weight.float().to(DEVICE), bias.float().to(DEVICE), offsets)
    assert (expected < 0).any()
    np.testing.assert_allclose(found.cpu(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's, within the interpreter
@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_diverged_text_is_seen_and_leaves_the_others_alone(pooling: str, bad: float) -> None:
    hidden, weight, bias, offsets = drawn([3, 4, 2], d=4, v=18)
    inputs = [x.float().to(DEVICE) for x in (hidden, weight, bias)]
    clean = sparse_head(*inputs, offsets, pooling)
    inputs[0][4, 1] = bad
    output = sparse_head(*inputs, offsets, pooling)
    assert not output[1].isfinite().all()
    assert torch.equal(output[[0, 2]], clean[[0, 2]])
    if pooling == "max":
        hidden, largest = inputs[0].cpu(), triton.largest_logits(*inputs, offsets, winners=True)
        broken = largest[0][1].isnan().cpu()
        assert broken.all() == np.isnan(bad)
        assert ((largest[1][1] >= 3) & (largest[1][1] < 7)).all()  # within the text: backward reads there


@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_what_lies_in_padding_does_not_leak(pooling: str) -> None:
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], device=DEVICE)
    hidden, weight, bias, _ = drawn([12], d=5, v=17)
    tokens = hidden.float().to(DEVICE).unflatten(0, (3, 4))
    layer = nn.Linear(5, 17, device=DEVICE)
    layer.weight.data, layer.bias.data = weight.float().to(DEVICE), bias.float().to(DEVICE)
    stock = SpladePooling(pooling_strategy=pooling)

    def pooled(padding: float) -> list[Tensor]:
        leaf = tokens.masked_fill(mask[:, :, None] == 0, padding).requires_grad_()
        layer.zero_grad()
        output = fuse._pool(stock, layer, [], {"token_embeddings": leaf, "attention_mask": mask})["sentence_embedding"]
        output.square().sum().backward()
        return [output.detach(), leaf.grad, layer.weight.grad.clone(), layer.bias.grad.clone()]

    poisoned = pooled(float("nan"))
    for one, other in zip(poisoned, pooled(0.0), strict=True):
        assert torch.equal(one, other)
    logits = tokens @ weight.float().to(DEVICE).T + bias.float().to(DEVICE)
    expected = stock({"token_embeddings": logits, "attention_mask": mask})["sentence_embedding"]
    torch.testing.assert_close(poisoned[0], expected, rtol=1e-5, atol=1e-6)


def test_a_text_that_is_all_padding_is_refused() -> None:
    features = {"token_embeddings": torch.ones(2, 3, 4), "attention_mask": torch.tensor([[1, 1, 0], [0, 0, 0]])}
    with pytest.raises(ArgumentError):
        fuse._pool(SpladePooling(), nn.Linear(4, 5), [], features)


def test_nothing_active_gives_zeros_and_no_gradient() -> None:
    hidden, weight, _, offsets = drawn([2, 3], d=4, v=6)
    inputs = [x.float().to(DEVICE) for x in (hidden, weight, torch.full((6,), -100.0))]
    for pooling in ("max", "sum"):
        output, *gradients = with_gradients(sparse_head, tuple(inputs), offsets, pooling)
        assert not output.any()
        assert all(not gradient.any() for gradient in gradients)


@pytest.mark.parametrize("trained", [0, 1])
@pytest.mark.parametrize("share", [GATHERED, MULTIPLIED])
def test_gradients_of_frozen_inputs_are_not_computed(
    trained: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "DENSE_SHARE", share)
    hidden, weight, bias, offsets = (x.float().to(DEVICE) if isinstance(x, Tensor) else x for x in drawn([2, 3], 4, 9))
    expected = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    dense(*expected, bias, offsets, "max", "relu").sum().backward()
    leaves = [hidden, weight]
    leaves[trained].requires_grad_()
    sparse_head(*leaves, bias, offsets).sum().backward()
    torch.testing.assert_close(leaves[trained].grad, expected[trained].grad, rtol=1e-5, atol=1e-5)
    assert leaves[1 - trained].grad is None


def test_products_only_where_a_large_share_of_the_logits_won(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def notice(name: str) -> None:
        original = getattr(triton, name)
        monkeypatch.setattr(triton, name, lambda *args: taken.append(name) or original(*args))

    notice("_gathered")
    notice("_multiplied")
    monkeypatch.setattr(triton, "DENSE_SHARE", 0.1)  # one winner among five tokens is a fifth of the logits
    hidden, weight, _, offsets = drawn([5], d=4, v=10)
    for bias in (torch.full((10,), 100.0), torch.full((10,), -100.0)):
        with_gradients(sparse_head, tuple(x.float().to(DEVICE) for x in (hidden, weight, bias)), offsets)
    assert taken == ["_multiplied", "_gathered"]


def test_autocast_computes_in_its_type_and_keeps_gradients_in_float32() -> None:
    hidden, weight, bias, offsets = drawn([5, 2], d=16, v=12)
    inputs = tuple(x.float().to(DEVICE) for x in (hidden, weight, bias))
    exact = with_gradients(dense, (hidden, weight, bias), offsets, "max", "relu")
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        found = with_gradients(sparse_head, inputs, offsets)
    assert all(x.dtype == torch.float32 for x in found)
    rounded = with_gradients(sparse_head, (inputs[0].bfloat16(), inputs[1].bfloat16(), inputs[2]), offsets)
    assert torch.equal(found[0], rounded[0])
    assert_near(found, exact, 0.03)


@pytest.mark.slow
@pytest.mark.parametrize("dense_from", [0.0, 1.0], ids=["multiplied", "gathered"])
def test_training_follows_the_reference_for_twenty_steps(monkeypatch: pytest.MonkeyPatch, dense_from: float) -> None:
    """Two tiny encoders from one seed, in-batch negatives: one with this head, one with the dense reference."""
    monkeypatch.setattr(triton, "DENSE_SHARE", dense_from)
    generator = torch.Generator().manual_seed(0)
    batches = torch.randint(0, 30, (2, 2, 4, 3), generator=generator)  # batch, side, text, token

    def losses(pool: Any) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 14)).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        found = []
        for batch in batches.repeat(10, 1, 1, 1).to(DEVICE):
            hidden = model[:3](batch.flatten())
            vectors = pool(hidden, model[3].weight, model[3].bias, list(range(0, 25, 3)), "max", "relu")
            queries, documents = vectors[:4], vectors[4:]
            loss = nn.functional.cross_entropy(queries @ documents.T, torch.arange(4, device=DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    expected = losses(dense)
    assert len(expected) == 20
    assert np.mean(expected[-5:]) < 0.5 * np.mean(expected[:5])  # there is something to follow
    np.testing.assert_allclose(losses(sparse_head), expected, rtol=1e-3)


@pytest.fixture
def serves(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    """The decision for a CUDA device of a given capability, and the line it logs."""

    def decide(
        device: str = "cuda:0", dtype: torch.dtype = torch.bfloat16, capability: Any = (9, 0)
    ) -> tuple[bool, str]:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        caplog.clear()
        with caplog.at_level(logging.DEBUG, logger="vocable.torch_models.head"):
            answer = chosen.__wrapped__(torch.device(device), dtype, dtype)
        (record,) = caplog.records
        return answer, record.getMessage()

    return decide


chosen = head._triton_serves  # before `small_pieces` replaces it


def test_cuda_with_triton_takes_it_and_all_else_says_why(serves: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert serves() == (True, "sparse head: Triton's kernels, for torch.bfloat16 on cuda:0")
    for arguments, reason in (
        ({"device": "cpu"}, "on the cpu"),
        ({"capability": (7, 5)}, "older than Triton supports"),
        ({"dtype": torch.float64}, "torch.float64 with weights in torch.float64 are not among its types"),
    ):
        answer, line = serves(**arguments)
        assert not answer
        assert reason in line
    for version in ((), (3, 3)):
        monkeypatch.setattr(head, "_triton_version", lambda version=version: version)
        answer, line = serves()
        assert not answer
        assert "triton 3.4 or later is not installed" in line


def test_chunks_hold_whole_texts_and_enough_tokens() -> None:
    offsets = [0, 10, 30, 31, 32, 60, 61]
    starts, chunks, longest = triton._texts(offsets, torch.device("cpu"))
    assert starts.tolist() == offsets
    assert chunks.tolist() == [0, 2, 5, 6]  # 30, 30 and 1 tokens, where 24 are enough
    assert longest == 32


COMPILE = """
import importlib.util, sys
from triton import JITFunction, compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
spec = importlib.util.spec_from_file_location("kernels", sys.argv[1])
kernels = importlib.util.module_from_spec(spec)
sys.modules["kernels"] = kernels
spec.loader.exec_module(kernels)
POINTERS = dict(
    hidden="*bf16", weight="*bf16", bias="*fp32", offsets="*i32", chunks="*i32", largest="*fp32", winners="*i32",
    pooled="*fp32", owners="*i32", upstream="*fp32", credit="*bf16", source="*bf16", starts="*i64", rows="*i64",
    factors="*fp32", out="*bf16",
)
CONSTANTS = dict(
    WINNERS=True, TWICE=True, PRECISION="ieee", LONGEST=32, GROUP=8, BLOCK_V=64, BLOCK_S=32, BLOCK_D=64, BLOCK_E=16
)
every = ("max_kernel", "sum_kernel", "credit_kernel", "gather_kernel")
for capability, names in ((80, every[:1]), (90, every)):
    for name in names:
        kernel = getattr(kernels, name)
        while not isinstance(kernel, JITFunction):
            kernel = kernel.fn
        constants = {a: CONSTANTS[a] for a in kernel.arg_names if a in CONSTANTS}
        signature = {a: "constexpr" if a in constants else POINTERS.get(a, "i32") for a in kernel.arg_names}
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        ptx = compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]
        print(name, capability, "wgmma.mma_async" in ptx or "mma.sync" in ptx)
"""


@pytest.mark.slow
def test_the_kernels_compile_for_cuda(tmp_path: Path) -> None:
    """The compiler refuses some code that the interpreter runs; it needs no device."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILE, triton_kernels.__file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 5
    assert all(matrix_unit == str(name != "gather_kernel") for name, _, matrix_unit in lines)
