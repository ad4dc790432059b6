"""Batches of examples that are near each other: their negatives are hard ones.

Topic-aware sampling as in TAS-B (arXiv 2104.06967), with one topic a batch: instead of k-means, whose topics are of any
size, the examples are halved again and again along their principal direction until each part is one batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from datasets import DatasetDict
from numpy.typing import NDArray
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch.utils.data import SequentialSampler


def by_topic(examples: DatasetDict, embeddings: NDArray[np.floating[Any]], batch_size: int, seed: int) -> DatasetDict:
    """Each source in batches of examples that are near each other, by the sum of query and positive.

    Args:
        examples: with labels, their rows in `embeddings`.
        embeddings: [m, 2 + c, d] of the query, positive and c negatives of m examples.
    """
    rng = np.random.default_rng(seed)
    ordered = {}
    for name, source in examples.items():
        pairs = embeddings[np.array(source["label"])][:, :2].sum(axis=1)
        ordered[name] = source.select(topical_order(pairs, batch_size, rng))
    return DatasetDict(ordered)


def topical_order(
    embeddings: NDArray[np.floating[Any]], batch_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """An order of n examples in which every `batch_size` in a row are near each other, the batches themselves shuffled.

    Args:
        embeddings: [n, d], one an example.
        batch_size: n may leave a remainder, which stands at the end.
        rng: decides the order of the batches and that within them.
    """
    batches: list[NDArray[np.int64]] = []
    parts = [np.arange(len(embeddings))]
    while parts:
        part = parts.pop()
        if len(part) <= batch_size:
            batches.append(rng.permutation(part))
            continue
        ranked = part[np.argsort(_along_principal_direction(embeddings[part].astype(np.float32)), kind="stable")]
        half = -(-len(ranked) // (2 * batch_size)) * batch_size  # whole batches on one side
        parts += [ranked[:half], ranked[half:]]
    whole = [batch for batch in batches if len(batch) == batch_size]
    rest = [batch for batch in batches if len(batch) < batch_size]
    return np.concatenate([whole[i] for i in rng.permutation(len(whole))] + rest)


def _along_principal_direction(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each vector's coordinate [n] along the direction in which the vectors vary most."""
    centred = vectors - vectors.mean(axis=0)
    covariance = centred.T @ centred
    direction: NDArray[np.float32] = np.linalg.eigh(covariance)[1][:, -1]
    coordinates: NDArray[np.float32] = centred @ direction
    return coordinates


class InOrder(DefaultBatchSampler):
    """Batches of the data set as it stands."""

    def __init__(self, dataset: Any, batch_size: int, drop_last: bool, **others: Any) -> None:
        super().__init__(SequentialSampler(dataset), batch_size=batch_size, drop_last=drop_last, **others)
