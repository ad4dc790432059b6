"""evaluate --grid: one encoding, searched in many ways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vocable.cli.output import print_json, print_table
from vocable.progress import progress

if TYPE_CHECKING:
    from vocable.encoder.encode import DType
    from vocable.evaluation.grid import GridPoint

DEPTH = 1000  # results of a query


def search_in_many_ways(
    systems: list[str],
    place: str,
    grid: list[str],
    measures: list[str] | None,
    bm25: bool,
    dtype: DType,
    figure: Path | None,
) -> list[GridPoint]:
    """The points of every model, and of BM25 at the end; draws them if there is a `figure` to write."""
    from vocable.encoder.load import load
    from vocable.evaluation import evaluate_run, load_dataset
    from vocable.evaluation.grid import MEASURES, GridPoint, check_depth, parse_grid, search_grid
    from vocable.evaluation.retrieval import encode_dataset, retrieve_lexically

    settings, names = parse_grid(grid), measures or list(MEASURES)
    check_depth(settings, names, DEPTH)
    if figure is not None:
        from vocable.analysis.figures import check_figure

        check_figure(figure)
    dataset, points = load_dataset(place), []
    for system in systems:
        name, model = Path(system).name, load(system)
        with progress(name, total=len(dataset.documents)) as advance:
            encoded = encode_dataset(model, dataset, dtype=dtype, advance=advance)
        with progress("search", total=len(settings)) as advance:
            points += search_grid(name, encoded, settings, names, k=DEPTH, advance=advance)
    if bm25:
        found = retrieve_lexically(dataset, k=DEPTH)
        run = found.ranking.to_run(found.query_ids)
        points.append(GridPoint("BM25", None, evaluate_run("BM25", run, dataset, names, cost=found.cost)))
    if figure is not None:
        from vocable.analysis.figures import pruning_against_flops, save_figure

        save_figure(pruning_against_flops(points), figure)
    return points


def print_grid(points: list[GridPoint], markdown: bool, as_json: bool) -> None:
    """Print the points as JSON values, markdown or a table."""
    from vocable.evaluation.grid import grid_table

    if as_json:
        print_json([point.to_json() for point in points])
    elif markdown:
        print(grid_table(points).markdown())
    else:
        print_table(grid_table(points))
