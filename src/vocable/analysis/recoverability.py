"""How well the logits of a masked language model tell apart what a dense model tells apart ("The Pre-Training Study of
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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.analysis.logits import MAX_LENGTH, token_states
from vocable.encoder.fuse import without_logits
from vocable.encoder.head import max_logits
from vocable.errors import check_texts
from vocable.evaluation.clusters import LEXICAL, cluster, text_embeddings


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
        truth: the embedding model, as in `vocable.evaluation.clusters.text_embeddings`.
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
