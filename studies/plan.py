"""Plan of a study: its datasets, columns and exhibits, the runs that these need, their cost and missing data.

The rows of a table are variants of recipes, which carry the published figures, or finished models.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

from studies import disk, processor
from studies.cost import TERMS, TEXT_BYTES, TFLOPS, Cost, Resources
from studies.dense import kind_of
from studies.given import check_given, checkpoints_of, conversions, read_added, read_given, with_given
from studies.measurements import LEXICAL, Column
from studies.runs import BEFORE_TRAINING, Change, Request, Run
from studies.sources import missing_sources, place_of
from studies.toys import Toys
from studies.vectors import Place
from vocable.core.tables import Table, Tabled, counted
from vocable.errors import ArgumentError
from vocable.options import DType
from vocable.training.recipe import Recipe
from vocable.training.variants import plan_runs


class Model(NamedTuple):
    """A model to measure as it is.

    `model` is a name for `vocable.load`, a dense one as "dense:NAME", or an expander of `vocable measure-wackiness`;
    a change is made to it before it is measured.
    """

    model: str
    published: Mapping[str, float]
    source: str
    change: Change | None = None


@dataclass(frozen=True)
class Figure:
    """Lines or points: the columns of x and of y, pair by pair; a value may be a list, too.

    Without columns of x, bars: a group for each column of y, with a bar for each row.
    """

    x: Sequence[str]
    y: Sequence[str]
    dashed: Sequence[str] = ()  # columns drawn as dashed lines in the colors of y
    apart: bool = False  # each pair has a panel of its own
    log_x: bool = False
    bands: Sequence[tuple[str, str]] = ()  # lower and upper columns of a band around each of `dashed`
    curves: str | None = None  # regular expression: rows whose group 1 is the same are one curve


@dataclass(frozen=True)
class Exhibit:
    """A table or a figure: rows of recipes, and finished models."""

    about: str
    rows: Mapping[str, str] = field(default_factory=dict)  # recipe -> variants, with spaces between, or "all"
    models: Sequence[str] = ()
    columns: Sequence[str] = ()
    sweep: str | None = None  # as of `vocable train`: each row is trained with each value
    seeds: Sequence[int] | None = None  # each row is trained with each seed; None for that of the recipe
    figure: Figure | None = None
    baseline: str | None = None  # the row against which the others are tested, query by query
    order: str = ""  # the first rows, in the paper's order, with spaces between; by default those of recipes come first
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # column that the paper gives: row: its words
    beside: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # row: its line in the table, and heading
    note: str = ""  # a line below the table

    @property
    def shown(self) -> list[str]:
        """All columns to measure, including the columns of the figure."""
        figure = self.figure
        drawn = [] if figure is None else [*figure.x, *figure.y, *figure.dashed, *chain.from_iterable(figure.bands)]
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
    queries: Mapping[str, int] = field(default_factory=dict)  # and its queries
    trec_eval: Sequence[str] = ()  # datasets in which a document with its query's id counts, whatever their source
    fetch: Mapping[str, str] = field(default_factory=dict)  # pattern of sources -> instructions to get them
    models: Mapping[str, Model] = field(default_factory=dict)
    not_here: Mapping[str, str] = field(default_factory=dict)  # exhibits that are not reproduced, and why

    def datasets_of(self, column: Column) -> list[str | None]:
        """Return the datasets whose mean is a column's value; [None] for a column without a dataset."""
        return [None] if column.on is None else [*self.groups.get(column.on, column.on).split()]

    def with_rows(self, models: Mapping[str, str]) -> Study:
        """Return the study with further models as rows of every exhibit."""
        rows = {label: Model(model, {}, "added") for label, model in models.items()}
        exhibits = {name: replace(exhibit, models=[*exhibit.models, *rows]) for name, exhibit in self.exhibits.items()}
        return replace(self, models={**self.models, **rows}, exhibits=exhibits)

    def on_toys(self) -> Study:
        """Return the study with up to three collections of each group, and two seeds."""
        groups = {}
        for group, names in self.groups.items():
            first, others = names.split()[:2], names.split()[2:]
            groups[group] = " ".join([*first, *[name for name in others if name in self.corpora][:1]])
        exhibits = {
            name: exhibit if exhibit.seeds is None else replace(exhibit, seeds=exhibit.seeds[:2])
            for name, exhibit in self.exhibits.items()
        }
        return replace(self, groups=groups, exhibits=exhibits)


class Selection(NamedTuple):
    """Names of exhibits and rows, or patterns such as `gte-mlm-*`, to carry out and to leave out."""

    only: Sequence[str] = ()
    skip: Sequence[str] = ()

    def of(self, study: Study, labels: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Return the rows to carry out by exhibit, of the `labels` of all.

        Raises:
            ArgumentError: a name of no exhibit and no row, or nothing is left.
        """
        rows = list(dict.fromkeys(chain.from_iterable(labels.values())))
        for option, names in zip(("only", "skip"), self, strict=True):
            for name in names:
                if name in study.not_here:
                    raise ArgumentError(f"{option}: {name} is not reproduced: {study.not_here[name]}")
                if not any(fnmatch(known, name) for known in [*labels, *rows]):
                    exhibits = f"exhibits {', '.join(labels)}; rows {', '.join(rows)}"
                    raise ArgumentError(f"{option}: no {name!r} here: choose from the {exhibits}")
        only_exhibits, only_rows = ([name for name in self.only if _fits(names, [name])] for names in (labels, rows))
        chosen = {
            name: [
                label
                for label in exhibit_rows
                if (not only_rows or _fits([label], only_rows)) and not _fits([label], self.skip)
            ]
            for name, exhibit_rows in labels.items()
            if (not only_exhibits or _fits([name], only_exhibits)) and not _fits([name], self.skip)
        }
        if not any(chosen.values()):
            raise ArgumentError("only and skip leave no row of any exhibit")
        return {name: labels for name, labels in chosen.items() if labels}


def _fits(names: Iterable[str], patterns: Sequence[str]) -> bool:
    """True if one of the names fits one of the patterns."""
    return any(fnmatch(name, pattern) for name in names for pattern in patterns)


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
        """Return the cost of each run; what runs share is counted at the first of them."""
        costs, adapted, prepared = {}, set[str](), set[str]()
        for name, run in self.runs.items():
            corpora = {self.places[request.on].corpus for request in run.wanted if request.on and run.needs == "model"}
            texts = 0 if run.model in LEXICAL else sum(self.study.sizes.get(corpus, 0) for corpus in corpora)
            adapts = run.needs != "recipe" and run.shares_with not in adapted
            done = 0 if run.continues is None or run.continues.shares_with not in adapted else run.continues.steps
            trains = run.needs == "model"
            cost = Cost.of(run.start, run.recipe, texts, adapts=adapts, trains=trains, done=done)
            costs[name] = cost._replace(seconds=self._seconds(run, texts, prepared))
            adapted |= {run.shares_with} if adapts else set()
        return costs

    def _seconds(self, run: Run, texts: int, prepared: set[str]) -> float:
        """Return the seconds of one core that a run takes, which has `texts` documents to index."""
        sizes, measures = self.study.sizes, defaultdict[str, list[str]](list)
        for request in run.wanted:
            if request.on is not None:
                measures[request.on].append(request.measure.__name__)
        seconds = processor.indexing(texts)
        for dataset, names in measures.items():
            documents = sizes.get(self.places[dataset].corpus, 0)
            seconds += processor.measuring(names, documents, self.study.queries.get(dataset, processor.QUERIES))
        if run.recipe is not None and run.needs == "model":
            seconds += processor.preparing(run.recipe, sizes, prepared) + processor.sampling(run.recipe)
        return seconds

    def table(self) -> list[Table | str]:
        """Return the exhibits, the runs with their costs, and what is missing."""
        shown = [
            [f"{name}: {exhibit.about}", str(len(self.rows[name])), str(len(runs_of(self.rows[name])))]
            for name, exhibit in self.exhibits.items()
        ]
        costs = self.costs()
        rows = [[name, *cost.cells(self.tflops)] for name, cost in costs.items()]
        rows.append([f"{counted(len(costs), 'run')} together", *Cost.together(costs.values()).cells(self.tflops)])
        header = ["run", "steps", "texts to encode", "10^15 operations", "GPU hours", "core hours"]
        read = {self.places[request.on].corpus for run in self.runs.values() for request in run.wanted if request.on}
        largest = max((self.study.sizes.get(corpus, 0) for corpus in read), default=0)
        room = Resources.of(largest, TERMS)
        lexical = Resources.lexical(largest).memory if any(run.model in LEXICAL for run in self.runs.values()) else 0
        index = "the index of BM25" if lexical > room.memory else "a shard of its index"
        memory = (max(room.memory, lexical) + largest * TEXT_BYTES) / 1e9
        note = (
            f"GPU hours: of one that sustains {self.tflops:g} x 10^12 operations per second, an assumption (--tflops). "
            "Core hours: data, sampling, indexing, search and removal, by constants measured on one core of an EPYC "
            "(searches use all cores). "
            f"The largest collection takes {room.disk / 1e9:,.0f} GB of disk at {TERMS} terms a text, in proportion to "
            f"them, and {memory:,.0f} GB of memory: its texts, and {index}. A sample tells the terms before all are "
            "encoded; a run that does not fit is refused."
        )
        runs = list(self.runs.values())
        places = {"models": disk.of_models(runs), "prepared examples": disk.of_examples(runs, self.study.sizes)}
        stay = ", ".join(f"{size / 1e9:,.1f} GB of {name}" for name, size in places.items() if size)
        work = disk.at_work(runs) / 1e9
        if stay:
            note += f" On disk stay {stay}; a run that is trained takes up to {work:,.1f} GB more. Sources are extra."
        tables: list[Table | str] = [Table(self.study.about, ["exhibit", "rows", "runs"], shown)]
        tables += [Table("", header, rows), note]
        tables += [f"{name} is not reproduced: {why}" for name, why in self.study.not_here.items()]
        needs = [*chain(*(run.needed for run in self.runs.values())), *conversions(self._checkpoints())]
        tables += [f"needed: {need}" for need in dict.fromkeys(needs)]
        missing: dict[str, list[str]] = defaultdict(list)
        for place, instructions in self.missing.items():
            missing[instructions].append(place)
        return tables + [f"missing: {', '.join(listed)}: {instructions}" for instructions, listed in missing.items()]

    def _checkpoints(self) -> dict[str, list[str]]:
        """Return the models that each run reads."""
        return {
            name: [run.start] if run.recipe is None else list(checkpoints_of(run.recipe))
            for name, run in self.runs.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        exhibits = {name: [row.label for row in rows] for name, rows in self.rows.items()}
        runs = {name: cost._asdict() for name, cost in self.costs().items()}
        return {"exhibits": exhibits, "runs": runs, "missing": self.missing, "tflops": self.tflops}


def make_plan(
    study: Study,
    root: Path,
    selection: Selection | None = None,
    overrides: Sequence[str] = (),
    toys: Toys | None = None,
    tflops: float = TFLOPS,
    models: Sequence[str] = (),
    added: Sequence[str] = (),
    dtype: DType = "float32",
) -> Plan:
    """Plan the selected exhibits and rows. The whole study is planned, so that a run has one name whatever is selected.

    `models` are NAME=MODEL texts: the model that a row measures or that its recipe begins with, or the model to read in
    place of a checkpoint, a teacher's too. `added` are ROW=MODEL texts of further rows.

    Raises:
        ArgumentError: an unknown exhibit, row or checkpoint, or a text that is not NAME=MODEL.
        RecipeError: an override that is not valid.
    """
    study = study if toys is None else study.on_toys()
    given = read_given(models)
    if given or added:
        whole_study = [one for exhibit in study.exhibits.values() for one in _planned(study, exhibit, overrides, {})]
        study = study.with_rows(read_added(added, [one.label for one in whole_study]))
        named = chain.from_iterable(one.checkpoints for one in whole_study)
        check_given(given, (one.label for one in whole_study), named)
    planned = {name: _planned(study, exhibit, overrides, given) for name, exhibit in study.exhibits.items()}
    labels = {name: [one.label for one in some] for name, some in planned.items()}
    selected = (selection or Selection()).of(study, labels)  # a mistyped name is known before anything is made
    known = dict[str, Run]()  # by their settings
    whole = {name: [_row(one, study.exhibits[name], root, toys, known) for one in planned[name]] for name in planned}
    rows = {name: [row for row in whole[name] if row.label in some] for name, some in selected.items()}
    first: dict[str, str] = {}
    for run in known.values():  # of runs that adapt alike, the first gives the adapted model its name
        run.shares_with = first.setdefault(run.settings(BEFORE_TRAINING), run.name)
        run.dtype = dtype
    _continue(known.values())
    for name in rows:
        for column in (study.columns[shown] for shown in study.exhibits[name].shown):
            for run, dataset in product(runs_of(rows[name]), study.datasets_of(column)):
                if run.recipe is None and column.needs == "recipe":
                    continue
                values = run.wanted.setdefault(Request.of(column, dataset), [])
                values += [column.value] * (column.value not in values)
    runs = {run.name: run for run in known.values() if run.wanted}
    folder = next((text.partition("=")[2] for text in overrides if text.startswith("data_folder=")), "")
    places = {name: place_of(study, name, folder, toys) for name in study.datasets}
    missing = {} if toys is not None else missing_sources(study, runs.values(), places)
    return Plan(study, {name: study.exhibits[name] for name in rows}, rows, runs, places, missing, tflops)


def _continue(runs: Iterable[Run]) -> None:
    """Let a pre-training that is the beginning of a longer schedule be continued by the next longer one."""
    alike: dict[str, dict[int, Run]] = defaultdict(dict)
    for run in runs:
        if (
            run.recipe is not None
            and run.recipe.pretrain is not None
            and run.recipe.pretrain.schedule_steps is not None
        ):
            alike[run.settings(BEFORE_TRAINING, any_steps=True)].setdefault(run.recipe.pretrain.steps, run)
    for steps in alike.values():
        for shorter, longer in pairwise(sorted(steps)):
            steps[longer].continues, steps[shorter].is_continued = steps[shorter], True


def runs_of(rows: Iterable[Row]) -> list[Run]:
    """Return the runs of rows, each once."""
    return list({run.name: run for row in rows for run in row.runs}.values())


class _Planned(NamedTuple):
    """A row before its runs are known: a recipe and the name of its file, or a model to measure as it is."""

    label: str
    published: Mapping[str, float]
    recipe: Recipe | None = None
    file: str = ""
    model: Model | None = None

    @property
    def checkpoints(self) -> list[str]:
        """The names of all models that the row reads."""
        if self.model is None:
            return [] if self.recipe is None else list(checkpoints_of(self.recipe))
        return [] if self.model.model in LEXICAL else [self.model.model.removeprefix(kind_of(self.model.model))]


def _planned(study: Study, exhibit: Exhibit, overrides: Sequence[str], others: Mapping[str, str]) -> list[_Planned]:
    """Return the rows of an exhibit in its order; `others` are models of rows that replace the study's."""
    rows = [*_rows_of_recipes(study, exhibit, overrides, others), *_rows_of_models(study, exhibit, others)]
    places = {label: place for place, label in enumerate(exhibit.order.split())}
    return sorted(rows, key=lambda row: places.get(row.label, len(places)))


def _rows_of_recipes(
    study: Study, exhibit: Exhibit, overrides: Sequence[str], others: Mapping[str, str]
) -> Iterator[_Planned]:
    for file, text in exhibit.rows.items():
        names = None if text == "all" else text.split()
        for label, (recipe, result) in plan_runs(
            study.folder / f"{file}.yaml", names, overrides, exhibit.sweep
        ).items():
            of_row = recipe.model_copy(update={"model": others[label]}) if label in others else recipe
            yield _Planned(label, result.published, with_given(of_row, others), file)


def _rows_of_models(study: Study, exhibit: Exhibit, others: Mapping[str, str]) -> Iterator[_Planned]:
    for label in exhibit.models:
        model = study.models[label]
        kind = kind_of(model.model)
        name = model.model.removeprefix(kind)
        model = model._replace(model=kind + others.get(label, others.get(name, name)))
        yield _Planned(label, model.published, model=model)


def _row(planned: _Planned, exhibit: Exhibit, root: Path, toys: Toys | None, known: dict[str, Run]) -> Row:
    """Return the row with its runs; a run with the settings of a known run is the known run."""
    if planned.model is not None:
        name = planned.model.model
        kind = kind_of(name)
        if toys is not None and name not in LEXICAL and not Path(name).is_dir():  # a folder is a model of the user
            name = kind + toys.model(name.removeprefix(kind))
        run = Run(planned.label, root, model=name, change=planned.model.change)
        return Row(planned.label, [known.setdefault(run.settings(), run)], planned.published)
    assert planned.recipe is not None
    runs = []
    for seed in exhibit.seeds or [planned.recipe.seed]:
        name = planned.label + (f"-seed-{seed}" if seed != planned.recipe.seed else "")
        if any(run.name == name for run in known.values()):  # a variant of another recipe, or this very run
            name = f"{planned.file}-{name}"
        chooses = planned.recipe.evaluation is not None and planned.recipe.evaluation.best  # the checkpoint to measure
        others = {} if chooses else {"evaluation": None}
        seeded = planned.recipe.model_copy(update={"seed": seed, "needs": [], **others})
        run = Run(name, root, recipe=seeded if toys is None else toys.recipe(seeded))
        run.needed = planned.recipe.needs
        runs.append(known.setdefault(run.settings(), run))
    return Row(planned.label, runs, planned.published)
