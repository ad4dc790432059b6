"""What a recipe's examples may be, beside a place that has them as texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from vocable.training.part import Part


class HardNegatives(Part):
    """Examples as ids, in the layout of the msmarco-hard-negatives data set, and where the texts of the ids are."""

    file: str = Field(description="place of the ids: positives and, by system, negatives of each query")
    corpus: str = Field(description="place of the documents")
    queries: str = Field(description="place of the queries")
    scores: str | None = Field(default=None, description="place of a teacher's scores; what has none is left out")
    systems: list[str] | None = Field(default=None, min_length=1, description="whose negatives; null for all systems")


def _which(given: Any) -> str:
    return "place" if isinstance(given, str) else "hard_negatives"


Source = Annotated[
    Annotated[str, Tag("place")] | Annotated[HardNegatives, Tag("hard_negatives")], Discriminator(_which)
]


def located(source: str | HardNegatives, locate: Callable[[str], str]) -> str | HardNegatives:
    """The same source with `locate` applied to every place in it."""
    if isinstance(source, str):
        return locate(source)
    places = {name: getattr(source, name) for name in ("file", "corpus", "queries", "scores")}
    return source.model_copy(update={name: place and locate(place) for name, place in places.items()})
