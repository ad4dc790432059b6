"""The conditions of a query on its hits: phrases that they have, and words that they lack."""

from __future__ import annotations

from collections.abc import Iterable

from vocable.collection.passages import Units
from vocable.data import Document
from vocable.engines.base import UNBOUNDED, Hits
from vocable.language.query_syntax import TypedQuery


class Conditions:
    """The conditions of a query on documents of a collection; each document is read once.

    `most` is the largest number of documents that fulfil them. As a text they are a line for readers.
    """

    def __init__(self, query: TypedQuery, units: Units, language: str) -> None:
        self._query, self._units, self._language = query, units, language
        self._met: dict[str, bool] = {}
        self._complete, self.most = False, UNBOUNDED

    def __str__(self) -> str:
        return str(self._query)

    def unmet_by(self, document: Document) -> str | None:
        """Return what a document does not fulfil, None if it fulfils all."""
        return self._query.unmet(document.heading, document.text, self._language)

    def among(self, ids: Iterable[str]) -> None:
        """Know that no other documents fulfil the conditions."""
        self._check(list(ids))
        self._complete, self.most = True, sum(self._met.values())

    def met_by(self, hits: Hits) -> Hits:
        """Return the hits that fulfil the conditions."""
        if not self._complete:
            self._check([name for name, _ in hits if name not in self._met])
        return [hit for hit in hits if self._met.get(hit[0])]

    def _check(self, ids: list[str]) -> None:
        for name, document in zip(ids, self._units.documents(ids), strict=True):
            self._met[name] = document is not None and self.unmet_by(document) is None
