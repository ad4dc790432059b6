"""How long the postings lists of an index are, and how evenly ("The Pre-Training Study of Expanded-SPLADE Models on Web
Document Titles", tables 3 and 9, appendix H).

Shapes: n texts, v terms.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from vocable.errors import ArgumentError, VectorsError
from vocable.pruning import prune
from vocable.search.collection import open_collection
from vocable.search.exact import ExactIndex
from vocable.storage import HEADER
from vocable.unfinished import SETTINGS
from vocable.vectors import VectorsMeta, read_shards

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
        index = open_collection(folder).postings
    elif (folder / HEADER).is_file():
        index = ExactIndex.load(folder)
    else:
        shards = read_shards(folder)
        first = next(shards)
        return StoredParts(_matrices(first.matrix, shards), first.meta)
    return StoredParts(iter([index.vectors()]), index.meta)


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
