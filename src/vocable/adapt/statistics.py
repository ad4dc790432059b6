"""Statistics of a backbone before and during training, and the thresholds that judge them.

The start of a training is measured without labels. Each probe text is cut in two: its first half is a query, whose
document is its second half among the second halves of the batch. Random scores have a loss near log(batch). A loss far
above it is the scale mismatch of Jang et al. 2026, section 3.2 and figure 4.

Letters: b pairs in a batch, n tokens of all texts in a batch, d size of the decoder's input, v output terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.data import read_texts
from vocable.data.texts import as_texts
from vocable.encoding.pooling import POOLINGS, REDUCTIONS, activate, pooling_of, rows_to_pool
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.cost import spread
from vocable.language.coverage import MOST_TOKENS_PER_WORD
from vocable.language.words import spaced_pieces
from vocable.options import Activation, checked
from vocable.torch_models.fuse import pack, without_logits


@dataclass(frozen=True)
class Rule:
    """A threshold of a statistic; a value beyond it hinders training."""

    threshold: float
    source: str  # where the threshold comes from
    message: str = ""  # what `inspect` says: a format string with the statistics and `threshold`
    repair: str | None = None  # the name of a stage
    patience: int = 1  # consecutive steps beyond the threshold before the guard acts

    def beyond(self, value: float, unit: float = 1.0) -> bool:
        """Return whether a value is above the threshold, which is in multiples of `unit`."""
        return value > self.threshold * unit


# Losses are in units of the loss of chance, log(batch). Rules of the guard alone have no message.
RULES = {
    "foreign": Rule(
        MOST_TOKENS_PER_WORD,
        "measured here: 1.1 to 1.4 tokens per word of English collections, 2.3 of German; Japanese has 17 % unknown",
        "the vocabulary does not know the words of the probe texts ({foreign}): begin with a multilingual backbone, or "
        "make a vocabulary of such texts and move the model onto it (vocable train-vocabulary, vocable transfer)",
    ),
    "redundant": Rule(
        0.15,
        "measured here: bert-base-uncased 8.9 %, bert-base-cased 22.5 %, ModernBERT 34.3 %, RoBERTa 34.5 %; Geng and "
        "Yang 2026, tables 2 and 7: BEIR 47.7 to 52.4 (ModernBERT), 10.6 to 50.2 (bert-base-cased) by a transfer",
        "{redundancy:.1%} of a cased vocabulary repeat another token's form (threshold {threshold:.0%})",
        "transfer",
    ),
    "overlap": Rule(
        0.5,
        "Geng and Yang 2026, sections 5.2 and 6.4: transfers from 56.4 to 60.9 % were tried, none from less",
        "only {share:.1%} of {target} are shared tokens (threshold {threshold:.0%})",
    ),
    "long_rows": Rule(
        2.0,
        "Jang et al. 2026, tables 1 and 2: heads of mean norm up to 1.66 train as they are, heads of 2.55 and more "
        "gain from k = 2 to 16",
        "the head's rows have a mean norm of {norm_mean:.2f} (threshold {threshold:g}), and the loss starts at "
        "{loss:,.1f}",
        "rescale",
    ),
    "unstable": Rule(
        2.5,
        "measured here: a start at 2.2 log(batch) learned well, one at 181 log(batch) did not",
        "the loss starts at {loss:,.1f} (threshold {limit:.1f}) with {pooled_rate:.0%} of the terms active",
        "calibrate",
        patience=100,
    ),
    "dense": Rule(
        0.6,
        "Geng and Yang 2026, table 5: BEIR falls where more than 60 % are active",
        "{pooled_rate:.0%} of the terms are active in a text (threshold {threshold:.0%})",
        "calibrate",
        patience=100,
    ),
    "too_sparse": Rule(
        0.001,
        "measured here: half of the 0.2 % of vocable-mini on texts of 20 words",
        "{pooled_rate:.2%} of the terms are active in a text (threshold {threshold:.1%})",
        "calibrate",
    ),
    "lost_accuracy": Rule(0.1, "measured here: sampling alone changes this share by half as much"),
    "non_finite": Rule(0.0, "NaN and infinity spread to all later values"),
    "hopeless": Rule(1000.0, "measured here: no training recovered from such a start", patience=10),
    "dense_collapse": Rule(0.6, "dense and unstable at once", patience=10),
    "empty": Rule(0.5, "texts without a term give no gradient", patience=10),
    "shrinking": Rule(3.0, "active terms of a text, fewer than three quarters of before", patience=20),
    "idle": Rule(0.01, "measured here: at a hundredth of chance the weights only follow the regularizers", patience=20),
    "lost": Rule(0.03, "measured here: at a rate 100 times too high the loss stays within it", patience=10),
    "worse": Rule(0.05, "measured here: sampling alone changes the share of 64 held-out queries by as much"),
    "costly": Rule(
        0.1, "measured here: 0.03 in sound runs, 0.15 with ten times their weights, 0.3 with a hundred times"
    ),
    "restless": Rule(0.01, "measured here: 0.0004 in sound runs, 0.035 at a hundred times their rate"),
    "alike": Rule(1e-3, "a model that tells texts apart does not stay so close to the loss of chance", patience=50),
}


def row_norms(weight: Tensor) -> Tensor:
    """Return the L2 norm of each row of `weight` [v, d], float32 [v].

    >>> row_norms(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([5., 0.])
    """
    return torch.linalg.vector_norm(weight.detach(), dim=1, dtype=torch.float32)


def anisotropy(weight: Tensor) -> float:
    """Return the mean cosine of two different rows of `weight` [v, d], without rows of zeros; 0 below two rows.

    The squared length of the sum of the unit vectors is the sum over all pairs, including v pairs of a row with itself.

    >>> anisotropy(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 5.0]]))  # cosines 0, 0 and 1
    0.3333333333333333
    """
    norms = row_norms(weight)
    rows = int((norms > 0).sum())
    if rows < 2:
        return 0.0
    inverse = torch.where(norms > 0, norms.reciprocal(), 0.0)
    total = inverse @ weight.detach().float()
    return (float(total.double().square().sum()) - rows) / (rows * (rows - 1))


PAIR_WORDS = 8  # fewest words of a probe text: halves of shorter texts hardly share their topic
PAIRS = 32  # pairs in a batch
PROBED_TERMS = 2048  # columns of the decoder that are multiplied at once
SIMILAR_TEXTS = 8  # texts of similar length to encode together, since most are far shorter than the longest


@dataclass(frozen=True, kw_only=True)
class BatchLoss:
    """The loss of batches before or during a training."""

    loss: float  # InfoNCE
    chance: float  # the loss of guessing: log of the number of documents in a batch

    @property
    def stable(self) -> bool:
        """True if the loss is below a multiple of the loss of chance."""
        return self.loss <= RULES["unstable"].threshold * self.chance


@dataclass(frozen=True, kw_only=True)
class Start(BatchLoss):
    """The start of a training on `pairs` pairs in batches of `batch`.

    Rates and terms describe the documents. Scores are the scores of every query with every document of its batch.
    """

    pairs: int
    batch: int
    token_rate: float  # share of the logits [n, v] above zero; with pooling to one row, of the logits [b, v]
    pooled_rate: float  # share of the (text, term) pairs that are active after pooling
    terms_mean: float  # active terms of a text
    terms_p99: float
    positive_mean: float  # score of a query with its own document
    score_mean: float
    score_std: float
    score_max: float
    accuracy: float  # share of queries whose own document has the highest score

    def alive(self, first: Start) -> bool:
        """Return whether texts have enough terms, and are told apart about as well as at the `first` start."""
        enough = self.pooled_rate >= RULES["too_sparse"].threshold
        return enough and self.accuracy >= first.accuracy - RULES["lost_accuracy"].threshold


@checked
@torch.inference_mode()
def measure_start(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    temperature: Annotated[float, Gt(0)] = 1.0,
    max_length: int = 128,
    batch_size: Annotated[int, Ge(2)] = PAIRS,
    pooling: str = "max",
    activation: Activation = "relu",
) -> Start:
    """Measure the start of a SPLADE training from `mlm`, which is not changed.

    Args:
        texts: probe texts; duplicates and texts of fewer than 8 words are skipped.
        temperature: temperature of InfoNCE.
        max_length: tokens of a half text, at most the positions of the model.
        batch_size: pairs in a batch. Fewer pairs make a single batch; a last, smaller batch is left out.

    Raises:
        ArgumentError: fewer than two pairs, or an argument out of its range.
        ModelError: no masked-language-model head, or one that cannot be bypassed.
    """
    pooling_of(pooling)
    pairs = halves(as_texts(texts))
    if len(pairs) < 2:
        raise ArgumentError(f"the probe needs at least two different texts of {PAIR_WORDS} words or more")
    # Keep whole batches, since the loss depends on the size of a batch.
    pairs = pairs[: len(pairs) - len(pairs) % batch_size or len(pairs)]
    max_length = min(max_length, tokenizer.model_max_length, getattr(mlm.config, "max_position_embeddings", max_length))
    # For each batch, scores [b, b] and active terms of documents [b]; in all, logits above 0 and logits.
    scores, terms, above, logits = [], [], 0, 0
    training = mlm.training
    mlm.eval()
    try:
        with without_logits(mlm) as decoder:
            for first in range(0, len(pairs), batch_size):
                both = zip(*pairs[first : first + batch_size], strict=True)
                tokens = [_by_length(mlm, tokenizer, texts, max_length) for texts in both]
                queries, documents = (
                    _weights(decoder, side, pooling, activation, count=side is tokens[1]) for side in tokens
                )
                scores.append(queries.vectors @ documents.vectors.T)
                terms.append((documents.vectors > 0).sum(dim=1))
                above += documents.above
                logits += documents.logits
    finally:
        mlm.train(training)
    # [batches, b, b] and [documents]. The document of a query is on the diagonal.
    score, counts = torch.stack(scores).double().cpu(), torch.cat(terms).double().cpu()
    batches, b, _ = score.shape
    positives = torch.arange(b).expand(batches, b)
    return Start(
        pairs=batches * b,
        batch=b,
        token_rate=above / logits,
        pooled_rate=float(counts.mean()) / len(decoder.weight),
        terms_mean=float(counts.mean()),
        terms_p99=float(counts.quantile(0.99)),
        positive_mean=float(score.diagonal(dim1=1, dim2=2).mean()),
        score_mean=float(score.mean()),
        score_std=float(score.std(correction=0)),
        score_max=float(score.max()),
        accuracy=float((score.argmax(dim=2) == positives).double().mean()),
        loss=float(nn.functional.cross_entropy((score / temperature).flatten(0, 1), positives.flatten())),
        chance=math.log(b),
    )


def halves(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Cut each distinct text of at least 8 words in two at a word boundary.

    >>> halves(["a text of too few words", "one two three four five six seven eight nine"])
    [('one two three four', 'five six seven eight nine')]
    """
    cut = [spaced_pieces(text) for text in dict.fromkeys(texts)]  # a duplicate would be its own negative
    pairs = [(words[: len(words) // 2], words[len(words) // 2 :]) for words in cut if len(words) >= PAIR_WORDS]
    return [("".join(query).strip(), "".join(document).strip()) for query, document in pairs]


def token_states(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], max_length: int, batch: int = 32
) -> Iterator[tuple[Tensor, list[int]]]:
    """Yield the decoder's inputs [n, d] and the b + 1 offsets of each batch of texts, within `without_logits`."""
    waiting = iter(texts)
    while chunk := list(islice(waiting, batch)):
        inputs = tokenizer(chunk, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
        inputs = inputs.to(mlm.device)
        yield pack({"token_embeddings": mlm(**inputs).logits, **inputs})


def _by_length(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int
) -> list[Tensor]:
    """Return the decoder's inputs of each text; texts of similar length are encoded together."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    batches = token_states(mlm, tokenizer, [texts[i] for i in order], max_length, SIMILAR_TEXTS)
    states = [hidden[start:end] for hidden, offsets in batches for start, end in pairwise(offsets)]
    return [states[i] for i in np.argsort(order)]


class _Weights(NamedTuple):
    vectors: Tensor  # [b, v]
    above: int  # number of logits above zero, if they are counted
    logits: int  # number of logits [n, v]


def _weights(
    decoder: nn.Linear, states: list[Tensor], pooling: str, activation: Activation, *, count: bool
) -> _Weights:
    """Return the sparse vectors of texts, and counts of their logits.

    `vocable.torch_models.head` adds the bias to the maximum only; the count needs the bias at every token.
    """
    # Tokens [n, d] of all texts, and where each text begins [b + 1].
    hidden, offsets = rows_to_pool(torch.cat(states), [0, *accumulate(map(len, states))], pooling)
    reduction = REDUCTIONS[POOLINGS[pooling].reduction]
    weight, bias = decoder.weight, decoder.bias
    pooled = torch.empty(len(offsets) - 1, len(weight), device=hidden.device)
    above = 0
    for low in range(0, len(weight), PROBED_TERMS):
        block = slice(low, low + PROBED_TERMS)
        # [n, block]. An activation that does not commute with the reduction comes before it.
        logits = nn.functional.linear(hidden, weight[block], None if bias is None else bias[block]).float()
        if count:
            above += int(torch.count_nonzero(logits > 0))
        if not reduction.commutes:
            activate(logits, activation)
        for i, (start, end) in enumerate(pairwise(offsets)):
            pooled[i, block] = reduction.reduce(logits[start:end])
    vectors = activate(pooled, activation) if reduction.commutes else pooled
    return _Weights(vectors, above, len(hidden) * len(weight))


MAX_PROBE_TEXTS = 128  # texts of a probe; each makes a query and a document: four batches of 32
READ = 4096  # texts of a source from which the probe is taken


def probe_texts(texts: str | Path | Sequence[str]) -> list[str]:
    """Return at most 128 texts of 8 words or more, evenly spread over a list or the first 4,096 texts of a source.

    Raises:
        DataError: fewer than two such texts, or a source that cannot be read.
    """
    place = str(texts) if isinstance(texts, str | Path) else None
    first = islice(read_texts(texts), READ) if isinstance(texts, str | Path) else as_texts(texts)
    usable = [text for text in dict.fromkeys(first) if len(spaced_pieces(text)) >= PAIR_WORDS]
    if len(usable) < 2:
        raise DataError(f"a probe needs at least two different texts of {PAIR_WORDS} words or more", source=place)
    return [usable[i] for i in spread(len(usable), MAX_PROBE_TEXTS)]
