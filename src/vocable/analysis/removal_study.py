"""The steps between a model, a dataset and its removals, each of which is kept on disk until all are done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from sentence_transformers import SparseEncoder

from vocable.analysis.ablation import Outcome, Side
from vocable.analysis.measured import measured_vectors
from vocable.analysis.term_kinds import proper_names
from vocable.analysis.wackiness_report import scores_meta
from vocable.analysis.wackiness_store import read_scores, write_scores
from vocable.analysis.wackiness_study import Choices, find
from vocable.encoder.own_terms import own_terms
from vocable.encoder.terms import fingerprint, terms
from vocable.errors import VectorsError
from vocable.evaluation.retrieval import Encoded
from vocable.evaluation.wackiness import ranked
from vocable.search.exact import ExactIndex
from vocable.unfinished import read_json, write_json


def texts_of(encoded: Encoded, side: Side) -> list[str]:
    """The texts of the queries or of the documents, by row."""
    if side == "query":
        return [query.text for query in encoded.dataset.queries]
    return [document.full for document in encoded.dataset.documents]


def score_dataset(path: Path, model: SparseEncoder, name: str, encoded: Encoded, side: Side) -> None:
    """Measure the wackiness of the expansions on one side of a dataset, and write the scores to `path`.

    Args:
        path: the file, as of `vocable.analysis.wackiness_store.write_scores`.
        model: from `vocable.load`.
        name: of the model, written down with the scores.
        encoded: the dataset.
        side: whose expansions; a document is a query that does not find itself.
    """
    choices, documents = Choices(), texts_of(encoded, "document")
    counts, index = own_terms(model, documents), ExactIndex(encoded.documents, encoded.document_ids)
    if side == "query":
        own = own_terms(model, texts_of(encoded, side))
        measured = measured_vectors(name, model, encoded.queries, own, index, counts, choices.k)
    else:
        itself = np.arange(len(documents))
        measured = measured_vectors(name, model, encoded.documents, counts, index, counts, choices.k, itself=itself)
    found = find(measured, choices, names=proper_names(documents), draws=0)
    place = encoded.dataset.name
    meta = scores_meta(found, choices, model=name, role=side, queries=place, corpus=place)
    write_scores(path, found.wackiness, found.terms, found.kinds, meta)


def read_wackiest(path: Path, model: SparseEncoder) -> np.ndarray:
    """The columns of the scored terms, the wackiest first; raises `VectorsError` if the scores are not of the model."""
    stored = read_scores(path, fingerprint(terms(model)))
    return ranked(stored.scores, stored.inputs)


def remembered(folder: Path) -> Callable[[str, Callable[[], Outcome]], Outcome]:
    """What `vocable.analysis.removal.removal` calls to keep each search in `folder`, and to find it there again.

    What it gives raises `VectorsError` if a file is damaged.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def remember(name: str, work: Callable[[], Outcome]) -> Outcome:
        path = folder / f"{name}.json"
        if not path.exists():
            write_json(path, work()._asdict())
        try:
            return Outcome(**read_json(path))
        except TypeError as error:
            raise VectorsError(f"{path}: damaged: {error}") from error

    return remember
