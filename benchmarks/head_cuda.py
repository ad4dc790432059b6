"""The head on a GPU, for `benchmarks/head.py --device cuda`: kernels, memory, batches and training steps in one run.

Sides: vocable; "reference", sentence-transformers' way (decoder, then SpladePooling); "compiled", torch.compile of the
same formula. Times are medians of CUDA events on random data. Beside the times stand the least operations and bytes
that the forward pass needs, and the share of the ceilings that it reaches; those are measured in the same run, by a
large matrix product and a large copy. What does not fit in memory is a dash.

Letters: b texts, s tokens, d hidden size, v terms.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from machine import figure, peak_memory, ratio
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, DistilBertConfig, DistilBertForMaskedLM, PreTrainedModel

from vocable.torch_models.fuse import without_logits
from vocable.torch_models.head import max_logits, sparse_head

Shape = tuple[int, int, int, int]  # b, s, d, v


class Size(NamedTuple):
    """What is measured: full shapes, or ones small enough for Triton's interpreter."""

    shapes: list[Shape]
    batch: tuple[int, int, int]  # s, d, v of the search for the largest batch
    most: int  # texts at which that search ends
    steps: list[tuple[str, int, int, int]]  # encoder, texts, s, v of a training step
    matrix: int  # side of the matrices of the ceiling
    copied: int  # bytes of the copy
    repeats: int


FULL = Size(
    shapes=[(512, 512, 768, 30_522), (64, 512, 768, 50_368), (16, 512, 768, 250_002)],
    batch=(512, 768, 250_002),
    most=8192,
    steps=[
        ("distilbert-base", 128, 256, 30_522),
        ("bert-base", 128, 256, 30_522),
        ("distilbert-base", 32, 256, 250_002),
        ("bert-base", 32, 256, 250_002),
    ],
    matrix=8192,
    copied=2**32,
    repeats=9,
)
SMALL = Size([(2, 20, 16, 40)], (8, 16, 30), 2, [("tiny", 4, 6, 40)], 256, 2**20, 1)
DTYPES = (torch.bfloat16, torch.float16)
ACTIVE = (0.01, 0.9)  # share of terms active after pooling: a trained model, and the start of training


class Inputs(NamedTuple):
    """Hidden states [b, s, d], decoder weight [v, d] and bias [v]."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor


def ours(inputs: Inputs) -> Tensor:
    b, s, _ = inputs.hidden.shape
    return sparse_head(inputs.hidden.flatten(0, 1), inputs.weight, inputs.bias, range(0, b * s + 1, s))


def reference(inputs: Inputs) -> Tensor:
    mask = torch.ones(inputs.hidden.shape[:2], dtype=torch.long, device=inputs.hidden.device)
    features = {"token_embeddings": nn.functional.linear(*inputs), "attention_mask": mask}
    pooled: Tensor = SpladePooling().train(inputs.weight.requires_grad)(features)["sentence_embedding"]
    return pooled


@torch.compile(dynamic=False)
def compiled(inputs: Inputs) -> Tensor:
    return nn.functional.linear(*inputs).relu().log1p().max(dim=1).values


SIDES: dict[str, Callable[[Inputs], Tensor]] = {"vocable": ours, "reference": reference, "compiled": compiled}


def draw(b: int, s: int, d: int, v: int, dtype: torch.dtype, active: float, device: torch.device) -> Inputs:
    """Random hidden states and weights, and a bias that leaves about `active` of the terms active after pooling."""
    generator = torch.Generator(device).manual_seed(0)
    hidden = torch.randn(b, s, d, generator=generator, device=device, dtype=dtype)
    weight = torch.randn(v, d, generator=generator, device=device, dtype=dtype) / d**0.5
    texts = hidden[: min(b, 8)]
    largest = max_logits(texts.flatten(0, 1), weight, None, range(0, len(texts) * s + 1, s)).flatten()
    threshold = largest.kthvalue(max(1, int((1 - active) * len(largest)))).values
    return Inputs(hidden, weight, torch.full((v,), -float(threshold), device=device, dtype=dtype))


def forward(side: Callable[[Inputs], Tensor], inputs: Inputs) -> Tensor:
    with torch.no_grad():
        return side(inputs)


def forward_backward(side: Callable[[Inputs], Tensor], inputs: Inputs) -> Inputs:
    leaves = Inputs(*(x.detach().requires_grad_() for x in inputs))
    return Inputs(*torch.autograd.grad(side(leaves).float().sum(), leaves))


def milliseconds(run: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Median; the first two runs compile, tune and warm up."""
    times = []
    for turn in range(repeats + 2):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            end.synchronize()
            taken = start.elapsed_time(end)
        else:
            began = time.perf_counter()
            run()
            taken = 1e3 * (time.perf_counter() - began)
        if turn > 1:
            times.append(taken)
    return float(statistics.median(times))


def fits(run: Callable[[], object], device: torch.device) -> Any:
    """What `run` returns, or None if the device's memory is too small for it."""
    try:
        return run()
    except torch.OutOfMemoryError:
        return None
    finally:
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def ceilings(size: Size, device: torch.device) -> dict[str, float]:
    """TFLOP/s of a matrix product for each type, and TB/s of a copy, bytes read and written."""
    rates = {str(dtype): matrix_rate(size.matrix, dtype, device) for dtype in DTYPES}
    source = torch.randint(0, 256, (size.copied,), device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    rates["copy"] = 2 * size.copied / 1e9 / milliseconds(lambda: target.copy_(source), 20, device)
    return rates


def matrix_rate(side: int, dtype: torch.dtype, device: torch.device) -> float:
    a, b, out = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(3))
    return 2 * side**3 / 1e9 / milliseconds(lambda: torch.mm(a, b, out=out), 20, device)


def check(inputs: Inputs) -> float:
    """Relative difference of our output from float64 on a corner of the problem; SystemExit if it is large."""
    texts, terms = inputs.hidden[:2].double(), slice(0, 2048)
    exact = nn.functional.linear(texts, inputs.weight[terms].double(), inputs.bias[terms].double())
    exact = exact.relu().log1p().amax(dim=1)
    apart = float(torch.linalg.norm(forward(ours, inputs)[:2, terms] - exact) / torch.linalg.norm(exact))
    if not apart < 1e-3:
        raise SystemExit(f"the head's output differs from float64's by {apart:.1e}, relative")
    return apart


def measure_head(size: Size, ceiling: dict[str, float], device: torch.device) -> Iterator[dict[str, Any]]:
    """Times and peak memory of every number type, active share, shape and side; trained models in bfloat16 first."""
    sides = SIDES if device.type == "cuda" else {name: SIDES[name] for name in ("vocable", "reference")}
    for dtype, active, shape in product(DTYPES, ACTIVE, size.shapes):
        inputs = draw(*shape, dtype, active, device)
        apart = check(inputs)
        for name, side in sides.items():
            row: dict[str, Any] = {"shape": shape, "dtype": str(dtype), "active": active, "side": name}
            row |= measure_side(side, inputs, size.repeats, device)
            if name == "vocable":
                row["relative difference from float64"] = apart
                row |= shares(shape, dtype, row["forward"], ceiling)
            yield row
        torch._dynamo.reset()


def measure_side(
    side: Callable[[Inputs], Tensor], inputs: Inputs, repeats: int, device: torch.device
) -> dict[str, float | None]:
    figures = {}
    for part, function in (("forward", forward), ("forward and backward", forward_backward)):
        run = partial(function, side, inputs)
        figures[part] = fits(partial(milliseconds, run, repeats, device), device)
        figures[f"{part} MiB"] = fits(partial(peak_memory, run, device), device)
    return figures


def shares(shape: Shape, dtype: torch.dtype, taken: float, ceiling: dict[str, float]) -> dict[str, float]:
    """The least a forward pass must do, and how much of each ceiling it reaches in `taken` milliseconds."""
    b, s, d, v = shape
    operations, moved = 2 * b * s * v * d, ((b * s + v) * d + v) * dtype.itemsize + 4 * b * v
    return {
        "least TFLOP": operations / 1e12,
        "least GB": moved / 1e9,
        "share of the matrix ceiling": operations / 1e9 / taken / ceiling[str(dtype)],
        "share of the copy ceiling": moved / 1e9 / taken / ceiling["copy"],
    }


def largest_batch(size: Size, side: Callable[[Inputs], Tensor], most: int, device: torch.device) -> int:
    """Most texts whose forward and backward pass fit, to within an eighth; the search ends at `most`."""
    s, d, v = size.batch

    def try_batch(b: int) -> bool:
        def run() -> bool:
            hidden = torch.randn(b, s, d, device=device, dtype=torch.bfloat16)
            weight = torch.randn(v, d, device=device, dtype=torch.bfloat16) / d**0.5
            bias = torch.full((v,), -4.0, device=device, dtype=torch.bfloat16)
            forward_backward(side, Inputs(hidden, weight, bias))
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            return True

        return bool(fits(run, device))

    low, high = 0, 1
    while high <= most and try_batch(high):
        low, high = high, 2 * high
    while high <= most and high - low > max(1, low // 8):
        middle = (low + high) // 2
        low, high = (middle, high) if try_batch(middle) else (low, middle)
    return low


def encoder(name: str, v: int) -> PreTrainedModel:
    """A masked language model with random weights and no dropout."""
    if name == "distilbert-base":
        return DistilBertForMaskedLM(DistilBertConfig(vocab_size=v, dropout=0, attention_dropout=0))
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    extra = shape if name == "tiny" else {}
    return BertForMaskedLM(BertConfig(vocab_size=v, hidden_dropout_prob=0, attention_probs_dropout_prob=0, **extra))


class Step:
    """A step of InfoNCE and FLOPS over pairs of texts: bfloat16 autocast, AdamW, no checkpointing."""

    def __init__(self, name: str, texts: int, s: int, v: int, side: str, device: torch.device) -> None:
        torch.manual_seed(0)
        self.side = side
        self.mlm = encoder(name, v).to(device).train()
        self.optimizer = torch.optim.AdamW(self.mlm.parameters(), lr=1e-6)
        self.ids = torch.randint(0, v, (texts, s), device=device)
        self.losses: list[Tensor] = []

    def __call__(self) -> None:
        with torch.autocast(self.ids.device.type, dtype=torch.bfloat16):
            vectors = embed(self.mlm, self.ids, self.side).float()
        queries, documents = vectors.chunk(2)
        labels = torch.arange(len(queries), device=vectors.device)
        loss = nn.functional.cross_entropy(queries @ documents.T, labels)
        loss = loss + 1e-4 * vectors.mean(dim=0).square().sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.detach())


def measure_step(
    name: str, texts: int, s: int, v: int, side: str, repeats: int, device: torch.device
) -> dict[str, Any]:
    step = Step(name, texts, s, v, side, device)
    return {
        "encoder": name,
        "texts": texts,
        "s": s,
        "v": v,
        "side": side,
        "step": fits(lambda: milliseconds(step, repeats, device), device),
        "MiB": fits(lambda: peak_memory(step, device), device),
        "first loss": float(step.losses[0]) if step.losses else None,
    }


def embed(mlm: PreTrainedModel, ids: Tensor, side: str) -> Tensor:
    if side == "reference":
        features = {"token_embeddings": mlm(input_ids=ids).logits, "attention_mask": torch.ones_like(ids)}
        pooled: Tensor = SpladePooling().train()(features)["sentence_embedding"]
        return pooled
    with without_logits(mlm) as layer:
        hidden = mlm(input_ids=ids).logits
        return sparse_head(hidden.flatten(0, 1), layer.weight, layer.bias, range(0, ids.numel() + 1, ids.shape[1]))


def run_all(described: dict[str, Any], size: Size, device: torch.device, as_json: bool) -> None:
    """Measure everything; each figure is printed at once, as a run may end early, or all of them as one JSON object."""
    began = time.perf_counter()

    def show(*lines: str) -> None:
        if not as_json:
            print(*lines, sep="\n", flush=True)

    results: dict[str, Any] = {"ceilings": ceilings(size, device), "head": [], "steps": []}
    for name, value in results["ceilings"].items():
        show(f"ceiling, {name}: {value:.3g} {'TB/s' if name == 'copy' else 'TFLOP/s'}")
    show("", f"{'b, s, d, v':28}{'type':>9}{'active':>8} {'side':10}{'forward':>10}{'MiB':>9}{'both':>10}{'MiB':>9}")
    for row in measure_head(size, results["ceilings"], device):
        results["head"].append(row)
        show(*head_lines(row))
    show("", f"{'encoder':18}{'texts':>6}{'s':>5}{'v':>9} {'side':10}{'a step':>11}{'MiB':>9}{'first loss':>12}")
    for what, side in product(size.steps, ("vocable", "reference")):
        row = measure_step(*what, side, size.repeats, device)
        results["steps"].append(row)
        show(step_line(row))
    batches = {name: largest_batch(size, SIDES[name], size.most, device) for name in ("reference", "vocable")}
    results["largest batch"] = batches
    show("", batch_line(size, batches), "", f"{time.perf_counter() - began:.0f} s in all")
    if as_json:
        print(json.dumps({"machine": described, "results": results}, indent=1))


def head_lines(row: dict[str, Any]) -> Iterator[str]:
    shape = ", ".join(f"{x}" for x in row["shape"])
    yield (
        f"{shape:28}{row['dtype'].removeprefix('torch.'):>9}{row['active']:8.0%} {row['side']:10}"
        f"{figure(row['forward'], '.2f'):>7} ms{figure(row['forward MiB'], '.0f'):>9}"
        f"{figure(row['forward and backward'], '.2f'):>7} ms{figure(row['forward and backward MiB'], '.0f'):>9}"
    )
    if row["side"] == "vocable":
        yield (
            f"{'':28}least {row['least TFLOP']:.3g} TFLOP, {row['least GB']:.3g} GB; of the ceilings "
            f"{row['share of the matrix ceiling']:.0%} (matrix), {row['share of the copy ceiling']:.0%} (copy)"
        )


def step_line(row: dict[str, Any]) -> str:
    return (
        f"{row['encoder']:18}{row['texts']:6}{row['s']:5}{row['v']:9,} {row['side']:10}"
        f"{figure(row['step'], '.1f'):>8} ms{figure(row['MiB'], '.0f'):>9}{figure(row['first loss'], '.4f'):>12}"
    )


def batch_line(size: Size, batches: dict[str, int]) -> str:
    s, d, v = size.batch
    times = figure(ratio(batches["vocable"], batches["reference"]), ".1f")
    more = " or more" if 2 * batches["vocable"] > size.most else ""
    return (
        f"largest batch, forward and backward, s = {s}, d = {d}, v = {v:,}, bfloat16: "
        f"vocable {batches['vocable']}{more}, reference {batches['reference']} ({times}x)"
    )
