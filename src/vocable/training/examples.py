"""Training examples as the host trainer wants them: one data set a source, on disk, drawn in the wanted shares."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict, concatenate_datasets
from datasets.exceptions import DatasetGenerationError
from datasets.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled

from vocable.data import Example, read_examples
from vocable.errors import DataError
from vocable.training.hard_negatives import read_hard_negatives
from vocable.training.negatives import Candidate, Chooser
from vocable.training.recipe import Data
from vocable.training.sources import HardNegatives

logger = logging.getLogger(__name__)


def load_examples(
    sources: Sequence[str | HardNegatives],
    settings: Data,
    *,
    draws: int,
    batch_size: int,
    seed: int,
    cache: Path,
    scored: bool = False,
) -> DatasetDict:
    """The examples of a run, one data set a source, so that a batch can be drawn from one source.

    Args:
        sources: what `vocable.data.read_examples` takes, or hard negatives as ids.
        settings: `negatives` of an example become the columns negative_1, negative_2, ..., the first ones or, with
            random sampling, others in every pass; a source of n examples gets a share proportional to n to the power
            `size_exponent`. An example is passed over if `false_negative_margin`, or its ids, leave too few.
        draws: examples that the run sees; a source is repeated, newly shuffled, when its share is larger than it is.
        batch_size: shares are rounded to whole batches, one at least.
        seed: decides the order and the sampling.
        cache: folder for the Arrow files, which are memory-mapped rather than held.
        scored: also give the column label: the teacher's scores of the positive and of each negative taken.

    Raises:
        DataError: a source without an example, an example with fewer negatives than asked for, or without the scores
            that a margin or `scored` needs.
    """
    names = [f"{i}-{Path(one if isinstance(one, str) else one.file).name}" for i, one in enumerate(sources)]
    first = [_on_disk(source, settings, scored, seed, 0, cache) for source in sources]
    sizes = np.array([len(examples) for examples in first])
    shares = sizes**settings.size_exponent / (sizes**settings.size_exponent).sum()
    rng = np.random.default_rng(seed)
    drawn = {}
    for name, source, examples, share in zip(names, sources, first, shares, strict=True):
        count = max(1, round(draws * share / batch_size)) * batch_size
        rows = _draw(len(examples), count, rng)
        if settings.sampling == "random":
            passes = -(-count // len(examples))
            others = [_on_disk(source, settings, scored, seed, number, cache) for number in range(1, passes)]
            rows += np.arange(count) // len(examples) * len(examples)
            examples = concatenate_datasets([examples, *others])
        drawn[name] = examples.select(rows)
    return DatasetDict(drawn)


def _on_disk(source: str | HardNegatives, settings: Data, scored: bool, seed: int, number: int, cache: Path) -> Dataset:
    """One pass over a source as a memory-mapped data set; a second call finds the files of the first."""
    shown = is_progress_bar_enabled()
    disable_progress_bar()
    try:
        options = {
            "source": source if isinstance(source, str) else source.model_dump(),
            "negatives": settings.negatives,
            "margin": settings.false_negative_margin,
            "scored": scored,
            "draw": (seed, number) if settings.sampling == "random" else None,
            "cache": str(cache),
        }
        return Dataset.from_generator(_rows, gen_kwargs=options, cache_dir=str(cache))
    except DatasetGenerationError as error:
        raise (error.__cause__ if isinstance(error.__cause__, DataError) else error) from None
    finally:
        if shown:
            enable_progress_bar()


def _rows(
    source: str | dict[str, Any],
    negatives: int,
    margin: float | None,
    scored: bool,
    draw: tuple[int, int] | None,
    cache: str,
) -> Iterator[dict[str, Any]]:
    chooser = Chooser(negatives, margin, None if draw is None else np.random.default_rng(draw))
    if isinstance(source, str):
        place, examples = source, _chosen(source, chooser, negatives, margin)
    else:
        settings = HardNegatives(**source)
        place, examples = settings.file, read_hard_negatives(settings, chooser, Path(cache))
    taken = passed_over = 0
    for example in examples:
        if example is None or len(example.negatives) < negatives:
            passed_over += 1
            continue
        taken += 1
        yield _row(example, place, scored)
    if not taken:
        raise DataError("no example" + (f" has {negatives} usable negatives" if passed_over else ""), place=place)
    if (passed_over or chooser.dropped) and (draw is None or draw[1] == 0):
        message = "%s: %d negatives left out for their scores, %d of %d examples passed over"
        logger.warning(message, place, chooser.dropped, passed_over, taken + passed_over)


def _chosen(place: str, chooser: Chooser, negatives: int, margin: float | None) -> Iterator[Example | None]:
    """The examples of a place, each with the negatives taken."""
    for example in read_examples(place):
        if len(example.negatives) < negatives:
            few = f"an example has {len(example.negatives)} negatives where {negatives} are asked for"
            raise DataError(f"{few}: {example.query[:60]!r}", place=place)
        if margin is not None and not example.scores:
            raise DataError(f"an example has no scores to compare: {example.query[:60]!r}", place=place)
        own, *others = example.scores or [None] * (1 + len(example.negatives))
        chosen = chooser.choose([list(map(Candidate, example.negatives, others))], own)
        scores = (own, *(candidate.score or 0.0 for candidate in chosen)) if own is not None else ()
        yield example._replace(negatives=tuple(candidate.name for candidate in chosen), scores=scores)


def _row(example: Example, place: str, scored: bool) -> dict[str, Any]:
    if scored and not example.scores:
        remedy = "name training.teacher, or score them first (vocable score)"
        raise DataError(f"its examples carry no scores to learn from: {remedy}", place=place)
    columns = {f"negative_{i}": text for i, text in enumerate(example.negatives, start=1)}
    label = {"label": list(example.scores)} if scored else {}
    return {"query": example.query, "positive": example.positive, **columns, **label}


def _draw(size: int, draws: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int64]]:
    """`draws` rows of `size`: whole passes in new orders, then a part of one."""
    passes = [rng.permutation(size) for _ in range(-(-draws // size))]
    return np.concatenate(passes)[:draws]
