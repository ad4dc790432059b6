"""Search the index of a running service: an answer takes milliseconds, where loading the model would take seconds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from vocable.data import Document, Query
from vocable.errors import ArgumentError
from vocable.retrieval.explain import Explanation, MatchedTerm
from vocable.retrieval.fusion import parse_weights
from vocable.retrieval.records import Answer, Hit, Passage
from vocable.service import TOKEN, schemas
from vocable.service.client import Client

SPACES = ("sparse", "bm25", "dense")
ASKED = ("k", "hybrid", "weights", "fusion", "explain", "filter", "max_terms", "min_weight")  # of `vocable.search`


def search_service(url: str, queries: Iterable[Query], **settings: Any) -> Iterator[Answer]:
    """What a service finds for each query; the settings are those of `vocable.search`, as far as a request has them.

    The token is that of VOCABLE_TOKEN. Raises `ArgumentError` for a setting that it has not, `ServiceError` if it does
    not answer.
    """
    if other := next((name for name, value in settings.items() if value and name not in ASKED), None):
        raise ArgumentError(f"{other} is for an index on this machine: a service has its own")
    if settings.get("weights"):
        settings["weights"] = parse_weights(settings["weights"], SPACES)
    asked = {name: settings[name] for name in ASKED if settings.get(name) is not None}
    with Client(url, token=os.environ.get(TOKEN)) as client:
        for query in queries:
            found = client.search(query.text, **asked) if query.text else ()  # none for a blank line of stdin
            yield Answer(query, tuple(map(_hit, found)))


def _hit(found: schemas.Hit) -> Hit:
    document = Document(found.id, found.text, found.title, found.fields)
    why = passage = None
    if found.explanation is not None:
        matches = tuple(MatchedTerm(**one.model_dump()) for one in found.explanation.matches)
        why = Explanation(found.explanation.score, matches)
    if found.passage is not None:
        passage = Passage(**found.passage.model_dump())
    return Hit(found.rank, found.score, document, why, passage)
