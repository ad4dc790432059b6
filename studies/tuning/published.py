"""The published results of the study, and of the ablation before it: tables of docs/experiments/tuning.md, its figure.

python -m studies.tuning.published docs/experiments/tuning.svg       prints the tables, draws the figure
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from studies.tuning.results import SIDES, Mean, Measured, StudyResults, draw, mean_of
from vocable.core.figures import save_figure
from vocable.core.storage import read_record
from vocable.core.tables import Table

PUBLISHED = Path(__file__).parent / "published.json"


class Contrast(NamedTuple):
    """A variant of the ablation against another variant, each with its share of the initial weights."""

    about: str
    variant: str
    share: float
    other: str
    other_share: float

    @property
    def name(self) -> str:
        """What differs, and the two variants."""
        return f"{self.about}: `{self.variant}` {self.share:g} against `{self.other}` {self.other_share:g}"


CONTRASTS = (
    Contrast("mean with the weights before", "all", 0.5, "all", 0.0),
    Contrast("masked language modelling", "mlm", 0.5, "all", 0.5),
    Contrast("masked language modelling", "mlm", 0.0, "all", 0.0),
    Contrast("KL to the model before", "self", 0.5, "all", 0.5),
    Contrast("KL to the model before", "self", 0.0, "all", 0.0),
    Contrast("hard negatives", "hard", 0.5, "all", 0.5),
    Contrast("IDF of queries", "idf", 0.5, "all", 0.5),
    Contrast("larger batches, higher rate", "large", 0.5, "all", 0.5),
    Contrast("larger batches, higher rate", "large-again", 0.5, "all", 0.5),
    Contrast("no keywords", "no-keywords", 0.5, "large-again", 0.5),
    Contrast("no passages", "title-sentence", 0.5, "no-keywords", 0.5),
    Contrast("all choices together", "title-sentence", 0.5, "all", 0.5),
    Contrast("a smaller share before", "no-keywords", 0.3, "no-keywords", 0.5),
    Contrast("a smaller share before", "title-sentence", 0.3, "title-sentence", 0.5),
)


@dataclass(frozen=True)
class Ablated:
    """Differences of nDCG@10 on people's queries, after - before, by collection."""

    variant: str
    share: float  # of the weights before, in the mean with the trained ones
    alone: Mapping[str, float]
    hybrid: Mapping[str, float]

    def side(self, name: str) -> Mapping[str, float]:
        """Return the differences `alone` or `hybrid`."""
        return self.alone if name == "alone" else self.hybrid


@dataclass(frozen=True)
class Published:
    """The results of a run of the study, and the ablation."""

    model: str
    date: str
    machine: str
    collections: list[Measured]
    ablation: list[Ablated]

    @property
    def results(self) -> StudyResults:
        """The results of the study."""
        return StudyResults(self.model, self.collections, {})


@cache
def published() -> Published:
    """Read the published results."""
    return read_record(PUBLISHED, Published)


def study_table() -> Table:
    """Return the table of the study."""
    table = published().results.table()[0]
    assert isinstance(table, Table)
    return table


def contrast(compared: Contrast, side: str) -> Mean:
    """Return the mean difference between two variants over the collections that both were tried on."""
    variants = {(tried.variant, tried.share): tried.side(side) for tried in published().ablation}
    variant, other = variants[compared.variant, compared.share], variants[compared.other, compared.other_share]
    return mean_of({name: variant[name] - other[name] for name in variant if name in other})


def contrast_table() -> Table:
    """Return the contrasts of the ablation: the means of the paired differences over collections."""
    rows = []
    for compared in CONTRASTS:
        alone, hybrid = (contrast(compared, side) for side in SIDES)
        rows.append([compared.name, str(alone.n), str(alone), str(hybrid)])
    return Table("contrasts", ["contrast", "collections", "alone, 95 %", "hybrid, 95 %"], rows)


def main() -> None:
    """Print the tables, and draw the figure into the file that is named."""
    for table in (study_table(), contrast_table()):
        print(table, end="\n\n")
    for path in sys.argv[1:]:
        save_figure(draw(published().results), path)


if __name__ == "__main__":
    main()
