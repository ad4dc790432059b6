"""Examples of a study whose negatives are sampled for each pass: prepared once, for all runs."""

from __future__ import annotations

from pathlib import Path

from studies.pickled_scores import PickledScores
from vocable.training.prepared import prepare
from vocable.training.recipe import HardNegatives, Recipe

PREPARED = "prepared"  # folder below the output of a study
PICKLES = ".pkl", ".pickle"


def with_prepared_examples(recipe: Recipe, folder: Path) -> Recipe:
    """Return a recipe whose examples are read, or have been read, into the folder; others as they are.

    A teacher's scores may be a pickle of numbers (`studies.pickled_scores`).
    """
    if recipe.data.sampling != "random":
        return recipe
    places = []
    for source in recipe.examples():
        scores = None
        if isinstance(source, HardNegatives) and source.scores is not None and is_pickle(source.scores):
            scores = _Later(Path(source.scores))
        places.append(str(prepare(source, folder, scores).folder.resolve()))
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"examples": places})})


def is_pickle(place: str) -> bool:
    """Return whether a file is a pickle by its name, as scores.pkl.gz."""
    return any(ending in PICKLES for ending in Path(place).suffixes)


class _Later:
    """Scores that are read when the first query asks for them: prepared examples need none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._scores: PickledScores | None = None

    def __call__(self, query: str) -> dict[str, float]:
        if self._scores is None:
            self._scores = PickledScores(self._path)
        return self._scores(query)
