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

from studies import processor
from studies.cost import TERMS, TEXT_BYTES, TFLOPS, Cost, Resources
from studies.dense import kind_of
from studies.measurements import LEXICAL, Column
from studies.prepared import PREPARED
from studies.runs import BEFORE_TRAINING, Change, Request, Run
from studies.toys import Toys
from studies.vectors import Place
from vocable.core.tables import Table, Tabled, counted
from vocable.data.sources import parse_source
from vocable.errors import ArgumentError
from vocable.evaluation.dataset import Convention
from vocable.training.prepared import prepared_folder
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
    needs: str = ""  # what has to be done before the model can be read, in words


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
        tables: list[Table | str] = [Table(self.study.about, ["exhibit", "rows", "runs"], shown)]
        tables += [Table("", header, rows), note]
        tables += [f"{name} is not reproduced: {why}" for name, why in self.study.not_here.items()]
        tables += [f"needed: {need}" for need in dict.fromkeys(chain(*(run.needed for run in self.runs.values())))]
        places: dict[str, list[str]] = defaultdict(list)
        for place, instructions in self.missing.items():
            places[instructions].append(place)
        return tables + [f"missing: {', '.join(listed)}: {instructions}" for instructions, listed in places.items()]

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
) -> Plan:
    """Plan the selected exhibits and rows. The whole study is planned, so that a run has one name whatever is selected.

    `models` are ROW=MODEL texts: the model that a row measures, or that its recipe begins with.

    Raises:
        ArgumentError: an unknown exhibit or row, or a text that is not ROW=MODEL.
        RecipeError: an override that is not valid.
    """
    study = study if toys is None else study.on_toys()
    others = _models_of_rows(models)
    planned = {name: _planned(study, exhibit, overrides, others) for name, exhibit in study.exhibits.items()}
    labels = {name: [one.label for one in some] for name, some in planned.items()}
    if unknown := sorted(others.keys() - set(chain.from_iterable(labels.values()))):
        rows_here = ", ".join(dict.fromkeys(chain.from_iterable(labels.values())))
        raise ArgumentError(f"--model: no row {unknown[0]!r} here: choose from {rows_here}")
    selected = (selection or Selection()).of(study, labels)  # a mistyped name is known before anything is made
    known = dict[str, Run]()  # by their settings
    whole = {name: [_row(one, study.exhibits[name], root, toys, known) for one in planned[name]] for name in planned}
    rows = {name: [row for row in whole[name] if row.label in some] for name, some in selected.items()}
    first: dict[str, str] = {}
    for run in known.values():  # of runs that adapt alike, the first gives the adapted model its name
        run.shares_with = first.setdefault(run.settings(BEFORE_TRAINING), run.name)
    _continue(known.values())
    for name in rows:
        for column in (study.columns[shown] for shown in study.exhibits[name].shown):
            for run, dataset in product(runs_of(rows[name]), study.datasets_of(column)):
                values = run.wanted.setdefault(Request.of(column, dataset), [])
                values += [column.value] * (column.value not in values)
    runs = {run.name: run for run in known.values() if run.wanted}
    folder = next((text.partition("=")[2] for text in overrides if text.startswith("data_folder=")), "")
    places = {name: _place(study, name, folder, toys) for name in study.datasets}
    missing = {} if toys is not None else _missing(study, runs.values(), places)
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


def _models_of_rows(models: Sequence[str]) -> dict[str, str]:
    """Return the models of ROW=MODEL texts by row."""
    pairs = [text.partition("=") for text in models]
    for row, equals, model in pairs:
        if not (row and equals and model):
            raise ArgumentError(f"--model: {row + equals + model!r} is not ROW=MODEL")
    return {row: model for row, _, model in pairs}


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
            changed = recipe.model_copy(update={"model": others[label]}) if label in others else recipe
            yield _Planned(label, result.published, changed, file)


def _rows_of_models(study: Study, exhibit: Exhibit, others: Mapping[str, str]) -> Iterator[_Planned]:
    for label in exhibit.models:
        model = study.models[label]
        if label in others:
            model = model._replace(model=kind_of(model.model) + others[label], needs="")
        yield _Planned(label, model.published, model=model)


def _row(planned: _Planned, exhibit: Exhibit, root: Path, toys: Toys | None, known: dict[str, Run]) -> Row:
    """Return the row with its runs; a run with the settings of a known run is the known run."""
    if planned.model is not None:
        name = planned.model.model
        kind = kind_of(name)
        if toys is not None and name not in LEXICAL:
            name = kind + toys.model(name.removeprefix(kind))
        run = Run(planned.label, root, model=name, change=planned.model.change)
        run.needed = [planned.model.needs] if planned.model.needs else []
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


def _place(study: Study, name: str, folder: str, toys: Toys | None) -> Place:
    """Return the first source of a dataset that exists, or else its last source; toys have a separate collection."""
    corpus = study.corpora.get(name, name)
    convention: Convention | None = "trec_eval" if name in study.trec_eval else None
    if toys is not None:
        if name == next(iter(study.datasets)):
            return Place(toys.large_collection(name), corpus, convention, toys.postings)
        return Place(toys.collection(name), corpus, convention)
    places = [_in_folder(place, folder) for place in study.datasets[name].split()]
    return Place(next((place for place in places if _exists(place)), places[-1]), corpus, convention)


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
    """Yield the sources that a recipe reads before its evaluation; sources of the training only if it is trained."""
    recipe = run.recipe
    assert recipe is not None
    for stage, settings in recipe.planned():
        if run.needs == "model" or stage.name not in ("calibrate", "queries"):
            yield from stage.texts(settings)
    if recipe.expand is not None and recipe.expand.words is not None:
        yield recipe.expand.words
    if recipe.evaluation is not None and run.needs == "model":
        yield from recipe.evaluation.datasets
    for source, placed in zip(recipe.data.examples, recipe.examples(), strict=True) if run.needs == "model" else ():
        if recipe.data.sampling == "random" and prepared_folder(placed, run.root / PREPARED).exists():
            continue
        if isinstance(source, str):
            yield source
        else:
            yield from filter(None, [source.file, source.corpus, source.queries, source.scores])
