"""wackiness: how little the expansion terms of models have to do with what they find."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from vocable.cli.options import Json, Output, Precision, model_name
from vocable.cli.output import print_json, print_table
from vocable.errors import ArgumentError
from vocable.progress import progress

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

    from vocable.analysis.expansion_data import Measured
    from vocable.analysis.wackiness import Choices, Finding, Inputs


class System(NamedTuple):
    """A model, or an expander around BM25 (`model` is None); `name` is what it is called, `place` where it is."""

    name: str
    place: str
    model: SparseEncoder | None


class Ways(NamedTuple):
    """What else decides the figures of a report."""

    draws: int
    seed: int
    sensitivity: bool
    words: Literal["any", "words", "whitespace"]
    dtype: Literal["auto", "float32", "bfloat16"]


def wackiness(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Models; bm25+rm3, query2doc:MODEL, doct5query:MODEL.")
    ],
    corpus: Annotated[str, typer.Option(metavar="PLACE", help="The collection: a file, beir:DIR, pydocs: ...")],
    output: Output,
    queries: Annotated[str | None, typer.Option(metavar="PLACE", help="The inputs, unless documents are.")] = None,
    role: Annotated[
        Literal["query", "document"], typer.Option(help="What is expanded: queries, or documents of the collection.")
    ] = "query",
    limit: Annotated[int | None, typer.Option(metavar="N", help="Inputs at most, drawn at random.")] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="Documents that an input retrieves.")] = 100,
    idf: Annotated[Literal["log", "bm25"], typer.Option(help="log: log(n / df). bm25: BM25's, never 0.")] = "log",
    special: Annotated[bool, typer.Option(help="Special tokens such as [CLS] can be expansions.")] = True,
    words: Annotated[
        Literal["any", "words", "whitespace"],
        typer.Option(help="Where terms are words, not tokens: which words of a text are terms."),
    ] = "any",
    bins: Annotated[int, typer.Option(help="Points of the curve.")] = 100,
    vocabulary: Annotated[bool, typer.Option("--vocabulary", help="Bins of the whole vocabulary.")] = False,
    draws: Annotated[int, typer.Option("--bootstrap", metavar="N", help="Draws of the inputs; 0 for none.")] = 100,
    seed: Annotated[int, typer.Option(help="Decides what is drawn.")] = 0,
    names: Annotated[
        str | None, typer.Option(metavar="PLACE", help="More texts whose capitals say which words are names.")
    ] = None,
    sensitivity: Annotated[bool, typer.Option("--sensitivity", help="Also with other choices.")] = False,
    card: Annotated[bool, typer.Option("--card", help="Also into the model's card, README.md in its folder.")] = False,
    dtype: Precision = "auto",
    as_json: Json = False,
) -> None:
    """Measure how wacky the expansions of models are.

    Wacky terms stand neither in an input nor in the documents that it finds.
    The report is index.html in the output folder, beside figures, scores of
    all terms (Parquet) and JSON. Repeated after a kill, it does not encode
    again what was encoded.

    Example: vocable wackiness vocable-mini --queries q.tsv --corpus d.tsv -o w
    """
    from vocable.analysis.figures import check_figure
    from vocable.analysis.wackiness import Choices
    from vocable.storage import finish, finished, resumable

    check_figure(output / "curves.svg")  # what the figure needs is missed before the work, not after it
    choices = Choices(k=k, idf=idf, special=special, bins=bins, vocabulary=vocabulary)
    ways = Ways(draws, seed, sensitivity, words, dtype)
    _check(choices, draws)
    folders = [_model_folder(name) for name in models] if card else []
    systems = _open(models, role)
    places = {"queries": queries, "corpus": corpus, "names": names}
    settings = _settings(systems, choices, ways) | places | {"role": role, "limit": limit}
    if not finished(output, settings):
        from vocable.analysis.wackiness import read_inputs

        inputs = read_inputs(queries, corpus, role, names=names, limit=limit, seed=seed)
        with resumable(output, settings) as work:
            _report(systems, inputs, choices, ways, settings, work)
            finish(work, output, work / "whole")
    _write_cards(folders, output)
    _print(output, as_json)


def _check(choices: Choices, draws: int) -> None:
    """Refuse at once what would be refused after hours of encoding."""
    for name, value, least in (("-k", choices.k, 1), ("--bins", choices.bins, 1), ("--bootstrap", draws, 0)):
        if value < least:
            raise ArgumentError(f"{name} must be at least {least}, not {value}")
    if draws == 1:  # has no standard deviation
        raise ArgumentError("--bootstrap needs 2 draws at least, or 0 for none")


def _open(names: list[str], role: Literal["query", "document"]) -> list[System]:
    """The systems, called by the last part of their names where that tells them apart."""
    from vocable.analysis.expanders import check_expands, is_expander
    from vocable.encoder.load import load

    if len(set(names)) < len(names):
        raise ArgumentError(f"the same model twice: {' '.join(names)}")
    for name in names:
        check_expands(name, role)
    short = [name if is_expander(name) else Path(name).name for name in names]
    called = short if len(set(short)) == len(short) else names
    places = [name if is_expander(name) else model_name(name) for name in names]
    opened = [None if is_expander(name) else load(name) for name in names]
    return [System(*parts) for parts in zip(called, places, opened, strict=True)]


def _settings(systems: list[System], choices: Choices, ways: Ways) -> dict[str, Any]:
    """All but the texts that decides what a report says, as JSON values."""
    from vocable.encoder.stream import checksum

    weights = ["" if system.model is None else checksum(system.model) for system in systems]
    places = [system.place for system in systems]
    return {"models": places, "weights": weights, **vars(choices), **ways._asdict()}


def _report(
    systems: list[System], inputs: Inputs, choices: Choices, ways: Ways, settings: dict[str, Any], work: Path
) -> None:
    """Write the whole report to `work/whole`."""
    from vocable.analysis.wackiness import find
    from vocable.analysis.wackiness_report import scores_meta, write_report

    findings: list[Finding] = []
    for number, system in enumerate(systems):
        measured = _measured(system, inputs, choices, ways, work / f"{number:02d}", str(settings["corpus"]))
        with progress("bootstrap", ways.draws) if ways.draws else nullcontext(lambda done: None) as advance:
            findings.append(
                find(
                    measured,
                    choices,
                    names=inputs.names,
                    draws=ways.draws,
                    seed=ways.seed,
                    sensitivity=ways.sensitivity,
                    advance=advance,
                )
            )
    whole = work / "whole"
    shutil.rmtree(whole, ignore_errors=True)  # of a call that was killed while it wrote
    whole.mkdir()
    places = {"role": settings["role"], "queries": settings["queries"] or "", "corpus": settings["corpus"]}
    metas = [
        scores_meta(finding, choices, model=system.place, **places)
        for finding, system in zip(findings, systems, strict=True)
    ]
    write_report(whole, findings, metas, settings)


def _measured(system: System, inputs: Inputs, choices: Choices, ways: Ways, work: Path, source: str) -> Measured:
    from vocable.analysis.wackiness import deepest, measure_expander, measure_model

    k = deepest(choices) if ways.sensitivity else choices.k
    if system.model is None:
        with progress(system.name) as advance:
            return measure_expander(system.name, inputs, k, advance=advance)
    options: dict[str, Any] = {"source": source, "words": ways.words, "dtype": ways.dtype}
    return measure_model(system.name, system.model, inputs, work, k, place=system.place, **options)


def _model_folder(name: str) -> Path:
    if not Path(name).is_dir():
        raise ArgumentError(f"--card writes into the folder of a model, and {name} is none")
    return Path(name)


def _write_cards(folders: list[Path], output: Path) -> None:
    """Write what the report has found into the cards of its models."""
    from vocable.analysis.wackiness_report import RESULTS, write_wackiness
    from vocable.storage import read_record

    if folders:
        results = read_record(output / RESULTS, dict[str, Any])
        for folder, finding in zip(folders, results["models"], strict=True):
            write_wackiness(folder, finding, results["settings"])


def _print(output: Path, as_json: bool) -> None:
    from vocable.analysis.wackiness_report import PAGE, RESULTS, table
    from vocable.storage import read_record

    results = read_record(output / RESULTS, dict[str, Any])
    if as_json:
        print_json({"output": str(output), **results})
        return
    print_table(table(results["models"]))
    print(f"{output / PAGE}: curves, the wackiest terms, and how they were measured")
