"""The plan of a search: all that its options say, computed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vocable.engines.filters import Filter
from vocable.engines.protocols import Space
from vocable.options import Fusion, Matching, Pruning, QueryEncoding, RerankOptions


@dataclass(frozen=True)
class SearchPlan:
    """A search for k documents after the `offset` best.

    Each space with a weight is searched for `depth` documents. The best `first` of them, fused if there are several
    spaces, are reranked, and the best `kept` are sorted by a field if there is one.
    """

    k: int
    offset: int
    weights: Mapping[Space, float]  # above 0
    fusion: Fusion
    filter: Filter | None
    like: str | None  # id of a document whose vectors are the query
    min_score: float | None
    matching: Matching
    reranking: RerankOptions
    sort: str | None  # field, or -FIELD
    query_encoding: QueryEncoding
    pruning: Pruning  # pruning of the vectors of `like`
    facets: tuple[str, ...]  # fields whose values are counted among the best hits
    depth: int
    first: int
    kept: int
    needs_model: bool  # the collection's own model encodes the query
