"""Training examples as the host trainer wants them: one data set a source, on disk, drawn in the wanted shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from datasets.exceptions import DatasetGenerationError
from datasets.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled

from vocable.data import read_examples
from vocable.errors import DataError
from vocable.training.recipe import Data


def load_examples(
    places: list[str], settings: Data, *, draws: int, batch_size: int, seed: int, cache: Path
) -> DatasetDict:
    """The examples of a run, one data set a place, so that a batch can be drawn from one source.

    Args:
        places: what `vocable.data.read_examples` takes.
        settings: `negatives` of an example become the columns negative_1, negative_2, ...; a source of n examples gets
            a share proportional to n to the power `size_exponent`.
        draws: examples that the run sees; a source is repeated, newly shuffled, when its share is larger than it is.
        batch_size: shares are rounded to whole batches, one at least.
        seed: decides the order.
        cache: folder for the Arrow files, which are memory-mapped rather than held.

    Raises:
        DataError: a place without an example, or an example with fewer negatives than asked for.
    """
    sources = {
        f"{number}-{Path(place).name}": _on_disk(place, settings.negatives, cache)
        for number, place in enumerate(places)
    }
    sizes = np.array([len(source) for source in sources.values()])
    shares = sizes**settings.size_exponent / (sizes**settings.size_exponent).sum()
    rng = np.random.default_rng(seed)
    examples = {}
    for (name, source), share in zip(sources.items(), shares, strict=True):
        examples[name] = source.select(_draw(len(source), max(1, round(draws * share / batch_size)) * batch_size, rng))
    return DatasetDict(examples)


def _on_disk(place: str, negatives: int, cache: Path) -> Dataset:
    """One source as a memory-mapped data set; a second call finds the files of the first."""
    shown = is_progress_bar_enabled()
    disable_progress_bar()
    try:
        options = {"place": place, "negatives": negatives}
        return Dataset.from_generator(_rows, gen_kwargs=options, cache_dir=str(cache))
    except DatasetGenerationError as error:
        raise (error.__cause__ if isinstance(error.__cause__, DataError) else error) from None
    finally:
        if shown:
            enable_progress_bar()


def _rows(place: str, negatives: int) -> Iterator[dict[str, str]]:
    empty = True
    for example in read_examples(place):
        empty = False
        if len(example.negatives) < negatives:
            raise DataError(
                f"an example has {len(example.negatives)} negatives where {negatives} are asked for: "
                f"{example.query[:60]!r}",
                place=place,
            )
        columns = {f"negative_{i + 1}": text for i, text in enumerate(example.negatives[:negatives])}
        yield {"query": example.query, "positive": example.positive, **columns}
    if empty:
        raise DataError("no example", place=place)


def _draw(size: int, draws: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int64]]:
    """`draws` rows of `size`: whole passes in new orders, then a part of one."""
    passes = [rng.permutation(size) for _ in range(-(-draws // size))]
    return np.concatenate(passes)[:draws]
