"""Models measured alike on one dataset, for a choice: what `compare` does with a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.analysis.report import frontier_figure
from vocable.encoder.asymmetric import Role, static_embedding
from vocable.encoder.graph import exported
from vocable.encoder.hub import check_length, licence
from vocable.encoder.provenance import checksum, model_name
from vocable.encoder.terms import terms
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ArgumentError, require_extra
from vocable.evaluation.choice import Choice, Deployment, parse_budget
from vocable.evaluation.cost import Cost, TimedSystem, answer_costs, answer_times, encoding_rates
from vocable.evaluation.dataset import Convention, Dataset, load_dataset
from vocable.evaluation.evaluate import System, named_systems
from vocable.evaluation.expanders import is_lexical
from vocable.evaluation.expansion_data import load_model
from vocable.evaluation.grid import GridPoint, Setting, check_depth, parse_grid, search_grid, single_searches
from vocable.evaluation.quality import DEPTH
from vocable.evaluation.retrieval import encode_dataset
from vocable.fingerprint import fingerprint
from vocable.html import RESULTS, drawing
from vocable.options import DType
from vocable.storage import finish, finished, read_record, resumable, write_record

MEASURES = ("nDCG@10", "R@100")
GRID = ("document_max_terms=0,128,64,32,16 document_min_weight=0,0.5,1 query_max_terms=0,20",)
FIGURE = "frontier"


def choose(
    systems: System | Sequence[System] | Mapping[str, System],
    dataset: str | os.PathLike[str] | Dataset,
    measures: Sequence[str] | None,
    *,
    grid: Sequence[str] | None,
    max_p95: str | float | None,
    max_bytes_per_document: str | float | None,
    output: str | os.PathLike[str] | None,
    dtype: DType,
    max_length: int | None,
    convention: Convention | None,
    device: str | None,
) -> Choice:
    """Measure models, whole and pruned, on a dataset; arguments and errors are those of `compare`."""
    budget = parse_budget(max_p95, max_bytes_per_document)
    named, measures = named_systems(systems), list(measures or MEASURES)
    settings = list(dict.fromkeys([Setting(), *parse_grid(grid or GRID)]))
    if any(setting.rescore for setting in settings):
        raise ArgumentError("grid: no index searches in two steps by itself: leave rescore out")
    check_depth(settings, measures, DEPTH)
    if output is not None:
        require_extra("matplotlib", "figures")
    for system in named.values():
        if not isinstance(system, SparseEncoder) and Path(system).is_file():
            raise ArgumentError(f"{system}: with `dataset`, models are compared; a file of evaluations goes without it")
        if isinstance(system, str) and is_lexical(system):
            raise ArgumentError(f"{system} is no model, whose vectors can be pruned: measure it with evaluate")
        check_length(system, max_length)
    judged = dataset.judged() if isinstance(dataset, Dataset) else load_dataset(dataset)
    judged = replace(judged, convention=convention or judged.convention)
    places = {name: model_name(system) for name, system in named.items()}
    models = {name: load_model(one, device) for name, one in named.items()}
    options: dict[str, Any] = {"dtype": dtype, "max_length": max_length}
    measure = partial(_measure, models, places, judged, settings, measures, options)
    if output is None:
        return replace(measure(), budget=budget)
    made_from: dict[str, Any] = {"models": places, "weights": [checksum(model) for model in models.values()]}
    made_from |= {"dataset": judged.name, "inputs": fingerprint(judged.name), "measures": measures, **options}
    made_from |= {"grid": list(map(str, settings)), "device": device, "convention": judged.convention}
    if not finished(output, made_from):
        with resumable(output, made_from) as work:
            _write(replace(measure(keep=work / "vectors"), budget=budget), work)
            finish(work, output, work)
    choice = read_record(Path(output) / RESULTS, Choice)
    if choice.budget != budget:
        choice = replace(choice, budget=budget)
        _write(choice, Path(output))
    return choice


def _write(choice: Choice, folder: Path) -> None:
    write_record(folder / RESULTS, choice)
    drawing(frontier_figure(choice), folder, FIGURE, "quality against cost")


def _measure(
    models: Mapping[str, SparseEncoder],
    places: Mapping[str, str],
    dataset: Dataset,
    settings: Sequence[Setting],
    measures: Sequence[str],
    options: dict[str, Any],
    *,
    keep: Path | None = None,
) -> Choice:
    """Encode a dataset with each model, search it in all ways, and time these; the vectors are kept in a folder."""
    points: list[GridPoint] = []
    systems, encoders, notes = list[TimedSystem](), list[Callable[[list[str]], object]](), dict[str, Deployment]()
    for name, model in models.items():
        kept: dict[str, Any] = {} if keep is None else {"keep": keep / name, "name": places[name]}
        encoded = encode_dataset(model, dataset, title=name, **kept, **options)
        points += search_grid(name, encoded, settings, measures, k=DEPTH)
        queries, documents = (TextEncoder(model, role, **options) for role in get_args(Role))
        systems.append(TimedSystem(partial(_encode_one, queries), single_searches(encoded, settings)))
        encoders.append(documents.encode)
        parameters = None if exported(model) else sum(weights.numel() for weights in model.parameters())
        looked_up = static_embedding(model, "query") is not None
        sizes = len(terms(model)), parameters, queries.max_length, documents.max_length
        notes[name] = Deployment(places[name], looked_up, licence(places[name]), *sizes)
    rates = encoding_rates(encoders, [document.full for document in dataset.documents])
    times = answer_times(systems, [query.text for query in dataset.queries])
    each = (
        (rate, encoding, one) for rate, (encoding, searching) in zip(rates, times, strict=True) for one in searching
    )
    timed = [_timed(point, *those) for point, those in zip(points, each, strict=True)]
    other = {name: value for name, value in options.items() if value not in (None, "auto")}
    return Choice(dataset.name, notes, timed, len(times[0][0]), other)


def _encode_one(encoder: TextEncoder, text: str) -> csr_array:
    return encoder.encode([text])


def _timed(point: GridPoint, rate: float, encoding: np.ndarray, searching: np.ndarray) -> GridPoint:
    """The setting with its times added to its cost: texts a second, and of each query the milliseconds of its parts."""
    times = answer_costs(encoding, searching)
    cost = replace(point.evaluation.cost or Cost(), documents_per_second=rate, **times)
    return point._replace(evaluation=replace(point.evaluation, cost=cost))
