"""Search an encoded dataset without some of its expansion terms, again and again, with nothing encoded again.

Vectors lose entries, and only the queries that this touches are searched and measured again. A term is removed where it
is an expansion, never where it stands in the text itself.

Letters: m vectors of the role that loses terms, v output vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from ir_measures import Measure
from scipy.sparse import csr_array

from vocable.encoder.asymmetric import Role
from vocable.encoder.terms import expansion_entries, flags
from vocable.errors import ArgumentError
from vocable.evaluation.quality import JudgedMeasures, depth, parse_measures
from vocable.evaluation.retrieval import Encoded
from vocable.evaluation.significance import paired_t_test
from vocable.retrieval.protocols import Index, vector_index
from vocable.vectors import selected

PerQuery = Mapping[str, Mapping[str, float]]  # {measure: {query id: value}}

MEASURES = ("nDCG@10", "R@100")
DEPTH = 1000  # results of a query where a measure has no cutoff
Control = Literal["frequency", "number"]
STRATUM = 20  # terms next to each other in frequency, of which one is as good a control as another


@dataclass(frozen=True)
class Outcome:
    """A search without some terms.

    `terms` is how many of them were expansions here, `share` the share of the expansion entries that went with them,
    and `changed` the number of queries whose results could change. `values` are those of the measures, `p` of the
    paired t-test against the full vectors. `per_query`, the values of each query, is left out of a report.
    """

    terms: int
    share: float
    changed: int
    values: dict[str, float]
    p: dict[str, float]
    per_query: PerQuery = field(default_factory=dict, compare=False)


class Ablation:
    """An encoded dataset that can be searched without any of its expansion terms.

    `own` [m, v] are the terms that stand in the texts (`vocable.encoder.terms.input_terms`). The vectors of `role` lose
    terms; of documents the index is then built anew for every removal. A query gets as many results as the deepest of
    the measures looks at, 1000 where one has no cutoff. `candidates` are the terms that are an expansion in one of the
    m vectors at least, int64 columns in order.
    """

    def __init__(
        self,
        encoded: Encoded,
        own: csr_array,
        measures: Sequence[str | Measure] = MEASURES,
        *,
        role: Role = "query",
        threads: int | None = None,
    ) -> None:
        if role not in ("query", "document"):
            raise ArgumentError(f"role must be query or document, not {role!r}")
        parsed = parse_measures(measures)
        self.encoded, self.role = encoded, role
        self._vectors = encoded.queries if role == "query" else encoded.documents
        self._is_expansion = expansion_entries(self._vectors, own)
        self.candidates = np.unique(self._vectors.indices[self._is_expansion]).astype(np.int64)
        entries = np.bincount(self._vectors.indices[self._is_expansion], minlength=self._vectors.shape[1])
        self._by_frequency = self.candidates[np.argsort(-entries[self.candidates], kind="stable")]
        self._judged_measures = JudgedMeasures(parsed, encoded.dataset)
        self._k = encoded.dataset.deep(max(depth(measure) or DEPTH for measure in parsed.values()))
        self._threads = threads
        self._query_ids, self._document_ids = encoded.query_ids, np.array(encoded.document_ids, dtype=object)

    @cached_property
    def _index(self) -> Index:
        return vector_index(self.encoded.documents, self.encoded.document_ids)

    @cached_property
    def full(self) -> PerQuery:
        """The values of the whole vectors."""
        return self._measure(self._index, self.encoded.queries, np.arange(len(self._query_ids)))

    def values(self) -> dict[str, float]:
        """Return the figure of each measure for the whole vectors."""
        return self._judged_measures.aggregated(self.full)

    def control(self, terms: np.ndarray, kind: Control, rng: np.random.Generator) -> np.ndarray:
        """Draw as many candidates as `terms`, which are some of them: of any frequency, or of the frequencies of these.

        Candidates by falling frequency, the number of vectors in which they are an expansion, are cut into strata of
        STRATUM; from each as many are drawn as `terms` has there. `terms` can be among them: what is tested is that of
        terms as frequent the wacky ones are worth no less than others.
        """
        if kind == "number":
            return rng.choice(self.candidates, len(terms), replace=False)
        chosen = np.isin(self._by_frequency, terms)
        starts = range(0, len(chosen), STRATUM)
        strata = [(self._by_frequency[i : i + STRATUM], int(chosen[i : i + STRATUM].sum())) for i in starts]
        drawn = [rng.choice(stratum, count, replace=False) for stratum, count in strata if count]
        return np.concatenate(drawn) if drawn else self.candidates[:0]

    def without(self, terms: np.ndarray) -> Outcome:
        """Search without the expansions that are one of `terms` (columns, each once)."""
        mask = flags(terms, self._vectors.shape[1])
        gone = self._is_expansion & mask[self._vectors.indices]
        queries, index = self.encoded.queries, self._index
        if self.role == "query":
            changed = _rows_with(self._vectors, gone)
            left = selected(self._vectors, ~gone)[changed]
        else:  # a document that lost a term gives another score only to a query that has the term
            lost = flags(self._vectors.indices[gone], self._vectors.shape[1])
            changed = _rows_with(queries, lost[queries.indices])
            left = queries[changed]
            if len(changed):
                index = vector_index(selected(self._vectors, ~gone), self.encoded.document_ids)
        again = self._measure(index, left, changed) if len(changed) else {}
        per_query = {name: {**values, **again.get(name, {})} for name, values in self.full.items()}
        return Outcome(
            terms=int(mask[self.candidates].sum()),
            share=float(gone.sum() / max(1, self._is_expansion.sum())),
            changed=len(changed),
            values=self._judged_measures.aggregated(per_query),
            p={name: paired_t_test(self.full[name], values) for name, values in per_query.items()},
            per_query=per_query,
        )

    def _measure(self, index: Index, queries: csr_array, rows: np.ndarray) -> PerQuery:
        """The values of the queries in `rows`, whose vectors are `queries`."""
        ranking = index.search(queries, self._k, threads=self._threads)
        found, lengths = self._document_ids[ranking.rows], (ranking.rows >= 0).sum(axis=1)
        # {document id: score} of each query: a record for each of millions of hits would take longer.
        answers = {
            self._query_ids[row]: dict(zip(ids[:length].tolist(), scores[:length].tolist(), strict=True))
            for row, ids, scores, length in zip(rows, found, ranking.scores, lengths, strict=True)
        }
        return self._judged_measures.per_query(answers)


def _rows_with(matrix: csr_array, entries: np.ndarray) -> np.ndarray:
    """The rows in which any of the `entries` (one bool each) holds."""
    return np.flatnonzero(np.diff(selected(matrix, entries).indptr))
