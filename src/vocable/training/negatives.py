"""Hard negatives: read their ids by system, as in the msmarco-hard-negatives data set, and their scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeAlias

from vocable.core.progress import track
from vocable.data import read_corpus, read_mined_negatives, read_scores
from vocable.data.docstore import IdSet, text_store
from vocable.errors import DataError
from vocable.training.recipe import HardNegatives

ScoresOf: TypeAlias = Callable[[str], Mapping[str, float]]  # id of a query -> scores by id of a document


class Candidate(NamedTuple):
    """A candidate negative by its text or id, and its score by the teacher, if known."""

    name: str
    score: float | None = None


class MinedAnswers(NamedTuple):
    """The id of a query, its positives, and the candidate negatives of each system, best first."""

    query: str
    positives: list[Candidate]
    systems: list[list[Candidate]]


def mined_answers(source: HardNegatives, scores: ScoresOf | None) -> Iterator[MinedAnswers]:
    """Yield the answers to each query of `source`, without negatives that are positives.

    With `scores`, negatives without a score are left out. Raises `DataError` at the end if no query has negatives of
    one of `source.systems`.
    """
    unseen = set(source.systems or ())
    for mined in read_mined_negatives(source.file):
        unseen -= mined.systems.keys()
        scored = None if scores is None else scores(mined.query_id)
        systems = [
            [
                Candidate(document, None if scored is None else scored[document])
                for document in mined.systems.get(system, ())
                if document not in mined.positives and (scored is None or document in scored)
            ]
            for system in source.systems or mined.systems
        ]
        positives = [
            Candidate(document, None if scored is None else scored.get(document)) for document in mined.positives
        ]
        yield MinedAnswers(mined.query_id, positives, systems)
    if unseen:
        raise DataError(f"no query has negatives of {', '.join(sorted(unseen))}", source=source.file)


def stored_scores(place: str, cache: Path) -> ScoresOf:
    """Return the scores of a source by query; the folder `cache` keeps them."""
    digest = blake2b(place.encode(), digest_size=4).hexdigest()
    store = text_store(cache / f"scores-{digest}", lambda: track(_scores(place), "scores"))
    return lambda query: json.loads(store.get(query) or "{}")


def documents_of(place: str) -> Iterator[tuple[str, str]]:
    return ((document.id, document.full) for document in read_corpus(place) if document.full)


def _scores(place: str) -> Iterator[tuple[str, str]]:
    """Yield the scores of each query's documents, as JSON; a hundred million scores are too many to sort."""
    seen = IdSet()
    for query, rows in groupby(read_scores(place), key=lambda row: row.query_id):
        if not seen.add(query):
            raise DataError(f"the scores of query {query!r} are not consecutive: sort by query", source=place)
        yield query, json.dumps({row.doc_id: row.score for row in rows})
