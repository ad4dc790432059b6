"""Faster inference and training on CPUs: bfloat16 products of few shapes, float32 attention, 8-bit screening of terms.

Vectors are the same to the last bit with and without screening.

Letters: b texts, n tokens of all texts, d size of the decoder's input, v output terms.
"""

from __future__ import annotations

import logging
import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from time import perf_counter
from typing import NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from vocable.encoding.pooling import blocks, reduce_texts, runs
from vocable.options import DType

logger = logging.getLogger(__name__)


def native_bfloat16(device: torch.device) -> bool:
    """Return whether `device` multiplies bfloat16 matrices in hardware (AMX, AVX512-BF16, CUDA from 8.0)."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))
    return False


def in_bfloat16(dtype: DType, device: torch.device) -> bool:
    """Return whether to compute in bfloat16; "auto" does where `device` has it natively."""
    return dtype == "bfloat16" or (dtype == "auto" and native_bfloat16(device))


# Few shapes: oneDNN compiles code for every shape of a bfloat16 product, in 0.3 ms, and keeps 0.2 to 0.4 MB for the
# life of the process. The number of tokens differs from batch to batch, so that a service or a training would grow by
# gigabytes. Rows of zeros are added up to one of sixteen sizes per octave, which adds two percent.

MIN_ROWS = 8
WEIGHT_ROWS = 256  # rows of a weight in one product, even if their number differs from batch to batch


def rounded(rows: int) -> int:
    """Return the number of rows that `rows` are padded to: 8, 16 ... 256, 272 ... 512, 544.

    >>> [rounded(rows) for rows in (1, 33, 64, 257, 1000)]
    [8, 40, 64, 272, 1024]
    """
    step = max(MIN_ROWS, 1 << max(0, (rows - 1).bit_length() - 5))
    return -(-rows // step) * step


def padded_rows(rows: Tensor) -> Tensor:
    """Pad [n, d] with rows of zeros to [`rounded(n)`, d], if code is compiled for the number of rows."""
    missing = rounded(len(rows)) - len(rows)
    return functional.pad(rows, (0, 0, 0, missing)) if missing and _compiles(rows) else rows


def product_of_few_shapes(rows: Tensor, weight: Tensor) -> Tensor:
    """Multiply rows [n, d] by a transposed weight [k, d] to [n, k]; n and k may differ from call to call."""
    if not _compiles(rows):
        return rows @ weight.T
    weight_rows = functional.pad(weight, (0, 0, 0, -len(weight) % WEIGHT_ROWS))
    parts = [padded_rows(rows) @ part.T for part in weight_rows.split(WEIGHT_ROWS)]
    return torch.cat(parts, dim=1)[: len(rows), : len(weight)]


def _compiles(rows: Tensor) -> bool:
    """Return whether oneDNN compiles code for products of these rows: in bfloat16 on a CPU."""
    if rows.device.type != "cpu":
        return False
    return rows.dtype == torch.bfloat16 or (
        torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    )


def use_few_shapes(mlm: PreTrainedModel) -> None:
    """Pad the inputs of a masked language model's linear layers on a CPU, in place, with equal outputs and gradients.

    Like `fuse`, it replaces only `forward`, on the instances. `fuse` handles the decoder.
    """
    decoder = mlm.get_output_embeddings()
    for layer in mlm.modules() if mlm.device.type == "cpu" else ():
        if type(layer) is nn.Linear and layer is not decoder:
            layer.__dict__["forward"] = partial(_linear, layer)


def _linear(layer: nn.Linear, inputs: Tensor) -> Tensor:
    rows = inputs.reshape(-1, inputs.shape[-1])
    outputs: Tensor = functional.linear(padded_rows(rows), layer.weight, layer.bias)
    kept = outputs[: len(rows)]
    return kept.view(*inputs.shape[:-1], kept.shape[1])


# Attention: the backward pass of PyTorch's fused attention is slow in bfloat16 on a CPU, twice as slow as in float32
# for texts of 128 tokens, five times for 24 tokens.

FLOAT32_ATTENTION = "float32_sdpa"


@contextmanager
def float32_attention(mlm: PreTrainedModel) -> Iterator[None]:
    """Compute PyTorch's fused attention in float32 within the context if a model trains on a CPU in bfloat16."""
    implementation = mlm.config._attn_implementation
    if implementation != "sdpa" or not mlm._can_set_attn_implementation():  # as in older models' code
        yield
        return
    mlm.set_attn_implementation(FLOAT32_ATTENTION)
    try:
        yield
    finally:
        mlm.set_attn_implementation(implementation)


def _float32_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: object
) -> tuple[Tensor, None]:
    # Also without gradients: gradient caching first encodes without gradients, and must get the same vectors.
    if query.device.type != "cpu" or query.dtype != torch.bfloat16 or not module.training:
        return cast(tuple[Tensor, None], sdpa_attention_forward(module, query, key, value, attention_mask, **options))
    if attention_mask is not None and attention_mask.is_floating_point():
        attention_mask = attention_mask.float()
    with torch.autocast("cpu", enabled=False):
        attended, _ = sdpa_attention_forward(
            module, query.float(), key.float(), value.float(), attention_mask, **options
        )
    return attended.to(query.dtype), None


AttentionInterface.register(FLOAT32_ATTENTION, _float32_attention)
AttentionMaskInterface.register(FLOAT32_ATTENTION, sdpa_mask)


# Screening: in a trained model all but a few hundred of a text's terms are zero. A product of 8-bit integers bounds
# every logit from above. A term whose bound is not above zero is inactive; the others are computed from the floating-
# point states and weights, so that nothing is approximated. With h = h' + e and w = w' + f, where h' and w' are the
# numbers that the integers stand for, |h . w - h' . w'| <= |e| |w| + |h'| |f| (Cauchy-Schwarz).

INT8_MAX = 127  # the largest magnitude of a quantized number
PRODUCT_NUMBERS = 1 << 21  # numbers in a block of the integer product; a block of four times the size exceeds the cache
MIN_TERMS = 512  # least terms in a block, for any number of tokens: narrower products are slow
QUANTIZED_ROWS = 4096  # rows of the weights that are quantized at a time
ROUNDING_SLACK = 1.001  # factor of the bound: far more than the float32 rounding of a logit
PICKED_SHARE = 0.1  # picking out terms is cheaper than computing all if screening leaves no larger share of them
# The choice between screening and the direct path.
HEAD_PATH = "VOCABLE_HEAD"  # in the environment, "screened" or "direct": nothing is measured
SAMPLE_TOKENS = 512  # tokens that are measured; smaller batches are measured separately
REPEATS = 3  # measurements; the fastest counts
CLEAR_GAIN = 0.9  # screening is chosen below this share of the direct path's time

HeadInputs: TypeAlias = tuple[Tensor, Tensor, Tensor | None, Sequence[int]]  # hidden, weight, bias, offsets
measured_paths: dict[tuple[torch.dtype, torch.Size, bool], str] = {}


class QuantizedRows(NamedTuple):
    """Rows [r, d] as integers: row i is approximated by integers[i] * scale[i]."""

    integers: Tensor  # [r, d] int8
    scale: Tensor  # [r], or [1] for all rows
    length: Tensor  # [r], norms of the rows that the integers stand for
    error: Tensor  # [r], norms of the differences to the rows


_weights: WeakIdKeyDictionary = WeakIdKeyDictionary()  # weight -> its state and its quantized rows


def screened_or_direct(inputs: HeadInputs, direct: Callable[..., Tensor]) -> Tensor:
    """Return each text's largest logit of every term, [b, v] float32, by screening if that is faster, or by `direct`.

    `direct` is `head.max_logits`, and `inputs` are its arguments. Screening gives 0 or less for a logit that is not
    positive. It is left out without fast 8-bit integers, for a model whose vectors are not sparse, and if it was
    measured not to be clearly faster.
    """
    hidden, weight, *_ = inputs
    key = hidden.dtype, weight.shape, len(hidden) >= SAMPLE_TOKENS
    path = os.environ.get(HEAD_PATH) or measured_paths.get(key)
    if path == "direct" or not can_screen(hidden, weight):
        return direct(*inputs)
    possible = _possible(inputs)
    if possible.count_nonzero() > PICKED_SHARE * possible.numel():  # decided for this batch only
        return direct(*inputs)
    if path is None:
        path = measured_paths[key] = _faster_path(inputs, direct)
    return direct(*inputs) if path == "direct" else logits_where(possible, *inputs)


def can_screen(hidden: Tensor, weight: Tensor) -> bool:
    """Return whether the CPU has instructions for 8-bit integers (VNNI or AMX), and these numbers can be screened."""
    if hidden.device.type != "cpu" or hidden.dtype != weight.dtype or not fast_integers():
        return False
    if hidden.shape[1] < 2:  # torch 2.13 multiplies int8 matrices of a single column wrongly
        return False
    # Autocast makes new bfloat16 weights for every call, and quantizing them costs more than screening gains.
    half = hidden.dtype == torch.bfloat16 and not torch.is_autocast_enabled("cpu")
    return half or hidden.dtype == torch.float32


@cache
def fast_integers() -> bool:
    """Return whether the CPU has instructions for 8-bit integers."""
    capabilities = torch.cpu.get_capabilities()
    return any(bool(capabilities.get(name)) for name in ("avx512_vnni", "avx_vnni", "amx_int8"))


def _possible(inputs: HeadInputs) -> Tensor:
    """Return the terms that may be active, [b, v] bool; NaN counts as possible, so that it stays visible."""
    return (upper_bounds(*inputs) <= 0).logical_not_()


def _faster_path(inputs: HeadInputs, direct: Callable[..., Tensor]) -> str:
    """Time the two paths on the first texts of a batch, once in a process for each kind of input.

    The faster path depends on the CPU and the number type, and the flags of the CPU do not predict it. Screening has to
    be clearly faster, so that other processes make the same choice.
    """
    hidden, weight, bias, offsets = inputs
    count = max(1, bisect_right(offsets, SAMPLE_TOKENS) - 1)
    sample = hidden[: offsets[count]], weight, bias, offsets[: count + 1]
    paths: dict[str, Callable[[], Tensor]] = {
        "screened": lambda: logits_where(_possible(sample), *sample),
        "direct": lambda: direct(*sample),
    }
    seconds = dict.fromkeys(paths, math.inf)
    for _ in range(REPEATS):
        for name, run in paths.items():
            start = perf_counter()
            run()
            seconds[name] = min(seconds[name], perf_counter() - start)
    path = "screened" if seconds["screened"] < CLEAR_GAIN * seconds["direct"] else "direct"
    took = ", ".join(f"{name} {1e3 * duration:.1f} ms" for name, duration in seconds.items())
    logger.debug("sparse head: %s, for %s tokens in %s (%s)", path, offsets[count], hidden.dtype, took)
    return path


def upper_bounds(hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: Sequence[int]) -> Tensor:
    """Return an upper bound of each term's logits in each text, [b, v] float32; arguments as in `sparse_head`."""
    # One scale for all tokens, so that the integers have the order of the products over a text's tokens.
    tokens = _quantize(hidden, hidden.abs().amax().reshape(1))
    rows = _quantized_weight(weight)
    products = torch.empty(len(offsets) - 1, len(weight), dtype=torch.int32)
    texts = runs(offsets)
    size = min(max(PRODUCT_NUMBERS // len(hidden), MIN_TERMS), len(weight))
    memory = torch.empty(len(hidden) * size, dtype=torch.int32)  # allocating each block would cost page faults
    for block in blocks(len(weight), size):
        block_products = memory[: len(hidden) * (block.stop - block.start)].view(len(hidden), -1)
        torch._int_mm(tokens.integers, rows.integers[block].T, out=block_products)
        reduce_texts(torch.amax, block_products, texts, products[:, block])
    upper = products * (tokens.scale * rows.scale)
    longest = torch.stack([tokens.length[start:end].amax() for start, end in pairwise(offsets)])
    worst = torch.stack([tokens.error[start:end].amax() for start, end in pairwise(offsets)])
    upper.addr_(worst * ROUNDING_SLACK, rows.length + rows.error).addr_(longest * ROUNDING_SLACK, rows.error)
    if hidden.dtype == torch.bfloat16:  # a product is rounded to it before the bias is added
        upper.addcmul_(upper.abs(), upper.new_tensor(torch.finfo(torch.bfloat16).eps))
    return upper if bias is None else upper.add_(bias.float())


def logits_where(wanted: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: Sequence[int]) -> Tensor:
    """Return each text's largest logit of the `wanted` terms ([b, v] bool), and 0 for other terms: [b, v] float32."""
    largest = torch.zeros(wanted.shape)
    for i, (start, end) in enumerate(pairwise(offsets)):
        terms = wanted[i].nonzero().squeeze(1)
        rows = weight.index_select(0, terms)  # copies whole rows, which weight[terms] does number by number
        logits = product_of_few_shapes(hidden[start:end], rows).amax(dim=0).float()
        largest[i, terms] = logits if bias is None else logits + bias[terms].float()
    return largest


def _quantized_weight(weight: Tensor) -> QuantizedRows:
    """Return the decoder's rows as integers with a scale each; compute them once for each state of the weights."""
    # Changed weights are detected by torch's count of changes and by one number of every row. The count alone misses
    # changes through `weight.data`, which adapters, optimizers and `Module.to` make.
    sample = weight.detach().reshape(-1)[:: weight.shape[1] - 1]
    state = torch.cat([sample, sample.new_tensor([0 if weight.is_inference() else weight._version])])
    cached: tuple[Tensor, QuantizedRows] | None = _weights.get(weight)
    if cached is None or not torch.equal(cached[0], state):
        # A number takes 16 bytes while it is quantized, and one byte in the end: hence one part at a time. The result
        # is allocated first; if it were allocated between parts, it would leave holes too small to be used again.
        lengths = weight.new_empty(3, len(weight), dtype=torch.float32)
        whole = QuantizedRows(torch.empty_like(weight, dtype=torch.int8), *lengths)
        for block in blocks(len(weight), QUANTIZED_ROWS):
            rows = weight[block]
            for kept, part in zip(whole, _quantize(rows, rows.abs().amax(dim=1)), strict=True):
                kept[block] = part
        cached = _weights[weight] = state, whole
    return cached[1]


def _quantize(rows: Tensor, largest: Tensor) -> QuantizedRows:
    rows, largest = rows.float(), largest.float()
    scale = (largest / INT8_MAX).clamp_min(torch.finfo(torch.float32).tiny)
    quotients = (rows / scale[:, None]).round_()
    integers = quotients.to(torch.int8)
    represented = quotients.mul_(scale[:, None])  # in place: new memory costs more than the arithmetic
    length = represented.norm(dim=1)
    return QuantizedRows(integers, scale, length, represented.sub_(rows).norm(dim=1))
