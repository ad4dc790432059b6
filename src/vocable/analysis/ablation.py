"""A dataset that can be searched without some of its expansion terms, again and again, with nothing encoded again.

Vectors lose entries, and only the queries that this touches are searched and measured again.

Letters: m vectors of the side that loses terms, e entries of theirs, q queries, n documents, v output vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from ir_measures import Measure
from scipy.sparse import csr_array

from vocable.errors import ArgumentError
from vocable.evaluation.compare import paired_t_test
from vocable.evaluation.judged_measures import JudgedMeasures
from vocable.evaluation.measures import depth, parse_measures
from vocable.evaluation.retrieval import Encoded
from vocable.expansions import expansion_entries, flags
from vocable.search.exact import ExactIndex
from vocable.search.ranking import Ranking
from vocable.vectors import as_vectors, selected

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
            own: [m, v] the terms that stand in the texts, from `vocable.encoder.own_terms.own_terms`.
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
