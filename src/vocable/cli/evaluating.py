"""evaluate and compare: quality and cost, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vocable.cli.gridding import print_grid, search_in_many_ways
from vocable.cli.options import Json, Measures, Precision
from vocable.cli.output import print_json, print_table
from vocable.errors import ArgumentError, DataError
from vocable.progress import progress

if TYPE_CHECKING:
    from vocable.encoder.encode import DType
    from vocable.evaluation import Comparison, Dataset, Evaluation
    from vocable.search.ranking import Ranking

DEPTH = 1000  # results of a query

Markdown = Annotated[bool, typer.Option("--markdown", help="Print a markdown table.")]


def evaluate(
    systems: Annotated[list[str], typer.Argument(metavar="MODEL_OR_RUN...", help="Models, or TREC run files.")],
    dataset: Annotated[str, typer.Option(metavar="PLACE", help="beir:DIR, ir_datasets:NAME or pydocs:#test.")],
    measures: Measures = None,
    bm25: Annotated[bool, typer.Option("--bm25", help="Also evaluate BM25.")] = False,
    rm3: Annotated[bool, typer.Option("--rm3", help="Also evaluate BM25 with RM3, feedback from its results.")] = False,
    hybrid: Annotated[bool, typer.Option("--hybrid", help="Also evaluate each system fused with BM25.")] = False,
    dtype: Precision = "auto",
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="SETTINGS", help='Ways to search, as "query_top_k=5,10 rescore=100"; may be repeated.'),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="With --grid: quality against FLOPS, .png or .svg.")] = None,
    per_query: Annotated[Path | None, typer.Option(help="Write every query's values to this TSV file.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSON file for vocable compare.")] = None,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """Measure the quality and cost of models and runs.

    With several, each is tested against the first (paired t-test). With --grid
    a model encodes once and is searched in many ways (see docs/pruning.md).

    Example: vocable evaluate vocable-mini --dataset beir:scifact --bm25
    """
    if grid is None and figure is not None:
        raise ArgumentError("--figure goes with --grid")
    if grid is not None:
        if hybrid or rm3 or per_query is not None or any(Path(system).is_file() for system in systems):
            raise ArgumentError("--grid goes with models, and without --rm3, --hybrid and --per-query")
        points = search_in_many_ways(systems, dataset, grid, measures, bm25, dtype, figure)
        if output is not None:
            _write(output, json.dumps([point.evaluation.to_json() for point in points], indent=1))
        print_grid(points, markdown, as_json)
        if not (markdown or as_json):
            _print_written(figure, output)
        return
    from vocable.evaluation import compare as set_side_by_side
    from vocable.evaluation import load_dataset, parse_measures
    from vocable.evaluation.quality import DEFAULT_MEASURES

    names = measures or list(DEFAULT_MEASURES)
    parse_measures(names)  # a mistyped one is known before anything slow begins
    searched = bm25 or rm3 or hybrid or not all(Path(system).is_file() for system in systems)
    collection = load_dataset(dataset, documents=searched)
    evaluations = _evaluations(systems, collection, names, bm25, rm3, hybrid, dtype)
    if per_query is not None:
        _write(per_query, "\n".join(_per_query_lines(evaluations)))
    if output is not None:
        _write(output, json.dumps([evaluation.to_json() for evaluation in evaluations], indent=1))
    _print_comparison(set_side_by_side(evaluations), markdown, as_json)
    if not (markdown or as_json):
        _print_written(per_query, output)


def compare(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT.json...", help="What evaluate -o wrote.")],
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """Set stored evaluations side by side.

    Each is tested against the first (paired t-test).

    Example: vocable compare before.json after.json
    """
    from vocable.evaluation import compare as set_side_by_side

    stored = [evaluation for path in results for evaluation in _read_evaluations(path)]
    _print_comparison(set_side_by_side(stored), markdown, as_json)


def _evaluations(
    systems: list[str], dataset: Dataset, measures: list[str], bm25: bool, rm3: bool, hybrid: bool, dtype: DType
) -> list[Evaluation]:
    """The evaluation of every system, each followed by its hybrid, and the lexical ones last."""
    from vocable.evaluation import evaluate_run
    from vocable.evaluation.retrieval import retrieve_lexically
    from vocable.search.fusion import weighted

    lexical = retrieve_lexically(dataset, k=DEPTH) if bm25 or hybrid else None
    ids, found = [query.id for query in dataset.queries], []
    for system in systems:
        evaluation, ranking = _evaluation(system, dataset, measures, dtype)
        found.append(evaluation)
        if hybrid and lexical is not None:
            both = weighted([ranking or _run_ranking(system, dataset), lexical.ranking], [1, 1], depth=DEPTH)
            found.append(evaluate_run(f"{evaluation.name} + BM25", both.to_run(ids), dataset, measures))
    expanded = retrieve_lexically(dataset, k=DEPTH, rm3=True) if rm3 else None
    for name, one in (("BM25", lexical if bm25 else None), ("BM25 + RM3", expanded)):
        if one is not None:
            found.append(evaluate_run(name, one.ranking.to_run(ids), dataset, measures, cost=one.cost))
    return found


def _evaluation(system: str, dataset: Dataset, measures: list[str], dtype: DType) -> tuple[Evaluation, Ranking | None]:
    """A system's evaluation, and its ranking if it is a model."""
    from vocable.encoder.load import load
    from vocable.evaluation import evaluate as evaluate_system
    from vocable.evaluation import evaluate_run, retrieve

    path = Path(system)
    if path.is_file():
        return evaluate_system(path, dataset, measures), None
    model = load(system)
    with progress(path.name, total=len(dataset.documents)) as advance:
        found = retrieve(model, dataset, k=DEPTH, dtype=dtype, advance=advance)
    return evaluate_run(path.name, found.to_run(), dataset, measures, cost=found.cost), found.ranking


def _run_ranking(path: str, dataset: Dataset) -> Ranking:
    from vocable.search.ranking import Ranking, read_trec

    judged = {query.id for query in dataset.queries}
    run = [hit for hit in read_trec(path) if hit.query_id in judged]
    return Ranking.from_run(
        run, [query.id for query in dataset.queries], [document.id for document in dataset.documents]
    )


def _per_query_lines(evaluations: list[Evaluation]) -> Iterator[str]:
    yield "system\tmeasure\tquery\tvalue"
    for evaluation in evaluations:
        for measure, values in evaluation.per_query.items():
            for query, value in values.items():
                yield f"{evaluation.name}\t{measure}\t{query}\t{value:.6g}"


def _print_written(*files: Path | None) -> None:
    if written := [str(file) for file in files if file is not None]:
        print(f"written: {', '.join(written)}")


def _write(path: Path, text: str) -> None:
    from vocable.storage import replacing

    with replacing(path) as file:
        file.write(f"{text}\n".encode())


def _read_evaluations(path: Path) -> list[Evaluation]:
    from vocable.evaluation import Evaluation

    try:
        values = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(f"not JSON: {error}", place=str(path)) from error
    try:
        return [Evaluation.from_json(value) for value in (values if isinstance(values, list) else [values])]
    except DataError as error:
        raise DataError(str(error), place=str(path)) from error


def _print_comparison(comparison: Comparison, markdown: bool, as_json: bool) -> None:
    if as_json:
        print_json(comparison.to_json())
    elif markdown:
        print(comparison.markdown())
    else:
        print_table(comparison.table())
