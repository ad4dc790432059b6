"""How long the postings lists of an index are, and how evenly ("The Pre-Training Study of Expanded-SPLADE Models on Web
Document Titles", tables 3 and 9, appendix H).

Shapes: n texts, v terms.

Means and variances of many terms at once, added up block by block (Chan, Golub and LeVeque 1979).

Shapes: v terms.

What the logits of a masked language model look like before it learns to retrieve ("The Pre-Training Study of
Expanded-SPLADE Models on Web Document Titles", section 4.1.1 and appendix E).

The statistics are over all tokens of a sample of texts and all v terms. A text's logits are n x v numbers, so a block
of tokens is computed at a time and only sums are kept.

Letters: b texts of a batch, n tokens of all texts together, d size of the decoder's input, v output terms.

How well the logits of a masked language model tell apart what a dense model tells apart ("The Pre-Training Study of
Expanded-SPLADE Models on Web Document Titles", appendix I).

The paper sketches the measure in two footnotes. Our reading of it:

    vectors        each text's largest logit of every term, before any activation: pre-trained models may have next to
                   no logit above 0; each term less its mean over the texts, since a common offset says nothing
    clusters       k-means over the vectors scaled to length 1, and over a dense model's embeddings, which are the truth
    recoverability the adjusted Rand index of the two: 1 for the same clusters, 0 for chance
    variance       within the true clusters, of a term's logit, mean over the terms; and its share of the variance over
                   all texts, which does not depend on the scale of the logits

Of two models that recover clusters equally well, the one with more variance within them has more left to be trained.

Shapes: m texts, v terms.

How much the weights of a term differ between the texts that have it ("The Pre-Training Study of Expanded-SPLADE
Models on Web Document Titles", appendix G, table 8).

Shapes: v terms, n texts of a part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.encoder.fuse import pack, without_logits
from vocable.encoder.head import max_logits
from vocable.errors import ArgumentError, DataError, VectorsError, check_texts
from vocable.evaluation.testsets import LEXICAL, cluster, text_embeddings
from vocable.search.collection import open_index
from vocable.search.exact import ExactIndex
from vocable.storage import HEADER, SETTINGS
from vocable.vectors import VectorsMeta, prune, read_shards

Floats = NDArray[np.float64]


class Moments:
    """Of each of v terms: how many values there were, their mean, and their squared deviations from it; float64 [v].

    >>> moments = Moments(1)
    >>> moments.add(2, [3.0], [2.0])  # 2 and 4
    >>> moments.add(1, [9.0], [0.0])
    >>> float(moments.mean[0]), round(float(moments.std()[0]) ** 2, 6)  # of 2, 4 and 9
    (5.0, 8.666667)
    """

    def __init__(self, v: int) -> None:
        self.counts, self.mean, self._squares = np.zeros(v), np.zeros(v), np.zeros(v)

    def add(self, counts: ArrayLike, mean: ArrayLike, squares: ArrayLike) -> None:
        """Merge a block in: the `counts` of its values, their `mean`, and the sums of squared deviations from it.

        Each is [v], or one number for all terms.
        """
        more, mean = np.asarray(counts, np.float64), np.asarray(mean, np.float64)
        share = np.divide(more, self.counts + more, out=np.zeros_like(self.counts), where=self.counts + more > 0)
        apart = mean - self.mean
        self._squares += np.asarray(squares, np.float64) + apart**2 * self.counts * share
        self.mean += apart * share
        self.counts += more

    def std(self) -> Floats:
        """The standard deviation of all values, [v] (divided by their number); 0 where there are none."""
        found: Floats = np.sqrt(self._squares / np.maximum(self.counts, 1))
        return found


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
        terms, non_negative = Moments(v), _LogitCounts()
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


class _LogitCounts:
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


class Recoverability(NamedTuple):
    """The measure: see the module."""

    texts: int
    clusters: int
    recoverability: float
    inner_variance: float
    inner_share: float


def recoverability(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    clusters: int,
    *,
    truth: str = LEXICAL,
    max_length: int = MAX_LENGTH,
    seed: int = 0,
    advance: Callable[[int], object] = lambda done: None,
) -> Recoverability:
    """Compare the clusters of a model's pooled logits with those of an embedding model.

    The pooled logits are held, m x v numbers of 4 bytes: a thousand texts of 100,000 terms take 0.4 GB, twice.

    Args:
        mlm: in evaluation mode.
        tokenizer: of the model.
        texts: m of them; repeated ones and those without a word are left out.
        clusters: how many.
        truth: the embedding model, as in `vocable.evaluation.testsets.text_embeddings`.
        max_length: tokens of a text, at most.
        seed: of k-means.
        advance: called with the number of texts of every batch.

    Raises:
        ArgumentError: fewer clusters than 2, or more than different texts.
        DataError: not one text has a word.
        ModelError: the embedding model cannot be read.
    """
    check_texts(texts)
    usable = [text for text in dict.fromkeys(texts) if text.strip()]
    true = cluster(text_embeddings(usable, truth), clusters, seed)
    pooled = []
    with torch.inference_mode(), without_logits(mlm) as layer:
        for hidden, offsets in token_states(mlm, tokenizer, usable, max_length):
            pooled.append(max_logits(hidden, layer.weight, layer.bias, offsets).cpu().numpy())
            advance(len(offsets) - 1)
    return compare_clusters(np.concatenate(pooled), true, seed)


def compare_clusters(logits: NDArray[np.float32], true: NDArray[np.int64], seed: int = 0) -> Recoverability:
    """The measure of pooled `logits` [m, v], given the `true` cluster of each text [m]."""
    from sklearn.metrics import adjusted_rand_score

    count = len(np.unique(true))
    centred = logits - logits.mean(axis=0, dtype=np.float64).astype(np.float32)
    points = _coordinates(centred)
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    found = cluster(points / np.maximum(lengths, 1e-300), count, seed)
    inner = sum(np.square(points[true == one] - points[true == one].mean(axis=0)).sum() for one in np.unique(true))
    whole = np.square(points).sum()
    agreement = float(adjusted_rand_score(true, found))
    share = float(inner / whole) if whole else 0.0
    return Recoverability(len(logits), count, agreement, float(inner / logits.size), share)


def _coordinates(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Points [m, m] as far from each other and from the origin as the m rows [m, v] are: k-means has less to carry."""
    values, directions = np.linalg.eigh((rows @ rows.T).astype(np.float64))
    points: NDArray[np.float64] = directions * np.sqrt(np.maximum(values, 0))
    return points


class TermScores(NamedTuple):
    """`logit_score_std`: the standard deviation of a term's weights, averaged over the `logit_cnt` terms that at least
    `threshold` texts have, when `top_k` terms of each text are kept (None: all). None where there is no such term.
    """

    top_k: int | None
    threshold: int
    logit_cnt: int
    logit_score_std: float | None


def term_scores(
    parts: Iterable[csr_array], thresholds: Sequence[int] = (1,), *, top_k: Sequence[int | None] = (None,)
) -> list[TermScores]:
    """Measure the spread of each term's weights over encoded texts.

    A text in which a term is not active says nothing about the term. Standard deviations are those of a population.

    Args:
        parts: csr_array [n, v] each, read once and one at a time; the shards of a corpus, say.
        thresholds: numbers of texts.
        top_k: numbers of terms to keep of a text, each measured apart.

    Returns:
        for each `top_k` in turn, its figures at each threshold.

    Raises:
        ArgumentError: a threshold below 1, or a top_k.
        VectorsError: there is no part, or parts are of different vocabularies.

    >>> texts = csr_array(np.array([[1.0, 5.0], [3.0, 0.0]], dtype=np.float32))
    >>> [(found.logit_cnt, found.logit_score_std) for found in term_scores([texts], [1, 2])]
    [(2, 0.5), (1, 1.0)]
    """
    if min(thresholds, default=1) < 1:
        raise ArgumentError(f"a threshold is a number of texts, 1 or more, not {min(thresholds)}")
    gathered: list[Moments] = []
    for part in parts:
        v = part.shape[1]
        gathered = gathered or [Moments(v) for _ in top_k]
        if len(gathered[0].counts) != v:
            raise VectorsError(f"vectors of {len(gathered[0].counts)} terms and of {v}: of different vocabularies")
        for moments, k in zip(gathered, top_k, strict=True):
            _add(moments, prune(part, k))
    if not gathered:
        raise VectorsError("there are no vectors to measure")
    return [_at(moments, k, least) for moments, k in zip(gathered, top_k, strict=True) for least in thresholds]


def _add(moments: Moments, part: csr_array) -> None:
    v, weights = part.shape[1], part.data.astype(np.float64)
    counts = np.bincount(part.indices, minlength=v)
    mean = np.bincount(part.indices, weights, minlength=v) / np.maximum(counts, 1)
    moments.add(counts, mean, np.bincount(part.indices, (weights - mean[part.indices]) ** 2, minlength=v))


def _at(moments: Moments, top_k: int | None, threshold: int) -> TermScores:
    often = moments.counts >= threshold
    found = int(often.sum())
    return TermScores(top_k, threshold, found, float(moments.std()[often].mean()) if found else None)


PERCENTILES = (50, 90, 99, 100)
LONGEST = 20
POSTING, TERM = 8, 8  # bytes of a posting (document and weight), and of a term's offset


class Lengths(NamedTuple):
    """Of `terms` postings lists: mean, variance and standard deviation of their lengths (of a population), and the Gini
    coefficient: 0 where all are as long, near 1 where few terms have nearly all postings.
    """

    terms: int
    mean: float
    variance: float
    std: float
    gini: float


@dataclass(frozen=True)
class Postings:
    """What the vectors of n texts make as an index, when `top_k` terms of each are kept (None: all).

    `all_terms` is over the v terms, `used_terms` over those that some text has. `l0` is of the number of terms of a
    text: "mean", "std" and percentiles ("p50", ...). `bytes` counts 8 for a posting and 8 for a term. `longest` are
    the longest lists with their terms.
    """

    top_k: int | None
    texts: int
    postings: int
    bytes: int
    all_terms: Lengths
    used_terms: Lengths
    l0: dict[str, float]
    longest: tuple[tuple[int, int], ...]

    def to_json(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The figures as JSON values, with the `names` of the v terms where they are known."""
        longest = [{"term": term if names is None else names[term], "length": length} for term, length in self.longest]
        lengths = {"all_terms": self.all_terms._asdict(), "used_terms": self.used_terms._asdict()}
        return asdict(self) | lengths | {"longest": longest}


class StoredParts(NamedTuple):
    """Vectors on disk, a part [n, v] at a time, and what made them (None where the index does not say)."""

    parts: Iterator[csr_array]
    meta: VectorsMeta | None


def stored_parts(place: str | os.PathLike[str]) -> StoredParts:
    """The vectors of a place: a file or folder of `vocable encode`, of `vocable index`, or a saved `ExactIndex`.

    Shards are read one at a time; an index, which is stored by term, is one part.

    Raises:
        VectorsError: there is nothing of the kind, or it is damaged.
    """
    folder = Path(place)
    if (folder / SETTINGS).is_file() and (folder / "postings").is_dir():
        index = open_index(folder).postings
    elif (folder / HEADER).is_file():
        index = ExactIndex.load(folder)
    else:
        shards = read_shards(folder)
        first = next(shards)
        return StoredParts(_matrices(first.matrix, shards), first.meta)
    return StoredParts(iter([index.get()]), index.meta)


def postings(
    parts: Iterable[csr_array], *, top_k: Sequence[int | None] = (None,), longest: int = LONGEST
) -> list[Postings]:
    """Measure the postings lists that vectors make.

    Args:
        parts: csr_array [n, v] each, read once and one at a time.
        top_k: numbers of terms to keep of a text, each measured apart.
        longest: how many of the longest lists to name; of lists of one length those of the lower terms.

    Raises:
        ArgumentError: a top_k below 1, or `longest` below 0.
        VectorsError: there is no part, or parts are of different vocabularies.

    >>> texts = csr_array(np.array([[1.0, 5.0, 0.0], [3.0, 0.0, 0.0]], dtype=np.float32))
    >>> [found] = postings([texts])
    >>> found.all_terms.mean, found.used_terms.mean, found.longest
    (1.0, 1.5, ((0, 2), (1, 1)))
    """
    if longest < 0:
        raise ArgumentError(f"longest must be 0 or more, not {longest}")
    counts: list[_Counts] = []
    for part in parts:
        counts = counts or [_Counts(part.shape[1]) for _ in top_k]
        if len(counts[0].lengths) != part.shape[1]:
            raise VectorsError(f"vectors of {len(counts[0].lengths)} terms and of {part.shape[1]}")
        for one, k in zip(counts, top_k, strict=True):
            one.add(prune(part, k))
    if not counts:
        raise VectorsError("there are no vectors to measure")
    return [one.figures(k, longest) for one, k in zip(counts, top_k, strict=True)]


class _Counts:
    """How many texts have each term, int64 [v], and how many texts have 0, 1, 2, ... terms."""

    def __init__(self, v: int) -> None:
        self.lengths, self._texts = np.zeros(v, np.int64), np.zeros(1, np.int64)

    def add(self, part: csr_array) -> None:
        self.lengths += np.bincount(part.indices, minlength=len(self.lengths))
        texts = np.bincount(np.diff(part.indptr), minlength=len(self._texts))
        texts[: len(self._texts)] += self._texts
        self._texts = texts

    def figures(self, top_k: int | None, longest: int) -> Postings:
        order = np.argsort(-self.lengths, kind="stable")[:longest]
        total, v = int(self.lengths.sum()), len(self.lengths)
        return Postings(
            top_k=top_k,
            texts=int(self._texts.sum()),
            postings=total,
            bytes=POSTING * total + TERM * (v + 1),
            all_terms=_spread(self.lengths),
            used_terms=_spread(self.lengths[self.lengths > 0]),
            l0=_l0(self._texts),
            longest=tuple((int(term), int(self.lengths[term])) for term in order if self.lengths[term]),
        )


def _matrices(first: csr_array, others: Iterable[Any]) -> Iterator[csr_array]:
    yield first
    for shard in others:
        yield shard.matrix


def _spread(lengths: NDArray[np.int64]) -> Lengths:
    if not len(lengths):
        return Lengths(0, 0.0, 0.0, 0.0, 0.0)
    variance = float(lengths.var())
    return Lengths(len(lengths), float(lengths.mean()), variance, variance**0.5, gini(lengths))


def gini(lengths: NDArray[np.int64]) -> float:
    """The Gini coefficient of numbers that are not negative: the mean difference of two of them over twice their mean.

    >>> gini(np.array([1, 1, 1])), gini(np.array([0, 0, 0, 8]))
    (0.0, 0.75)
    """
    n, total = len(lengths), int(lengths.sum())
    if not total:
        return 0.0
    ranks = np.arange(1, n + 1, dtype=np.float64)
    return float(2 * (ranks @ np.sort(lengths)) / (n * total) - (n + 1) / n)


def _l0(texts: NDArray[np.int64]) -> dict[str, float]:
    """Of the number of terms of a text, given how many texts have each number."""
    n = int(texts.sum())
    if not n:
        return {"mean": 0.0, "std": 0.0} | {f"p{share}": 0.0 for share in PERCENTILES}
    sizes = np.arange(len(texts), dtype=np.float64)
    mean = float(sizes @ texts / n)
    std = float(((sizes - mean) ** 2 @ texts / n) ** 0.5)
    below = np.cumsum(texts)
    # The smallest number of terms that such a share of the texts do not exceed.
    shares = {f"p{share}": float(np.searchsorted(below, max(1, share * n / 100))) for share in PERCENTILES}
    return {"mean": mean, "std": std} | shares
