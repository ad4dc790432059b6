"""What the wackiest expansion terms are worth: search without them, and without as many random ones.

"Understanding Wacky Weights: A Dissection of SPLADE's Learned Term Importance", sections 4.1 and 5.1. A term is removed
where it is an expansion, never where it stands in the text itself.

Which terms to call wacky: the share of the scored terms that come first in the ranking of stored scores.

A dataset that can be searched without some of its expansion terms, again and again, with nothing encoded again.

Vectors lose entries, and only the queries that this touches are searched and measured again.

Letters: m vectors of the side that loses terms, e entries of theirs, q queries, n documents, v output vocabulary.

The steps between a model, a dataset and its removals, each of which is kept on disk until all are done.

Pruning by wackiness: a model's wackiest expansion terms leave stored vectors.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from ir_measures import Measure
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.analysis.expansion_data import measured_vectors, proper_names
from vocable.analysis.wackiness import Choices, find, read_scores, write_scores
from vocable.analysis.wackiness_report import scores_meta
from vocable.data import Document
from vocable.encoder.terms import expansion_entries, fingerprint, flags, own_terms, remove_expansions, terms
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.compare import paired_t_test
from vocable.evaluation.quality import JudgedMeasures, depth, parse_measures
from vocable.evaluation.retrieval import Encoded
from vocable.evaluation.wackiness import ranked
from vocable.search.exact import ExactIndex
from vocable.search.ranking import Ranking
from vocable.storage import read_record, write_record
from vocable.vectors import as_vectors, selected

SHARE = 0.1  # our reading: the score says which of two terms is the wackier, and nowhere where wacky begins


def read_wacky_terms(path: str | os.PathLike[str], names: Sequence[str], share: float = SHARE) -> frozenset[str]:
    """The wackiest terms of a file of scores, as `vocable.search.explain` marks them.

    Args:
        path: what `write_scores` wrote.
        names: the v terms of the model that is explained, by column.
        share: of the terms that have a score, rounded up.

    Raises:
        ArgumentError: a share that is not above 0 and at most 1.
        VectorsError: no file of scores, or they are of another vocabulary.
    """
    if not 0 < share <= 1:
        raise ArgumentError(f"the share of wacky terms must be above 0 and at most 1, not {share}")
    stored = read_scores(path, fingerprint(list(names)))
    columns = ranked(stored.scores, stored.inputs)
    return frozenset(names[column] for column in columns[: math.ceil(share * len(columns) - 1e-9)].tolist())


Side = Literal["query", "document"]
PerQuery = Mapping[str, Mapping[str, float]]  # {measure: {query id: value}}

MEASURES = ("nDCG@10", "R@100")
DEPTH = 1000  # results of a query where a measure has no cutoff


class Outcome(NamedTuple):
    """A search without some terms.

    `terms` is how many of them were expansions here, `share` the share of the expansion entries that went with them,
    and `changed` the number of queries whose results could change. `values` are those of the measures, `p` of the
    paired t-test against the full vectors.
    """

    terms: int
    share: float
    changed: int
    values: dict[str, float]
    p: dict[str, float]


class Ablation:
    """An encoded dataset that can be searched without any of its expansion terms.

    `candidates` are the terms that are an expansion in one of the m vectors at least, int64 columns in order.
    """

    def __init__(
        self,
        encoded: Encoded,
        own: csr_array,
        measures: Sequence[str | Measure] = MEASURES,
        *,
        side: Side = "query",
        threads: int | None = None,
    ) -> None:
        """Make ready for removals.

        Args:
            encoded: vectors and judgments, from `vocable.evaluation.retrieval.encode_dataset`.
            own: [m, v] the terms that stand in the texts, from `vocable.encoder.terms.own_terms`.
            measures: ir_measures names. A query gets as many results as the deepest of them looks at, 1000 where one
                has no cutoff.
            side: which vectors lose terms; m is q for queries and n for documents, whose index is then built anew for
                every removal.
            threads: of a search, all cores unless given.

        Raises:
            ArgumentError: an unknown measure or side.
            VectorsError: `own` is not of the shape of the vectors.
        """
        if side not in ("query", "document"):
            raise ArgumentError(f"side must be query or document, not {side!r}")
        parsed = parse_measures(measures)
        self.encoded, self.side = encoded, side
        self._vectors = as_vectors(encoded.queries if side == "query" else encoded.documents)
        self._is_expansion = expansion_entries(self._vectors, own)
        self.candidates = np.unique(self._vectors.indices[self._is_expansion]).astype(np.int64)
        self._judged_measures = JudgedMeasures(parsed, encoded.dataset)
        self._k = max(depth(measure) or DEPTH for measure in parsed.values())
        self._threads, self._query_ids = threads, encoded.query_ids
        self._document_ids = np.array(encoded.document_ids, dtype=object)

    @cached_property
    def full(self) -> PerQuery:
        """The values of the whole vectors."""
        return self._measured(self._index, self.encoded.queries, np.arange(len(self._query_ids)))

    def values(self) -> dict[str, float]:
        """The figure of each measure for the whole vectors."""
        return self._judged_measures.aggregated(self.full)

    def without(self, terms: np.ndarray) -> Outcome:
        """Search without the expansions that are one of `terms` (columns, each once)."""
        chosen = flags(terms, self._vectors.shape[1])
        gone = self._is_expansion & chosen[self._vectors.indices]
        changed, queries, index = self._left(gone)
        again = self._measured(index, queries, changed) if len(changed) else {}
        per_query = {name: {**values, **again.get(name, {})} for name, values in self.full.items()}
        return Outcome(
            terms=int(chosen[self.candidates].sum()),
            share=float(gone.sum() / max(1, self._is_expansion.sum())),
            changed=len(changed),
            values=self._judged_measures.aggregated(per_query),
            p={name: paired_t_test(self.full[name], values) for name, values in per_query.items()},
        )

    def _left(self, gone: np.ndarray) -> tuple[np.ndarray, csr_array, ExactIndex]:
        """The rows of the queries that have to be searched again, their vectors, and the index.

        `gone` is one bool an entry: whether it is removed.
        """
        queries = self.encoded.queries
        if self.side == "query":
            changed = _rows_with(self._vectors, gone)
            return changed, selected(self._vectors, ~gone)[changed], self._index
        # A document that lost a term gives another score only to a query that has the term.
        lost = flags(self._vectors.indices[gone], self._vectors.shape[1])
        changed = _rows_with(queries, lost[queries.indices])
        index = ExactIndex(selected(self._vectors, ~gone), self.encoded.document_ids) if len(changed) else self._index
        return changed, queries[changed], index

    @cached_property
    def _index(self) -> ExactIndex:
        return ExactIndex(self.encoded.documents, self.encoded.document_ids)

    def _measured(self, index: ExactIndex, queries: csr_array, rows: np.ndarray) -> PerQuery:
        """The values of the queries in `rows`, whose vectors are `queries`."""
        ranking = index.search(queries, self._k, threads=self._threads)
        return self._judged_measures.per_query(dict(zip(self._ids(rows), self._answers(ranking), strict=True)))

    def _ids(self, rows: np.ndarray) -> list[str]:
        return [self._query_ids[row] for row in rows.tolist()]

    def _answers(self, ranking: Ranking) -> list[dict[str, float]]:
        """The hits of each query as {document id: score}; a record for each of millions of hits would take longer."""
        lengths = (ranking.rows >= 0).sum(axis=1).tolist()
        names = self._document_ids[ranking.rows]
        return [
            dict(zip(row[:length].tolist(), scores[:length].tolist(), strict=True))
            for row, scores, length in zip(names, ranking.scores, lengths, strict=True)
        ]


def _rows_with(matrix: csr_array, entries: np.ndarray) -> np.ndarray:
    """The rows in which any of the `entries` (one bool each) holds."""
    before = np.concatenate([[0], np.cumsum(entries)])
    counts: np.ndarray = np.diff(before[matrix.indptr])
    return np.flatnonzero(counts)


THRESHOLDS = (10, 100, 1000, 10_000)
DRAWS = 10


class Band(NamedTuple):
    """The 95 % interval of a measure under random removal: `mean` - 2 `std` to `mean` + 2 `std`."""

    mean: float
    std: float

    @property
    def low(self) -> float:
        """The lower end."""
        return self.mean - 2 * self.std

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + 2 * self.std

    def side_of(self, value: float) -> str:
        """Where a value lies: "below", "inside" or "above"; a difference that rounding can make is none.

        >>> Band(0.5, 0.01).side_of(0.47), Band(0.5, 0.01).side_of(0.52), Band(0.5, 0.0).side_of(0.5)
        ('below', 'inside', 'inside')
        """
        return "below" if value < self.low - 1e-12 else "above" if value > self.high + 1e-12 else "inside"


@dataclass(frozen=True)
class Point:
    """The removal of the `threshold` wackiest terms, beside draws of as many random ones."""

    threshold: int
    wacky: Outcome
    random: tuple[Outcome, ...]

    def band(self, measure: str) -> Band:
        """The interval of the draws; the standard deviation is that of a sample."""
        values = np.array([outcome.values[measure] for outcome in self.random])
        return Band(float(values.mean()), float(values.std(ddof=1)))

    @property
    def random_share(self) -> float:
        """The share of the expansion entries that the draws remove, their mean."""
        return float(np.mean([outcome.share for outcome in self.random]))

    def to_json(self, full: Mapping[str, float]) -> dict[str, Any]:
        """The point as JSON values; `full` are those of the whole vectors."""
        measures = {}
        for name, value in self.wacky.values.items():
            band = self.band(name)
            found = {
                "wacky": value,
                "difference": value - full[name],
                "p": self.wacky.p[name],
                "wacky_is": band.side_of(value),
            }
            measures[name] = found | {"random": {**band._asdict(), "low": band.low, "high": band.high}}
        return {
            "threshold": self.threshold,
            "measures": measures,
            "wacky": self.wacky._asdict(),
            "random": [outcome._asdict() for outcome in self.random],
        }


@dataclass(frozen=True)
class Removal:
    """Removals on one dataset: `full` are the values of the whole vectors, `points` by rising threshold."""

    dataset: str
    side: Side
    queries: int
    full: dict[str, float]
    points: tuple[Point, ...]

    def to_json(self) -> dict[str, Any]:
        """The removals as JSON values."""
        return vars(self) | {"points": [point.to_json(self.full) for point in self.points]}

    @classmethod
    def from_json(cls, values: Any) -> Removal:
        """The removals that `to_json` wrote; raises `DataError` if it is something else."""
        try:
            points = [
                Point(one["threshold"], Outcome(**one["wacky"]), tuple(Outcome(**draw) for draw in one["random"]))
                for one in values["points"]
            ]
            return cls(values["dataset"], values["side"], values["queries"], values["full"], tuple(points))
        except (KeyError, TypeError) as error:
            raise DataError(f"not a removal as JSON: {error!r}") from error


def removal(
    ablation: Ablation,
    wackiest: np.ndarray,
    thresholds: Sequence[int] = THRESHOLDS,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    remember: Callable[[str, Callable[[], Outcome]], Outcome] = lambda name, work: work(),
    advance: Callable[[int], object] = lambda done: None,
) -> Removal:
    """Remove the wackiest expansion terms, and as many random ones, and measure each.

    Of the N wackiest terms those count that are an expansion in the dataset; the random ones are drawn from all
    expansion terms of the dataset, as many. Where the scores come from the same texts these are N and N.

    Args:
        ablation: the dataset.
        wackiest: columns, from `vocable.evaluation.wackiness.ranked`.
        thresholds: numbers of terms to remove.
        draws: how often random terms are drawn for each threshold, twice at least.
        seed: of the draws. Each has its own stream, so that it does not depend on the others.
        remember: called with the name of a search and what carries it out; may give what an earlier call has found.
        advance: called with 1 after every search.

    Raises:
        ArgumentError: a threshold or the number of draws is out of its range.
    """
    check_plan(thresholds, draws)
    points = []
    for threshold in sorted(set(thresholds)):
        chosen = np.intersect1d(wackiest[:threshold], ablation.candidates)
        outcomes = []
        for number in range(draws + 1):
            name = f"{threshold}-{f'random-{number}' if number else 'wacky'}"
            terms = _drawn(ablation.candidates, len(chosen), [seed, threshold, number]) if number else chosen
            outcomes.append(remember(name, lambda terms=terms: ablation.without(terms)))  # type: ignore[misc]
            advance(1)
        points.append(Point(threshold, outcomes[0], tuple(outcomes[1:])))
    queries = len(ablation.encoded.query_ids)
    return Removal(ablation.encoded.dataset.name, ablation.side, queries, ablation.values(), tuple(points))


def check_plan(thresholds: Sequence[int], draws: int) -> None:
    """Raise `ArgumentError` for a threshold or a number of draws that is out of its range."""
    if not thresholds or min(thresholds) < 1:
        raise ArgumentError(f"thresholds must be numbers of terms of at least 1, not {list(thresholds)}")
    if draws < 2:
        raise ArgumentError(f"draws must be at least 2, for a standard deviation, not {draws}")


def _drawn(candidates: np.ndarray, count: int, seed: list[int]) -> np.ndarray:
    return np.random.default_rng(seed).choice(candidates, count, replace=False)


def texts_of(encoded: Encoded, side: Side) -> list[str]:
    """The texts of the queries or of the documents, by row."""
    if side == "query":
        return [query.text for query in encoded.dataset.queries]
    return [document.full for document in encoded.dataset.documents]


def score_dataset(path: Path, model: SparseEncoder, name: str, encoded: Encoded, side: Side) -> None:
    """Measure the wackiness of the expansions on one side of a dataset, and write the scores to `path`.

    Args:
        path: the file, as of `vocable.analysis.wackiness.write_scores`.
        model: from `vocable.load`.
        name: of the model, written down with the scores.
        encoded: the dataset.
        side: whose expansions; a document is a query that does not find itself.
    """
    choices, documents = Choices(), texts_of(encoded, "document")
    counts, index = own_terms(model, documents), ExactIndex(encoded.documents, encoded.document_ids)
    if side == "query":
        own = own_terms(model, texts_of(encoded, side))
        measured = measured_vectors(name, model, encoded.queries, own, index, counts, choices.k)
    else:
        itself = np.arange(len(documents))
        measured = measured_vectors(name, model, encoded.documents, counts, index, counts, choices.k, itself=itself)
    found = find(measured, choices, names=proper_names(documents), draws=0)
    place = encoded.dataset.name
    meta = scores_meta(found, choices, model=name, role=side, queries=place, corpus=place)
    write_scores(path, found.wackiness, found.terms, found.kinds, meta)


def read_wackiest(path: Path, model: SparseEncoder) -> np.ndarray:
    """The columns of the scored terms, the wackiest first; raises `VectorsError` if the scores are not of the model."""
    stored = read_scores(path, fingerprint(terms(model)))
    return ranked(stored.scores, stored.inputs)


def remembered(folder: Path) -> Callable[[str, Callable[[], Outcome]], Outcome]:
    """What `vocable.analysis.removal.removal` calls to keep each search in `folder`, and to find it there again.

    What it gives raises `VectorsError` if a file is damaged.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def remember(name: str, work: Callable[[], Outcome]) -> Outcome:
        path = folder / f"{name}.json"
        if not path.exists():
            write_record(path, work())
        return read_record(path, Outcome)

    return remember


def wacky_pruner(
    model: SparseEncoder, wackiest: np.ndarray, documents: Iterable[Document], place: str
) -> Callable[[Sequence[str], csr_array], csr_array]:
    """What `vocable.prune` calls to remove terms where they are expansions, never from the text's own.

    Args:
        model: that made the vectors.
        wackiest: columns of the terms to remove.
        documents: the texts that were encoded, queries as documents without a title, in their order; others may stand
            between them. They are read once, as far as the vectors reach.
        place: where they come from, for messages.

    Returns:
        a function of the ids and the vectors [n, v] of one shard after the other, which raises `DataError` if there is
        no text with one of the ids.
    """
    stream = iter(documents)

    def without_wacky(ids: Sequence[str], matrix: csr_array) -> csr_array:
        own = own_terms(model, [_text(name, stream, place) for name in ids])
        return remove_expansions(matrix, own, wackiest)

    return without_wacky


def _text(name: str, stream: Iterator[Document], place: str) -> str:
    for document in stream:
        if document.id == name:
            return document.full
    raise DataError(f"has no text {name!r}, or not in the order of the vectors", place=place)
