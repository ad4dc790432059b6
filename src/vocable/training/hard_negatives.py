"""Hard negatives that are stored as ids -> examples; only the texts that are asked for are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import groupby
from pathlib import Path

from vocable.data import Example, MinedNegatives, read_corpus, read_mined_negatives, read_queries, read_scores
from vocable.data.seen import SeenIds
from vocable.data.text_store import TextStore, text_store
from vocable.errors import DataError
from vocable.progress import progress
from vocable.training.negatives import Candidate, Chooser
from vocable.training.sources import HardNegatives


def read_hard_negatives(source: HardNegatives, chooser: Chooser, cache: Path) -> Iterator[Example | None]:
    """One example for each query and positive of `source`, with the negatives that `chooser` takes.

    None stands for one whose query or positive has no text, or no score where there are scores. A positive of the
    query is never its negative.

    Args:
        source: where ids, texts and scores are.
        chooser: its names are the ids of documents.
        cache: folder for the texts and scores by id, made once.

    Raises:
        DataError: a place that cannot be read, scores of a query that do not stand together, or a system that no query
            has.
    """
    corpus = _store(cache, "corpus", source.corpus, _documents)
    queries = _store(cache, "queries", source.queries, read_queries)
    scores = None if source.scores is None else _store(cache, "scores", source.scores, _scores)
    name, unseen = Path(source.file).name.partition(".")[0], set(source.systems or ())
    for mined in read_mined_negatives(source.file):
        unseen -= mined.systems.keys()
        query = queries.get(mined.query_id)
        scored = None if scores is None else json.loads(scores.get(mined.query_id) or "{}")
        for positive in mined.positives:
            text = corpus.get(positive)
            if query is None or text is None or (scored is not None and positive not in scored):
                yield None
                continue
            own = None if scored is None else scored[positive]
            systems = _candidates(mined, source.systems, scored)
            chosen = chooser.choose(systems, own, lambda identifier: corpus.get(identifier) is not None)
            texts = tuple(corpus.get(candidate.name) or "" for candidate in chosen)
            taught = () if own is None else (own, *(candidate.score or 0.0 for candidate in chosen))
            yield Example(query, text, texts, name, taught)
    if unseen:
        raise DataError(f"no query has negatives of {', '.join(sorted(unseen))}", place=source.file)


def _candidates(
    mined: MinedNegatives, systems: list[str] | None, scored: Mapping[str, float] | None
) -> list[list[Candidate]]:
    """The negatives of each system; where there are scores, those that have one."""
    asked = mined.systems.values() if systems is None else [mined.systems.get(name, ()) for name in systems]
    if scored is None:
        return [[Candidate(one) for one in ids if one not in mined.positives] for ids in asked]
    return [
        [Candidate(one, scored[one]) for one in ids if one in scored and one not in mined.positives] for ids in asked
    ]


def _store(cache: Path, kind: str, place: str, read: Callable[[str], Iterable[tuple[str, str]]]) -> TextStore:
    """The texts of a place by id, shared by the sources that name it."""
    digest = blake2b(place.encode(), digest_size=4).hexdigest()

    def told() -> Iterator[tuple[str, str]]:
        with progress(kind) as advance:
            for row in read(place):
                yield row
                advance(1)

    return text_store(cache / f"{kind}-{digest}", told)


def _documents(place: str) -> Iterator[tuple[str, str]]:
    return ((document.id, document.full) for document in read_corpus(place))


def _scores(place: str) -> Iterator[tuple[str, str]]:
    """For each query its documents' scores, as JSON: a hundred million of them are too many to sort."""
    seen = SeenIds()
    for query, rows in groupby(read_scores(place), key=lambda row: row.query_id):
        if not seen.add(query):
            raise DataError(f"the scores of query {query!r} do not stand together: sort by query", place=place)
        yield query, json.dumps({row.doc_id: row.score for row in rows})
