"""Logits of a masked language model before retrieval training: their distribution, and the clusters of texts that they
recover (Kim et al. 2026, section 4.1.1, appendices E and I, tables 3, 8 and 9).

Letters: n tokens of all texts, b texts of a batch, m clustered texts, d size of the decoder's input, v output terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.statistics import token_states
from vocable.analysis.stored_vectors import ALL, Moments
from vocable.core.progress import track
from vocable.core.tables import Table, Tabled
from vocable.data.texts import as_texts, iter_texts
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.clusters import LEXICAL, cluster, text_embeddings
from vocable.options import Count, checked
from vocable.torch_models.fuse import parts, without_logits
from vocable.torch_models.head import max_logits
from vocable.torch_models.output_vocabulary import special_columns
from vocable.torch_models.sparse_encoder import load_sparse_encoder

LOGITS_AT_ONCE = 1 << 24  # 64 MiB


@dataclass(frozen=True)
class Recoverability:
    """Agreement of the clusters of logits with the clusters of an embedding model (Kim et al. 2026, appendix I).

    If two models recover the clusters equally well, the model with more variance within them has more left to learn.
    """

    texts: int
    clusters: int
    recoverability: float  # adjusted Rand index: 1 for the same clusters, 0 for chance
    inner_variance: float  # variance of a term's logit within the true clusters, mean over the terms
    inner_share: float  # share of `inner_variance` in the variance over all texts, independent of the logits' scale


@dataclass(frozen=True)
class LogitStatistics(Tabled):
    """Statistics of logits by the paper's names (Kim et al. 2026, tables 6 and 7)."""

    texts: int
    tokens: int
    terms: int
    logit_score_std: float  # standard deviation of a term's logit over all tokens, averaged over the terms
    # Figures of a token's k largest logits, by k ("all" is k = v), averaged within each text and then over the texts:
    doc_score_avg: dict[str, float]
    doc_score_std: dict[str, float]
    non_neg_terms_avg: float  # number of non-negative logits of a token, mean and standard deviation
    non_neg_terms_std: float
    clusters: Recoverability | None = None

    def to_json(self) -> dict[str, object]:
        """Return the statistics as JSON values."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def table(self) -> Table:
        """Return a table with a row for each statistic."""
        rows = [["logit-score-std", f"{self.logit_score_std:.4f}"]]
        rows += [[f"doc-score-avg@{k}", f"{value:.4f}"] for k, value in self.doc_score_avg.items()]
        rows += [[f"doc-score-std@{k}", f"{value:.4f}"] for k, value in self.doc_score_std.items()]
        rows += [["non-neg-terms-avg", f"{self.non_neg_terms_avg:,.1f}"]]
        rows += [["non-neg-terms-std", f"{self.non_neg_terms_std:,.1f}"]]
        if (groups := self.clusters) is not None:
            rows += [[f"recoverability of {groups.clusters} clusters", f"{groups.recoverability:.4f}"]]
            rows += [["variance within clusters", f"{groups.inner_variance:.4f}"]]
            rows += [["its share of all variance", f"{groups.inner_share:.4f}"]]
        title = f"{self.texts:,} texts, {self.tokens:,} tokens, {self.terms:,} terms"
        return Table(title, ["statistic", "value"], rows)


@checked
def analyze_logits(
    model: str | SparseEncoder,
    texts: Iterable[str],
    *,
    top_k: Sequence[Count] = (10, 100),
    limit: Count | None = 8000,
    max_length: Count = 128,
    clusters: Annotated[int, Ge(2)] | None = None,
    embedding: str = LEXICAL,
    device: str | None = None,
) -> LogitStatistics:
    """Measure a masked language model's logits.

    The figures are the variance of a term's score over the tokens, the size of a token's largest logits, and the share
    of logits that are not negative.

    Args:
        model: a folder or a Hub id; in Python also a model from `vocable.load`.
        texts: texts, read once.
        top_k: numbers of a token's largest logits to average.
        limit: largest number of texts; in Python None for all.
        max_length: largest number of tokens per text.
        clusters: also measure how well the logits separate this many groups of texts.
        embedding: dense model that groups the texts, or lexical.
        device: device of the models, such as cpu, cuda or cuda:1; by default the best available.

    Raises:
        ArgumentError: a number out of its range.
        DataError: there is no text.
        ModelError: the model or the embedding model cannot be loaded.
    """
    sample = list(islice(iter_texts(texts), limit))
    if isinstance(model, str | Path):
        model = load_sparse_encoder(model, device=device)
    mlm, tokenizer, *_ = parts(model)
    statistics = logit_statistics(mlm, tokenizer, sample, top_k=top_k, max_length=max_length)
    if clusters is None:
        return statistics
    groups = recoverability(mlm, tokenizer, sample, clusters, embedding=embedding, max_length=max_length)
    return replace(statistics, clusters=groups)


def logit_statistics(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    *,
    top_k: Sequence[int] = (10, 100),
    max_length: int = 128,
) -> LogitStatistics:
    """Measure the logits of a masked language model over its output terms, on unmasked texts.

    `mlm` is in evaluation mode. Logits are computed for a block of tokens at a time, and only sums are kept. All
    standard deviations are population standard deviations. Special tokens around a text count, because SPLADE pools
    over them, too. Special output terms, such as [CLS], do not count, because they are never active. The paper leaves
    all this open, and also how to average over tokens. Blank texts are skipped.
    """
    stream = iter_texts(texts)
    total = len(texts) if isinstance(texts, Sized) else None
    with torch.inference_mode(), without_logits(mlm) as layer:
        # Output terms of the model: decoder [v, d] and bias [v].
        weight, bias = _ordinary(layer, mlm, tokenizer)
        v, largest = len(weight), max(top_k, default=1)
        if min(top_k, default=1) < 1 or largest > v:
            raise ArgumentError(f"top_k must be between 1 and the {v} terms, not {list(top_k)}")
        # Moments of each term over tokens, and sums over texts of means and deviations of the largest logits.
        terms, scores, count = Moments(v), np.zeros(2 * len(top_k) + 2), 0
        tokens = positive = squares = 0  # sums of numbers of non-negative logits, exact in integers
        filled = (text for text in track(stream, "logits", total) if text.strip())
        for hidden, offsets in token_states(mlm, tokenizer, filled, min(max_length, tokenizer.model_max_length)):
            of_tokens = []
            for states in hidden.split(max(1, LOGITS_AT_ONCE // v)):
                # Logits of a few tokens [s, v].
                block = nn.functional.linear(states, weight, bias).float()
                variance, mean = torch.var_mean(block, dim=0, correction=0)
                terms.add(len(block), mean.cpu().numpy(), variance.double().cpu().numpy() * len(block))
                numbers = (block >= 0).sum(dim=1).tolist()
                tokens, positive = tokens + len(numbers), positive + sum(numbers)
                squares += sum(number * number for number in numbers)
                of_tokens.append(_token_scores(block, top_k))
            # Means over the tokens of each text [b, scores], so that all texts count equally.
            of_texts = np.add.reduceat(np.concatenate(of_tokens), offsets[:-1]) / np.diff(offsets)[:, None]
            scores += of_texts.sum(axis=0)
            count += len(of_texts)
    if not count:
        raise DataError("no text to measure logits on")
    averages, deviations = (scores / count).reshape(-1, 2).T.tolist()
    names = [*map(str, top_k), ALL]
    return LogitStatistics(
        texts=count,
        tokens=tokens,
        terms=v,
        logit_score_std=float(terms.std().mean()),
        doc_score_avg=dict(zip(names, averages, strict=True)),
        doc_score_std=dict(zip(names, deviations, strict=True)),
        non_neg_terms_avg=positive / tokens,
        non_neg_terms_std=float(np.sqrt((tokens * squares - positive**2) / tokens**2)),
    )


def _ordinary(
    layer: nn.Linear, mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> tuple[Tensor, Tensor | None]:
    """Return the weight [v, d] and bias [v] of an output layer without its special terms."""
    ordinary = np.setdiff1d(np.arange(len(layer.weight)), special_columns(mlm, tokenizer))
    rows = torch.from_numpy(ordinary).to(layer.weight.device)
    return layer.weight[rows], None if layer.bias is None else layer.bias[rows]


def _token_scores(block: Tensor, top: Sequence[int]) -> NDArray[np.float64]:
    """Return mean and deviation of each token's k largest logits, for each k and for all: [tokens, 2 len(top) + 2]."""
    largest = block.topk(max(top, default=1), dim=1).values  # sorted
    figures = [torch.var_mean(logits, dim=1, correction=0) for logits in (*(largest[:, :k] for k in top), block)]
    columns = [column for variance, mean in figures for column in (mean, variance.sqrt())]
    return torch.stack(columns, dim=1).double().cpu().numpy()


def recoverability(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    clusters: int,
    *,
    embedding: str = LEXICAL,
    max_length: int = 128,
) -> Recoverability:
    """Compare the clusters of a model's pooled logits with the clusters of an embedding model.

    The paper sketches the measure in two footnotes. Our reading: a text's vector has the largest logit of every term.
    No activation is applied, because pre-trained models may have hardly any logit above 0. The term's mean over the
    texts is subtracted, because a common offset carries no information. k-means clusters these vectors, scaled to
    length 1, and the embeddings, whose clusters are the truth. The vectors are held in memory, m x v numbers of 4
    bytes: a thousand texts with 100,000 terms take 0.4 GB, twice.

    Repeated and blank texts are left out. `analyze_logits` describes the other arguments and the errors.
    """
    usable = [text for text in dict.fromkeys(as_texts(texts)) if text.strip()]
    true = cluster(text_embeddings(usable, embedding, str(mlm.device)), clusters)
    # The largest logit of each term in each text [m, v].
    pooled = []
    with torch.inference_mode(), without_logits(mlm) as layer:
        weight, bias = _ordinary(layer, mlm, tokenizer)
        length = min(max_length, tokenizer.model_max_length)
        for hidden, offsets in token_states(mlm, tokenizer, track(usable, "clusters"), length):
            pooled.append(max_logits(hidden, weight, bias, offsets).cpu().numpy())
    return compare_clusters(np.concatenate(pooled), true)


def compare_clusters(logits: NDArray[np.float32], true: NDArray[np.int64]) -> Recoverability:
    """Return the measure of pooled logits [m, v] for the `true` cluster of each text [m]."""
    from sklearn.metrics import adjusted_rand_score

    count = len(np.unique(true))
    rows = logits - logits.mean(axis=0, dtype=np.float64).astype(np.float32)
    # Points [m, m] with the same distances to each other and the origin as the rows [m, v], for a faster k-means.
    values, directions = np.linalg.eigh((rows @ rows.T).astype(np.float64))
    points = directions * np.sqrt(np.maximum(values, 0))
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    recovered = cluster(points / np.maximum(lengths, 1e-300), count)
    members = [points[true == number] for number in np.unique(true)]
    inner = sum(np.square(group - group.mean(axis=0)).sum() for group in members)
    whole = np.square(points).sum()
    agreement = float(adjusted_rand_score(true, recovered))
    share = float(inner / whole) if whole else 0.0
    return Recoverability(len(logits), count, agreement, float(inner / logits.size), share)
