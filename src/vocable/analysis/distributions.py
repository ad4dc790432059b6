"""Distributions: logits of a masked language model before it learns to retrieve, weights of a term over texts, and
lengths of postings lists (Kim et al. 2026, sections 4.1.1, appendices E, G, H and I, tables 3, 8 and 9).

Letters: n tokens of all texts together (of logits) or texts (of vectors), b texts of a batch, m texts that are
clustered, d size of the decoder's input, v output terms.
"""

from __future__ import annotations

from collections import UserList
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.analysis.expansion_data import Vectors, load_model, model_of, stored_parts
from vocable.encoder.fuse import pack, parts, without_logits
from vocable.encoder.head import max_logits
from vocable.encoder.terms import terms
from vocable.errors import ArgumentError, DataError, ModelError, VectorsError, check_numbers, check_texts
from vocable.evaluation.testsets import LEXICAL, cluster, text_embeddings
from vocable.progress import track
from vocable.tables import NONE, Table, Tabled
from vocable.vectors import VectorsMeta, prune

Floats = NDArray[np.float64]
R = TypeVar("R", bound="TermWeights | Postings")
M = TypeVar("M", bound="Moments | _Counts")


class Moments:
    """Count, mean and squared deviations of the values of each of v terms, float64 [v], added up block by block.

    The formula for merging is that of Chan et al. 1979.

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

    def add_vectors(self, part: csr_array) -> None:
        """Merge the weights of vectors [n, v] in."""
        v, weights = part.shape[1], part.data.astype(np.float64)
        counts = np.bincount(part.indices, minlength=v)
        mean = np.bincount(part.indices, weights, minlength=v) / np.maximum(counts, 1)
        self.add(counts, mean, np.bincount(part.indices, (weights - mean[part.indices]) ** 2, minlength=v))

    def std(self) -> Floats:
        """Return the standard deviation of all values, [v] (divided by their number); 0 where there are none."""
        found: Floats = np.sqrt(self._squares / np.maximum(self.counts, 1))
        return found


BATCH = 32  # texts
VALUES = 1 << 24  # logits of a block: 64 MiB
ALL = "all"


@dataclass(frozen=True)
class Recoverability:
    """How well clusters of logits are those of an embedding model (Kim et al. 2026, appendix I).

    `recoverability` is the adjusted Rand index of the two: 1 for the same clusters, 0 for chance. `inner_variance` is
    that of a term's logit within the true clusters, mean over the terms, and `inner_share` its share of the variance
    over all texts, which does not depend on the scale of the logits. Of two models that recover clusters equally well,
    the one with more variance within them has more left to be trained.
    """

    texts: int
    clusters: int
    recoverability: float
    inner_variance: float
    inner_share: float


@dataclass(frozen=True)
class LogitStatistics(Tabled):
    """Statistics of logits by the paper's names (Kim et al. 2026, tables 6 and 7).

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
    clusters: Recoverability | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as JSON values."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def table(self) -> Table:
        """Return a table with a row for each statistic."""
        rows = [["logit-score-std", f"{self.logit_score_std:.4f}"]]
        rows += [[f"doc-score-avg@{k}", f"{value:.4f}"] for k, value in self.doc_score_avg.items()]
        rows += [[f"doc-score-std@{k}", f"{value:.4f}"] for k, value in self.doc_score_std.items()]
        rows += [["non-neg-terms-avg", f"{self.non_neg_terms_avg:,.1f}"]]
        rows += [["non-neg-terms-std", f"{self.non_neg_terms_std:,.1f}"]]
        if self.clusters is not None:
            rows += [[f"recoverability of {self.clusters.clusters} clusters", f"{self.clusters.recoverability:.4f}"]]
            rows += [["variance within clusters", f"{self.clusters.inner_variance:.4f}"]]
            rows += [["its share of all variance", f"{self.clusters.inner_share:.4f}"]]
        title = f"{self.texts:,} texts, {self.tokens:,} tokens, {self.terms:,} terms"
        return Table(title, ["statistic", "value"], rows)


def logits(
    model: str | SparseEncoder,
    texts: Iterable[str],
    *,
    top_k: Sequence[int] = (10, 100),
    limit: int | None = 8000,
    max_length: int = 128,
    clusters: int | None = None,
    embedding: str = LEXICAL,
    device: str | None = None,
) -> LogitStatistics:
    """Measure the logits of a masked language model: how much they vary, how large the best are, how many not negative.

    Args:
        model: a folder, a Hub id, or a model from `vocable.load`.
        texts: read once.
        top_k: the k of the averages over a token's k largest logits.
        limit: texts at most. None is all.
        max_length: tokens of a text, at most.
        clusters: also measure how well the logits tell so many groups of texts apart. See `recoverability`.
        embedding: dense model that makes the groups, or lexical. As in `vocable.evaluation.testsets.text_embeddings`.
        device: where models run, as cpu, cuda or cuda:1; by default the best there is.

    Raises:
        ArgumentError: a number out of its range.
        DataError: there is no text.
        ModelError: the model or the embedding model cannot be loaded.
    """
    check_texts(texts)
    chosen = list(islice(texts, limit))
    mlm, tokenizer, *_ = parts(load_model(model, device))
    found = logit_statistics(mlm, tokenizer, chosen, top_k=top_k, max_length=max_length)
    if clusters is None:
        return found
    groups = recoverability(mlm, tokenizer, chosen, clusters, embedding=embedding, max_length=max_length)
    return replace(found, clusters=groups)


def logit_statistics(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    *,
    top_k: Sequence[int] = (10, 100),
    max_length: int = 128,
) -> LogitStatistics:
    """Measure the logits of a masked language model over its output terms, on texts that are not masked.

    `mlm` is in evaluation mode. A text's logits are n x v numbers, so a block of tokens is computed at a time and only
    sums are kept. All standard deviations are those of a population. Special tokens are tokens like others, since
    SPLADE pools over them, too. The paper leaves all of this open, as well as how tokens are averaged. Texts without a
    word are passed over.
    """
    check_texts(texts)
    with torch.inference_mode(), without_logits(mlm) as layer:
        v, largest = layer.weight.shape[0], max(top_k, default=1)
        if min(top_k, default=1) < 1 or largest > v:
            raise ArgumentError(
                f"top_k: a number of largest logits lies between 1 and {v}, the terms, not {list(top_k)}"
            )
        terms, scores, count = Moments(v), np.zeros(2 * len(top_k) + 2), 0
        tokens = total = squares = 0  # of numbers of logits that are not negative; sums of whole numbers are exact
        for hidden, offsets in token_states(mlm, tokenizer, track(texts, "logits"), max_length):
            of_tokens = []
            for some in hidden.split(max(1, VALUES // v)):
                block = nn.functional.linear(some, layer.weight, layer.bias).float()
                variance, mean = torch.var_mean(block, dim=0, correction=0)
                terms.add(len(block), mean.cpu().numpy(), variance.double().cpu().numpy() * len(block))
                numbers = (block >= 0).sum(dim=1).tolist()
                tokens, total = tokens + len(numbers), total + sum(numbers)
                squares += sum(number * number for number in numbers)
                of_tokens.append(_token_scores(block, top_k))
            of_texts = np.add.reduceat(np.concatenate(of_tokens), offsets[:-1]) / np.diff(offsets)[:, None]
            scores += of_texts.sum(axis=0)
            count += len(of_texts)
    if not count:
        raise DataError("there is no text to measure logits on")
    averages, deviations = (scores / count).reshape(-1, 2).T.tolist()
    names = [*map(str, top_k), ALL]
    return LogitStatistics(
        texts=count,
        tokens=tokens,
        terms=v,
        logit_score_std=float(terms.std().mean()),
        doc_score_avg=dict(zip(names, averages, strict=True)),
        doc_score_std=dict(zip(names, deviations, strict=True)),
        non_neg_terms_avg=total / tokens,
        non_neg_terms_std=float(np.sqrt((tokens * squares - total**2) / tokens**2)),
    )


def token_states(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], max_length: int
) -> Iterator[tuple[Tensor, list[int]]]:
    """Yield the decoder's inputs [n, d] of each batch of texts, and their b + 1 offsets, within `without_logits`."""
    waiting = (text for text in texts if text.strip())
    cut = {"truncation": True, "max_length": min(max_length, tokenizer.model_max_length)}
    while batch := list(islice(waiting, BATCH)):
        inputs = tokenizer(batch, padding=True, return_tensors="pt", **cut).to(mlm.device)
        yield pack({"token_embeddings": mlm(**inputs).logits, **inputs})


def _token_scores(block: Tensor, top: Sequence[int]) -> NDArray[np.float64]:
    """The mean and standard deviation of each token's k largest logits, for every k and then for all [tokens, 2 k]."""
    largest = block.topk(max(top, default=1), dim=1).values  # sorted
    figures = [torch.var_mean(some, dim=1, correction=0) for some in (*(largest[:, :k] for k in top), block)]
    columns = [column for variance, mean in figures for column in (mean, variance.sqrt())]
    found: NDArray[np.float64] = torch.stack(columns, dim=1).double().cpu().numpy()
    return found


def recoverability(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    clusters: int,
    *,
    embedding: str = LEXICAL,
    max_length: int = 128,
) -> Recoverability:
    """Compare the clusters of a model's pooled logits with those of an embedding model.

    The paper sketches the measure in two footnotes. Our reading of it: a text's vector has the largest logit of every
    term, before any activation, since pre-trained models may have next to no logit above 0; each term less its mean
    over the texts, since a common offset says nothing. k-means runs over these vectors scaled to length 1, and over the
    embeddings, whose clusters are the truth. The vectors are held, m x v numbers of 4 bytes: a thousand texts of
    100,000 terms take 0.4 GB, twice.

    Repeated texts and those without a word are left out. The other arguments and the errors are those of `logits`.
    """
    check_texts(texts)
    usable = [text for text in dict.fromkeys(texts) if text.strip()]
    true = cluster(text_embeddings(usable, embedding, str(mlm.device)), clusters)
    pooled = []
    with torch.inference_mode(), without_logits(mlm) as layer:
        for hidden, offsets in token_states(mlm, tokenizer, track(usable, "clusters"), max_length):
            pooled.append(max_logits(hidden, layer.weight, layer.bias, offsets).cpu().numpy())
    return compare_clusters(np.concatenate(pooled), true)


def compare_clusters(logits: NDArray[np.float32], true: NDArray[np.int64]) -> Recoverability:
    """Return the measure of pooled `logits` [m, v], given the `true` cluster of each text [m]."""
    from sklearn.metrics import adjusted_rand_score

    count = len(np.unique(true))
    rows = logits - logits.mean(axis=0, dtype=np.float64).astype(np.float32)
    # Points [m, m] as far from each other and from the origin as the rows [m, v] are: k-means has less to carry.
    values, directions = np.linalg.eigh((rows @ rows.T).astype(np.float64))
    points = directions * np.sqrt(np.maximum(values, 0))
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    found = cluster(points / np.maximum(lengths, 1e-300), count)
    inner = sum(np.square(points[true == one] - points[true == one].mean(axis=0)).sum() for one in np.unique(true))
    whole = np.square(points).sum()
    agreement = float(adjusted_rand_score(true, found))
    share = float(inner / whole) if whole else 0.0
    return Recoverability(len(logits), count, agreement, float(inner / logits.size), share)


class Measurements(Tabled, UserList[R]):
    """What a verb has measured: a list of records that knows its JSON values and its tables."""

    def __init__(self, records: Iterable[R], tables: Sequence[Table | str] = ()) -> None:
        super().__init__(records)
        self._tables = tables

    def to_json(self) -> list[dict[str, Any]]:
        """Return the records as JSON values."""
        return [one.to_json() for one in self]

    def table(self) -> Sequence[Table | str]:
        """Return the tables, and lines to print below them."""
        return self._tables


@dataclass(frozen=True)
class TermWeights:
    """`logit_score_std`: the standard deviation of a term's weights, averaged over the `logit_cnt` terms that at least
    `min_count` texts have, when `top_k` terms of each text are kept (None: all). None where there is no such term.
    """

    top_k: int | None
    min_count: int
    logit_cnt: int
    logit_score_std: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return asdict(self)


def term_weights(
    vectors: Vectors, *, min_count: Sequence[int] = (1,), top_k: Sequence[int | None] = (None,)
) -> Measurements[TermWeights]:
    """Measure how much the weights of a term differ between the texts that have it (Kim et al. 2026, appendix G).

    A text in which a term is not active says nothing about the term. Standard deviations are those of a population.

    Args:
        vectors: what `vocable encode` or `vocable index` wrote, a folder or several shards; or csr_array [n, v].
        min_count: numbers of texts that a term must be in, each measured apart.
        top_k: numbers of terms to keep of a text, each measured apart; None for all.

    Returns:
        for each `top_k` in turn, its figures at each `min_count`.

    Raises:
        ArgumentError: a min_count below 1, or a top_k.
        VectorsError: there is nothing to measure, or it is of different vocabularies, or damaged.

    >>> texts = csr_array(np.array([[1.0, 5.0], [3.0, 0.0]], dtype=np.float32))
    >>> [(found.logit_cnt, found.logit_score_std) for found in term_weights(texts, min_count=[1, 2])]
    [(2, 0.5), (1, 1.0)]
    """
    if min(min_count, default=1) < 1:
        raise ArgumentError(f"min_count is a number of texts, 1 or more, not {min(min_count)}")
    records = []
    for moments, k in zip(_gather(stored_parts(vectors)[0], Moments, top_k), top_k, strict=True):
        for least in min_count:
            often = moments.counts >= least
            count = int(often.sum())
            records.append(TermWeights(k, least, count, float(moments.std()[often].mean()) if count else None))
    rows = [
        [_kept(k), f"{least:,}", f"{count:,}", NONE if std is None else f"{std:.4f}"]
        for k, least, count, std in (vars(one).values() for one in records)
    ]
    return Measurements(records, [Table("", ["kept", "min count", "logit-cnt", "logit-score-std"], rows)])


LONGEST = 20
PERCENTILES = (50, 90, 99, 100)
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
    the longest lists with their terms, or their columns where the terms are not known.
    """

    top_k: int | None
    texts: int
    postings: int
    bytes: int
    all_terms: Lengths
    used_terms: Lengths
    l0: dict[str, float]
    longest: tuple[tuple[str | int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        longest = [{"term": term, "length": length} for term, length in self.longest]
        lengths = {"all_terms": self.all_terms._asdict(), "used_terms": self.used_terms._asdict()}
        return vars(self) | lengths | {"longest": longest}


def postings(
    vectors: Vectors,
    *,
    top_k: Sequence[int | None] = (None,),
    longest: int = LONGEST,
    model: str | SparseEncoder | None = None,
) -> Measurements[Postings]:
    """Measure the postings lists that vectors make: how long they are, and how evenly (Kim et al. 2026, appendix H).

    Args:
        vectors: what `vocable encode` or `vocable index` wrote, a folder or several shards; or csr_array [n, v].
        top_k: numbers of terms to keep of a text, each measured apart; None for all.
        longest: how many of the longest lists to name. Of lists of one length those of the lower terms.
        model: the model that made the vectors, if it has moved.

    Raises:
        ArgumentError: a top_k below 1, `longest` below 0, or vectors of another vocabulary than the model's.
        ModelError: the given model cannot be loaded.
        VectorsError: there is nothing to measure, or it is of different vocabularies, or damaged.

    >>> texts = csr_array(np.array([[1.0, 5.0, 0.0], [3.0, 0.0, 0.0]], dtype=np.float32))
    >>> [found] = postings(texts)
    >>> found.all_terms.mean, found.used_terms.mean, found.longest
    (1.0, 1.5, ((0, 2), (1, 1)))
    """
    check_numbers(longest=longest)
    shards, meta = stored_parts(vectors)
    names = _names(meta, model)
    gathered = zip(_gather(shards, _Counts, top_k), top_k, strict=True)
    records = [one.figures(k, longest, names) for one, k in gathered]
    lengths, sizes = [], []
    for one in records:
        for which, spread in (("all", one.all_terms), ("used", one.used_terms)):
            figures = [f"{value:,.2f}" for value in (spread.mean, spread.variance, spread.std)]
            lengths.append([_kept(one.top_k), which, f"{spread.terms:,}", *figures, f"{spread.gini:.3f}"])
        l0 = [f"{value:,.{0 if name.startswith('p') else 2}f}" for name, value in one.l0.items()]
        sizes.append([_kept(one.top_k), *l0, f"{one.postings:,}", f"{one.bytes / 1e6:,.2f}"])
    header = ["kept", "L0 mean", "L0 std", *(f"p{share}" for share in PERCENTILES), "postings", "index MB"]
    named = [f"{f'<{term}>' if isinstance(term, int) else term} {length:,}" for term, length in records[0].longest]
    tables = [
        Table("length of a postings list", ["kept", "terms", "number", "mean", "var", "std", "gini"], lengths),
        Table(f"terms per text, {records[0].texts:,} texts", header, sizes),
    ]
    return Measurements(records, [*tables, f"longest lists: {', '.join(named) or 'none'}"])


def _gather(parts: Iterable[csr_array], kind: Callable[[int], M], top_k: Sequence[int | None]) -> list[M]:
    """For each `top_k`, what a `kind` has gathered over all parts."""
    gathered: list[M] = []
    for part in track(parts, "shards"):
        v = part.shape[1]
        gathered = gathered or [kind(v) for _ in top_k]
        if (known := len(gathered[0].counts)) != v:
            raise VectorsError(f"vectors of {known} terms and of {v}: of different vocabularies")
        for one, k in zip(gathered, top_k, strict=True):
            one.add_vectors(prune(part, k))
    return gathered


def _kept(top_k: int | None) -> str:
    return ALL if top_k is None else str(top_k)


def _names(meta: VectorsMeta | None, model: str | SparseEncoder | None) -> list[str] | None:
    """The words of the terms; None where the model that made the vectors is not at hand."""
    if meta is None:
        return None if model is None else terms(load_model(model))
    try:
        return terms(model_of(meta, model))
    except (ArgumentError, ModelError):
        if model is not None:
            raise
        return None


class _Counts:
    """How many texts have each term, `counts` int64 [v], and how many texts have 0, 1, 2, ... terms."""

    def __init__(self, v: int) -> None:
        self.counts, self._texts = np.zeros(v, np.int64), np.zeros(1, np.int64)

    def add_vectors(self, part: csr_array) -> None:
        self.counts += np.bincount(part.indices, minlength=len(self.counts))
        texts = np.bincount(np.diff(part.indptr), minlength=len(self._texts))
        texts[: len(self._texts)] += self._texts
        self._texts = texts

    def figures(self, top_k: int | None, longest: int, names: Sequence[str] | None) -> Postings:
        order = np.argsort(-self.counts, kind="stable")[:longest].tolist()
        lists = [(term if names is None else names[term], int(self.counts[term])) for term in order]
        total = int(self.counts.sum())
        return Postings(
            top_k=top_k,
            texts=int(self._texts.sum()),
            postings=total,
            bytes=POSTING * total + TERM * (len(self.counts) + 1),
            all_terms=_spread(self.counts),
            used_terms=_spread(self.counts[self.counts > 0]),
            l0=_l0(self._texts),
            longest=tuple((term, length) for term, length in lists if length),
        )


def _spread(lengths: NDArray[np.int64]) -> Lengths:
    if not len(lengths):
        return Lengths(0, 0.0, 0.0, 0.0, 0.0)
    variance = float(lengths.var())
    return Lengths(len(lengths), float(lengths.mean()), variance, variance**0.5, gini(lengths))


def gini(lengths: NDArray[np.int64]) -> float:
    """Return the Gini coefficient of numbers >= 0: the mean difference of two of them over twice their mean.

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
    n, sizes, below = max(1, int(texts.sum())), np.arange(len(texts), dtype=np.float64), np.cumsum(texts)
    mean = float(sizes @ texts / n)
    std = float(((sizes - mean) ** 2 @ texts / n) ** 0.5)
    # The smallest number of terms that such a share of the texts do not exceed.
    shares = {f"p{share}": float(np.searchsorted(below, share * below[-1] / 100)) for share in PERCENTILES}
    return {"mean": mean, "std": std} | shares
