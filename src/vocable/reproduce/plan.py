"""What reproducing a study takes: the runs of its tables and figures, each once, what is missing, and what it costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

from vocable.data.sources import parse_source
from vocable.reproduce.cost import TFLOPS, VECTOR, Cost
from vocable.reproduce.measurements import BM25_RM3
from vocable.reproduce.runs import BEFORE_TRAINING, Place, Request, Run
from vocable.reproduce.study import Exhibit, Study
from vocable.reproduce.toys import Toys
from vocable.tables import Table, Tabled, counted
from vocable.training.variants import plan_runs


class Row(NamedTuple):
    """A row of an exhibit: its runs, one per seed, and what is published of it."""

    label: str
    runs: list[Run]
    published: Mapping[str, float]
    source: str


@dataclass
class Plan(Tabled):
    """The rows of each exhibit, and all their runs by name."""

    study: Study
    exhibits: dict[str, Exhibit]
    rows: dict[str, list[Row]]
    runs: dict[str, Run]
    places: dict[str, Place]
    missing: dict[str, str]  # places that are not there, and how to get them
    tflops: float = TFLOPS

    def costs(self) -> dict[str, Cost]:
        """What each run costs; what several share, pre-training, is counted at the first of them."""
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
        """The exhibits, the runs with their costs, and what is missing."""
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
        found += [f"{name} is not made here: {why}" for name, why in self.study.not_here.items()]
        found += [f"needed: {one}" for one in dict.fromkeys(chain(*(run.needed for run in self.runs.values())))]
        ways: dict[str, list[str]] = defaultdict(list)
        for place, how in self.missing.items():
            ways[how].append(place)
        return found + [f"missing: {', '.join(places)}: {how}" for how, places in ways.items()]

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values."""
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
    """Plan the exhibits of these names, or all; on toys where they are given. Nothing is carried out.

    The whole study is planned first, so that a run has the same name whatever is chosen.
    """
    study = study if toys is None else toys.study(study)
    chosen, known = study.chosen(only), dict[str, Run]()
    rows = {name: list(_rows(study, exhibit, root, overrides, toys, known)) for name, exhibit in study.exhibits.items()}
    first: dict[str, str] = {}
    for run in known.values():  # of runs that adapt alike, the first gives the adapted model its name
        run.shares_with = first.setdefault(run.settings(BEFORE_TRAINING), run.name)
    for name, exhibit in chosen.items():
        for column in (study.columns[shown] for shown in exhibit.shown):
            for run, dataset in product(runs_of(rows[name]), study.datasets_of(column)):
                values = run.wanted.setdefault(Request.by(column, dataset), [])
                values += [column.value] * (column.value not in values)
    runs = {run.name: run for run in known.values() if run.wanted}
    folder = next((text.partition("=")[2] for text in overrides if text.startswith("data_folder=")), "")
    places = {name: _place(study, name, folder, toys) for name in study.datasets}
    missing = {} if toys is not None else _missing(study, runs.values(), places)
    return Plan(study, chosen, {name: rows[name] for name in chosen}, runs, places, missing, tflops)


def runs_of(rows: Iterable[Row]) -> list[Run]:
    """Return the runs of rows, each once."""
    return list({run.name: run for row in rows for run in row.runs}.values())


def _rows(
    study: Study, exhibit: Exhibit, root: Path, overrides: Sequence[str], toys: Toys | None, known: dict[str, Run]
) -> Iterator[Row]:
    """The rows of an exhibit; their runs are those that are `known` by their settings, or new ones."""
    for recipe, names in exhibit.rows.items():
        for label, planned in plan_runs(recipe, None if names == ["all"] else names, overrides, exhibit.sweep).items():
            runs = []
            for seed in exhibit.seeds or [planned.recipe.seed]:
                wanted = planned.recipe.model_copy(update={"seed": seed, "evaluation": None, "needs": []})
                name = label + (f"-seed-{seed}" if seed != planned.recipe.seed else "")
                if any(run.name == name for run in known.values()):  # a variant of another recipe, or this very run
                    name = f"{recipe}-{name}"
                run = Run(name, root, recipe=wanted if toys is None else toys.recipe(wanted))
                run.needed = planned.recipe.needs
                runs.append(known.setdefault(run.settings(), run))
            yield Row(label, runs, planned.result.published, planned.result.source)
    for label in exhibit.models:
        one = study.models[label]
        name = one.model if toys is None or one.model == BM25_RM3 else toys.model(one.model)
        run = Run(label, root, model=name)
        yield Row(label, [known.setdefault(run.settings(), run)], one.published, one.source)


def _place(study: Study, name: str, folder: str, toys: Toys | None) -> Place:
    """The first place of a dataset that is there, or the last; on toys, a collection of its own."""
    corpus = study.corpora.get(name, name)
    if toys is not None:
        return Place(toys.collection(name), corpus)
    places = [_in_folder(place, folder) for place in study.datasets[name]]
    return Place(next((place for place in places if _is_there(place)), places[-1]), corpus)


def _in_folder(place: str, folder: str) -> str:
    """A place in the data folder, as of a recipe (`Recipe.place`)."""
    scheme, name, split = parse_source(place)
    if scheme not in (None, "beir"):
        return place
    inside = str(Path(folder) / name)
    return inside if scheme is None else f"beir:{inside}" + (f"#{split}" if split else "")


def _is_there(place: str) -> bool:
    scheme, name, _ = parse_source(place)
    return scheme in (None, "beir") and Path(name).exists()


def _missing(study: Study, runs: Iterable[Run], places: Mapping[str, Place]) -> dict[str, str]:
    """Files and folders of datasets and recipes that are not there, and how to get them."""
    asked: dict[str, str] = {}  # where it should be: what a study or recipe calls it
    for run in runs:
        asked |= {places[request.on].source: study.datasets[request.on][0] for request in run.wanted if request.on}
        if run.recipe is not None and run.needs != "recipe":
            asked |= {run.recipe.place(place): place for place in _sources(run)}
    local = {where: name for where, name in asked.items() if parse_source(where)[0] in (None, "beir")}
    return {
        where: next((how for known, how in study.fetch.items() if fnmatch(name, known)), "put it there")
        for where, name in local.items()
        if not _is_there(where)
    }


def _sources(run: Run) -> Iterator[str]:
    """The places that a recipe reads before it is evaluated, those of the training only where it is carried out."""
    recipe = run.recipe
    assert recipe is not None
    for part in (recipe.transfer, recipe.expand, recipe.pretrain):
        yield from part.texts if part is not None else []
    yield from filter(None, [recipe.rescale and recipe.rescale.texts, recipe.expand and recipe.expand.words])
    if run.needs == "model":
        yield from filter(None, [recipe.calibrate and recipe.calibrate.texts, recipe.queries and recipe.queries.corpus])
        for source in recipe.data.examples:
            if isinstance(source, str):
                yield source
            else:
                yield from filter(None, [source.file, source.corpus, source.queries, source.scores])
