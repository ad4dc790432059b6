"""The Triton kernels of `triton.py`: pooled logits, the credit of sum pooling, and sums of gathered rows.

The product has the terms first, [terms, tokens]: pooling then runs along the second axis, and each thread has most of
that axis in its registers. With tokens first, every term would be reduced across all warps. A program owns some
consecutive texts (a chunk) and a block of terms, and runs through the chunk's tokens a tile at a time, wherever texts
begin or end: short texts share tiles. Two programs never write to the same place, so that atomic operations are not
needed, and for a given shape of tiles every sum has a fixed order.

Letters: b texts, n tokens of all texts, d size of the decoder's input, v output terms.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _larger(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


# The interpreter runs a custom reduction element by element, and multiplies bfloat16 as if it were integers.
INTERPRETED = tl.constexpr(not isinstance(_larger, triton.JITFunction))

# BLOCK_V, BLOCK_S, warps, stages. The widest tiles read the fewest bytes an operation and give a thread 128 sums, which
# leaves registers for a maximum but not for a logarithm. Triton skips tiles that do not fit in shared memory.
TILES = [
    (128, 256, 8, 3), (128, 256, 8, 4), (256, 128, 8, 3), (128, 128, 8, 4), (64, 128, 4, 3),
    (128, 64, 4, 4), (64, 64, 4, 3), (128, 32, 4, 4), (64, 32, 4, 4),
]  # fmt: skip


def _fitting(configs: list[triton.Config], arguments: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """Return the tiles worth timing: no wider than the texts, rows of 128 bytes, small without a matrix unit."""
    size, longest = arguments["hidden"].element_size(), constants["LONGEST"]
    plain = size == 4 and constants["PRECISION"] == "ieee"
    low, high = (32, min(longest, 64)) if plain else (longest // 2, longest)
    return [
        config
        for config in configs
        if low <= config.kwargs["BLOCK_S"] <= high
        and config.kwargs["BLOCK_D"] * size == 128
        and not (plain and config.kwargs["BLOCK_V"] > 64)
    ]


def _tuned(key: str, most: int) -> Any:
    """Time the tiles of at most `most` logits on the first call for a kind of input, and cache the fastest on disk.

    A kind is the number types, d, LONGEST (32, 64 or 256 tokens), PRECISION, and the constant named `key`.
    """
    if INTERPRETED.value:
        small = {"BLOCK_V": 16, "BLOCK_S": 16, "BLOCK_D": 16, "GROUP": 2}
        return triton.autotune([triton.Config(small)], key=[])
    configs = [
        triton.Config({"BLOCK_V": v, "BLOCK_S": s, "BLOCK_D": d, "GROUP": 8}, num_warps=warps, num_stages=stages)
        for v, s, warps, stages in TILES
        for d in (64, 32)
        if v * s <= most
    ]
    pruning = {"early_config_prune": _fitting}
    return triton.autotune(configs, ["d", "LONGEST", "PRECISION", key], prune_configs_by=pruning, cache_results=True)


@triton.jit
def _place(program, chunks, blocks, GROUP: tl.constexpr):
    """Return chunk and block of a program: GROUP chunks go through all blocks, so their tokens stay in the L2 cache."""
    group = program // (GROUP * blocks)
    size = tl.minimum(chunks - group * GROUP, GROUP)
    within = program % (GROUP * blocks)
    return group * GROUP + within % size, within // size


@triton.jit
def _logits(
    hidden, weight, tokens, terms, d, PRECISION: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Return W[terms] H[tokens]^T without the bias: [BLOCK_V, BLOCK_S] float32."""
    k = tl.arange(0, BLOCK_D)
    rows = weight + terms.to(tl.int64)[:, None] * d + k[None, :]
    columns = hidden + tokens.to(tl.int64)[None, :] * d + k[:, None]
    logits = tl.zeros([BLOCK_V, BLOCK_S], tl.float32)
    for low in range(0, d, BLOCK_D):
        w = tl.load(rows, mask=(k < d - low)[None, :], other=0.0)
        h = tl.load(columns, mask=(k < d - low)[:, None], other=0.0)
        if INTERPRETED:
            w, h = w.to(tl.float32), h.to(tl.float32)
        logits = tl.dot(w, h, logits, input_precision=PRECISION)
        rows += BLOCK_D
        columns += BLOCK_D
    return logits


@triton.jit
def _row_max(x):
    """Return the maximum of every row, or NaN for a row with a NaN, which `tl.max` ignores."""
    if INTERPRETED:
        broken = tl.max((x != x).to(tl.int32), axis=1) > 0
        return tl.where(broken, float("nan"), tl.max(tl.where(x != x, float("-inf"), x), axis=1))
    else:  # noqa: RET505 - compiled, only one of the two branches may exist
        return tl.reduce(x, 1, _larger)


@triton.jit
def _relu(x):
    return tl.where(x < 0.0, 0.0, x)  # keeps NaN


@triton.jit
def _log1p(x):
    """Return log(1 + x) for x >= 0; for small x, the quotient restores the digits that 1 + x loses."""
    more = 1.0 + x
    kept = more - 1.0
    quotient = tl.where(x < 1.0, x / tl.where(kept == 0.0, 1.0, kept), 1.0)
    return tl.where(kept == 0.0, x, tl.log(more) * quotient)


@_tuned("WINNERS", most=128 * 256)
@triton.jit(do_not_specialize=["count"])
def max_kernel(
    hidden, weight, offsets, chunks, largest, winners, count, d, v, WINNERS: tl.constexpr, PRECISION: tl.constexpr,
    LONGEST: tl.constexpr, GROUP: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Compute the largest logit of every text and term, and with WINNERS the first token that has it."""
    # This program's terms [BLOCK_V], and its texts: their tokens are start to stop.
    chunk, block = _place(tl.program_id(0), count, tl.cdiv(v, BLOCK_V), GROUP)
    text = tl.load(chunks + chunk)
    start, stop = tl.load(offsets + text), tl.load(offsets + tl.load(chunks + chunk + 1))
    terms = block * BLOCK_V + tl.arange(0, BLOCK_V)
    column = tl.arange(0, BLOCK_S)
    best = tl.full([BLOCK_V], float("-inf"), tl.float32)
    winner = tl.zeros([BLOCK_V], tl.int32)
    # Tiles of logits [BLOCK_V, BLOCK_S]: a tile may hold several texts, and a text lie in several tiles.
    for low in range(start, stop, BLOCK_S):
        high = tl.minimum(low + BLOCK_S, stop)
        tokens = tl.minimum(low + column, stop - 1)
        logits = _logits(hidden, weight, tokens, tl.minimum(terms, v - 1), d, PRECISION, BLOCK_V, BLOCK_S, BLOCK_D)
        position = low
        while position < high:  # the texts of this tile, or the parts of them that lie in it
            end = tl.load(offsets + text + 1)
            until = tl.minimum(end, high)
            inside = ((column >= position - low) & (column < until - low))[None, :]
            # The largest logit [BLOCK_V] of the text's tokens in this tile, and the first token [BLOCK_V] that has it.
            top = _row_max(tl.where(inside, logits, float("-inf")))
            if WINNERS:
                at_top = inside & ~(logits < top[:, None])  # NaN counts as the maximum
                first = tl.min(tl.where(at_top, column[None, :], BLOCK_S), axis=1)
                winner = tl.where((top > best) | (top != top), low + first, winner)
            best = _larger(best, top)
            # The text ends here: store it, and begin the next one.
            if end <= high:
                place = text.to(tl.int64) * v + terms
                tl.store(largest + place, best, mask=terms < v)
                if WINNERS:
                    tl.store(winners + place, winner, mask=terms < v)
                best = tl.full([BLOCK_V], float("-inf"), tl.float32)
                text += 1
            position = until


@_tuned("TWICE", most=128 * 128)
@triton.jit(do_not_specialize=["count"])
def sum_kernel(
    hidden, weight, bias, offsets, chunks, pooled, count, d, v, TWICE: tl.constexpr, PRECISION: tl.constexpr,
    LONGEST: tl.constexpr, GROUP: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Sum the activations of every text and term; TWICE takes the logarithm twice."""
    # As in `max_kernel`: this program's terms, texts and tokens.
    chunk, block = _place(tl.program_id(0), count, tl.cdiv(v, BLOCK_V), GROUP)
    text = tl.load(chunks + chunk)
    start, stop = tl.load(offsets + text), tl.load(offsets + tl.load(chunks + chunk + 1))
    terms = block * BLOCK_V + tl.arange(0, BLOCK_V)
    shift = tl.load(bias + terms, mask=terms < v, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK_V], tl.float32)
    column = tl.arange(0, BLOCK_S)
    for low in range(start, stop, BLOCK_S):
        high = tl.minimum(low + BLOCK_S, stop)
        tokens = tl.minimum(low + column, stop - 1)
        logits = _logits(hidden, weight, tokens, tl.minimum(terms, v - 1), d, PRECISION, BLOCK_V, BLOCK_S, BLOCK_D)
        # [BLOCK_V, BLOCK_S]
        weights = _log1p(_relu(logits + shift[:, None]))
        if TWICE:
            weights = _log1p(weights)
        position = low
        # Add the part of each text in this tile.
        while position < high:
            end = tl.load(offsets + text + 1)
            until = tl.minimum(end, high)
            inside = ((column >= position - low) & (column < until - low))[None, :]
            total += tl.sum(tl.where(inside, weights, 0.0), axis=1)
            if end <= high:
                tl.store(pooled + text.to(tl.int64) * v + terms, total, mask=terms < v)
                total = tl.zeros([BLOCK_V], tl.float32)
                text += 1
            position = until


@_tuned("TWICE", most=128 * 128)
@triton.jit(do_not_specialize=["first", "size"])
def credit_kernel(
    hidden, weight, bias, owners, upstream, credit, n, d, v, first, size, TWICE: tl.constexpr, PRECISION: tl.constexpr,
    LONGEST: tl.constexpr, GROUP: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the logits of `size` terms from `first` under sum pooling: [size, n], from upstream [b,
    v].
    """
    # This program's tokens [BLOCK_S] and terms [BLOCK_V]. Places beyond the last repeat it, and are not stored.
    tile, block = _place(tl.program_id(0), tl.cdiv(n, BLOCK_S), tl.cdiv(size, BLOCK_V), GROUP)
    tokens = tile * BLOCK_S + tl.arange(0, BLOCK_S)
    rows = block * BLOCK_V + tl.arange(0, BLOCK_V)
    terms = first + tl.minimum(rows, size - 1)
    known = tl.minimum(tokens, n - 1)
    # [BLOCK_V, BLOCK_S]: the slope of the activation, 0 where the logit is not positive.
    x = _logits(hidden, weight, known, terms, d, PRECISION, BLOCK_V, BLOCK_S, BLOCK_D)
    x += tl.load(bias + terms).to(tl.float32)[:, None]
    positive = _relu(x)
    slope = 1.0 / (1.0 + positive)
    if TWICE:
        slope = slope / (1.0 + _log1p(positive))
    text = tl.load(owners + known).to(tl.int64)
    gradient = tl.load(upstream + text[None, :] * v + terms[:, None])
    gradient = tl.where(x <= 0.0, 0.0, slope * gradient)
    places = credit + rows.to(tl.int64)[:, None] * n + tokens[None, :]
    tl.store(places, gradient, mask=(rows < size)[:, None] & (tokens < n)[None, :])


@triton.jit
def gather_kernel(source, starts, rows, factors, out, d, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr):
    """Sum factors[e] * source[rows[e]] over the entries e of row i, starts[i] to starts[i + 1], into out[i] [., d]."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    start, stop = tl.load(starts + row), tl.load(starts + row + 1)
    total = tl.zeros([BLOCK_E, BLOCK_D], tl.float32)
    for low in range(start, stop, BLOCK_E):
        entries = low + tl.arange(0, BLOCK_E)
        real = entries < stop
        factor = tl.load(factors + entries, mask=real, other=0.0)
        index = tl.load(rows + entries, mask=real, other=0)
        mask = real[:, None] & (columns < d)[None, :]
        values = tl.load(source + index[:, None] * d + columns[None, :], mask=mask, other=0.0)
        total += factor[:, None] * values.to(tl.float32)
    tl.store(out + row * d + columns, tl.sum(total, axis=0), mask=columns < d)
