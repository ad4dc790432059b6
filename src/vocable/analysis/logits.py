"""What the logits of a masked language model look like before it learns to retrieve ("The Pre-Training Study of
Expanded-SPLADE Models on Web Document Titles", section 4.1.1 and appendix E).

The statistics are over all tokens of a sample of texts and all v terms. A text's logits are n x v numbers, so a block
of tokens is computed at a time and only sums are kept.

Letters: b texts of a batch, n tokens of all texts together, d size of the decoder's input, v output terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.analysis.moments import Moments
from vocable.encoder.fuse import pack, without_logits
from vocable.errors import ArgumentError, DataError, check_texts

BATCH = 32  # texts
VALUES = 1 << 24  # logits of a block: 64 MiB
MAX_LENGTH = 128  # tokens of a text
TOP = (10, 100)
ALL = "all"


@dataclass(frozen=True)
class LogitStatistics:
    """Statistics of logits by the paper's names (tables 6 and 7).

    `logit_score_std` is the standard deviation of a term's logit over all tokens, averaged over the terms.
    `doc_score_avg` and `doc_score_std` have, by k, the mean and the standard deviation of a token's k largest logits,
    averaged within each text and then over the texts; "all" stands for k = v. `non_neg_terms_avg` and
    `non_neg_terms_std` are of the number of logits that are not negative, over the tokens.
    """

    texts: int
    tokens: int
    terms: int
    logit_score_std: float
    doc_score_avg: dict[str, float]
    doc_score_std: dict[str, float]
    non_neg_terms_avg: float
    non_neg_terms_std: float

    def to_json(self) -> dict[str, Any]:
        """The statistics as JSON values."""
        return asdict(self)


def logit_statistics(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    *,
    top: Sequence[int] = TOP,
    max_length: int = MAX_LENGTH,
    advance: Callable[[int], object] = lambda done: None,
) -> LogitStatistics:
    """Measure the logits of a masked language model over its output terms, on texts that are not masked.

    All standard deviations are those of a population. Special tokens are tokens like others, since SPLADE pools over
    them, too. The paper leaves all of this open, as well as how tokens are averaged.

    Args:
        mlm: in evaluation mode; with or without an output vocabulary of its own.
        tokenizer: of the model.
        texts: read once; those without a word are passed over.
        top: the k of the averages over a token's k largest logits.
        max_length: tokens of a text, at most.
        advance: called with the number of texts of every batch.

    Raises:
        ArgumentError: a k that is not between 1 and v.
        DataError: there is no text.
    """
    check_texts(texts)
    with torch.inference_mode(), without_logits(mlm) as layer:
        v, largest = layer.weight.shape[0], max(top, default=1)
        if min(top, default=1) < 1 or largest > v:
            raise ArgumentError(f"a number of largest logits lies between 1 and {v}, the terms, not {list(top)}")
        terms, non_negative = Moments(v), _Counts()
        scores, count = np.zeros(2 * len(top) + 2), 0
        for hidden, offsets in token_states(mlm, tokenizer, texts, max_length):
            of_tokens = []
            for block in _blocks(hidden, layer):
                variance, mean = torch.var_mean(block, dim=0, correction=0)
                terms.add(len(block), mean.cpu().numpy(), variance.double().cpu().numpy() * len(block))
                non_negative.add((block >= 0).sum(dim=1).tolist())
                of_tokens.append(_token_scores(block, top))
            of_texts = np.add.reduceat(np.concatenate(of_tokens), offsets[:-1]) / np.diff(offsets)[:, None]
            scores += of_texts.sum(axis=0)
            count += len(of_texts)
            advance(len(of_texts))
    if not count:
        raise DataError("there is no text to measure logits on")
    averages, deviations = (scores / count).reshape(-1, 2).T.tolist()
    names = [*map(str, top), ALL]
    return LogitStatistics(
        texts=count,
        tokens=non_negative.count,
        terms=v,
        logit_score_std=float(terms.std().mean()),
        doc_score_avg=dict(zip(names, averages, strict=True)),
        doc_score_std=dict(zip(names, deviations, strict=True)),
        non_neg_terms_avg=non_negative.mean(),
        non_neg_terms_std=non_negative.std(),
    )


def token_states(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], max_length: int
) -> Iterator[tuple[Tensor, list[int]]]:
    """The decoder's inputs [n, d] of batch after batch of texts and their b + 1 offsets, within `without_logits`."""
    waiting = (text for text in texts if text.strip())
    cut = {"truncation": True, "max_length": min(max_length, tokenizer.model_max_length)}
    while batch := list(islice(waiting, BATCH)):
        inputs = tokenizer(batch, padding=True, return_tensors="pt", **cut).to(mlm.device)
        yield pack({"token_embeddings": mlm(**inputs).logits, **inputs})


def _blocks(hidden: Tensor, layer: nn.Linear) -> Iterator[Tensor]:
    """The logits [tokens, v] of as many tokens at a time as make a block."""
    for tokens in hidden.split(max(1, VALUES // layer.weight.shape[0])):
        yield nn.functional.linear(tokens, layer.weight, layer.bias).float()


def _token_scores(block: Tensor, top: Sequence[int]) -> NDArray[np.float64]:
    """The mean and standard deviation of each token's k largest logits, for every k and then for all [tokens, 2 k]."""
    figures = []
    if top:
        largest = block.topk(max(top), dim=1).values  # sorted
        figures = [torch.var_mean(largest[:, :k], dim=1, correction=0) for k in top]
    figures.append(torch.var_mean(block, dim=1, correction=0))
    columns = [column for variance, mean in figures for column in (mean, variance.sqrt())]
    found: NDArray[np.float64] = torch.stack(columns, dim=1).double().cpu().numpy()
    return found


class _Counts:
    """Mean and standard deviation of whole numbers, from sums that are exact."""

    def __init__(self) -> None:
        self.count = self._sum = self._squares = 0

    def add(self, numbers: Sequence[int]) -> None:
        self.count += len(numbers)
        self._sum += sum(numbers)
        self._squares += sum(number * number for number in numbers)

    def mean(self) -> float:
        return self._sum / self.count

    def std(self) -> float:
        return float(np.sqrt((self.count * self._squares - self._sum**2) / self.count**2))
