"""What is measured of a run. Each measurement gives values by name: numbers, or lists of them for a curve.

One is added as a function here and in `MEASUREMENTS`. It is given the run, the dataset that it is measured on (None
where a column names none), which values are wanted, and the column's options.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from vocable.adapt.inspect import head_of
from vocable.adapt.train_vocabulary import fragmentation as fragmentation_of
from vocable.analysis.logits import logit_statistics
from vocable.analysis.stored_vectors import analyze_postings as postings_of
from vocable.analysis.stored_vectors import analyze_weights as term_weights_of
from vocable.encoder.asymmetric import Role
from vocable.encoder.fuse import parts
from vocable.encoder.load import load
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.expanders import lexical_search
from vocable.evaluation.grid import Setting, search_grid
from vocable.evaluation.quality import evaluate_run
from vocable.evaluation.retrieval import Encoded, retrieve_lexically
from vocable.training.pretraining.pretrain import KEPT_LOG
from vocable.training.recipe import Recipe
from vocable.training.train import LOG
from vocable.wackiness.ablate import THRESHOLDS
from vocable.wackiness.ablate import ablate as removal_of
from vocable.wackiness.ablation import Control
from vocable.wackiness.report import measure_wackiness as wackiness_of

Values: TypeAlias = dict[str, "float | list[float]"]
PROBE = 10_000  # documents whose words and tokens are counted
DEPTH = 1000
BM25_RM3 = "bm25+rm3"


class OnDataset(Protocol):
    """A dataset as a run sees it."""

    source: str
    folder: Path  # for reports

    @property
    def dataset(self) -> Dataset:
        """Documents, judged queries and judgments."""

    @property
    def encoded(self) -> Encoded:
        """The same as vectors of the trained model."""

    @property
    def vectors(self) -> tuple[list[str], list[str]]:
        """The folders of the queries' vectors and of the documents'."""


class Measured(Protocol):
    """A run."""

    name: str
    recipe: Recipe | None

    @property
    def adapted(self) -> str:
        """The model before calibration and training."""

    @property
    def model(self) -> str:
        """The trained model."""


Function: TypeAlias = Callable[..., Values]


class Measurement(NamedTuple):
    """A function, and which of a run's models it needs to be there."""

    function: Function
    needs: str  # "recipe", "adapted" or "model"


def recipe_key(run: Measured, on: None, values: Sequence[str], *, otherwise: float) -> Values:
    """The numbers that stand in the recipe under dotted keys."""
    assert run.recipe is not None
    found: Values = {}
    for key in values:
        part: Any = run.recipe.model_dump()
        for name in key.split("."):
            part = None if part is None else part[name]
        found[key] = otherwise if part is None else part
    return found


def head(run: Measured, on: None, values: Sequence[str]) -> Values:
    """Row norms and anisotropy of the output matrix with which training begins."""
    found = vars(head_of(parts(load(run.adapted)).mlm))
    return {name: float(found[name]) for name in values}


def logits(run: Measured, on: OnDataset, values: Sequence[str], *, top_k: int | None = None) -> Values:
    """Statistics of the pre-trained model's logits on the documents (Kim et al. 2026, tables 6 and 7)."""
    mlm, tokenizer, *_ = parts(load(run.adapted))
    texts = [document.full for document in on.dataset.documents[:8000]]
    terms = mlm.get_output_embeddings().weight.shape[0]
    found = vars(logit_statistics(mlm, tokenizer, texts, top_k=[] if top_k is None else [min(top_k, terms)]))
    of = {name: value for name, value in found.items() if not isinstance(value, dict)}
    of |= {name: next(iter(value.values())) for name, value in found.items() if isinstance(value, dict)}
    return {name: float(of[name]) for name in values}


def fragmentation(run: Measured, on: OnDataset, values: Sequence[str]) -> Values:
    """Tokens per word of the documents."""
    texts = [document.full for document in on.dataset.documents[:PROBE]]
    return {"tokens_per_word": fragmentation_of(parts(load(run.adapted)).tokenizer, texts).tokens_per_word}


def quality(
    run: Measured, on: OnDataset, values: Sequence[str], *, query_max_terms: int = 0, document_max_terms: int = 0
) -> Values:
    """Measures of ir_measures, mean numbers of terms (L0_q, L0_d) and FLOPS, of pruned vectors where asked."""
    costs = ("L0_q", "L0_d", "FLOPS")
    measures = [name for name in values if name not in costs] or ["nDCG@10"]
    if run.model == BM25_RM3:
        retrieval = retrieve_lexically(on.dataset, k=DEPTH, make=lexical_search(run.model))
        evaluation = evaluate_run(run.name, retrieval, on.dataset, measures)
    else:
        setting = Setting(query_max_terms=query_max_terms, document_max_terms=document_max_terms)
        evaluation = search_grid(run.name, on.encoded, [setting], measures, k=DEPTH)[0].evaluation
    cost = evaluation.cost
    assert cost is not None
    found = {**evaluation.values, "L0_q": cost.query_terms, "L0_d": cost.document_terms, "FLOPS": cost.flops}
    return {name: value for name, value in found.items() if name in values and value is not None}


def analyze_postings(run: Measured, on: OnDataset, values: Sequence[str], *, max_terms: int | None = None) -> Values:
    """The lengths of the postings lists over all terms: mean, std, ... (Kim et al. 2026, tables 3 and 9)."""
    [found] = postings_of(on.encoded.documents, max_terms=[max_terms], longest=0)
    return {name: float(getattr(found.all_terms, name)) for name in values}


def analyze_weights(
    run: Measured, on: OnDataset, values: Sequence[str], *, max_terms: int | None = None, min_count: int = 1
) -> Values:
    """How much a term's weights differ between documents (Kim et al. 2026, table 8)."""
    [found] = term_weights_of(on.encoded.documents, max_terms=[max_terms], min_count=[min_count])
    return {name: float("nan") if (value := getattr(found, name)) is None else float(value) for name in values}


def measure_wackiness(
    run: Measured, on: OnDataset, values: Sequence[str], *, role: Role = "query", limit: int
) -> Values:
    """W-AUC, its standard deviation and the curve over `places` from 0 to 1 (Polyakov et al. 2026, table 2)."""
    stored = None if run.model == BM25_RM3 else on.vectors[1]
    report = wackiness_of(
        run.model,
        on.source,
        on.folder / f"wackiness-{role}",
        queries=None if role == "document" else on.source,
        role=role,
        limit=limit,
        vectors=stored,
    )
    found = report.models[0]
    curve = found["curve"]
    places = [place / max(1, len(curve) - 1) for place in range(len(curve))]
    return {name: {**found, "places": places}[name] for name in values}


def ablate(
    run: Measured,
    on: OnDataset,
    values: Sequence[str],
    *,
    measure: str,
    thresholds: Sequence[int] = THRESHOLDS,
    control: Control = "number",
) -> Values:
    """A measure without the wackiest terms, and without random ones, by the number of terms that is removed."""
    queries, documents = on.vectors
    report = removal_of(
        run.model,
        on.source,
        on.folder / f"removal-{measure}",
        thresholds=thresholds,
        measures=[measure],
        control=control,
        vectors=documents,
        query_vectors=queries,
    )
    points = [(point.threshold, point.measures[measure]) for point in report.datasets[0].points]
    found: Values = {
        "terms": [float(threshold) for threshold, _ in points],
        "wacky": [one.wacky for _, one in points],
        "random": [one.random["mean"] for _, one in points],
    }
    return {name: found[name] for name in values}


def training_log(run: Measured, on: None, values: Sequence[str], *, of: str) -> Values:
    """What the retrieval training logged at the steps at which it logged `of`."""
    return _logged(Path(run.model) / LOG, values, of)


def pretraining_log(run: Measured, on: None, values: Sequence[str], *, of: str) -> Values:
    """The same of the pre-training."""
    return _logged(Path(run.adapted) / KEPT_LOG, values, of)


def _logged(path: Path, values: Sequence[str], of: str) -> Values:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {name: [line[name] for line in lines if of in line] for name in values}


MEASUREMENTS = {
    "recipe": Measurement(recipe_key, "recipe"),
    "head": Measurement(head, "adapted"),
    "logits": Measurement(logits, "adapted"),
    "fragmentation": Measurement(fragmentation, "adapted"),
    "pretraining-log": Measurement(pretraining_log, "adapted"),
    "training-log": Measurement(training_log, "model"),
    "quality": Measurement(quality, "model"),
    "postings": Measurement(analyze_postings, "model"),
    "term-weights": Measurement(analyze_weights, "model"),
    "wackiness": Measurement(measure_wackiness, "model"),
    "removal": Measurement(ablate, "model"),
}
