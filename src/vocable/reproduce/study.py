"""A published study as data: its datasets, what its columns are in our measures, its tables and figures.

The studies are the YAML files of `studies`. The rows of a table are variants of recipes, which carry the published
figures, or models that the study measures and does not train.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from vocable.errors import ArgumentError, RecipeError
from vocable.objectives import Settings, first_mistake
from vocable.training.recipe_files import read_yaml

Names = Annotated[list[str], BeforeValidator(lambda given: given.split() if isinstance(given, str) else given)]


class Column(Settings):
    """A value of a measurement (`vocable.reproduce.measurements`), on a dataset or as the mean over a group of them."""

    of: str = Field(description="the measurement")
    value: str = Field(description="which of its values")
    dataset: str | None = Field(default=None, description="a dataset or a group")
    options: dict[str, Any] = Field(default={}, description="of the measurement")
    times: float = Field(default=1, description="to the unit of the study")


class Model(Settings):
    """A model that is measured as it is: a name for `vocable.load`, or an expander of `vocable measure-wackiness`."""

    model: str
    published: dict[str, float] = Field(default={})
    source: str = ""


class Figure(Settings):
    """Lines or points: the columns of x and of y, pair by pair; a value may be a list, too."""

    x: list[str]
    y: list[str]
    beside: list[str] = Field(default=[], description="columns drawn as dashed lines beside those of y")
    apart: bool = Field(default=False, description="each pair has a panel of its own")
    log_x: bool = False
    curves: str | None = Field(default=None, description="regular expression: rows with one group 1 are one curve")

    @model_validator(mode="after")
    def _pairs(self) -> Figure:
        if len(self.x) != len(self.y) or len(self.beside) not in (0, len(self.y)):
            raise ValueError("x, y and beside are as many columns")
        return self


class Exhibit(Settings):
    """A table or a figure: its rows by recipe, variants or "all", with those of `models` below them."""

    about: str
    rows: dict[str, Names] = Field(default={})
    models: list[str] = Field(default=[])
    columns: list[str] = Field(default=[])
    sweep: str | None = Field(default=None, description="as of vocable train: each row is trained with each value")
    seeds: list[int] | None = Field(default=None, description="each row is trained with each; null for the recipe's")
    figure: Figure | None = None

    @property
    def shown(self) -> list[str]:
        """All columns that are needed, those of the figure included."""
        drawn = [] if self.figure is None else [*self.figure.x, *self.figure.y, *self.figure.beside]
        return list(dict.fromkeys([*self.columns, *drawn]))


class Study(Settings):
    """A paper's experiments.

    A dataset has one or several places: the first that is there is read, else the last is fetched. `corpora` says of a
    dataset whose documents it shares, nearly all of them; they are then encoded once.
    """

    about: str
    datasets: dict[str, Names]
    corpora: dict[str, str] = Field(default={})
    groups: dict[str, Names] = Field(default={})
    sizes: dict[str, int] = Field(default={}, description="documents of a dataset, for the plan")
    fetch: dict[str, str] = Field(default={}, description="place: how to get it, for what is not fetched")
    models: dict[str, Model] = Field(default={})
    columns: dict[str, Column]
    exhibits: dict[str, Exhibit]
    not_here: dict[str, str] = Field(default={}, description="exhibits that are not made, and why")

    @field_validator("exhibits")
    @classmethod
    def _something_to_see(cls, exhibits: dict[str, Exhibit]) -> dict[str, Exhibit]:
        for name, exhibit in exhibits.items():
            if not exhibit.shown or not (exhibit.rows or exhibit.models):
                raise ValueError(f"{name} has no rows or no columns")
        return exhibits

    @model_validator(mode="after")
    def _names_are_known(self) -> Study:
        used: list[tuple[str, Sequence[str], dict[str, Any]]] = [
            (f"exhibits.{name}", some, known)
            for name, one in self.exhibits.items()
            for some, known in ((one.shown, self.columns), (one.models, self.models))
        ]
        used += [
            (f"columns.{name}", [one.dataset], self.datasets | self.groups)
            for name, one in self.columns.items()
            if one.dataset is not None
        ]
        used += [(f"groups.{name}", some, self.datasets) for name, some in self.groups.items()]
        used += [("corpora", pair, self.datasets) for pair in self.corpora.items()]
        for where, names, known in used:
            if unknown := [name for name in names if name not in known]:
                raise ValueError(f"{where}: {unknown[0]!r} is not known")
        return self

    def datasets_of(self, column: Column) -> list[str | None]:
        """The datasets that a column's value is a mean over; [None] where it is of none."""
        return [None] if column.dataset is None else list(self.groups.get(column.dataset, [column.dataset]))

    def chosen(self, only: Sequence[str] | None) -> dict[str, Exhibit]:
        """The exhibits of these names, or all; `ArgumentError` for one that there is not."""
        for name in only or []:
            if name in self.not_here:
                raise ArgumentError(f"only: {name} is not made here: {self.not_here[name]}")
            if name not in self.exhibits:
                raise ArgumentError(f"only: no {name!r} here: choose from {', '.join(self.exhibits)}")
        return {name: one for name, one in self.exhibits.items() if not only or name in only}


def studies() -> list[str]:
    """The names of the studies that come with vocable."""
    return sorted(path.stem for path in _folder().glob("*.yaml"))


def read_study(name: str) -> Study:
    """Read a study that comes with vocable, or a YAML file of one; errors are those of `read_recipe`."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        if name not in studies():
            raise ArgumentError(f"paper: no study {name!r}: choose from {', '.join(studies())}")
        path = _folder() / f"{name}.yaml"
    values = read_yaml(path)
    try:
        return Study.model_validate(values)
    except ValidationError as error:
        keys, message = first_mistake(error, values)
        raise RecipeError(": ".join(filter(None, [str(path), ".".join(map(str, keys)), message]))) from error


def _folder() -> Path:
    return Path(str(files("vocable") / "reproduce" / "studies"))
