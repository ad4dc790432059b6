"""Bytes on disk that the runs of a study take besides vectors, by the sizes of their backbones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from studies.cost import CANDIDATE_BYTES, CHECKPOINT_BYTES, PASSAGE_BYTES, TOKEN_BYTES, WEIGHT_BYTES, backbone_of
from studies.processor import MINED_SCORES
from studies.runs import Run
from vocable.training.recipe import HardNegatives


def of_models(runs: Iterable[Run]) -> float:
    """Return the bytes of all adapted and trained models, which stay."""
    weights, adapted = 0.0, set[str]()
    for run in runs:
        if run.recipe is None or run.needs == "recipe":
            continue
        size = backbone_of(run.start).size
        weights += size if run.needs == "model" else 0
        if run.adapted != run.recipe.model and run.adapted not in adapted:
            adapted.add(run.adapted)
            weights += size
    return weights * WEIGHT_BYTES


def of_examples(runs: Iterable[Run], sizes: Mapping[str, int]) -> float:
    """Return the bytes of prepared examples with mined negatives, which stay; of other examples they are not known."""
    recipes = [run.recipe for run in runs if run.recipe is not None and run.needs == "model"]
    sampled = [source for recipe in recipes if recipe.data.sampling == "random" for source in recipe.data.examples]
    files = {source.file for source in sampled if isinstance(source, HardNegatives)}
    return len(files) * (MINED_SCORES * CANDIDATE_BYTES + max(sizes.values(), default=0) * PASSAGE_BYTES)


def at_work(runs: Iterable[Run]) -> float:
    """Return the most bytes that a run takes until it is done: a checkpoint, and the windows of its pre-training."""
    most = 0.0
    for run in runs:
        if run.recipe is not None and run.needs != "recipe":
            learning, checkpoint = run.recipe.pretrain, backbone_of(run.start).size * CHECKPOINT_BYTES
            windows = 0
            if learning is not None:
                batch = learning.batch_size * learning.gradient_accumulation
                windows = learning.steps * batch * learning.max_length * TOKEN_BYTES
            most = max(most, checkpoint + windows)
    return most
