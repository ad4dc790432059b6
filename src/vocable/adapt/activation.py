"""Which share of the vocabulary a masked language model makes active on probe texts, and where zero would have to lie
for another share.

The logits of a text's terms are looked at pooled [b, v], the largest over its tokens or those of the one row that a
text becomes, or token by token. The latter are n x v numbers for n tokens: they are computed a block at a time, as
often as needed, and never held together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.encoder.fuse import pack, rows_to_pool, without_logits
from vocable.encoder.head import max_logits

Level = Literal["pooled", "token"]

BATCH = 32  # texts
TOKENS, TERMS = 4096, 1024  # of a block of logits
HALF = 1 << 16  # values of the upper and of the lower half of a float32's bits


class Activation(NamedTuple):
    """What is active: terms of a text, or of a token."""

    share: float  # of the (text, term) or (token, term) pairs
    mean: float  # active terms of a text or token
    p99: float  # 99th percentile of the same


class PooledLogits:
    """Each text's logit of every term, the largest of its rows', [b, v]."""

    def __init__(self, logits: Tensor) -> None:
        self._logits = logits

    def above(self, threshold: float) -> Activation:
        """What is active if zero lies at `threshold`."""
        return _activation((self._logits > threshold).sum(dim=1), self._logits.shape[1])

    def threshold(self, share: float) -> float:
        """The lowest logit that at most a `share` in [0, 1) of all are strictly above."""
        flat = self._logits.flatten()
        return float(flat.kthvalue(len(flat) - int(share * len(flat))).values)


class TokenLogits:
    """The logits of every token, from the decoder's inputs [n, d], its weight [v, d] and bias [v]."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor) -> None:
        self._hidden, self._weight, self._bias = hidden, weight, bias

    def above(self, threshold: float) -> Activation:
        """What is active if zero lies at `threshold`."""
        counts = torch.zeros(len(self._hidden), dtype=torch.int64)
        for first, block in self._blocks():
            counts[first : first + len(block)] += (block > threshold).sum(dim=1).cpu()
        return _activation(counts, len(self._weight))

    def threshold(self, share: float) -> float:
        """The lowest logit that at most a `share` in [0, 1) of all are strictly above: exact, in two passes.

        The bits of a float32, read as an integer (with those of negative numbers turned around), stand in the order of
        the numbers. The first pass finds the upper half of the wanted number's bits, the second the lower.
        """
        size = len(self._hidden) * len(self._weight)
        rank = size - int(share * size) - 1  # counted from 0, from below
        upper, rank = self._half_of_rank(rank, None)
        lower, _ = self._half_of_rank(rank, upper)
        return _float_of((upper - HALF // 2) * HALF + lower)

    def _half_of_rank(self, rank: int, upper: int | None) -> tuple[int, int]:
        """The upper half of the key with this rank, or given it the lower, and its rank among keys that share it."""
        counts = torch.zeros(HALF, dtype=torch.int64)
        for _, block in self._blocks():
            keys = _keys(block.flatten())
            half = (keys >> 16) + HALF // 2
            if upper is not None:
                half = keys[half == upper] & (HALF - 1)
            counts += torch.bincount(half, minlength=HALF).cpu()
        below = counts.cumsum(dim=0)
        found = int(torch.searchsorted(below, rank, right=True))
        return found, rank - int(below[found] - counts[found])

    def _blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Blocks of logits with the number of their first token: the same ones, to the last bit, every time."""
        for first in range(0, len(self._hidden), TOKENS):
            for term in range(0, len(self._weight), TERMS):
                weight, bias = self._weight[term : term + TERMS], self._bias[term : term + TERMS]
                yield first, torch.addmm(bias, self._hidden[first : first + TOKENS], weight.T).float()


@torch.inference_mode()
def probe_logits(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    level: Level,
    max_length: int,
    pooling: str = "max",
) -> PooledLogits | TokenLogits:
    """The logits of every term on `texts`, cut at `max_length` tokens, before any activation.

    Padding is left out; special tokens are tokens like others, since SPLADE pools over them, too.

    Args:
        mlm: a masked language model whose decoder has a bias, in evaluation mode.
        pooling: how the tokens of a text become its terms, for the level "pooled". A sum of activations is above zero
            where their largest is.
    """
    rows = []
    with without_logits(mlm) as decoder:
        for start in range(0, len(texts), BATCH):
            batch = list(texts[start : start + BATCH])
            inputs = tokenizer(batch, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
            inputs = inputs.to(mlm.device)
            hidden, offsets = pack({"token_embeddings": mlm(**inputs).logits, **inputs})
            if level == "pooled":
                hidden, offsets = rows_to_pool(hidden, offsets, pooling)
                hidden = max_logits(hidden, decoder.weight, decoder.bias, offsets)
            rows.append(hidden)
        weight, bias = decoder.weight.detach(), decoder.bias.detach().clone()  # the bias will be shifted in place
    return PooledLogits(torch.cat(rows)) if level == "pooled" else TokenLogits(torch.cat(rows), weight, bias)


def _activation(counts: Tensor, size: int) -> Activation:
    """Of the active terms of each row [r], out of v."""
    found = counts.cpu().numpy()
    return Activation(float(found.mean() / size), float(found.mean()), float(np.percentile(found, 99)))


def _keys(values: Tensor) -> Tensor:
    """int32 keys that stand in the order of the float32 values."""
    bits = values.view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _float_of(key: int) -> float:
    """The float32 with this key."""
    return float(_keys(torch.tensor([key], dtype=torch.int32).view(torch.float32)).view(torch.float32))
