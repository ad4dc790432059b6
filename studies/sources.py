"""Places of a study's data: the datasets and the sources of its recipes, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from studies.prepared import PREPARED
from studies.toys import Toys
from studies.vectors import Place
from vocable.data.sources import parse_source
from vocable.evaluation.dataset import Convention
from vocable.training.prepared import prepared_folder

if TYPE_CHECKING:
    from studies.plan import Study
    from studies.runs import Run


def place_of(study: Study, name: str, folder: str, toys: Toys | None) -> Place:
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


def missing_sources(study: Study, runs: Iterable[Run], places: Mapping[str, Place]) -> dict[str, str]:
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
