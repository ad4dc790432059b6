"""Results of a study: our cells next to the published figures, as tables, a page with figures, and JSON."""

from __future__ import annotations

import math
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, TypeAlias

from studies.kept import distinct
from studies.measurements import Column, Value, Values, per_query
from studies.plan import Figure, Plan, Row, Study
from studies.runs import Request
from vocable.core.figures import ACROSS, MARKERS, add_legend, empty_panels
from vocable.core.html import Drawing, Section, drawing, write_page
from vocable.core.storage import write_record
from vocable.core.tables import NONE, Table, Tabled
from vocable.evaluation.significance import paired_t_test

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Drawn: TypeAlias = tuple[str, str, str | None, tuple[str, str] | None]  # x, y, dashed y, edges of its band

RESULTS = "results.json"
WIDTH = 100  # characters of a line of words
MARKED = 20  # points of a curve that have a marker each; of more points, every tenth part has one
ON_TOYS = " [on toys: the numbers mean nothing]"


@dataclass(frozen=True)
class Cell:
    """Our values, one per seed, the published one, and p of the test against the baseline's row."""

    ours: list[Value]
    published: float | None
    p: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the cell as JSON values; null for NaN and infinities."""
        ours = [[_finite(one) for one in value] if isinstance(value, list) else _finite(value) for value in self.ours]
        return {"ours": ours, "published": self.published} | ({} if self.p is None else {"p": self.p})

    @property
    def of_words(self) -> bool:
        """True if the values are lists of words."""
        return any(isinstance(value, list) for value in self.ours)

    def text(self, decimals: int) -> str:
        """Return our mean ± the standard deviation over seeds, and the published value in brackets; or words.

        * marks p < 0.05, ** p < 0.01.
        """
        words = [", ".join(map(str, value)) for value in self.ours if isinstance(value, list)]
        if words:
            return "; ".join(words)
        numbers = [value for value in self.ours if isinstance(value, float | int) and math.isfinite(value)]
        shown = f"{fmean(numbers):.{decimals}f}" if numbers else NONE
        if len(numbers) > 1:
            shown += f" ± {stdev(numbers):.{decimals}f}"
        if self.p is not None:
            shown += "**" if self.p < 0.01 else "*" if self.p < 0.05 else ""
        return shown if self.published is None else f"{shown} ({self.published:.{decimals}f})"


@dataclass(frozen=True)
class Reproduction(Tabled):
    """The cells {exhibit: {row: {column: cell}}} of a study, in the paper's units."""

    study: Study
    cells: dict[str, dict[str, dict[str, Cell]]]
    output: Path
    toy: bool = False
    failed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # {exhibit: {row: why it is not complete}}
    measured_in: Sequence[str] = ()  # number types and processors, as "float32 on NVIDIA H200"

    def table(self) -> list[Table | str]:
        """Return a table for each exhibit that has columns, and the path of the page."""
        return [*chain.from_iterable(map(self._parts, self.cells)), f"{self.output / 'index.html'}: with the figures"]

    def _parts(self, name: str) -> list[Table | str]:
        exhibit = self.study.exhibits[name]
        notes = [f"{row} is not complete: {why}" for row, why in self.failed.get(name, {}).items()]
        notes += [exhibit.note] if exhibit.note else []
        if not exhibit.columns:
            return [f"{name}: a figure, on the page{ON_TOYS if self.toy else ''}", *notes]
        decimals = {column: _decimals(self.cells[name].values(), column) for column in exhibit.columns}
        rows = {
            label: [cells[column].text(decimals[column]) for column in exhibit.columns]
            for label, cells in self.cells[name].items()
        }
        title = self._title(name)
        if any(cells[column].of_words for cells in self.cells[name].values() for column in exhibit.columns):
            lines = [f"{label}: {' '.join(texts)}" for label, texts in rows.items()]
            return [title, *(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines), *notes]
        header, shown = [*exhibit.words, *exhibit.columns], rows
        for label, texts in rows.items():
            shown[label] = [*(words.get(label, NONE) for words in exhibit.words.values()), *texts]
        if exhibit.beside:
            header, shown = side_by_side(header, rows, exhibit.beside)
        return [Table(title, ["", *header], [[label, *texts] for label, texts in shown.items()], notes=notes)]

    def _title(self, name: str) -> str:
        return f"{name}: {self.study.exhibits[name].about}{ON_TOYS if self.toy else ''}"

    def to_json(self) -> dict[str, Any]:
        """Return the cells, and why rows are not complete, as JSON values."""
        cells = {
            name: {row: {column: cell.to_json() for column, cell in cells.items()} for row, cells in rows.items()}
            for name, rows in self.cells.items()
        }
        return {
            "study": self.study.about,
            "toy": self.toy,
            "measured in": list(self.measured_in),
            "cells": cells,
            "failed": self.failed,
        }

    def write(self) -> None:
        """Write the results into the output folder."""
        self.output.mkdir(parents=True, exist_ok=True)
        write_record(self.output / RESULTS, self.to_json())

    def write_page(self) -> None:
        """Write the page with the tables and figures."""
        note = (
            "Ours, ± the standard deviation over seeds, and in brackets the published. * and ** mark p < 0.05 and "
            "p < 0.01 of a paired two-sided t-test over queries, where a table has a baseline."
        )
        sections = [Section("How to read it", [note, f"Measured in {'; '.join(self.measured_in)}."])]
        for name in self.cells:
            figure = self.study.exhibits[name].figure
            drawn = [] if figure is None else [self._figure(name, figure)]
            sections.append(Section(self._title(name), [*self._parts(name), *drawn]))
        title = f"{self.study.about}{ON_TOYS if self.toy else ''}"
        write_page(self.output, title, sections)

    def _figure(self, name: str, figure: Figure) -> Drawing:
        if not figure.x:
            return self._bars(name, figure.y)
        none: list[None] = [None] * len(figure.y)
        pairs = [*zip(figure.x, figure.y, figure.dashed or none, figure.bands or none, strict=True)]
        panels = [[pair] for pair in pairs] if figure.apart else [pairs]
        drawn = empty_panels(len(panels), ACROSS)
        for axes, panel in zip(drawn.axes, panels, strict=True):
            self._draw(axes, name, figure.curves, panel)
            if figure.log_x:
                axes.set_xscale("log")
        add_legend(drawn, *drawn.axes[0].get_legend_handles_labels(), fontsize="x-small")
        return drawing(drawn, self.output, name, self.study.exhibits[name].about)

    def _bars(self, name: str, columns: Sequence[str]) -> Drawing:
        """Draw a group of bars for each column, with a bar for each row, and the published value as a line on it."""
        drawn = empty_panels(1, 1)
        [axes] = drawn.axes
        rows = self.cells[name]
        width = 0.8 / max(1, len(rows))
        for number, (label, cells) in enumerate(rows.items()):
            at = [place + width * (number + 0.5) - 0.4 for place in range(len(columns))]
            ours = [_mean(cells[column].ours)[0] if cells[column].ours else math.nan for column in columns]
            axes.bar(at, ours, width, label=label, color=f"C{number}")
            published = [math.nan if (value := cells[column].published) is None else value for column in columns]
            axes.hlines(published, [x - width / 2 for x in at], [x + width / 2 for x in at], color="black", linewidth=1)
        axes.set_xticks(range(len(columns)), columns, fontsize="small")
        axes.grid(alpha=0.3, axis="y")
        add_legend(drawn, *axes.get_legend_handles_labels(), fontsize="x-small")
        return drawing(drawn, self.output, name, f"{self.study.exhibits[name].about}; black lines: published")

    def _draw(self, axes: Axes, name: str, curves: str | None, pairs: Sequence[Drawn]) -> None:
        """Draw the y of each pair as a line, with markers where there are few points, and the band of the dashed."""

        def lines(ys: Iterable[tuple[str, str | None]]) -> dict[str, list[tuple[float, float]]]:
            return _curves(self.cells[name], curves, [(x, y) for x, y in ys if y is not None])

        solid, dashed = lines((x, y) for x, y, _, _ in pairs), lines((x, other) for x, _, other, _ in pairs)
        low, high = (lines((x, band and band[side]) for x, _, _, band in pairs) for side in (0, 1))
        for number, (curve, points) in enumerate(solid.items()):
            style, color = _style(number, len(solid), len(points)), f"C{number}"
            axes.plot([x for x, _ in points], [y for _, y in points], color=color, label=curve, **style)
            others = dashed.get(curve, [])
            axes.plot([x for x, _ in others], [y for _, y in others], color=color, linestyle="--")
            edges = [[y for _, y in side.get(curve, [])] for side in (low, high)]
            at = [x for x, _ in low.get(curve, [])]
            axes.fill_between(at, edges[0], edges[1], color=color, alpha=0.15, linewidth=0)
        axes.set_xlabel(pairs[0][0])
        axes.set_ylabel(pairs[0][1])
        axes.grid(alpha=0.3)


def _style(number: int, curves: int, points: int) -> dict[str, Any]:
    """Return the style of a curve among others, which shows it above and below curves that are equal to it.

    An earlier curve is wider, and its hollow markers are larger. The markers of long curves are at places of their own.
    """
    left = (curves - 1 - number) / max(1, curves - 1)
    step = max(1, points // 10) if points >= MARKED else 1
    return {
        "linewidth": 1.2 + 3 * left,
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 5 + 4 * left,
        "markerfacecolor": "none",
        "markevery": (number * step // max(1, curves), step),
    }


def side_by_side(
    header: Sequence[str], rows: Mapping[str, Sequence[str]], beside: Mapping[str, tuple[str, str]]
) -> tuple[list[str], dict[str, list[str]]]:
    """Return a header and lines that put rows side by side, with the headings of the last argument.

    >>> rows = {"mean-direct": ["49.7"], "mean-adapted": ["51.8"]}
    >>> side_by_side(["BEIR"], rows, {"mean-direct": ("mean", "Direct"), "mean-adapted": ("mean", "Adapted")})
    (['Direct BEIR', 'Adapted BEIR'], {'mean': ['49.7', '51.8']})
    """
    headings = list(dict.fromkeys(heading for _, heading in beside.values()))
    lines: dict[str, list[str]] = {}
    for label, texts in rows.items():
        line, heading = beside.get(label, (label, headings[0]))  # an added row stands below the first heading
        start = headings.index(heading) * len(header)
        lines.setdefault(line, [NONE] * (len(headings) * len(header)))[start : start + len(header)] = texts
    return [f"{heading} {column}" for heading in headings for column in header], lines


def reproduction(
    plan: Plan,
    values: Mapping[str, Mapping[str, Values]],
    failed: Mapping[str, str],
    output: Path,
    *,
    toy: bool,
) -> Reproduction:
    """Return the cells of a plan by the values and the errors of its runs."""
    cells = {name: {row.label: cells_of(row, plan, name, values) for row in rows} for name, rows in plan.rows.items()}
    reasons: dict[str, dict[str, str]] = {}
    for name, rows in plan.rows.items():
        for row in rows:
            why = [failed[run.name] for run in row.runs if run.name in failed]
            if why and any(len(cell.ours) < len(row.runs) for cell in cells[name][row.label].values()):
                reasons.setdefault(name, {})[row.label] = "; ".join(dict.fromkeys(why))
    kept = (run.kept_values(plan.places) for run in plan.runs.values())
    return Reproduction(plan.study, cells, output, toy, reasons, distinct(kept))


def cells_of(row: Row, plan: Plan, exhibit: str, values: Mapping[str, Mapping[str, Values]]) -> dict[str, Cell]:
    """Return the cells of a row, each with the values of the runs that have them."""
    cells = {}
    for name in plan.exhibits[exhibit].shown:
        each = [_value(plan.study.columns[name], plan.study, values.get(run.name, {})) for run in row.runs]
        p = _p(row, plan, exhibit, plan.study.columns[name])
        cells[name] = Cell([value for value in each if value is not None], row.published.get(name), p)
    return cells


def _p(row: Row, plan: Plan, exhibit: str, column: Column) -> float | None:
    """The p of a paired two-sided t-test against the baseline's row, where both have one run and one dataset."""
    baseline = next((one for one in plan.rows[exhibit] if one.label == plan.exhibits[exhibit].baseline), None)
    datasets = plan.study.datasets_of(column)
    if baseline is None or baseline is row or column.on is None or column.measure.__name__ != "quality":
        return None
    if len(datasets) > 1 or len(baseline.runs) > 1 or len(row.runs) > 1:
        return None
    [first, second] = (per_query(one.runs[0], column.on, column.value, column.options) for one in (baseline, row))
    return None if first is None or second is None else paired_t_test(first, second)


def _value(column: Column, study: Study, values: Mapping[str, Values]) -> Value | None:
    """Return a run's value of a column: the mean over its datasets, in the paper's unit; lists by position.

    None if a dataset has not been measured.
    """
    keys = [Request.of(column, dataset).key for dataset in study.datasets_of(column)]
    if not all(column.value in values.get(key, {}) for key in keys):
        return None
    measured = [values[key][column.value] for key in keys]
    if isinstance(measured[0], list) and measured[0] and isinstance(measured[0][0], str):
        return measured[0]
    mean = [column.times * value for value in _mean(measured)]
    return mean if isinstance(measured[0], list) else mean[0]


def _finite(value: float | str) -> float | str | None:
    return value if isinstance(value, str) or math.isfinite(value) else None


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
            if not (cells[x].ours and cells[y].ours):
                continue
            points = zip(_mean(cells[x].ours), _mean(cells[y].ours), strict=True)
            curves[match[1] if match else label] += [point for point in points if all(map(math.isfinite, point))]
    return dict(curves)


def _mean(values: Sequence[Value]) -> list[float]:
    """The mean of numbers, [one], or of lists place by place."""
    lists: list[Any] = [value if isinstance(value, list) else [value] for value in values]
    return [fmean(several) for several in zip(*lists, strict=True)]
