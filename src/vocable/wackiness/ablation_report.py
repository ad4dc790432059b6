"""Results of `ablate`: records of searches without terms, and their tables, figure and page.

Figures and tables follow Polyakov et al. 2026, table 3, figures 2 and 3. Letters: d draws, q queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vocable.core.figures import ACROSS, add_legend, empty_panels
from vocable.core.html import PAGE, RESULTS, Section, drawing, settings_section, write_page
from vocable.core.storage import read_record, replacing, write_record
from vocable.core.tables import NONE, Table, Tabled, p_value
from vocable.encoding.protocol import Role
from vocable.errors import ArgumentError, require_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PerQuery = Mapping[str, Mapping[str, float]]  # {measure: {query id: value}}
ABOUT_COLUMNS = (
    "p: against 0 removed; difference: from random terms, and its 95 % interval over queries and draws decides"
)
RESAMPLES = 1000  # samples of queries and draws for an interval
WACKY_COLOR, RANDOM_COLOR, FULL_COLOR = "C3", "C0", "0.3"
ABOUT_ABLATION = (
    "Terms is the number of the wackiest terms that expand a text of the dataset: they are removed wherever they are "
    "expansions, never where the text itself contains them; entries is the share of all expansions removed with them."
    " p is the p-value of the paired t-test against the full vectors, over queries. Random is the mean over draws of "
    "the same number of the dataset's expansion terms, of about the same frequencies with the control frequency. The "
    "last column decides: the difference from the random draws, with its 95 % interval over resampled queries and "
    "draws; an interval without 0 shows a difference. In the figure, such a marker is filled; the band is the mean ± 2 "
    "standard deviations of the random draws, as in the paper."
)


@dataclass(frozen=True)
class AblatedSearch:
    """A search without some terms.

    `terms` is the number of removed terms that are expansions in this dataset, `share` the share of expansion entries
    that were removed, and `changed` the number of queries whose results may change. `values` are the measures, `p`
    their p-values in the paired t-test against the full vectors. A report leaves out `per_query`, the values of each
    query.
    """

    terms: int
    share: float
    changed: int
    values: dict[str, float]
    p: dict[str, float]
    per_query: PerQuery = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class AblatedMeasure:
    """A measure without the wackiest terms: its value, `difference` from the full vectors, and p of a paired t-test.

    `random` has the mean and the sample standard deviation `std` over the random draws; `low` and `high` are mean ± 2
    std. `vs_random` has the mean `difference` from the draws with its 95 % interval over queries and draws, `low` to
    `high` (`difference_interval`).
    """

    wacky: float
    difference: float
    p: float
    random: dict[str, float]
    vs_random: dict[str, float]

    @property
    def differs(self) -> bool:
        """True if the interval of the difference from random terms is without 0, rounding errors aside."""
        return self.vs_random["low"] > 1e-12 or self.vs_random["high"] < -1e-12


def difference_interval(
    values: np.ndarray, draws: np.ndarray, rng: np.random.Generator, samples: int = RESAMPLES
) -> dict[str, float]:
    """Return the mean of the values [q] minus the mean of d draws [d, q], with its 95 % percentile interval.

    Each sample resamples the queries and the draws, both with replacement.

    >>> found = difference_interval(np.zeros(50), np.ones((4, 50)), np.random.default_rng(0))
    >>> {name: round(value, 6) for name, value in found.items()}
    {'difference': -1.0, 'low': -1.0, 'high': -1.0}
    """
    d, q = draws.shape
    differences = values - draws
    of_draws = rng.multinomial(d, np.full(d, 1 / d), size=samples) / d
    of_queries = rng.multinomial(q, np.full(q, 1 / q), size=samples) / q
    low, high = np.percentile(((of_draws @ differences) * of_queries).sum(axis=1), [2.5, 97.5])
    return {"difference": float(differences.mean()), "low": float(low), "high": float(high)}


@dataclass(frozen=True)
class ThresholdResult:
    """The removal of the `threshold` wackiest terms, and of random draws of the same number of terms."""

    threshold: int
    measures: dict[str, AblatedMeasure]
    wacky: AblatedSearch
    random: tuple[AblatedSearch, ...]

    @classmethod
    def of(
        cls,
        threshold: int,
        wacky: AblatedSearch,
        random: Sequence[AblatedSearch],
        full: Mapping[str, float],
        seed: int = 0,
    ) -> ThresholdResult:
        """Compare the searches; `full` are the values of the full vectors, `seed` is the seed of the intervals."""
        measures, rng = {}, np.random.default_rng([seed, threshold])
        for name, value in wacky.values.items():
            draws = [search.values[name] for search in random]
            mean, std = float(np.mean(draws)), float(np.std(draws, ddof=1))
            by_query = [[*search.per_query[name].values()] for search in (wacky, *random)]
            versus = difference_interval(np.array(by_query[0]), np.array(by_query[1:]), rng)
            band = {"mean": mean, "std": std, "low": mean - 2 * std, "high": mean + 2 * std}
            measures[name] = AblatedMeasure(
                wacky=value,
                difference=value - full[name],
                p=wacky.p[name],
                random=band,
                vs_random=versus,
            )
        first, *draws_kept = (replace(search, per_query={}) for search in (wacky, *random))
        return cls(threshold, measures, first, tuple(draws_kept))


@dataclass(frozen=True)
class DatasetAblation:
    """Ablations on a dataset: `full` are the values of the full vectors, `points` are by rising threshold."""

    dataset: str
    role: Role
    queries: int
    full: dict[str, float]
    points: tuple[ThresholdResult, ...]


def ablation_tables(ablation: DatasetAblation) -> list[Table]:
    """Return a table for each measure, with a row for the full vectors and a row for each threshold."""
    title = f"{ablation.dataset}, {ablation.queries} queries, {ablation.role} expansions"
    tables = []
    for measure, value in ablation.full.items():
        rows = [["0", "0", "0.0%", "0.0%", f"{value:.4f}", *[NONE] * 3]]
        for point in ablation.points:
            values, random = point.measures[measure], float(np.mean([search.share for search in point.random]))
            cells = [f"{point.threshold:,}", f"{point.wacky.terms:,}", f"{point.wacky.share:.1%}", f"{random:.1%}"]
            cells += [f"{values.wacky:.4f}", p_value(values.p), f"{values.random['mean']:.4f}"]
            versus = values.vs_random
            rows.append([*cells, f"{versus['difference']:+.4f} ({versus['low']:+.4f} to {versus['high']:+.4f})"])
        header = ["removed", "terms", "entries", "random entries", measure, "p", "random", "difference"]
        tables.append(Table(title, header, rows, notes=[ABOUT_COLUMNS]))
    return tables


def ablation_figure(ablations: Sequence[DatasetAblation]) -> Figure:
    """Draw each measure against the number of removed terms (Polyakov et al. 2026, figures 2 and 3).

    Each dataset and measure has a panel. The line shows the measure without the wackiest terms. The band shows mean ± 2
    standard deviations without the same number of random terms. A marker is filled if the interval of the difference
    from random terms is without 0. Raises `ArgumentError` without ablations.
    """
    require_extra("matplotlib", "figures")
    from matplotlib.ticker import NullLocator

    if not ablations:
        raise ArgumentError("nothing to draw: there is no ablation")
    measures = list(ablations[0].full)
    panels = [(ablation, measure) for ablation in ablations for measure in measures]
    columns = len(measures) if 1 < len(measures) <= ACROSS else ACROSS
    figure = empty_panels(len(panels), columns)
    for axes, (ablation, measure) in zip(figure.axes, panels, strict=True):
        thresholds = [point.threshold for point in ablation.points]
        points = [point.measures[measure] for point in ablation.points]
        low, mean, high = ([point.random[name] for point in points] for name in ("low", "mean", "high"))
        axes.axhline(ablation.full[measure], color=FULL_COLOR, linestyle=":", label="nothing removed")
        label = "random terms, ± 2 std over draws"
        axes.fill_between(thresholds, low, high, color=RANDOM_COLOR, alpha=0.2, linewidth=0, label=label)
        axes.plot(thresholds, mean, color=RANDOM_COLOR, linestyle="--", label="random terms, mean")
        label = "wackiest terms (filled: unlike random terms)"
        axes.plot(thresholds, [point.wacky for point in points], color=WACKY_COLOR, label=label)
        for threshold, point in zip(thresholds, points, strict=True):
            face = WACKY_COLOR if point.differs else "white"
            axes.plot([threshold], [point.wacky], marker="o", color=WACKY_COLOR, markerfacecolor=face)
        axes.set_xscale("log")
        # A dataset may have fewer of the terms than the threshold.
        removed = [(result.threshold, result.wacky.terms) for result in ablation.points]
        ticks = [f"{most:,}" + ("" if terms == most else f"\n({terms:,} here)") for most, terms in removed]
        axes.set_xticks(thresholds, ticks)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(f"terms removed from {ablation.role} expansions")
        axes.set_ylabel(measure)
        axes.set_title(Path(ablation.dataset).name, parse_math=False)
        axes.grid(alpha=0.3)
    handles, names = figure.axes[0].get_legend_handles_labels()
    add_legend(figure, handles, names)
    return figure


@dataclass(frozen=True)
class AblationReport(Tabled):
    """A report in the folder `output`: settings, and the ablations on each dataset."""

    settings: dict[str, Any]
    datasets: list[DatasetAblation]
    output: Path = Path()

    @classmethod
    def read(cls, output: str | Path) -> AblationReport:
        """Read the report in a folder."""
        return replace(read_record(Path(output) / RESULTS, cls), output=Path(output))

    def table(self) -> list[Table | str]:
        """Return a table for each dataset and measure, and the place of the page."""
        tables = [table for ablation in self.datasets for table in ablation_tables(ablation)]
        return [*tables, f"{self.output / PAGE}: tables, figure and settings"]

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {"settings": self.settings, "datasets": [asdict(ablation) for ablation in self.datasets]}


def write_ablation(folder: Path, report: AblationReport) -> None:
    """Write a report into an existing folder: the page, results.json, ablation.md, ablation.png and .svg."""
    figure = drawing(ablation_figure(report.datasets), folder, "ablation", "Measures against removed terms")
    write_record(folder / RESULTS, report.to_json())
    tables = [ablation_tables(ablation) for ablation in report.datasets]
    texts = [f"{table.title}\n\n{table.markdown()}" for group in tables for table in group]
    with replacing(folder / "ablation.md") as file:
        file.write("\n\n".join(texts).encode() + b"\n")
    sections = [Section("Quality without the wackiest expansion terms", [figure, ABOUT_ABLATION])]
    sections += [Section(ablation.dataset, group) for ablation, group in zip(report.datasets, tables, strict=True)]
    datasets = ", ".join(Path(ablation.dataset).name for ablation in report.datasets)
    title = f"Ablation of expansion terms of {Path(report.settings['model']).name} on {datasets}"
    write_page(folder, title, [*sections, settings_section(report.settings)])
