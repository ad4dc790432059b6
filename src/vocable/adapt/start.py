"""What the first step of a SPLADE training would see: how much is active, how large scores are, and the loss.

Nothing is trained and no label is needed: each probe text is cut in two, and the first half asks for the second among
the second halves of its batch. Activations are log(1 + ReLU(x)) and pooling is max, unless said otherwise; scores are
dot products and the loss is InfoNCE over in-batch negatives. A loss near log(batch) is that of guessing. Far above it
the scores are so large that the softmax sees one negative only: the scale mismatch of "Rescaling MLM-Head for Neural
Sparse Retrieval" (§3.2, figure 4).

Letters: b pairs of a batch, n tokens of all texts of a batch, d size of the decoder's input, v output terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.encoder.fuse import check_pooling, pack, rows_to_pool, without_logits
from vocable.encoder.head import BLOCK, Activation, activate
from vocable.errors import ArgumentError, check_texts

PAIR_WORDS = 8  # a shorter text makes no pair: its halves would share their topic by chance alone
BATCH = 32  # pairs
TOGETHER = 8  # texts of similar length that are encoded together: most texts are far shorter than the longest


class Pair(NamedTuple):
    """The two halves of a probe text."""

    query: str
    document: str


@dataclass(frozen=True)
class Start:
    """The start of a training on `pairs` pairs in batches of `batch`.

    Rates, terms and texts are those of the documents, scores those of every query with every document of its batch.
    """

    pairs: int
    batch: int
    token_rate: float  # share of (token, term) logits above zero; of texts that are one row, (row, term) logits
    pooled_rate: float  # share of (text, term) pairs that are active after pooling
    terms_mean: float  # active terms of a text
    terms_p99: float
    positive_mean: float  # score of a query with its own document
    score_mean: float
    score_std: float
    score_max: float
    accuracy: float  # share of queries whose own document has the highest score
    loss: float  # InfoNCE
    chance: float  # log(batch), the loss of guessing


@torch.inference_mode()
def measure_start(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    temperature: float = 1.0,
    max_length: int = 128,
    batch_size: int = BATCH,
    scale: float = 1.0,
    pooling: str = "max",
    activation: Activation = "relu",
) -> Start:
    """Measure the start of a SPLADE training from `mlm`, which is left as it is.

    Args:
        mlm: a masked language model.
        texts: probe texts, each counted once; those of fewer than 8 words are passed over.
        temperature: of InfoNCE.
        max_length: tokens of a half text.
        batch_size: pairs of a batch; with fewer pairs there is one batch of all, with more the last, shorter one is
            left out, so that log(batch) is the same for all.
        scale: what the decoder's matrix is multiplied by, x = scale H W^T + c, the input embeddings staying as they
            are. `vocable.adapt.rescale` changes both where they are tied.
        pooling: "max", "sum", "cls" or "mean-before-head".
        activation: "relu" for log(1 + ReLU(x)), "log1p_relu" for log(1 + log(1 + ReLU(x))).

    Raises:
        ArgumentError: fewer than two pairs, or an argument out of its range.
        ModelError: no masked-language-model head, or one that cannot be bypassed.
    """
    check_texts(texts)
    for name, value in (("temperature", temperature), ("scale", scale)):
        if not (math.isfinite(value) and value > 0):
            raise ArgumentError(f"{name} must be finite and above 0, not {value}")
    if batch_size < 2:
        raise ArgumentError(f"batch_size must be at least 2, not {batch_size}")
    check_pooling(pooling)
    pairs = halves(texts)
    if len(pairs) < 2:
        raise ArgumentError(f"the probe needs at least two different texts of {PAIR_WORDS} words or more")
    pairs = pairs[: len(pairs) - len(pairs) % batch_size or len(pairs)]
    scores, terms, rates = [], [], []
    with _evaluating(mlm), without_logits(mlm) as decoder:
        pool = partial(_pool, decoder, scale=scale, pooling=pooling, activation=activation)
        for first in range(0, len(pairs), batch_size):
            queries, documents = zip(*pairs[first : first + batch_size], strict=True)
            asked, _ = pool(*_encode(mlm, tokenizer, queries, max_length))
            given, rate = pool(*_encode(mlm, tokenizer, documents, max_length))
            scores.append(asked @ given.T)
            terms.append((given > 0).sum(dim=1))
            rates.append(rate)
    return _summary(torch.stack(scores), torch.cat(terms), torch.stack(rates), len(decoder.weight), temperature)


def halves(texts: Sequence[str]) -> list[Pair]:
    """Each different text of at least 8 words, cut in two at a word boundary.

    >>> halves(["a text of too few words", "one two three four five six seven eight nine"])
    [Pair(query='one two three four', document='five six seven eight nine')]
    """
    words = [text.split() for text in dict.fromkeys(texts)]  # a text twice in a batch would be its own negative
    return [
        Pair(" ".join(some[: len(some) // 2]), " ".join(some[len(some) // 2 :]))
        for some in words
        if len(some) >= PAIR_WORDS
    ]


def _encode(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int
) -> tuple[Tensor, list[int]]:
    """The decoder's inputs [n, d] of the tokens of texts, and the b + 1 offsets of the texts."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    tokens: dict[int, Tensor] = {}
    for first in range(0, len(order), TOGETHER):
        rows = order[first : first + TOGETHER]
        inputs = tokenizer(
            [texts[i] for i in rows], padding=True, truncation=True, max_length=max_length, return_tensors="pt"
        ).to(mlm.device)
        hidden, offsets = pack({"token_embeddings": mlm(**inputs).logits, **inputs})
        tokens |= {i: hidden[start:end] for i, (start, end) in zip(rows, pairwise(offsets), strict=True)}
    found = [tokens[i] for i in range(len(texts))]
    return torch.cat(found), [0, *accumulate(map(len, found))]


def _pool(
    decoder: nn.Linear, hidden: Tensor, offsets: list[int], *, scale: float, pooling: str, activation: Activation
) -> tuple[Tensor, Tensor]:
    """Sparse vectors [b, v] of texts, and how many of the [n, v] logits are above zero with how many there are [2].

    `vocable.encoder.head` adds the bias to the winner alone; the count needs it at every token.
    """
    hidden, offsets = rows_to_pool(scale * hidden, offsets, pooling)
    weight, bias = decoder.weight, decoder.bias
    pooled = torch.empty(len(offsets) - 1, len(weight), device=hidden.device)
    above = 0
    for low in range(0, len(weight), BLOCK):
        block = slice(low, low + BLOCK)
        logits = (hidden @ weight[block].T).float()
        if bias is not None:
            logits += bias[block].float()
        above += int((logits > 0).sum())
        if pooling == "sum":
            activate(logits, activation)
        for i, (start, end) in enumerate(pairwise(offsets)):
            rows = logits[start:end]
            pooled[i, block] = rows.sum(dim=0) if pooling == "sum" else rows.amax(dim=0)
    vectors = pooled if pooling == "sum" else activate(pooled, activation)
    return vectors, torch.tensor([above, len(hidden) * len(weight)])


def _summary(scores: Tensor, terms: Tensor, rates: Tensor, v: int, temperature: float) -> Start:
    """The record, from scores [batches, b, b], active terms [pairs], and counts of logits [batches, 2]."""
    batches, b, _ = scores.shape
    scores = scores.double().cpu()
    own = torch.arange(b).expand(batches, b)
    loss = nn.functional.cross_entropy((scores / temperature).flatten(0, 1), own.flatten())
    above, logits = rates.sum(dim=0).tolist()
    counts = terms.double().cpu()
    return Start(
        pairs=batches * b,
        batch=b,
        token_rate=above / logits,
        pooled_rate=float(counts.mean()) / v,
        terms_mean=float(counts.mean()),
        terms_p99=float(counts.quantile(0.99)),
        positive_mean=float(scores.diagonal(dim1=1, dim2=2).mean()),
        score_mean=float(scores.mean()),
        score_std=float(scores.std(correction=0)),
        score_max=float(scores.max()),
        accuracy=float((scores.argmax(dim=2) == own).double().mean()),
        loss=float(loss),
        chance=math.log(b),
    )


@contextmanager
def _evaluating(mlm: PreTrainedModel) -> Iterator[None]:
    """Without dropout, and back to how it was."""
    training = mlm.training
    mlm.eval()
    try:
        yield
    finally:
        mlm.train(training)
