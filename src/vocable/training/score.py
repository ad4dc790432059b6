"""Teacher scores for examples, to learn from with MarginMSE or KL."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from vocable.data import Example, read_examples
from vocable.encoder.stream import checksum
from vocable.errors import ModelError
from vocable.training.rewrite import Rewritten, rewrite
from vocable.training.scorers import Model, Scorer, make_scorer


def score(model: Model, examples: str | Path, output: str | Path) -> Rewritten:
    """Write the examples with the model's scores of the positive and of each negative, as JSON lines.

    Scores that the examples have already are replaced.

    Args:
        model: a cross-encoder with one label, whose scores are taken as they leave its head, or a dense or sparse
            bi-encoder of the host library; `vocable.training.scorers.load_scoring_model` loads any of them.
        examples: their place.
        output: the file; there only when it is whole. Work in progress is kept in `output` + ".partial"; the same call
            goes on with it.

    Returns:
        the counts.

    Raises:
        ArgumentError: the output is there already, or the work in progress is another model's.
        DataError: a place that cannot be read, or no example.
        ModelError: a cross-encoder with several labels, or scores that are not finite.
        VectorsError: the work in progress is of other examples.
    """
    place, scorer = str(examples), make_scorer(model.eval())
    settings = {"examples": place, "weights": checksum(model), "kind": type(scorer).__name__}
    return rewrite(
        lambda: read_examples(place),
        Path(output),
        settings,
        lambda work: lambda chunk: _scored(chunk, scorer),
        title="score",
    )


def _scored(examples: list[Example], scorer: Scorer) -> list[Example]:
    documents = [(example.positive, *example.negatives) for example in examples]
    queries = [example.query for example, texts in zip(examples, documents, strict=True) for _ in texts]
    scores = scorer(queries, [text for texts in documents for text in texts])
    if not np.isfinite(scores).all():
        raise ModelError("the model gives scores that are not finite")
    bounds = accumulate(map(len, documents), initial=0)
    return [
        example._replace(scores=tuple(scores[start:end].tolist()))
        for example, (start, end) in zip(examples, pairwise(bounds), strict=True)
    ]
