"""The sparse head alone: ours and sentence-transformers' (decoder, then SpladePooling), in the same run.

    python benchmarks/head.py                                   # 32 texts of 128 tokens, d = 384, v = 30,522
    python benchmarks/head.py --device cuda                     # the large shapes of head_cuda.py, on a GPU

From the hidden states before the decoder to the sparse vector: the forward pass of inference, a forward and backward
pass of training, and the peak memory of each above its inputs. Hidden states and weights are random; the bias is
shifted so that the given share of terms is active after pooling. Outputs are compared before anything is printed.
On CUDA the shapes are fixed, and the largest batch and full training steps are measured as well. To try that part
without a GPU, under Triton's interpreter, where times mean nothing:

    TRITON_INTERPRET=1 python benchmarks/head.py --small
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from machine import NOT_NATIVE, figure, machine, medians, peak_memory, print_machine, ratio
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor, nn

from vocable.torch_models import head
from vocable.torch_models.cpu import native_bfloat16
from vocable.torch_models.head import max_logits, sparse_head

OURS, THEIRS = "vocable", "sentence-transformers"


class Inputs(NamedTuple):
    """Hidden states [b, s, d], decoder weight [v, d] and bias [v]."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor


def draw(options: argparse.Namespace, device: torch.device) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(options.b, options.s, options.d, generator=generator).to(device)
    weight = (torch.randn(options.v, options.d, generator=generator) / options.d**0.5).to(device)
    logits = max_logits(hidden.flatten(0, 1), weight, None, offsets(hidden)).flatten()
    threshold = logits.kthvalue(int((1 - options.active) * len(logits))).values
    return Inputs(hidden, weight, torch.full((options.v,), -float(threshold), device=device))


def offsets(hidden: Tensor) -> list[int]:
    return list(range(0, hidden.shape[0] * hidden.shape[1] + 1, hidden.shape[1]))


def ours(inputs: Inputs) -> Tensor:
    return sparse_head(inputs.hidden.flatten(0, 1), inputs.weight, inputs.bias, offsets(inputs.hidden))


def theirs(inputs: Inputs) -> Tensor:
    pooling = SpladePooling().train(inputs.weight.requires_grad)
    logits = nn.functional.linear(*inputs)
    mask = torch.ones(logits.shape[:2], dtype=torch.long, device=logits.device)
    pooled: Tensor = pooling({"token_embeddings": logits, "attention_mask": mask})["sentence_embedding"]
    return pooled


def forward(side: Callable[[Inputs], Tensor], inputs: Inputs) -> Callable[[], Tensor]:
    def run() -> Tensor:
        with torch.inference_mode():
            return side(inputs)

    return run


def forward_backward(side: Callable[[Inputs], Tensor], inputs: Inputs) -> Callable[[], Inputs]:
    def run() -> Inputs:
        leaves = Inputs(*(x.detach().requires_grad_() for x in inputs))
        return Inputs(*torch.autograd.grad(side(leaves).float().square().sum(), leaves))

    return run


def difference(actual: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference, relative to the norm of `expected`."""
    return float(torch.linalg.norm(actual.float() - expected.float()) / torch.linalg.norm(expected.float()))


def measure(inputs: Inputs, repeats: int, device: torch.device) -> dict[str, Any]:
    tolerance = 1e-4 if inputs.hidden.dtype == torch.float32 else 0.05
    results: dict[str, Any] = {}
    for name, make in (("forward", forward), ("forward and backward", forward_backward)):
        sides = {OURS: make(ours, inputs), THEIRS: make(theirs, inputs)}
        memory = {side: peak_memory(run, device) for side, run in sides.items()}
        our_output, expected = (run() for run in sides.values())
        both = [[run] if isinstance(run, Tensor) else list(run) for run in (our_output, expected)]
        pairs = list(zip(*both, strict=True))
        apart = max(difference(one, other) for one, other in pairs)
        if apart > tolerance:
            raise SystemExit(f"{name}: outputs or gradients differ by {apart:.1e}, relative")
        del our_output, expected, both, pairs
        seconds = medians(sides, repeats, device)
        results[name] = {
            "milliseconds": {side: 1e3 * value for side, value in seconds.items()},
            "MiB": memory,
            "times faster": ratio(seconds[THEIRS], seconds[OURS]),
            "times less memory": ratio(memory[THEIRS], memory[OURS]),
            "relative difference": apart,
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for letter, default, what in (
        ("b", 32, "texts"),
        ("s", 128, "tokens"),
        ("d", 384, "hidden size"),
        ("v", 30_522, "terms"),
    ):
        parser.add_argument(f"-{letter}", type=int, default=default, help=f"{what} (default {default})")
    parser.add_argument("--active", type=float, default=0.01, help="share of terms active after pooling")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--small", action="store_true", help="try the CUDA part without a GPU")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device, or this PyTorch was built without CUDA")
    if options.small or device.type == "cuda":
        measure_cuda(options, device)
        return
    described = machine(device)
    inputs = draw(options, device)
    results = {"float32": measure(inputs, options.repeats, device)}
    if native_bfloat16(device):
        half = Inputs(*(x.bfloat16() for x in inputs))
        results["bfloat16"] = measure(half, options.repeats, device)
        single = results["float32"]["forward"]["milliseconds"][THEIRS]
        results["bfloat16"]["forward"]["times faster than their float32"] = ratio(
            single, results["bfloat16"]["forward"]["milliseconds"][OURS]
        )
    report(described, results, options)


def measure_cuda(options: argparse.Namespace, device: torch.device) -> None:
    if options.small:
        if os.environ.get("TRITON_INTERPRET") != "1":
            raise SystemExit("--small runs under the interpreter: set TRITON_INTERPRET=1")
        vars(head)["_triton_serves"] = lambda *kind: True
    import head_cuda

    described = machine(device, "triton")
    if not options.json:
        print_machine(described)
        print("times under the interpreter mean nothing" if options.small else "")
    head_cuda.run_all(described, head_cuda.SMALL if options.small else head_cuda.FULL, device, options.json)


def report(described: dict[str, Any], results: dict[str, Any], options: argparse.Namespace) -> None:
    shape = {name: getattr(options, name) for name in ("b", "s", "d", "v", "active")}
    if options.json:
        print(json.dumps({"machine": described, "shape": shape, "results": results}, indent=1))
        return
    print_machine(described)
    print("   ".join(f"{name} = {value:,}" for name, value in shape.items()) + "\n")
    print(f"{'':32}{'ours ms':>10}{'theirs ms':>11}{'faster':>9}{'ours MiB':>10}{'theirs MiB':>12}{'less':>8}")
    for dtype, parts in results.items():
        for name, part in parts.items():
            times, memory = part["milliseconds"], part["MiB"]
            print(
                f"{dtype + ', ' + name:32}{times[OURS]:10.1f}{times[THEIRS]:11.1f}{part['times faster']:8.1f}x"
                f"{figure(memory[OURS], '.0f'):>10}{figure(memory[THEIRS], '.0f'):>12}"
                f"{figure(part['times less memory'], '.1f'):>7}x"
            )
    if "bfloat16" in results:
        times = results["bfloat16"]["forward"]["times faster than their float32"]
        print(f"\nour bfloat16 forward is {times:.1f}x as fast as their float32")
    else:
        print("\n" + NOT_NATIVE)


if __name__ == "__main__":
    main()
