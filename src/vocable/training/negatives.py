"""Hard negatives: read their ids by system, as in the msmarco-hard-negatives data set, and sample among them."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeAlias

from vocable.core.progress import track
from vocable.data import Example, read_corpus, read_mined_negatives, read_queries, read_scores
from vocable.data.docstore import IdSet, TextStore, text_store
from vocable.errors import DataError
from vocable.training.recipe import HardNegatives

ScoresOf: TypeAlias = Callable[[str], Mapping[str, float]]  # id of a query -> scores by id of a document


class Candidate(NamedTuple):
    """A candidate negative by its text or id, and its score by the teacher, if known."""

    name: str
    score: float | None = None


class NegativeSampler:
    """Samples up to `count` negatives of an example, evenly from the systems that retrieved them.

    A negative that scores above the positive's score minus `margin` is left out and counted in `dropped`. Systems and
    negatives are taken in the given order; `training.prepared` shuffles them first.
    """

    def __init__(self, count: int, margin: float | None = None) -> None:
        self.count, self.margin = count, margin
        self.dropped = 0

    def sample(
        self,
        systems: Sequence[Sequence[Candidate]],
        positive: float | None = None,
        usable: Callable[[str], bool] = lambda name: True,
    ) -> list[Candidate]:
        """Return negatives with different names from the candidates of each system, best first.

        The positive's score is needed with a margin; candidates that are not `usable` are left out.

        >>> lists = [[Candidate("a"), Candidate("b")], [Candidate("a"), Candidate("c")]]
        >>> [candidate.name for candidate in NegativeSampler(3).sample(lists)]
        ['a', 'c', 'b']
        """
        bound = math.inf if self.margin is None or positive is None else positive - self.margin
        taken: dict[str, Candidate] = {}
        dropped: set[str] = set()
        turns = deque(iter(system) for system in systems)
        while turns and len(taken) < self.count:
            system = turns.popleft()
            for candidate in system:
                if candidate.name in taken or candidate.name in dropped:
                    continue
                if candidate.score is not None and candidate.score > bound:
                    dropped.add(candidate.name)
                elif usable(candidate.name):
                    taken[candidate.name] = candidate
                    turns.append(system)
                    break
        self.dropped += len(dropped)
        return list(taken.values())


def read_hard_negatives(source: HardNegatives, sampler: NegativeSampler, cache: Path) -> Iterator[Example | None]:
    """Yield an example for each query and positive of `source`, with sampled negatives.

    None stands for an example whose query or positive has no text, or whose positive has no score although the source
    has scores. A positive of the query is never its negative. The folder `cache` keeps the texts and scores by id.
    """
    corpus = _store(cache, "corpus", source.corpus, documents_of)
    queries = _store(cache, "queries", source.queries, read_queries)
    scores = None if source.scores is None else stored_scores(source.scores, cache)
    name = Path(source.file).name.partition(".")[0]
    for mined in mined_answers(source, scores):
        query = queries.get(mined.query)
        for positive, positive_score in mined.positives:
            text = corpus.get(positive)
            if query is None or text is None or (scores is not None and positive_score is None):
                yield None
                continue
            taken = sampler.sample(mined.systems, positive_score, lambda identifier: corpus.get(identifier) is not None)
            texts = tuple(corpus.get(candidate.name) or "" for candidate in taken)
            yield Example(query, text, texts, name, all_scores(positive_score, taken))


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
    store = _store(cache, "scores", place, _scores)
    return lambda query: json.loads(store.get(query) or "{}")


def all_scores(positive: float | None, negatives: Iterable[Candidate]) -> tuple[float, ...]:
    return () if positive is None else (positive, *(candidate.score or 0.0 for candidate in negatives))


def _store(cache: Path, kind: str, place: str, read: Callable[[str], Iterable[tuple[str, str]]]) -> TextStore:
    """Return the texts of a source by id; several sources of examples may share the source of texts."""
    digest = blake2b(place.encode(), digest_size=4).hexdigest()
    return text_store(cache / f"{kind}-{digest}", lambda: track(read(place), kind))


def documents_of(place: str) -> Iterator[tuple[str, str]]:
    return ((document.id, document.full) for document in read_corpus(place) if document.full)


def _scores(place: str) -> Iterator[tuple[str, str]]:
    """Yield the scores of each query's documents, as JSON; a hundred million scores are too many to sort."""
    seen = IdSet()
    for query, rows in groupby(read_scores(place), key=lambda row: row.query_id):
        if not seen.add(query):
            raise DataError(f"the scores of query {query!r} are not consecutive: sort by query", source=place)
        yield query, json.dumps({row.doc_id: row.score for row in rows})
