"""removal: what a model's wackiest expansion terms are worth."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vocable.cli.options import Json, Measures, Output, Precision, model_name, parse_numbers
from vocable.cli.output import print_json, print_table
from vocable.errors import require_extra
from vocable.progress import progress

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

    from vocable.analysis.removal import Removal

SCORES = "scores.parquet"
VECTORS, SEARCHES = "vectors", "searches"  # in the folder of the work alone


def removal(
    model: Annotated[str, typer.Argument(help="vocable-mini, a folder, or a Hub id.")],
    datasets: Annotated[
        list[str], typer.Argument(metavar="DATASET...", help="beir:DIR, ir_datasets:NAME, pydocs:#test")
    ],
    output: Output,
    scores: Annotated[
        Path | None, typer.Option(help="What vocable wackiness wrote; by default made on the first dataset.")
    ] = None,
    thresholds: Annotated[str, typer.Option(metavar="N,N...", help="Terms to remove.")] = "10,100,1000,10000",
    measures: Measures = None,
    draws: Annotated[int, typer.Option(help="How often random terms are drawn.")] = 10,
    side: Annotated[Literal["query", "document"], typer.Option(help="Whose expansions are removed.")] = "query",
    seed: Annotated[int, typer.Option(help="Decides what is drawn.")] = 0,
    dtype: Precision = "auto",
    as_json: Json = False,
) -> None:
    """Remove the wackiest expansions, and measure what is lost.

    Beside it, as many random ones are removed, again and again. Writes tables, a
    figure and a page. Repeated after a kill, it goes on where it stopped.

    Example: vocable removal vocable-mini beir:scifact -o removed
    """
    from vocable.analysis.removal import MEASURES, check_plan, read_wackiest
    from vocable.encoder.load import load
    from vocable.encoder.stream import checksum
    from vocable.evaluation import load_dataset, parse_measures
    from vocable.storage import finished

    counts, names = parse_numbers(thresholds, "--thresholds"), measures or list(MEASURES)
    check_plan(counts, draws)
    parse_measures(names)
    require_extra("matplotlib", "figures")
    for place in datasets:
        load_dataset(place, documents=False)  # the last one's mistake is not to be found after hours on the others
    loaded = load(model)
    ranking = None if scores is None else zlib.crc32(read_wackiest(scores, loaded).tobytes())
    settings: dict[str, Any] = {"model": model_name(model), "weights": checksum(loaded), "datasets": datasets}
    settings |= {"scores": scores and str(scores), "ranking": ranking, "side": side, "measures": names, "dtype": dtype}
    settings |= {"thresholds": sorted(set(counts)), "draws": draws, "seed": seed}
    if not finished(output, settings):
        _report(loaded, output, settings)
    _print(output, as_json)


def _report(model: SparseEncoder, output: Path, settings: dict[str, Any]) -> None:
    """Work on the report beside `output`, and put it there when it is whole."""
    from vocable.analysis.removal_report import write_removal_report
    from vocable.storage import finish, resumable

    with resumable(output, settings) as work:
        scores = Path(settings["scores"] or work / SCORES)
        found = [_removal(model, work, number, scores, settings) for number in range(len(settings["datasets"]))]
        write_removal_report(work, found, settings)
        for folder in (VECTORS, SEARCHES):
            shutil.rmtree(work / folder, ignore_errors=True)  # may be half gone, if it was killed here
        finish(work, output, work)


def _removal(model: SparseEncoder, work: Path, number: int, scores: Path, settings: dict[str, Any]) -> Removal:
    """The removals on one of the datasets; the scores are made where they are not there."""
    from vocable.analysis.removal import Ablation, read_wackiest, remembered, score_dataset, texts_of
    from vocable.analysis.removal import removal as remove
    from vocable.encoder.terms import own_terms
    from vocable.evaluation import load_dataset
    from vocable.evaluation.retrieval import encode_dataset

    place, side, name = settings["datasets"][number], settings["side"], settings["model"]
    dataset, folder = load_dataset(place), work / VECTORS / str(number)
    encoded = encode_dataset(model, dataset, keep=folder, name=name, dtype=settings["dtype"])
    if not scores.exists():
        score_dataset(scores, model, name, encoded, side)
    texts, wackiest = texts_of(encoded, side), read_wackiest(scores, model)
    with progress(f"terms of {len(texts):,} texts", len(texts)) as advance:
        own = own_terms(model, texts, advance=advance)
    ablation = Ablation(encoded, own, settings["measures"], side=side)
    plan = {key: settings[key] for key in ("thresholds", "draws", "seed")}
    keep = remembered(work / SEARCHES / str(number))
    with progress("search", len(plan["thresholds"]) * (plan["draws"] + 1)) as advance:
        return remove(ablation, wackiest, **plan, remember=keep, advance=advance)


def _print(output: Path, as_json: bool) -> None:
    from vocable.analysis.removal import Removal
    from vocable.analysis.removal_report import PAGE, RESULTS, removal_tables
    from vocable.storage import read_record

    results = read_record(output / RESULTS, dict[str, Any])
    if as_json:
        print_json(results)
        return
    for values in results["datasets"]:
        for grid in removal_tables(Removal.from_json(values)):
            print_table(grid)
    print(f"{output / PAGE}: all of it on one page")
