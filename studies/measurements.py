"""Measurements of a run. Each is a function that makes a column: `quality("nDCG@10", "BEIR", times=100)`.

A measurement returns the values with these names: numbers, or lists of numbers for a curve.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from studies.cost import Resources, check_room, free_memory
from studies.dense import kind_of
from vocable.adapt.inspect import head_of
from vocable.adapt.train_vocabulary import fragmentation as fragmentation_of
from vocable.adapt.transfer import neighbours
from vocable.analysis.logits import logit_statistics
from vocable.analysis.stored_vectors import analyze_postings, analyze_weights
from vocable.core.storage import read_record, write_record
from vocable.encoding.load import load
from vocable.encoding.protocol import Role
from vocable.encoding.pruning import prune
from vocable.encoding.terms import expansion_entries, input_terms, terms
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import DataError
from vocable.evaluation.cost import Cost, activation_rates, active_terms, flops_of_rates
from vocable.evaluation.expanders import lexical_search
from vocable.evaluation.plans import evaluate_words
from vocable.evaluation.quality import Evaluation, evaluate_run
from vocable.evaluation.retrievers import lexical_index
from vocable.indexes.exact_shards import Exact
from vocable.torch_models.fuse import parts
from vocable.torch_models.opening import load_target
from vocable.training.log import LOG
from vocable.training.pretraining.pretrain import KEPT_LOG
from vocable.wackiness.ablate import THRESHOLDS, Control, ablate
from vocable.wackiness.study import measure_wackiness

if TYPE_CHECKING:
    from studies.restriction import Restriction
    from studies.runs import Run
    from studies.vectors import OnDataset

Value: TypeAlias = "float | list[float] | list[str]"  # a number, a curve, or words
Values: TypeAlias = dict[str, Value]
PerQuery: TypeAlias = dict[str, dict[str, dict[str, float]]]
Function: TypeAlias = Callable[..., Values]
PROBE = 10_000  # documents whose words and tokens are counted
LOGITS = 8000  # documents whose logits are measured
DEPTH = 1000
LEXICAL = ("bm25", "bm25+rm3")  # rows that no model makes
PER_QUERY = "per-query.json"  # of a dataset's reports: the values of each query by pruning and measure
RANDOM = {"random": "mean", "low": "low", "high": "high"}  # of the draws of random terms
WACKINESS = "wackiness-{role}"  # the report of `measure_wackiness`


class Column(NamedTuple):
    """A value of a measurement, on a dataset or as the mean over a group of datasets."""

    measure: Function
    needs: str  # the part of a run to carry out first: "recipe", "adapted" or "model"
    value: str
    on: str | None  # a dataset or a group
    times: float  # factor from the measurement's unit to the paper's
    options: dict[str, Any]


def measurement(needs: str) -> Callable[[Function], Callable[..., Column]]:
    """Decorate a function of a run, a dataset, names of values and options to make columns of it."""

    def decorate(function: Function) -> Callable[..., Column]:
        @wraps(function)
        def column(value: str, on: str | None = None, *, times: float = 1, **options: Any) -> Column:
            return Column(function, needs, value, on, times, options)

        return column

    return decorate


@measurement("recipe")
def recipe_key(run: Run, on: None, values: Sequence[str], *, otherwise: float) -> Values:
    """Return numbers of the recipe, by dotted keys."""
    assert run.recipe is not None
    numbers: Values = {}
    for key in values:
        part: Any = run.recipe.model_dump()
        for name in key.split("."):
            part = None if part is None else part[name]
        numbers[key] = otherwise if part is None else part
    return numbers


@measurement("recipe")
def new_tokens(run: Run, on: None, values: Sequence[str], *, words: Sequence[str]) -> Values:
    """Return the `neighbours`, with their weights, that make new tokens of a transfer (Geng and Yang 2026, table 4).

    A word that is no token of the target's vocabulary is left out.
    """
    assert run.recipe is not None
    assert run.recipe.transfer is not None
    target = run.recipe.transfer.target
    known = load_target(target).tokenizer.get_vocab()
    rows = neighbours(load(run.recipe.model), target, [word for word in words if word in known])
    listed = list[str]()
    for row in rows:
        made_of = ", ".join(f"{token} {weight:.3f}" for token, weight in row.made_of)
        listed.append(f"{row.token} (cut into {' '.join(row.subtokens)}): {made_of}")
    return {"neighbours": listed}


@measurement("adapted")
def head(run: Run, on: None, values: Sequence[str]) -> Values:
    """Return row norms and anisotropy of the initial output matrix, and the number of all parameters of the model."""
    mlm = parts(load(run.adapted)).mlm
    figures = vars(head_of(mlm)) | {"parameters": mlm.num_parameters()}
    return {name: float(figures[name]) for name in values}


@measurement("adapted")
def shared_terms(run: Run, on: None, values: Sequence[str], *, of: str) -> Values:
    """Return the `share` of the output terms that another run also has (Kim et al. 2026, section 3.1)."""
    other = run.root / "adapted" / of
    if not other.exists():
        raise DataError(f"no adapted model: carry out the row {of} first", source=str(other))
    names, others = (set(terms(load(place))) for place in (run.adapted, other))
    return {"share": len(names & others) / len(names)}


@measurement("adapted")
def logits(run: Run, on: OnDataset, values: Sequence[str], *, top_k: int | None = None) -> Values:
    """Statistics of the pre-trained model's logits on the documents (Kim et al. 2026, tables 6 and 7)."""
    mlm, tokenizer, *_ = parts(load(run.adapted))
    texts = [document.full for document in on.dataset.documents[:LOGITS]]
    terms = mlm.get_output_embeddings().weight.shape[0]
    statistics = vars(logit_statistics(mlm, tokenizer, texts, top_k=[] if top_k is None else [min(top_k, terms)]))
    of = {name: value for name, value in statistics.items() if not isinstance(value, dict)}
    of |= {name: next(iter(value.values())) for name, value in statistics.items() if isinstance(value, dict)}
    return {name: float(of[name]) for name in values}


@measurement("adapted")
def fragmentation(run: Run, on: OnDataset, values: Sequence[str]) -> Values:
    """Tokens per word of the documents."""
    texts = [document.full for document in on.dataset.documents[:PROBE]]
    return {"tokens_per_word": fragmentation_of(parts(load(run.adapted)).tokenizer, texts).tokens_per_word}


@measurement("model")
def quality(
    run: Run,
    on: OnDataset,
    values: Sequence[str],
    *,
    query_max_terms: int = 0,
    document_max_terms: int = 0,
    only: Restriction | None = None,
) -> Values:
    """Measures of ir_measures, the mean numbers of terms (L0_q, L0_d) and FLOPS; 0 keeps all terms, `only` some.

    The values of each query are kept, too. BM25 and dense vectors are not pruned, and dense vectors have no terms: NaN.
    """
    measures = [name for name in values if name not in ("L0_q", "L0_d", "FLOPS")] or ["nDCG@10"]
    dense = bool(kind_of(run.model))
    if (dense or run.model in LEXICAL) and (query_max_terms or document_max_terms or only):
        return dict.fromkeys(values, math.nan)
    if run.model in LEXICAL:
        check_room(on.name, Resources.lexical(len(on.dataset.documents)), math.inf, free_memory())
        words = lexical_index(on.dataset, make=lexical_search(run.model))
        evaluation = evaluate_words(words, on.dataset, measures, run.name)
    elif dense:
        ranking = on.rank_densely(on.dataset.search_depth(DEPTH))
        none = Cost(query_terms=math.nan, document_terms=math.nan, flops=math.nan)
        evaluation = evaluate_run(run.name, ranking, on.dataset, measures, cost=none)
    else:
        queries = prune(on.queries, query_max_terms or None) if only is None else on.restricted_queries(only)
        evaluation = _searched(run, on, measures, queries, on.index(document_max_terms, only))
    cost = evaluation.cost
    assert cost is not None
    path, pruned = on.folder / PER_QUERY, only or f"{query_max_terms} {document_max_terms}"
    known = read_record(path, PerQuery) if path.exists() else {}
    write_record(path, {**known, pruned: {**known.get(pruned, {}), **evaluation.per_query}})
    figures = {**evaluation.values, "L0_q": cost.query_terms, "L0_d": cost.document_terms, "FLOPS": cost.flops}
    return {name: value for name, value in figures.items() if name in values and value is not None}


def _searched(run: Run, on: OnDataset, measures: Sequence[str], queries: csr_array, index: Exact) -> Evaluation:
    """Search an index of documents with the queries' vectors."""
    rates = index.document_frequency / max(1, len(index))
    cost = Cost(
        query_terms=active_terms(queries),
        document_terms=float(index.document_frequency.sum()) / max(1, len(index)),
        flops=flops_of_rates(activation_rates(queries), rates),
    )
    ranking = index.search(queries, on.dataset.search_depth(DEPTH))
    return evaluate_run(run.name, ranking, on.dataset, measures, cost=cost)


def per_query(run: Run, dataset: str, measure: str, options: Mapping[str, Any]) -> Mapping[str, float] | None:
    """Return a measure of each query, as `quality` with these options has kept it; None if it has not."""
    path = run.reports(dataset) / PER_QUERY
    pruned = options.get("only") or f"{options.get('query_max_terms', 0)} {options.get('document_max_terms', 0)}"
    return read_record(path, PerQuery).get(pruned, {}).get(measure) if path.exists() else None


@measurement("model")
def example(run: Run, on: None, values: Sequence[str], *, text: str) -> Values:
    """The `terms` of a query with their weights, heaviest first; + marks an expansion."""
    model = load(run.model)
    vector = TextEncoder(model, "query", dtype=run.dtype).encode([text])
    added, names = expansion_entries(vector, input_terms(model, [text])), terms(model)
    order = np.argsort(-vector.data, kind="stable")
    return {"terms": [f"{'+' * int(added[i])}{names[vector.indices[i]]} {vector.data[i]:.2f}" for i in order.tolist()]}


@measurement("model")
def terms_of_a_text(
    run: Run, on: OnDataset, values: Sequence[str], *, role: Role, max_terms: int | None = None
) -> Values:
    """The number of terms of a query or a document: mean, std, ... (Kim et al. 2026, table 9)."""
    vectors = on.query_vectors if role == "query" else on.document_vectors
    [statistics] = analyze_postings(vectors, max_terms=[max_terms], longest=0)
    return {name: statistics.l0[name] for name in values}


@measurement("model")
def postings(run: Run, on: OnDataset, values: Sequence[str], *, max_terms: int | None = None) -> Values:
    """The lengths of the postings lists over all terms: mean, variance, std (Kim et al. 2026, tables 3 and 9)."""
    [statistics] = analyze_postings(on.document_vectors, max_terms=[max_terms], longest=0)
    return {name: float(getattr(statistics.all_terms, name)) for name in values}


@measurement("model")
def term_weights(
    run: Run, on: OnDataset, values: Sequence[str], *, max_terms: int | None = None, min_count: int = 1
) -> Values:
    """The spread of a term's weights over documents (Kim et al. 2026, table 8)."""
    [record] = analyze_weights(on.document_vectors, max_terms=[max_terms], min_count=[min_count])
    return {name: float("nan") if (value := getattr(record, name)) is None else float(value) for name in values}


@measurement("model")
def wackiness(run: Run, on: OnDataset, values: Sequence[str], *, role: Role = "query", limit: int) -> Values:
    """W-AUC, its standard deviation, the curve over `places` from 0 to 1, and the `wackiest` terms.

    As of Polyakov et al. 2026, tables 2 and 3 and figure 4.
    """
    vectors = None if run.model in LEXICAL else on.document_vectors
    on.let_go()
    report = measure_wackiness(
        run.model,
        on.source,
        on.folder / WACKINESS.format(role=role),
        queries=None if role == "document" else on.source,
        role=role,
        limit=limit,
        vectors=vectors,
        dtype=run.dtype,
    )
    figures: dict[str, Any] = {**report.models[0]}
    figures["wackiest"] = [term["term"] for term in figures["wackiest"]]
    curve = figures["curve"]
    places = [place / max(1, len(curve) - 1) for place in range(len(curve))]
    return {name: {**figures, "places": places}[name] for name in values}


@measurement("model")
def removal(
    run: Run,
    on: OnDataset,
    values: Sequence[str],
    *,
    measures: Sequence[str],
    scored: str,
    thresholds: Sequence[int] = THRESHOLDS,
    control: Control = "number",
) -> Values:
    """Return measures by the number of removed `terms`: the wackiest terms ("nDCG@10 wacky"), or random terms.

    The random removals have the mean over draws ("nDCG@10 random") and its interval ("nDCG@10 low" and "nDCG@10 high",
    mean ± 2 std). `wackiness` on the dataset `scored`, measured earlier, gives the wackiness of the terms.
    """
    scores = run.reports(scored) / WACKINESS.format(role="query") / "scores.parquet"
    if not scores.exists():
        raise DataError(f"no wackiness of {run.name} on {scored}: measure W-AUC first", source=str(scores))
    queries, documents = on.query_vectors, on.document_vectors
    on.let_go()
    report = ablate(
        run.model,
        on.source,
        on.folder / "removal",
        scores=scores,
        thresholds=thresholds,
        measures=measures,
        control=control,
        vectors=documents,
        query_vectors=queries,
    )
    points = report.datasets[0].points
    results: Values = {"terms": [float(point.threshold) for point in points]}
    for name in measures:
        each = [point.measures[name] for point in points]
        results[f"{name} wacky"] = [point.wacky for point in each]
        results |= {f"{name} {ours}": [point.random[key] for point in each] for ours, key in RANDOM.items()}
    return {name: results[name] for name in values}


@measurement("model")
def training_log(run: Run, on: None, values: Sequence[str], *, of: str) -> Values:
    """Return values that the retrieval training logged in the steps that logged `of`."""
    return _logged(Path(run.model) / LOG, values, of)


@measurement("adapted")
def pretraining_log(run: Run, on: None, values: Sequence[str], *, of: str) -> Values:
    """Return values that the pre-training logged in the steps that logged `of`."""
    return _logged(Path(run.adapted) / KEPT_LOG, values, of)


def _logged(path: Path, values: Sequence[str], of: str) -> Values:
    if not path.exists():  # a model that was trained elsewhere
        return {name: [] for name in values}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {name: [line.get(name, math.nan) for line in lines if of in line] for name in values}
