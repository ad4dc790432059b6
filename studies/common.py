"""Reproduce the tables and figures of a paper: plan the runs, carry out each once, print ours beside the published.

A study is a script that describes its datasets, columns and exhibits as a `Study`, and calls `main`. The rows of a
table are variants of recipes, which carry the published figures, or finished models.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import chain, product
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from datasets import disable_progress_bars
from transformers.utils import logging as hf_logging

from studies.cost import TFLOPS, VECTOR, Cost
from studies.measurements import BM25_RM3, Column, Values
from studies.runs import BEFORE_TRAINING, Place, Request, Run
from studies.toys import Toys
from vocable.cli import silence
from vocable.data import tolerating
from vocable.data.sources import parse_source
from vocable.errors import ArgumentError, DataError, VocableError, require_extra
from vocable.figures import ACROSS, MARKERS, add_legend, empty_panels
from vocable.html import Drawing, Section, drawing, write_page
from vocable.progress import progress
from vocable.storage import write_record
from vocable.tables import NONE, Table, Tabled, counted
from vocable.training import distributed
from vocable.training.variants import plan_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESULTS = "results.json"
MARKED = 20  # points of a curve that have a marker each


class Model(NamedTuple):
    """A model to measure as it is: a name for `vocable.load`, or an expander of `vocable measure-wackiness`."""

    model: str
    published: Mapping[str, float]
    source: str


@dataclass(frozen=True)
class Figure:
    """Lines or points: the columns of x and of y, pair by pair; a value may be a list, too."""

    x: Sequence[str]
    y: Sequence[str]
    dashed: Sequence[str] = ()  # columns drawn as dashed lines in the colors of y
    apart: bool = False  # each pair has a panel of its own
    log_x: bool = False
    curves: str | None = None  # regular expression: rows whose group 1 is the same are one curve


@dataclass(frozen=True)
class Exhibit:
    """A table or a figure: its rows by recipe, then those of `models`."""

    about: str
    rows: Mapping[str, str] = field(default_factory=dict)  # recipe -> variants, with spaces between, or "all"
    models: Sequence[str] = ()
    columns: Sequence[str] = ()
    sweep: str | None = None  # as of `vocable train`: each row is trained with each value
    seeds: Sequence[int] | None = None  # each row is trained with each seed; None for that of the recipe
    figure: Figure | None = None

    @property
    def shown(self) -> list[str]:
        """All columns to measure, those of the figure included."""
        drawn = [] if self.figure is None else [*self.figure.x, *self.figure.y, *self.figure.dashed]
        return list(dict.fromkeys([*self.columns, *drawn]))


@dataclass(frozen=True)
class Study:
    """The experiments of a paper.

    A dataset has one or several sources, with spaces between: the first that exists locally is read, else the last one
    is fetched.
    """

    folder: Path  # of its recipes
    about: str
    datasets: Mapping[str, str]
    columns: Mapping[str, Column]
    exhibits: Mapping[str, Exhibit]
    corpora: Mapping[str, str] = field(default_factory=dict)  # dataset -> the one that has nearly all its documents
    groups: Mapping[str, str] = field(default_factory=dict)  # name -> datasets, with spaces between
    sizes: Mapping[str, int] = field(default_factory=dict)  # documents of a dataset, for the plan
    fetch: Mapping[str, str] = field(default_factory=dict)  # pattern of sources -> instructions to get them
    models: Mapping[str, Model] = field(default_factory=dict)
    not_here: Mapping[str, str] = field(default_factory=dict)  # exhibits that are not reproduced, and why

    def datasets_of(self, column: Column) -> list[str | None]:
        """Return the datasets whose mean is a column's value; [None] for a column without a dataset."""
        return [None] if column.on is None else [*self.groups.get(column.on, column.on).split()]

    def selected(self, only: Sequence[str] | None) -> dict[str, Exhibit]:
        """Return the exhibits of these names, or all; raises `ArgumentError` for an unknown one."""
        for name in only or []:
            if name in self.not_here:
                raise ArgumentError(f"only: {name} is not reproduced: {self.not_here[name]}")
            if name not in self.exhibits:
                raise ArgumentError(f"only: no {name!r} here: choose from {', '.join(self.exhibits)}")
        return {name: one for name, one in self.exhibits.items() if not only or name in only}

    def on_toys(self) -> Study:
        """Return the study with up to three collections of each group, and two seeds."""
        groups = {}
        for name, some in ((name, names.split()) for name, names in self.groups.items()):
            groups[name] = " ".join([*some[:2], *[one for one in some[2:] if one in self.corpora][:1]])
        exhibits = {
            name: one if one.seeds is None else replace(one, seeds=one.seeds[:2]) for name, one in self.exhibits.items()
        }
        return replace(self, groups=groups, exhibits=exhibits)


class Row(NamedTuple):
    """A row of an exhibit: its runs, one per seed, and its published figures."""

    label: str
    runs: list[Run]
    published: Mapping[str, float]


@dataclass
class Plan(Tabled):
    """The rows of each exhibit, and all runs by name."""

    study: Study
    exhibits: dict[str, Exhibit]
    rows: dict[str, list[Row]]
    runs: dict[str, Run]
    places: dict[str, Place]
    missing: dict[str, str]  # missing sources, and instructions to get them
    tflops: float = TFLOPS

    def costs(self) -> dict[str, Cost]:
        """Return the cost of each run; shared pre-training is counted at the first of its runs."""
        found, adapted = {}, set[str]()
        for name, run in self.runs.items():
            corpora = {self.places[request.on].corpus for request in run.wanted if request.on and run.needs == "model"}
            texts = sum(self.study.sizes.get(corpus, 0) for corpus in corpora)
            model = run.model if run.recipe is None else run.recipe.model
            adapts = run.needs != "recipe" and run.shares_with not in adapted
            found[name] = Cost.of(model, run.recipe, texts, adapts=adapts, trains=run.needs == "model")
            adapted |= {run.shares_with} if adapts else set()
        return found

    def table(self) -> list[Table | str]:
        """Return the exhibits, the runs with their costs, and what is missing."""
        shown = [
            [f"{name}: {one.about}", str(len(self.rows[name])), str(len(runs_of(self.rows[name])))]
            for name, one in self.exhibits.items()
        ]
        costs = self.costs()
        rows = [[name, *cost.cells(self.tflops)] for name, cost in costs.items()]
        rows.append([f"{counted(len(costs), 'run')} together", *Cost.together(costs.values()).cells(self.tflops)])
        header = ["run", "steps", "texts to encode", "10^15 operations", "hours"]
        read = {self.places[request.on].corpus for run in self.runs.values() for request in run.wanted if request.on}
        largest = max((self.study.sizes.get(corpus, 0) for corpus in read), default=0)
        note = (
            f"hours: of one GPU that sustains {self.tflops:g} x 10^12 operations per second, an assumption (--tflops). "
            f"Vectors of the largest collection: {largest * VECTOR / 1e9:,.0f} GB on disk, twice that in memory."
        )
        found: list[Table | str] = [Table(self.study.about, ["exhibit", "rows", "runs"], shown)]
        found += [Table("", header, rows), note]
        found += [f"{name} is not reproduced: {why}" for name, why in self.study.not_here.items()]
        found += [f"needed: {one}" for one in dict.fromkeys(chain(*(run.needed for run in self.runs.values())))]
        places: dict[str, list[str]] = defaultdict(list)
        for place, instructions in self.missing.items():
            places[instructions].append(place)
        return found + [f"missing: {', '.join(some)}: {instructions}" for instructions, some in places.items()]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        exhibits = {name: [row.label for row in rows] for name, rows in self.rows.items()}
        runs = {name: cost._asdict() for name, cost in self.costs().items()}
        return {"exhibits": exhibits, "runs": runs, "missing": self.missing, "tflops": self.tflops}


def make_plan(
    study: Study,
    root: Path,
    only: Sequence[str] | None = None,
    overrides: Sequence[str] = (),
    toys: Toys | None = None,
    tflops: float = TFLOPS,
) -> Plan:
    """Plan the exhibits of these names, or all. The whole study is planned, so that a run has one name whatever `only`.

    Raises:
        ArgumentError: an unknown exhibit.
        RecipeError: an override that is not valid.
    """
    selected = study.selected(only)  # a mistyped name is known before anything is made
    if toys is not None:
        study = study.on_toys()
        selected = study.selected(only)
    known = dict[str, Run]()  # by their settings
    rows = {name: list(_rows(study, exhibit, root, overrides, toys, known)) for name, exhibit in study.exhibits.items()}
    first: dict[str, str] = {}
    for run in known.values():  # of runs that adapt alike, the first gives the adapted model its name
        run.shares_with = first.setdefault(run.settings(BEFORE_TRAINING), run.name)
    for name, exhibit in selected.items():
        for column in (study.columns[shown] for shown in exhibit.shown):
            for run, dataset in product(runs_of(rows[name]), study.datasets_of(column)):
                values = run.wanted.setdefault(Request.of(column, dataset), [])
                values += [column.value] * (column.value not in values)
    runs = {run.name: run for run in known.values() if run.wanted}
    folder = next((text.partition("=")[2] for text in overrides if text.startswith("data_folder=")), "")
    places = {name: _place(study, name, folder, toys) for name in study.datasets}
    missing = {} if toys is not None else _missing(study, runs.values(), places)
    return Plan(study, selected, {name: rows[name] for name in selected}, runs, places, missing, tflops)


def runs_of(rows: Iterable[Row]) -> list[Run]:
    """Return the runs of rows, each once."""
    return list({run.name: run for row in rows for run in row.runs}.values())


def _rows(
    study: Study, exhibit: Exhibit, root: Path, overrides: Sequence[str], toys: Toys | None, known: dict[str, Run]
) -> Iterator[Row]:
    """The rows of an exhibit; a run with the settings of a known one is that run."""
    for recipe, text in exhibit.rows.items():
        names = None if text == "all" else text.split()
        planned = plan_runs(study.folder / f"{recipe}.yaml", names, overrides, exhibit.sweep)
        for label, (wanted, result) in planned.items():
            runs = []
            for seed in exhibit.seeds or [wanted.seed]:
                name = label + (f"-seed-{seed}" if seed != wanted.seed else "")
                if any(run.name == name for run in known.values()):  # a variant of another recipe, or this very run
                    name = f"{recipe}-{name}"
                seeded = wanted.model_copy(update={"seed": seed, "evaluation": None, "needs": []})
                run = Run(name, root, recipe=seeded if toys is None else toys.recipe(seeded))
                run.needed = wanted.needs
                runs.append(known.setdefault(run.settings(), run))
            yield Row(label, runs, result.published)
    for label in exhibit.models:
        one = study.models[label]
        name = one.model if toys is None or one.model == BM25_RM3 else toys.model(one.model)
        run = Run(label, root, model=name)
        yield Row(label, [known.setdefault(run.settings(), run)], one.published)


def _place(study: Study, name: str, folder: str, toys: Toys | None) -> Place:
    """The first source of a dataset that exists, or the last one; on toys, a collection of its own."""
    corpus = study.corpora.get(name, name)
    if toys is not None:
        return Place(toys.collection(name), corpus)
    places = [_in_folder(place, folder) for place in study.datasets[name].split()]
    return Place(next((place for place in places if _exists(place)), places[-1]), corpus)


def _in_folder(place: str, folder: str) -> str:
    """A source within the data folder, as of a recipe (`Recipe.place`)."""
    scheme, name, split = parse_source(place)
    if scheme not in (None, "beir"):
        return place
    inside = str(Path(folder) / name)
    return inside if scheme is None else f"beir:{inside}" + (f"#{split}" if split else "")


def _exists(place: str) -> bool:
    scheme, name, _ = parse_source(place)
    return scheme in (None, "beir") and Path(name).exists()


def _missing(study: Study, runs: Iterable[Run], places: Mapping[str, Place]) -> dict[str, str]:
    """The missing files and folders of datasets and recipes, with instructions to get them."""
    names: dict[str, str] = {}  # source -> its name in the study or recipe
    for run in runs:
        names |= {places[one.on].source: study.datasets[one.on].split()[0] for one in run.wanted if one.on}
        if run.recipe is not None and run.needs != "recipe":
            names |= {run.recipe.place(place): place for place in _sources(run)}
    return {
        where: next((how for pattern, how in study.fetch.items() if fnmatch(name, pattern)), "put it there")
        for where, name in names.items()
        if parse_source(where)[0] in (None, "beir") and not _exists(where)
    }


def _sources(run: Run) -> Iterator[str]:
    """The sources that a recipe reads before its evaluation; those of the training only where it is trained."""
    recipe = run.recipe
    assert recipe is not None
    for one, settings in recipe.planned():
        if run.needs == "model" or one.name not in ("calibrate", "queries"):
            yield from one.texts(settings)
    if recipe.expand is not None and recipe.expand.words is not None:
        yield recipe.expand.words
    for source in recipe.data.examples if run.needs == "model" else ():
        if isinstance(source, str):
            yield source
        else:
            yield from filter(None, [source.file, source.corpus, source.queries, source.scores])


@dataclass(frozen=True)
class Cell:
    """Our values, one per seed, and the published one."""

    ours: list[float | list[float]]
    published: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the cell as JSON values; null for NaN and infinities."""
        ours = [[_finite(one) for one in value] if isinstance(value, list) else _finite(value) for value in self.ours]
        return {"ours": ours, "published": self.published}

    def text(self, decimals: int) -> str:
        """Return our mean ± the standard deviation over seeds, and the published value in brackets."""
        numbers = [value for value in self.ours if isinstance(value, float | int)]
        shown = f"{fmean(numbers):.{decimals}f}" if numbers else NONE
        if len(numbers) > 1:
            shown += f" ± {stdev(numbers):.{decimals}f}"
        return shown if self.published is None else f"{shown} ({self.published:.{decimals}f})"


@dataclass(frozen=True)
class Reproduction(Tabled):
    """The cells {exhibit: {row: {column: cell}}} of a study, in the paper's units."""

    study: Study
    cells: dict[str, dict[str, dict[str, Cell]]]
    output: Path
    toy: bool = False

    def table(self) -> list[Table | str]:
        """Return a table for each exhibit that has columns, and the path of the page."""
        return [*chain.from_iterable(map(self._parts, self.cells)), f"{self.output / 'index.html'}: with the figures"]

    def _parts(self, name: str) -> list[Table | str]:
        exhibit = self.study.exhibits[name]
        if not exhibit.columns:
            return [f"{name}: a figure, on the page"]
        decimals = {column: _decimals(self.cells[name].values(), column) for column in exhibit.columns}
        rows = [
            [label, *(cells[column].text(decimals[column]) for column in exhibit.columns)]
            for label, cells in self.cells[name].items()
        ]
        return [Table(f"{name}: {exhibit.about}", ["", *exhibit.columns], rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the cells as JSON values."""
        cells = {
            name: {row: {column: cell.to_json() for column, cell in cells.items()} for row, cells in rows.items()}
            for name, rows in self.cells.items()
        }
        return {"study": self.study.about, "toy": self.toy, "cells": cells}

    def write(self) -> None:
        """Write the results and the page with its figures into the output folder."""
        self.output.mkdir(parents=True, exist_ok=True)
        write_record(self.output / RESULTS, self.to_json())
        note = "Ours, ± the standard deviation over seeds, and in brackets the published."
        sections = [Section("How to read it", [note])]
        for name in self.cells:
            figure = self.study.exhibits[name].figure
            drawn = [] if figure is None else [self._figure(name, figure)]
            sections.append(Section(f"{name}: {self.study.exhibits[name].about}", [*self._parts(name), *drawn]))
        title = f"{self.study.about}{', on toys: the numbers mean nothing' if self.toy else ''}"
        write_page(self.output, title, sections)

    def _figure(self, name: str, figure: Figure) -> Drawing:
        dashed: Sequence[str | None] = figure.dashed or [None] * len(figure.y)
        pairs = list(zip(figure.x, figure.y, dashed, strict=True))
        panels = [[pair] for pair in pairs] if figure.apart else [pairs]
        drawn = empty_panels(len(panels), ACROSS)
        for axes, panel in zip(drawn.axes, panels, strict=True):
            self._draw(axes, name, figure.curves, panel)
            if figure.log_x:
                axes.set_xscale("log")
        add_legend(drawn, *drawn.axes[0].get_legend_handles_labels(), fontsize="x-small")
        return drawing(drawn, self.output, name, self.study.exhibits[name].about)

    def _draw(self, axes: Axes, name: str, curves: str | None, pairs: Sequence[tuple[str, str, str | None]]) -> None:
        """Draw the y of each pair as a line, with markers where there are few points."""
        solid = _curves(self.cells[name], curves, [(x, y) for x, y, _ in pairs])
        dashed = _curves(self.cells[name], curves, [(x, other) for x, _, other in pairs if other is not None])
        for number, (curve, points) in enumerate(solid.items()):
            marker, color = MARKERS[number % len(MARKERS)] if len(points) < MARKED else "", f"C{number}"
            axes.plot([x for x, _ in points], [y for _, y in points], marker=marker, color=color, label=curve)
            others = dashed.get(curve, [])
            axes.plot([x for x, _ in others], [y for _, y in others], color=color, linestyle="--")
        axes.set_xlabel(pairs[0][0])
        axes.set_ylabel(pairs[0][1])
        axes.grid(alpha=0.3)


def reproduce(
    study: Study,
    output: Path,
    *,
    only: Sequence[str] | None = None,
    toy: bool = False,
    overrides: Sequence[str] = (),
) -> Reproduction:
    """Carry out the runs of the exhibits `only`, or all; an interrupted call resumes when repeated.

    Args:
        study: the paper's experiments.
        output: folder of models, measurements and the page index.html.
        only: names of exhibits, as "table-2".
        toy: use small random models and few texts, to show that every stage of every row can be carried out.
        overrides: `KEY=VALUE` texts that change keys of all recipes, as "data_folder=DATA".

    Raises:
        ArgumentError: an unknown exhibit.
        DataError: a missing source, with instructions to get it.
        RecipeError: an override that is not valid, or an output of other recipes.
        CollapseError, ModelError: as in `vocable.train`.
    """
    require_extra("matplotlib", "figures")
    study.selected(only)
    distributed.join()
    with distributed.first_alone():  # the others find the toys
        plan = make_plan(study, output, only, overrides, Toys(output / "toys") if toy else None)
    if plan.missing:
        place, instructions = next(iter(plan.missing.items()))
        others = f", nor are {more} others (--dry-run lists them)" if (more := len(plan.missing) - 1) else ""
        raise DataError(f"not there{others}: {instructions}", source=place)
    values: dict[str, dict[str, Values]] = {}
    with _small() if toy else nullcontext(), progress("runs", total=len(plan.runs)) as advance:
        for name, run in plan.runs.items():
            values[name] = run.carry_out(plan.places)
            advance(1)
    cells = {name: {row.label: _cells(row, plan, name, values) for row in rows} for name, rows in plan.rows.items()}
    found = Reproduction(plan.study, cells, output, toy)
    if distributed.is_first():
        found.write()
    distributed.wait()
    return found


@contextmanager
def _small() -> Iterator[None]:
    """Settings for toys: one thread, no warnings of models that have learned nothing, little garbage collection."""
    threads = torch.get_num_threads()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        torch.set_num_threads(threads)
        logging.disable(logging.NOTSET)


def _cells(row: Row, plan: Plan, exhibit: str, values: Mapping[str, Mapping[str, Values]]) -> dict[str, Cell]:
    return {
        name: Cell(
            [_value(plan.study.columns[name], plan.study, values[run.name]) for run in row.runs],
            row.published.get(name),
        )
        for name in plan.exhibits[exhibit].shown
    }


def _value(column: Column, study: Study, values: Mapping[str, Values]) -> float | list[float]:
    """A column's value of a run: the mean over its datasets, of lists place by place, in the paper's unit."""
    found = [values[Request.of(column, dataset).key][column.value] for dataset in study.datasets_of(column)]
    mean = [column.times * one for one in _mean(found)]
    return mean if isinstance(found[0], list) else mean[0]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _decimals(rows: Iterable[Mapping[str, Cell]], column: str) -> int:
    """The decimals of the published figures of a column, 4 where none is published."""
    published = [value for cells in rows if (value := cells[column].published) is not None]
    return max((len(f"{value:.10g}".partition(".")[2]) for value in published), default=4)


def _curves(
    rows: Mapping[str, Mapping[str, Cell]], named: str | None, pairs: Sequence[tuple[str, str]]
) -> dict[str, list[tuple[float, float]]]:
    """The points of each curve, means over seeds: one curve per row, or per group 1 of `named`."""
    curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for label, cells in rows.items():
        match = re.fullmatch(named, label) if named is not None else None
        for x, y in pairs:
            points = zip(_mean(cells[x].ours), _mean(cells[y].ours), strict=True)
            curves[match[1] if match else label] += [point for point in points if all(map(math.isfinite, point))]
    return dict(curves)


def _mean(values: Sequence[float | list[float]]) -> list[float]:
    """The mean of numbers, [one], or of lists place by place."""
    lists = [value if isinstance(value, list) else [value] for value in values]
    return [fmean(several) for several in zip(*lists, strict=True)]


def main(study: Study, arguments: Sequence[str] | None = None) -> int:
    """Run the command line of a study, and return its exit status: 2 for a user error, which is printed as one line."""
    name = study.folder.name
    parser = argparse.ArgumentParser(prog=f"python -m studies.{name}", description=study.about)
    parser.add_argument("-o", "--output", type=Path, help="folder of models, measurements and the page")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="a table or figure, as table-2; may be repeated"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan: the runs, their cost, missing data")
    parser.add_argument("--toy", action="store_true", help="run on small random models and few texts")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="change a key of all recipes"
    )
    parser.add_argument(
        "--tflops", type=float, default=TFLOPS, help="10^12 operations per second of a GPU, of the plan"
    )
    parser.add_argument("--skip-bad", type=int, default=0, metavar="N", help="bad lines in the data to leave out")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    silence()
    hf_logging.disable_progress_bar()  # these libraries are imported before `silence` sets their environment
    disable_progress_bars()
    hf_logging.set_verbosity_error()
    try:
        if not options.tflops > 0:
            raise ArgumentError(f"--tflops must be above 0, not {options.tflops:g}")
        if options.dry_run and options.toy:
            raise ArgumentError("--toy needs no plan: leave out --dry-run")
        if options.output is None and not options.dry_run:
            raise ArgumentError("--output: name a folder, or only plan with --dry-run")
        found: Plan | Reproduction
        if options.dry_run:
            found = make_plan(
                study, options.output or Path(name), options.only, options.override, tflops=options.tflops
            )
        else:
            with tolerating(options.skip_bad):
                found = reproduce(study, options.output, only=options.only, toy=options.toy, overrides=options.override)
    except VocableError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    if distributed.is_first():
        print(json.dumps(found.to_json(), indent=2) if options.json else found)
    return 0
