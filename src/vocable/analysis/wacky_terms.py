"""Which terms to call wacky: the share of the scored terms that come first in the ranking of stored scores."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from vocable.analysis.wackiness_store import read_scores
from vocable.encoder.terms import fingerprint
from vocable.errors import ArgumentError
from vocable.evaluation.wackiness import ranked

SHARE = 0.1  # our reading: the score says which of two terms is the wackier, and nowhere where wacky begins


def read_wacky_terms(path: str | os.PathLike[str], names: Sequence[str], share: float = SHARE) -> frozenset[str]:
    """The wackiest terms of a file of scores, as `vocable.search.explain` marks them.

    Args:
        path: what `write_scores` wrote.
        names: the v terms of the model that is explained, by column.
        share: of the terms that have a score, rounded up.

    Raises:
        ArgumentError: a share that is not above 0 and at most 1.
        VectorsError: no file of scores, or they are of another vocabulary.
    """
    if not 0 < share <= 1:
        raise ArgumentError(f"the share of wacky terms must be above 0 and at most 1, not {share}")
    stored = read_scores(path, fingerprint(list(names)))
    columns = ranked(stored.scores, stored.inputs)
    return frozenset(names[column] for column in columns[: math.ceil(share * len(columns) - 1e-9)].tolist())
