"""The verb `ablate`: search without the wackiest expansion terms, and without the same number of random terms
(Polyakov et al. 2026, sections 4.1 and 5.1).

Nothing is encoded again: vectors lose entries, and only the affected queries are searched and measured again. A term is
removed where it is an expansion, never where the text itself contains it.

Letters: m vectors of the role that loses terms, v output vocabulary, q queries, d draws.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

import numpy as np
from annotated_types import Ge
from scipy.sparse import csr_array

from vocable.core.fingerprint import settings_of
from vocable.core.progress import track
from vocable.core.steps import made_once, record_once
from vocable.core.storage import finish, finished, resumable
from vocable.data.bad_lines import tolerant
from vocable.encoding.hub import check_length
from vocable.encoding.load import load_model
from vocable.encoding.models import Model, model_digest, model_name
from vocable.encoding.protocol import Role
from vocable.encoding.term_scores import read_wackiest
from vocable.encoding.terms import expansion_entries, flags, input_terms, terms
from vocable.encoding.vectors import Sources, selected
from vocable.errors import ArgumentError, require_extra
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.encoded import Encoded, encode_dataset
from vocable.evaluation.measures import JudgedMeasures, Measures, parse_measures
from vocable.evaluation.quality import DEFAULT_DEPTH
from vocable.evaluation.significance import paired_t_test
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.exact_shards import Exact
from vocable.options import Count, CountOrZero, check, checked
from vocable.training_options import ExpansionStudy, WackinessOptions
from vocable.wackiness.ablation_report import (
    AblatedSearch,
    AblationReport,
    DatasetAblation,
    PerQuery,
    ThresholdResult,
    write_ablation,
)
from vocable.wackiness.expansions import as_searched, expansion_data, proper_names, stored_index, stored_vectors
from vocable.wackiness.measure import wackiness_of, write_scores

ABLATION_MEASURES = ("nDCG@10", "R@100")
THRESHOLDS = (10, 100, 1000, 10_000)
RANDOM_DRAWS = 10
Control = Literal["frequency", "number"]
STRATUM = 20  # terms of neighbouring frequencies, which are equally good controls for each other


class Ablation:
    """An encoded dataset that can be searched without any of its expansion terms.

    `input_counts` [m, v] are the terms of the texts themselves (`encoding.terms.input_terms`). The vectors of `role`
    lose terms; for documents, the index is rebuilt for every removal. The deepest measure determines the number of
    results of a query: 1000 for a measure without a cutoff. `expansion_terms` are the terms that are an expansion in at
    least one of the m vectors, int64 columns in order.
    """

    @checked
    def __init__(
        self,
        encoded: Encoded,
        input_counts: csr_array,
        measures: Measures = ABLATION_MEASURES,
        *,
        role: Role = "query",
        threads: int | None = None,
        index: Exact | None = None,
    ) -> None:
        parsed = parse_measures(measures)
        self.encoded, self.role = encoded, role
        self._vectors = encoded.queries if role == "query" else encoded.documents
        self.is_expansion = expansion_entries(self._vectors, input_counts)
        self.expansion_terms = np.unique(self._vectors.indices[self.is_expansion]).astype(np.int64)
        entries = np.bincount(self._vectors.indices[self.is_expansion], minlength=self._vectors.shape[1])
        self.by_frequency = self.expansion_terms[np.argsort(-entries[self.expansion_terms], kind="stable")]
        self._judged_measures = JudgedMeasures(parsed, encoded.dataset)
        self._k = encoded.dataset.search_depth(max(measure.cutoff or DEFAULT_DEPTH for measure in parsed.values()))
        self._threads, self._given = threads, index
        self._query_ids, self._document_ids = encoded.query_ids, np.array(encoded.document_ids, dtype=object)

    @cached_property
    def _index(self) -> Exact:
        if self._given is not None:
            return self._given
        return ExactIndex(self.encoded.documents, self.encoded.document_ids)

    @cached_property
    def full(self) -> PerQuery:
        """Return the values of the full vectors."""
        return self._measure(self._index, self.encoded.queries, np.arange(len(self._query_ids)))

    def values(self) -> dict[str, float]:
        """Return each measure of the full vectors over all queries."""
        return self._judged_measures.aggregated(self.full)

    def control(self, terms: np.ndarray, kind: Control, rng: np.random.Generator) -> np.ndarray:
        """Draw len(`terms`) expansion terms: of any frequency ("number"), or of the same frequencies ("frequency").

        The frequency of a term is the number of vectors that it expands. The expansion terms are sorted by falling
        frequency and cut into strata of STRATUM terms. If `terms` has n terms of a stratum, n terms are drawn from it,
        possibly the same terms: the null hypothesis is that wacky terms are exchangeable with terms of similar
        frequency.
        """
        if kind == "number":
            return rng.choice(self.expansion_terms, len(terms), replace=False)
        removed = np.isin(self.by_frequency, terms)
        starts = range(0, len(removed), STRATUM)
        strata = [(self.by_frequency[i : i + STRATUM], int(removed[i : i + STRATUM].sum())) for i in starts]
        drawn = [rng.choice(stratum, count, replace=False) for stratum, count in strata if count]
        return np.concatenate(drawn) if drawn else self.expansion_terms[:0]

    def without(self, terms: np.ndarray) -> AblatedSearch:
        """Search without the expansions among `terms` (distinct columns)."""
        mask = flags(terms, self._vectors.shape[1])
        removed = self.is_expansion & mask[self._vectors.indices]
        queries, index = self.encoded.queries, self._index
        if self.role == "query":
            changed = _rows_with(self._vectors, removed)
            queries = selected(self._vectors, ~removed)
        else:  # a document that lost a term changes its score only for queries with the term
            lost = flags(self._vectors.indices[removed], self._vectors.shape[1])
            changed = _rows_with(queries, lost[queries.indices])
            if len(changed):
                index = ExactIndex(selected(self._vectors, ~removed), self.encoded.document_ids)
        again = self._measure(index, queries[changed], changed) if len(changed) else {}
        per_query = {name: {**values, **again.get(name, {})} for name, values in self.full.items()}
        return AblatedSearch(
            terms=int(mask[self.expansion_terms].sum()),
            share=float(removed.sum() / max(1, self.is_expansion.sum())),
            changed=len(changed),
            values=self._judged_measures.aggregated(per_query),
            p={name: paired_t_test(self.full[name], values) for name, values in per_query.items()},
            per_query=per_query,
        )

    def _measure(self, index: Exact, queries: csr_array, rows: np.ndarray) -> PerQuery:
        """Return the values of the queries in `rows`, whose vectors are `queries`."""
        ranking = index.search(queries, self._k, threads=self._threads)
        retrieved, lengths = self._document_ids[ranking.rows], (ranking.rows >= 0).sum(axis=1)
        # {document id: score} of each query: a record for each of millions of hits would take longer.
        answers = {
            self._query_ids[row]: dict(zip(ids[:length].tolist(), scores[:length].tolist(), strict=True))
            for row, ids, scores, length in zip(rows, retrieved, ranking.scores, lengths, strict=True)
        }
        return self._judged_measures.per_query(answers)


def _rows_with(matrix: csr_array, entries: np.ndarray) -> np.ndarray:
    """Return the rows with any of the `entries` (a bool per entry)."""
    return np.flatnonzero(np.diff(selected(matrix, entries).indptr))


@checked
def remove_wackiest(
    ablation: Ablation,
    wackiest: np.ndarray,
    thresholds: Sequence[Count] = THRESHOLDS,
    *,
    draws: Annotated[int, Ge(2)] = RANDOM_DRAWS,
    seed: int = 0,
    control: Control = "frequency",
    folder: Path | None = None,
) -> DatasetAblation:
    """Remove the wackiest expansion terms (columns, in order), then the same number of random terms, and measure each.

    Only wackiest terms that are an expansion in the dataset are removed. The same number of random terms is drawn from
    all expansion terms of the dataset (`Ablation.control`). If the scores come from the same texts, the number is the
    threshold. Each of the `draws` has independent random numbers. The `folder` keeps each search as a file, and
    searches that an earlier call with the same arguments has stored are read.
    """
    check_thresholds(thresholds)
    full, encoded, points = ablation.values(), ablation.encoded, []
    plan, searches = [*product(sorted(set(thresholds)), range(draws + 1))], []
    for threshold, number in track(plan, "search"):
        removed = np.intersect1d(wackiest[:threshold], ablation.expansion_terms)
        if number:
            removed = ablation.control(removed, control, np.random.default_rng([seed, threshold, number]))
        if folder is None:
            searches.append(ablation.without(removed))
        else:
            file = folder / f"{threshold}-{f'random-{number}' if number else 'wacky'}.json"
            searches.append(record_once(file, AblatedSearch, partial(ablation.without, removed)))
        if number == draws:
            wacky, *random = searches[-draws - 1 :]
            points.append(ThresholdResult.of(threshold, wacky, random, full, seed))
    return DatasetAblation(encoded.dataset.name, ablation.role, len(encoded.query_ids), full, tuple(points))


def check_thresholds(thresholds: Sequence[int]) -> None:
    """Raise `ArgumentError` if there is no number of terms."""
    if not thresholds:
        raise ArgumentError("thresholds must have at least one number of terms")


@tolerant
@checked
def ablate(
    model: str | Model,
    datasets: str | Sequence[str],
    output: str | os.PathLike[str],
    *,
    scores: str | os.PathLike[str] | None = None,
    thresholds: Sequence[Count] = THRESHOLDS,
    measures: Sequence[str] | None = None,
    draws: Annotated[int, Ge(2)] = RANDOM_DRAWS,
    control: Control = "frequency",
    role: Role = "query",
    skip_bad: CountOrZero = 0,
    **options: Unpack[ExpansionStudy],
) -> AblationReport:
    """Remove the wackiest expansions, and measure the loss.

    The loss is compared with the loss without random terms of the same number, drawn several times. The report has
    tables, a figure and a page. An interrupted run resumes when repeated.

    Args:
        model: a folder or a Hub id; in Python also a model from `vocable.load`.
        datasets: sources of documents, queries and judgments together, such as beir:DIR or pydocs:#test.
        output: folder of the report (written atomically).
        scores: scores that `vocable measure-wackiness` wrote for the model; by default measured on the first dataset.
        thresholds: numbers of terms to remove.
        measures: names of measures (docs/evaluate.md); by default nDCG@10 and R@100.
        draws: number of random draws for each threshold.
        control: frequency draws random terms that are about as frequent as the wackiest terms; number draws random
            terms of any frequency, as the paper does.
        role: role of the texts that lose expansions.
        skip_bad: number of malformed lines to skip; one more is an error.
        options: the fields of `vocable.training_options.ExpansionStudy`.

    Raises:
        ArgumentError: an argument is out of its range, or something else exists at `output`.
        DataError: a dataset cannot be read.
        ModelError: the model cannot be loaded.
        VectorsError: scores or stored vectors have another vocabulary, or are damaged.
        MissingExtraError: matplotlib or pyarrow is not installed.
    """
    measures, sources = list(measures or ABLATION_MEASURES), [datasets] if isinstance(datasets, str) else list(datasets)
    arguments, output = locals() | {"datasets": sources}, Path(output)  # with the measures as they are now
    vectors, query_vectors, seed = options["vectors"], options["query_vectors"], options["seed"]
    dtype, max_length = options["dtype"], options["max_length"]
    check_thresholds(thresholds)
    parse_measures(measures)
    for module in ("matplotlib", "pyarrow"):
        require_extra(module, "figures,parquet")
    if bool(vectors) != bool(query_vectors) or (vectors and len(sources) > 1):
        raise ArgumentError("vectors and query_vectors go together, with a single dataset")
    check_length(model, max_length)
    for source in sources:
        load_dataset(source, documents=False)  # finds errors of the last dataset before hours of work on the others
    encoder, name = load_model(model, options["device"], options["runtime"]), model_name(model)
    names = terms(encoder)
    if scores is not None:
        read_wackiest(scores, names)  # raises an error for another vocabulary
    others: dict[str, object] = {"model": name, "digest": model_digest(encoder), "thresholds": sorted(set(thresholds))}
    settings = settings_of(ablate, arguments, others)
    if not finished(output, settings):
        with resumable(output, settings) as work:
            whole, ablations = work / "whole", []
            whole.mkdir(exist_ok=True)
            file = Path(scores or whole / "scores.parquet")
            for number, source in enumerate(sources):
                dataset = load_dataset(source)
                if vectors and query_vectors:
                    encoded, index = _stored(encoder, dataset, vectors, query_vectors, role, work / "index")
                else:
                    keep = work / "vectors" / str(number)
                    given: dict[str, Any] = {"dtype": dtype, "max_length": max_length, "query_idf": 0}
                    encoded = encode_dataset(encoder, dataset, keep=keep, name=name, **given)
                    index = ExactIndex(encoded.documents, encoded.document_ids)
                made_once(file, partial(score_dataset, file, encoder, name, encoded, role, index))
                encoded = encoded._replace(queries=as_searched(encoder, encoded.queries, index))
                input_counts = input_terms(encoder, _texts(dataset, role))
                ablation = Ablation(encoded, input_counts, measures, role=role, index=index)
                random: dict[str, Any] = {"draws": draws, "seed": seed, "control": control}
                wackiest, folder = read_wackiest(file, names), work / "searches" / str(number)
                ablations.append(remove_wackiest(ablation, wackiest, thresholds, **random, folder=folder))
            write_ablation(whole, AblationReport(settings, ablations))
            finish(work, output, whole)
    return AblationReport.read(output)


def _texts(dataset: Dataset, role: Role) -> list[str]:
    if role == "query":
        return [query.text for query in dataset.queries]
    return [document.full for document in dataset.documents]


def _stored(
    model: Model, dataset: Dataset, vectors: Sources, query_vectors: Sources, role: Role, folder: Path
) -> tuple[Encoded, Exact]:
    """Return a dataset with stored vectors, and an index of its documents."""
    queries = stored_vectors(query_vectors, model, [query.id for query in dataset.queries])
    ids = [document.id for document in dataset.documents]
    if role == "document":
        documents = stored_vectors(vectors, model, ids)
        return Encoded(dataset, queries, documents, None), ExactIndex(documents, ids)
    # Documents are only searched, and may be more than fit into memory.
    documents = csr_array((0, queries.shape[1]), dtype=np.float32)
    return Encoded(dataset, queries, documents, None), stored_index(vectors, model, ids, folder)


def score_dataset(path: Path, model: Model, name: str, encoded: Encoded, role: Role, index: Exact) -> None:
    """Measure the wackiness of the expansions of a role in a dataset, and write the scores to `path`.

    Queries are `encoded` without the IDF of the collection; `index` has the documents.
    """
    settings, dataset = check(WackinessOptions, {"bootstrap": 0}), encoded.dataset
    documents = _texts(dataset, "document")
    data = expansion_data(
        model,
        _texts(dataset, role),
        documents,
        settings["k"],
        name=name,
        itself=np.arange(len(documents)) if role == "document" else None,
        vectors=index,
        query_vectors=encoded.queries,
    )
    measured = wackiness_of(data, settings, names=proper_names(documents))
    write_scores(path, measured, settings, model=name, role=role, queries=dataset.name, corpus=dataset.name)
