"""The texts that a start of training is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from vocable.adapt.start import PAIR_WORDS
from vocable.data import read_texts
from vocable.errors import DataError
from vocable.evaluation.cost import spread

BUILT_IN = "pydocs:"  # at hand everywhere; English about programming, no substitute for the texts to be searched
TEXTS = 128  # each makes a query and a document: four batches of 32
READ = 4096  # texts of a place, among which the probe is chosen


def probe_texts(texts: str | Path | Sequence[str]) -> list[str]:
    """At most 128 texts of 8 words or more, evenly taken from a list or from the first 4,096 texts of a place.

    Raises:
        DataError: there are fewer than two such texts, or the place cannot be read.
    """
    place = str(texts) if isinstance(texts, str | Path) else None
    given = islice(read_texts(texts), READ) if isinstance(texts, str | Path) else texts
    usable = [text for text in dict.fromkeys(given) if len(text.split()) >= PAIR_WORDS]
    if len(usable) < 2:
        raise DataError(f"a probe needs at least two different texts of {PAIR_WORDS} words or more", place=place)
    return [usable[i] for i in spread(len(usable), TEXTS)]
