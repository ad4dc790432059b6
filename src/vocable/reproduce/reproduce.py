"""The verb `reproduce`: the tables and figures of a published study, from data to cells beside the published ones."""

from __future__ import annotations

import gc
import logging
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import torch

from vocable.data.bad_lines import tolerant
from vocable.errors import ArgumentError, DataError, require_extra
from vocable.figures import ACROSS, MARKERS, add_legend, empty_panels
from vocable.html import Drawing, Section, drawing, write_page
from vocable.options import CountOrZero, checked
from vocable.progress import progress
from vocable.reproduce.cost import TFLOPS
from vocable.reproduce.measurements import Values
from vocable.reproduce.plan import Plan, Row, make_plan
from vocable.reproduce.runs import Request
from vocable.reproduce.study import Column, Figure, Study, read_study
from vocable.reproduce.toys import Toys
from vocable.storage import write_record
from vocable.tables import NONE, Table, Tabled
from vocable.training import distributed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESULTS = "results.json"
MARKED = 20  # points of a curve that have a marker each


@dataclass(frozen=True)
class Cell:
    """A cell: our values, one per seed, and the published one."""

    ours: list[float | list[float]]
    published: float | None

    def to_json(self) -> dict[str, Any]:
        """The cell as JSON values; null for what is not a number."""
        ours = [[_known(one) for one in value] if isinstance(value, list) else _known(value) for value in self.ours]
        return {"ours": ours, "published": self.published}

    def text(self, decimals: int) -> str:
        """Our mean, ± the standard deviation over seeds, and in brackets what is published."""
        numbers = [value for value in self.ours if isinstance(value, float | int)]
        shown = f"{fmean(numbers):.{decimals}f}" if numbers else NONE
        if len(numbers) > 1:
            shown += f" ± {stdev(numbers):.{decimals}f}"
        return shown if self.published is None else f"{shown} ({self.published:.{decimals}f})"


@dataclass(frozen=True)
class Reproduction(Tabled):
    """The cells {exhibit: {row: {column: cell}}} of a study, in the study's units."""

    study: Study
    cells: dict[str, dict[str, dict[str, Cell]]]
    output: Path = field(default=Path())
    toy: bool = False

    def table(self) -> list[Table | str]:
        """A table for each exhibit that has columns, and where the page is."""
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
        """The cells as JSON values."""
        cells = {
            name: {row: {column: cell.to_json() for column, cell in cells.items()} for row, cells in rows.items()}
            for name, rows in self.cells.items()
        }
        return {"study": self.study.about, "toy": self.toy, "cells": cells}

    def write(self) -> None:
        """Write the results and the page with its figures below `output`."""
        write_record(self.output / RESULTS, self.to_json())
        sections = []
        for name in self.cells:
            drawn = self.study.exhibits[name].figure
            figure = [] if drawn is None else self._figure(name, drawn)
            sections.append(Section(f"{name}: {self.study.exhibits[name].about}", [*self._parts(name), *figure]))
        title = f"{self.study.about}{', on toys: the numbers mean nothing' if self.toy else ''}"
        explained = Section(
            "How to read it", ["Ours, ± the standard deviation over seeds, and in brackets the published."]
        )
        write_page(self.output, title, [explained, *sections])

    def _figure(self, name: str, figure: Figure) -> list[Drawing]:
        beside: list[str | None] = [*figure.beside] or [None] * len(figure.y)
        pairs = list(zip(figure.x, figure.y, beside, strict=True))
        panels = [[pair] for pair in pairs] if figure.apart else [pairs]
        drawn = empty_panels(len(panels), ACROSS)
        for axes, panel in zip(drawn.axes, panels, strict=True):
            self._draw(axes, name, figure.curves, panel)
            if figure.log_x:
                axes.set_xscale("log")
        add_legend(drawn, *drawn.axes[0].get_legend_handles_labels(), fontsize="x-small")
        return [drawing(drawn, self.output, name, self.study.exhibits[name].about)]

    def _draw(self, axes: Axes, name: str, curves: str | None, pairs: Sequence[tuple[str, str, str | None]]) -> None:
        """Draw pairs of columns: y as lines, with markers where they are few points, what is beside it dashed."""
        solid = _curves(self.cells[name], curves, [(x, y) for x, y, _ in pairs])
        dashed = _curves(self.cells[name], curves, [(x, beside) for x, _, beside in pairs if beside is not None])
        for number, (curve, points) in enumerate(solid.items()):
            marker, color = MARKERS[number % len(MARKERS)] if len(points) < MARKED else "", f"C{number}"
            axes.plot([x for x, _ in points], [y for _, y in points], marker=marker, color=color, label=curve)
            others = dashed.get(curve, [])
            axes.plot([x for x, _ in others], [y for _, y in others], color=color, linestyle="--")
        axes.set_xlabel(pairs[0][0])
        axes.set_ylabel(pairs[0][1])
        axes.grid(alpha=0.3)


@checked
@tolerant
def reproduce(
    paper: str,
    output: str | Path | None = None,
    *,
    only: Sequence[str] | None = None,
    dry_run: bool = False,
    toy: bool = False,
    overrides: Sequence[str] = (),
    tflops: float = TFLOPS,
    skip_bad: CountOrZero = 0,
) -> Plan | Reproduction:
    """Reproduce the tables and figures of a published study: train, measure, and put the cells beside the published.

    What is done is kept: the same call goes on after a kill, and a run that several tables show is carried out once.

    Args:
        paper: a study that comes with vocable, or a YAML file of one.
        output: folder of models, measurements and the page index.html.
        only: names of tables and figures, as "table-2"; by default all.
        dry_run: only say what there is to do, what it costs and what is missing.
        toy: with small random models and few texts that are made here: shows that every stage of every row runs.
        overrides: `KEY=VALUE` texts that change keys of all the recipes, as "data_folder=DATA".
        tflops: operations per second of a GPU, in 10^12, for the hours of the plan.
        skip_bad: bad lines in the data that are tolerated, and left out.

    Raises:
        ArgumentError: no such study or table, or no output.
        DataError: data that is not there, with the way to get it.
        RecipeError: an override is not as it should be, or the output was made with others.
        CollapseError, ModelError: as in `vocable.train`.
    """
    study = read_study(paper)
    study.chosen(only)  # a mistyped one is known before anything is made
    if tflops <= 0:
        raise ArgumentError(f"tflops must be above 0, not {tflops:g}")
    if dry_run:
        if toy:
            raise ArgumentError("toy needs no plan: leave out --dry-run")
        return make_plan(study, Path(output or paper), only, overrides, tflops=tflops)
    if output is None:
        raise ArgumentError("output: name a folder, or only plan with --dry-run")
    require_extra("matplotlib", "figures")
    root = Path(output)
    distributed.join()
    with distributed.first_alone():  # the others find the toys
        plan = make_plan(study, root, only, overrides, Toys(root / "toys") if toy else None, tflops)
    if plan.missing:
        place, how = next(iter(plan.missing.items()))
        others = f", as {more} more (--dry-run lists them)" if (more := len(plan.missing) - 1) else ""
        raise DataError(f"not there{others}: {how}", source=place)
    with _small() if toy else nullcontext():
        values = _carry_out(plan)
    cells = {name: {row.label: _cells(row, plan, name, values) for row in rows} for name, rows in plan.rows.items()}
    found = Reproduction(plan.study, cells, root, toy)
    if distributed.is_first():
        root.mkdir(parents=True, exist_ok=True)
        found.write()
    distributed.wait()
    return found


def _carry_out(plan: Plan) -> dict[str, dict[str, Values]]:
    """The values of all runs, by run and request."""
    found: dict[str, dict[str, Values]] = {}
    with progress("runs", total=len(plan.runs)) as advance:
        for name, run in plan.runs.items():
            found[name] = run.carry_out(plan.places)
            advance(1)
    return found


@contextmanager
def _small() -> Iterator[None]:
    """For toys: one thread, no warnings of what they have not learned, and garbage collected of what is new alone."""
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
    shown = plan.exhibits[exhibit].shown
    return {
        name: Cell(
            [_value(plan.study.columns[name], plan.study, values[run.name]) for run in row.runs],
            row.published.get(name),
        )
        for name in shown
    }


def _value(column: Column, study: Study, values: Mapping[str, Values]) -> float | list[float]:
    """A column's value of a run: the mean over its datasets, of lists place by place, in the study's unit."""
    found = [values[Request.by(column, dataset).key][column.value] for dataset in study.datasets_of(column)]
    mean = [column.times * one for one in _mean(found)]
    return mean if isinstance(found[0], list) else mean[0]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _decimals(rows: Any, column: str) -> int:
    """As many decimals as the published figures of a column have, 4 where none is published."""
    published = [cells[column].published for cells in rows if cells[column].published is not None]
    return max((len(f"{value:.10g}".partition(".")[2]) for value in published), default=4)


def _curves(
    rows: Mapping[str, Mapping[str, Cell]], named: str | None, pairs: Sequence[tuple[str, str]]
) -> dict[str, list[tuple[float, float]]]:
    """The points of each curve, means over seeds, one curve a row or those that `named` names alike."""
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
