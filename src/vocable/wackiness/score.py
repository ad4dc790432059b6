"""The Wackiness Score of expansion terms (Polyakov et al. 2026, section 3.2), its curve and W-AUC (section 3.3).

An expansion term is an active term that the input itself does not contain. A wacky term is absent from the documents
that it helps to find.

Letters: m inputs (queries, or documents), n documents of the collection, v terms, u scored terms, k retrieved
documents, N bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np
from scipy.sparse import csr_array

from vocable.encoding.idf import IdfFormula
from vocable.encoding.idf import idf as inverse_document_frequency
from vocable.encoding.models import Model
from vocable.encoding.pruning import prune
from vocable.encoding.term_scores import ranked
from vocable.encoding.terms import expansion_entries, flags, input_terms
from vocable.encoding.vectors import as_vectors, selected
from vocable.errors import VectorsError
from vocable.evaluation.encoded import Encoded
from vocable.indexes.ranking import Ranking
from vocable.options import Count, checked
from vocable.training_options import WackinessOptions

if TYPE_CHECKING:
    from vocable.wackiness.expansions import ExpansionData

CURVE_BINS = 100
W_AUC, W_AUC_DEPTH = "W-AUC", 100  # the measure's name, and the retrieved documents per query

Ints: TypeAlias = Sequence[int] | np.ndarray


class Wackiness(NamedTuple):
    """Wackiness of each of v terms; `scores` and `importance` are nan for a term that is never an expansion."""

    scores: np.ndarray  # float64 [v], 0 to 1, the wackiest 1
    importance: np.ndarray  # float64 [v], mean lexical importance before scaling
    inputs: np.ndarray  # int64 [v], number of inputs that the term expands


def wackiness(
    vectors: csr_array,
    input_counts: csr_array,
    rows: np.ndarray,
    counts: csr_array,
    *,
    idf: IdfFormula = "log",
    special: Ints = (),
) -> Wackiness:
    """Return the Wackiness Score of every term that expands an input.

    The lexical importance of a term to an input is its frequency in the documents that the input retrieves, times its
    IDF. Its mean over the inputs that the term expands, scaled to 0 to 1 over all terms, is 1 minus the score.

    Args:
        vectors: [m, v], the inputs.
        input_counts: [m, v], frequencies of the terms in the inputs themselves (`vocable.encoding.terms`).
        rows: int32 [m, k], the documents that each input retrieves (`Ranking.rows`), -1 where there is no k-th.
        counts: [n, v], frequencies of the terms in the documents of the collection.
        idf: "log" is the paper's log(n / df); "bm25" is log(1 + (n - df + 0.5) / (df + 0.5)), which is above 0 even for
            a term that all documents have.
        special: columns that do not count as expansions. By default all columns count: the paper lists [CLS] among the
            wackiest terms.

    Three documents, two queries, six words:

        a0  cat cat dog         q0  "cat"   cat 1.0  dog 0.5  the 0.2       retrieves a0 and a1
        a1  dog the             q1  "bird"  bird 1.0 dog 0.1  the 0.3       retrieves a2 and a1
        a2  bird the                        edmund 0.4

    `dog` and `the`, each in two of three documents, have the IDF log(3/2). The documents of q0 have `dog` 2 times and
    `the` once, the documents of q1 `dog` once and `the` 2 times: both importances are log(3/2) (2 + 1) / 2, and both
    scores 0. No document has `edmund`, whose importance is 0 and whose score is 1. The other words expand no query.

    >>> cat, dog, the, bird, edmund, fish = range(6)
    >>> queries = csr_array(np.array([[1, 0.5, 0.2, 0, 0, 0], [0, 0.1, 0.3, 1, 0.4, 0]]))
    >>> words = csr_array(np.array([[1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0]]))
    >>> documents = csr_array(np.array([[2, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0]]))
    >>> found = wackiness(queries, words, np.array([[0, 1], [2, 1]]), documents)
    >>> found.importance.round(3)
    array([  nan, 0.608, 0.608,   nan, 0.   ,   nan])
    >>> found.inputs, found.scores
    (array([0, 2, 2, 0, 1, 0]), array([nan,  0.,  0., nan,  1., nan]))
    """
    return scored(lexical_importance(expansions(vectors, input_counts, special), rows, counts, idf=idf))


def expansions(vectors: csr_array, input_counts: csr_array, special: Ints = ()) -> csr_array:
    """Return the vectors [m, v] without terms of the inputs themselves, and without the columns `special`.

    >>> vector, in_text = csr_array(np.array([[1.0, 0.5, 2.0]])), csr_array(np.array([[3.0, 0.0, 0.0]]))
    >>> expansions(vector, in_text).toarray().tolist()
    [[0.0, 0.5, 2.0]]
    """
    vectors = as_vectors(vectors, "the inputs")
    columns = np.asarray(special, dtype=np.int64)
    return selected(
        vectors, expansion_entries(vectors, input_counts) & ~flags(columns, vectors.shape[1])[vectors.indices]
    )


def lexical_importance(
    expanded: csr_array, rows: np.ndarray, counts: csr_array, *, idf: IdfFormula = "log"
) -> csr_array:
    """Return the importance of each of the `expansions` [m, v], float64; 0 for a term that no document contains.

    `wackiness` describes the other arguments.
    """
    counts = as_vectors(counts, "the collection's terms")
    m, v = expanded.shape
    if counts.shape[1] != v:
        raise VectorsError(f"inputs of {v} terms, but a collection of {counts.shape[1]}")
    if rows.ndim != 2 or len(rows) != m:
        raise VectorsError(f"the documents retrieved for {m} inputs are not of the shape {rows.shape}")
    if rows.max(initial=-1) >= counts.shape[0]:
        raise VectorsError(f"the ranking has row {rows.max()}, there are {counts.shape[0]} documents")
    frequencies = np.zeros(expanded.nnz, dtype=np.float64)
    for x, (start, end) in enumerate(pairwise(expanded.indptr)):
        retrieved = counts[rows[x][rows[x] >= 0]]
        frequencies[start:end] = np.bincount(retrieved.indices, retrieved.data, v)[expanded.indices[start:end]]
    having = np.bincount(counts.indices, minlength=v)
    weights = inverse_document_frequency(having, counts.shape[0], formula=idf).astype(np.float64)
    return csr_array((frequencies * weights[expanded.indices], expanded.indices, expanded.indptr), shape=(m, v))


def scored(importance: csr_array, weights: np.ndarray | None = None) -> Wackiness:
    """Return the Wackiness Scores from `lexical_importance` [m, v]; input i counts `weights`[i] times, by default once.

    The least important term has the score 1, even if it is the only term or all terms are equally important.
    """
    v = importance.shape[1]
    times = np.ones(importance.shape[0]) if weights is None else weights
    times = np.repeat(times, np.diff(importance.indptr))
    inputs = np.bincount(importance.indices, weights=times, minlength=v).astype(np.int64)
    used = inputs > 0
    mean, scores = np.full(v, np.nan), np.full(v, np.nan)
    mean[used] = np.bincount(importance.indices, weights=times * importance.data, minlength=v)[used] / inputs[used]
    if used.any():
        least, most = mean[used].min(), mean[used].max()
        scores[used] = 1 - (mean[used] - least) / (most - least) if most > least else 1.0
    return Wackiness(scores, mean, inputs)


@checked
def curve(scores: np.ndarray, bins: Count = CURVE_BINS, *, whole_vocabulary: bool = False) -> np.ndarray:
    """Return the mean Wackiness Score of each of N equal bins of the terms, the wackiest first, float64 [N].

    Bin i has the terms from rank floor(i u / N) up to floor((i + 1) u / N). It has at least one term: with fewer terms
    than bins, neighbouring bins share a term. `scores` [v] are nan for a term without a score; if no term has a score,
    all heights are nan. With `whole_vocabulary` all v terms are cut into bins instead of the u scored terms. Unscored
    terms then come last and are left out of the means; a bin without a scored term is 0.

    >>> curve(np.array([0.5, 1.0, np.nan, 0.0, 0.9]), bins=2)
    array([0.95, 0.25])
    >>> curve(np.array([0.5, 1.0, np.nan, 0.0, 0.9, np.nan]), bins=3, whole_vocabulary=True)
    array([0.95, 0.25, 0.  ])
    """
    ordered = scores[ranked(scores)]
    if not len(ordered):
        return np.full(bins, np.nan)
    cut = len(scores) if whole_vocabulary else len(ordered)
    first = np.arange(bins) * cut // bins
    last = np.maximum(np.arange(1, bins + 1) * cut // bins, first + 1)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    first, last = np.minimum(first, len(ordered)), np.minimum(last, len(ordered))
    means: np.ndarray = (sums[last] - sums[first]) / np.maximum(last - first, 1)
    return means.clip(0, 1)  # differences of sums may be off by the last digit


def area(heights: np.ndarray) -> float:
    """Return W-AUC, the area below a curve [N] over 0 to 1 by the trapezoidal rule; between 0 and 1.

    >>> area(np.array([1.0, 0.5, 0.0]))
    0.5
    """
    return float(heights[0]) if len(heights) == 1 else float(np.trapezoid(heights, dx=1 / (len(heights) - 1)))


def variants(settings: WackinessOptions) -> dict[str, WackinessOptions]:
    """Return variants of the settings, each with a single change, by the change.

    >>> from vocable.options import check
    >>> ", ".join(variants(check(WackinessOptions, {"k": 100})))
    'k = 10, k = 1000, idf = bm25, bins = 10, bins = 1000, no special tokens, whole vocabulary'
    """
    k, bins = settings["k"], settings["bins"]
    idf = "bm25" if settings["idf"] == "log" else "log"
    changes: dict[str, dict[str, object]] = {f"k = {other}": {"k": other} for other in (max(1, k // 10), 10 * k)}
    changes[f"idf = {idf}"] = {"idf": idf}
    changes |= {f"bins = {other}": {"bins": other} for other in (max(1, bins // 10), 10 * bins)}
    changes["no special tokens" if settings["special"] else "special tokens"] = {"special": not settings["special"]}
    whole = settings["whole_vocabulary"]
    changes["scored terms only" if whole else "whole vocabulary"] = {"whole_vocabulary": not whole}
    return {label: cast(WackinessOptions, {**settings, **change}) for label, change in changes.items()}


def expanded(data: ExpansionData, settings: WackinessOptions) -> csr_array:
    """Return the weights [m, v] of the expansions that count."""
    added = expansions(data.vectors, data.input_counts, () if settings["special"] else data.special)
    return added if settings["expansions"] is None else prune(added, settings["expansions"])


def importance(data: ExpansionData, settings: WackinessOptions) -> csr_array:
    """Return the lexical importance [m, v] of the expansions, in the first k retrieved documents."""
    rows = data.rows[:, : settings["k"]]
    return lexical_importance(expanded(data, settings), rows, data.counts, idf=settings["idf"])


def curve_of(scores: np.ndarray, settings: WackinessOptions) -> np.ndarray:
    """Return the curve [N] of scores [v]."""
    return curve(scores, settings["bins"], whole_vocabulary=settings["whole_vocabulary"])


def query_w_auc(model: Model, encoded: Encoded, ranking: Ranking) -> dict[str, float]:
    """Return {"W-AUC": area} of a model's expansions of the queries of a dataset; {} if nothing is expanded.

    The settings are the defaults of `vocable.measure_wackiness` (Polyakov et al. 2026, section 3.3). `ranking` is the
    model's ranking of at least 100 documents per query.
    """
    input_counts = input_terms(model, [query.text for query in encoded.dataset.queries])
    counts = input_terms(model, [document.full for document in encoded.dataset.documents])
    w_auc = area(curve(wackiness(encoded.queries, input_counts, ranking.rows[:, :W_AUC_DEPTH], counts).scores))
    return {} if np.isnan(w_auc) else {W_AUC: w_auc}
