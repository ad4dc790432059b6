"""Statistics of stored vectors: the weights of a term in different texts, and the lengths of postings lists
(Kim et al. 2026, appendices G and H). No model runs.

Letters: n texts, v output terms.
"""

from __future__ import annotations

import os
from collections import UserList
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from tokenizers import Tokenizer

from vocable.core.arrays import holds_arrays
from vocable.core.progress import track
from vocable.core.tables import NONE, Table, Tabled
from vocable.encoding.pruning import prune
from vocable.encoding.vectors import VectorsMeta, read_shards, token_names, vocabulary_fingerprint
from vocable.engines.protocols import holds_index
from vocable.errors import ArgumentError, ModelError, VectorsError
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.exact_numpy import windows_of
from vocable.options import Count, CountOrZero, checked

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

ALL = "all"
Doubles = NDArray[np.float64]
VectorsOrFolders: TypeAlias = "str | os.PathLike[str] | csr_array | Sequence[str | os.PathLike[str] | csr_array]"
R = TypeVar("R", bound="TermWeights | PostingStatistics")
Gathered = TypeVar("Gathered", bound="Moments | _Counts")


def stored_parts(vectors: VectorsOrFolders) -> tuple[Iterable[csr_array], VectorsMeta | None]:
    """Return the parts [n, v] of vectors, read one at a time, and their metadata (None for a matrix).

    The vectors are folders of `vocable encode` or `vocable index`, a saved index, or a matrix. Raises `VectorsError` if
    they are missing or damaged.
    """
    sources = [vectors] if isinstance(vectors, str | os.PathLike | csr_array) else list(vectors)
    if not sources:
        raise VectorsError("there are no vectors to measure")
    if isinstance(sources[0], csr_array):
        return sources, None
    folder = Path(sources[0])
    if holds_arrays(folder):
        index = ExactIndex.load(folder)
        return [index.get()], index.meta
    if holds_index(folder):
        from vocable.collection.collection import open_index

        collection = open_index(folder)
        return collection.stored(), collection.settings.meta
    shards = read_shards(sources)
    first = next(shards)
    return chain([first.matrix], (shard.matrix for shard in shards)), first.meta


class Moments:
    """Count, mean and squared deviations of the values of each of v terms, float64 [v], by Chan et al. 1979.

    >>> moments = Moments(1)
    >>> moments.add(2, [3.0], [2.0])  # the values 2 and 4
    >>> moments.add(1, [9.0], [0.0])  # the value 9
    >>> float(moments.mean[0]), round(float(moments.std()[0]) ** 2, 6)
    (5.0, 8.666667)
    """

    def __init__(self, v: int) -> None:
        self.counts, self.mean, self._squares = np.zeros(v), np.zeros(v), np.zeros(v)

    def add(self, counts: ArrayLike, mean: ArrayLike, squares: ArrayLike) -> None:
        """Merge a block: numbers of values, their means, and sums of squared deviations; each [v], or equal for all."""
        more, mean = np.asarray(counts, np.float64), np.asarray(mean, np.float64)
        share = np.divide(more, self.counts + more, out=np.zeros_like(self.counts), where=self.counts + more > 0)
        difference = mean - self.mean
        self._squares += np.asarray(squares, np.float64) + difference**2 * self.counts * share
        self.mean += difference * share
        self.counts += more

    def add_vectors(self, part: csr_array) -> None:
        """Merge the weights of vectors [n, v]."""
        v, weights = part.shape[1], part.data.astype(np.float64)
        counts = np.bincount(part.indices, minlength=v)
        mean = np.bincount(part.indices, weights, minlength=v) / np.maximum(counts, 1)
        self.add(counts, mean, np.bincount(part.indices, (weights - mean[part.indices]) ** 2, minlength=v))

    def std(self) -> Doubles:
        """Return the population standard deviation of all values, [v]; 0 for a term without values."""
        return np.sqrt(self._squares / np.maximum(self.counts, 1))


class Measurements(Tabled, UserList[R]):
    """A list of records of a verb, with its tables and lines."""

    def __init__(self, records: Iterable[R], tables: Sequence[Table | str] = ()) -> None:
        super().__init__(records)
        self._tables = tables

    def to_json(self) -> list[dict[str, object]]:
        """Return the records as JSON values."""
        return [record.to_json() for record in self]

    def table(self) -> Sequence[Table | str]:
        """Return the tables and lines."""
        return self._tables


@dataclass(frozen=True)
class TermWeights:
    """The deviation of a term's weights between texts that keep `max_terms` terms (None: all)."""

    max_terms: int | None
    min_count: int
    logit_cnt: int  # number of terms that at least `min_count` texts have
    logit_score_std: float | None  # mean over these terms; None if there are no such terms

    def to_json(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return asdict(self)


@checked
def analyze_weights(
    vectors: VectorsOrFolders, *, min_count: Sequence[Count] = (1,), max_terms: Sequence[Count | None] = (None,)
) -> Measurements[TermWeights]:
    """Measure how a term's weights differ between texts.

    Standard deviations are population standard deviations; texts without the term do not count (Kim et al. 2026,
    appendix G).

    Args:
        vectors: output of `vocable encode` or `vocable index`, a folder or several shards; in Python also a csr_array
            [n, v].
        min_count: least numbers of texts with a term, each measured separately.
        max_terms: numbers of terms to keep per text, or all, each measured separately; in Python None for all.

    Returns:
        for each `max_terms` in turn, the figures at each `min_count`.

    Raises:
        ArgumentError: a min_count or max_terms below 1.
        VectorsError: vectors are missing or damaged, or have different vocabularies.

    >>> texts = csr_array(np.array([[1.0, 5.0], [3.0, 0.0]], dtype=np.float32))
    >>> print(*((found.logit_cnt, found.logit_score_std) for found in analyze_weights(texts, min_count=[1, 2])))
    (2, 0.5) (1, 1.0)
    """
    records = []
    for moments, k in zip(_gather(stored_parts(vectors)[0], Moments, max_terms), max_terms, strict=True):
        for least in min_count:
            # True for terms that enough texts have [v].
            often = moments.counts >= least
            count = int(often.sum())
            records.append(TermWeights(k, least, count, float(moments.std()[often].mean()) if count else None))
    rows = []
    for record in records:
        std = NONE if record.logit_score_std is None else f"{record.logit_score_std:.4f}"
        rows.append([_kept(record.max_terms), f"{record.min_count:,}", f"{record.logit_cnt:,}", std])
    return Measurements(records, [Table("", ["kept", "min count", "logit-cnt", "logit-score-std"], rows)])


PERCENTILES = (50, 90, 99, 100)
POSTING_BYTES, OFFSET_BYTES = 6, 8  # a document and a weight; the start of a postings list


class PostingLengths(NamedTuple):
    """The lengths of postings lists, with their population variance and Gini coefficient (`gini`)."""

    terms: int  # number of lists
    mean: float
    variance: float
    std: float
    gini: float


@dataclass(frozen=True)
class PostingStatistics:
    """Postings of the vectors of n texts that keep `max_terms` terms each (None: all)."""

    max_terms: int | None
    texts: int
    postings: int
    bytes: int  # 6 for a posting and 8 for a list
    all_terms: PostingLengths  # lists of all v terms
    used_terms: PostingLengths  # lists of the terms that at least one text has
    l0: dict[str, float]  # "mean", "std" and percentiles ("p50", ...) of the number of terms of a text
    longest: tuple[tuple[str | int, int], ...]  # terms, or columns of unknown terms, and their lengths

    def to_json(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        longest = [{"term": term, "length": length} for term, length in self.longest]
        lengths = {"all_terms": self.all_terms._asdict(), "used_terms": self.used_terms._asdict()}
        return vars(self) | lengths | {"longest": longest}


@checked
def analyze_postings(
    vectors: VectorsOrFolders,
    *,
    max_terms: Sequence[Count | None] = (None,),
    longest: CountOrZero = 20,
    model: str | SparseEncoder | None = None,
) -> Measurements[PostingStatistics]:
    """Measure the postings lists of vectors.

    The figures are their lengths and evenness, over all terms and over the terms used, the longest lists, and the
    number of terms per text (Kim et al. 2026, appendix H).

    Args:
        vectors: output of `vocable encode` or `vocable index`, a folder or several shards; in Python also a csr_array
            [n, v].
        max_terms: numbers of terms to keep per text, or all, each measured separately; in Python None for all.
        longest: number of the longest lists to name; equally long lists are in the order of their columns.
        model: the model that made the vectors, if it has moved.

    Raises:
        ArgumentError: a number out of its range, or the model has another vocabulary than the vectors.
        ModelError: `model` cannot be loaded.
        VectorsError: vectors are missing or damaged, or have different vocabularies.

    >>> texts = csr_array(np.array([[1.0, 5.0, 0.0], [3.0, 0.0, 0.0]], dtype=np.float32))
    >>> [found] = analyze_postings(texts)
    >>> found.all_terms.mean, found.used_terms.mean, found.longest
    (1.0, 1.5, ((0, 2), (1, 1)))
    """
    shards, meta = stored_parts(vectors)
    names = _names(meta, model)
    gathered = zip(_gather(shards, _Counts, max_terms), max_terms, strict=True)
    records = [counts.figures(k, longest, names) for counts, k in gathered]
    lengths, sizes = [], []
    for record in records:
        for terms, spread in (("all", record.all_terms), ("used", record.used_terms)):
            figures = [f"{value:,.2f}" for value in (spread.mean, spread.variance, spread.std)]
            lengths.append([_kept(record.max_terms), terms, f"{spread.terms:,}", *figures, f"{spread.gini:.3f}"])
        l0 = [f"{value:,.{0 if name.startswith('p') else 2}f}" for name, value in record.l0.items()]
        sizes.append([_kept(record.max_terms), *l0, f"{record.postings:,}", f"{record.bytes / 1e6:,.2f}"])
    header = ["kept", "L0 mean", "L0 std", *(f"p{share}" for share in PERCENTILES), "postings", "index MB"]
    named = [f"{f'<{term}>' if isinstance(term, int) else term} {length:,}" for term, length in records[0].longest]
    tables = [
        Table("length of a postings list", ["kept", "terms", "number", "mean", "var", "std", "gini"], lengths),
        Table(f"terms per text, {records[0].texts:,} texts", header, sizes),
    ]
    return Measurements(records, [*tables, f"longest lists: {', '.join(named) or 'none'}"])


def _gather(
    parts: Iterable[csr_array], kind: Callable[[int], Gathered], max_terms: Sequence[int | None]
) -> list[Gathered]:
    """Return an object of type `kind` for each of `max_terms`, accumulated over all parts."""
    gathered: list[Gathered] = []
    for part in track(parts, "shards"):
        v = part.shape[1]
        gathered = gathered or [kind(v) for _ in max_terms]
        if (known := len(gathered[0].counts)) != v:
            raise VectorsError(f"vectors of {known} terms and of {v}: their vocabularies differ")
        for total, k in zip(gathered, max_terms, strict=True):
            total.add_vectors(prune(part, k))
    return gathered


def _kept(max_terms: int | None) -> str:
    return ALL if max_terms is None else str(max_terms)


def _names(meta: VectorsMeta | None, model: str | SparseEncoder | None) -> list[str] | None:
    """Return the names of the terms; None if the model that made the vectors is unknown or not available."""
    if meta is not None and model is None and (names := _tokenizer_names(meta)) is not None:
        return names
    from vocable.encoding.load import load_encoder, model_of
    from vocable.encoding.terms import terms

    if meta is None:
        return None if model is None else terms(load_encoder(model))
    try:
        return terms(model_of(meta, model))
    except (ArgumentError, ModelError):
        if model is not None:
            raise
        return None


def _tokenizer_names(meta: VectorsMeta) -> list[str] | None:
    """Return the names in the tokenizer's file of the vectors' model, without loading the model, which takes seconds.

    Returns None without such a file, or if the fingerprint of the vectors' vocabulary differs.
    """
    built_in = Path(str(files("vocable"))) / "builtin" / meta.model
    try:
        tokenizer = Tokenizer.from_file(str((built_in if built_in.is_dir() else Path(meta.model)) / "tokenizer.json"))
    except Exception:  # tokenizers raises nothing more precise; the model itself is tried next
        return None
    names = token_names(tokenizer, meta.size)
    return names if vocabulary_fingerprint(names) == meta.vocabulary else None


class _Counts:
    """Counts of the texts with each term, `counts` int64 [v], and of the texts with 0, 1, 2, ... terms."""

    def __init__(self, v: int) -> None:
        self.counts, self._texts = np.zeros(v, np.int64), np.zeros(1, np.int64)

    def add_vectors(self, part: csr_array) -> None:
        self.counts += np.bincount(part.indices, minlength=len(self.counts))
        texts = np.bincount(np.diff(part.indptr), minlength=len(self._texts))
        texts[: len(self._texts)] += self._texts
        self._texts = texts

    def figures(self, max_terms: int | None, longest: int, names: Sequence[str] | None) -> PostingStatistics:
        order = np.argsort(-self.counts, kind="stable")[:longest].tolist()
        lists = [(term if names is None else names[term], int(self.counts[term])) for term in order]
        total, texts = int(self.counts.sum()), int(self._texts.sum())
        starts = len(self.counts) * windows_of(texts) + 1
        return PostingStatistics(
            max_terms=max_terms,
            texts=texts,
            postings=total,
            bytes=POSTING_BYTES * total + OFFSET_BYTES * starts,
            all_terms=_lengths(self.counts),
            used_terms=_lengths(self.counts[self.counts > 0]),
            l0=_l0(self._texts),
            longest=tuple((term, length) for term, length in lists if length),
        )


def _lengths(lengths: NDArray[np.int64]) -> PostingLengths:
    if not len(lengths):
        return PostingLengths(0, 0.0, 0.0, 0.0, 0.0)
    variance = float(lengths.var())
    return PostingLengths(len(lengths), float(lengths.mean()), variance, variance**0.5, gini(lengths))


def gini(lengths: NDArray[np.int64]) -> float:
    """Return the Gini coefficient of numbers >= 0: the mean difference between two numbers over twice their mean.

    >>> gini(np.array([1, 1, 1])), gini(np.array([0, 0, 0, 8]))
    (0.0, 0.75)
    """
    n, total = len(lengths), int(lengths.sum())
    if not total:
        return 0.0
    ranks = np.arange(1, n + 1, dtype=np.float64)
    return float(2 * (ranks @ np.sort(lengths)) / (n * total) - (n + 1) / n)


def _l0(texts: NDArray[np.int64]) -> dict[str, float]:
    """Return mean, standard deviation and percentiles of the terms per text; texts[i] is the number with i terms."""
    n = max(1, int(texts.sum()))
    sizes = np.arange(len(texts), dtype=np.float64)
    below = np.cumsum(texts)
    mean = float(sizes @ texts / n)
    std = float(((sizes - mean) ** 2 @ texts / n) ** 0.5)
    # A percentile is the smallest number of terms that this share of the texts does not exceed.
    shares = {f"p{share}": float(np.searchsorted(below, share * below[-1] / 100)) for share in PERCENTILES}
    return {"mean": mean, "std": std} | shares
