"""Options and properties of Elasticsearch and OpenSearch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vocable.engines.protocols import About
from vocable.options import Count, CountOrZero


@dataclass(frozen=True)
class LuceneOptions:
    """Options of Elasticsearch and OpenSearch; the server decides if an option is not set.

    `shards` is the number of shards of the index, `replicas` the number of further copies of each shard. `refresh` is
    the refresh interval, such as "30s": searches see written documents after this time, or when the command ends.
    `bulk` is the number of documents in a request, `workers` the number of parallel requests. With `dense` "hnsw",
    dense vectors are in a graph, and their search is approximate.
    """

    shards: Count | None = None
    replicas: CountOrZero | None = None
    refresh: str | None = None
    bulk: Count | None = None
    workers: Count = 1
    dense: Literal["exact", "hnsw"] = "exact"


@dataclass(frozen=True)
class LuceneSearchOptions:
    """Options of a search: with `partial`, a search also answers while shards are unavailable, and reports it."""

    partial: bool = False


def about(engine: str) -> About:
    """Return the properties of an engine that uses Lucene."""
    return About(
        engine,
        exact=True,
        precision="9 bits",
        max_terms=1_024,  # clauses of a query: indices.query.bool.max_clause_count is at least this
        durable=True,
        filters=True,
        matching=("minimum_match",),
        side_by_side=True,
        spaces=("sparse", "bm25", "dense"),
        part=2048,
        options=LuceneOptions,
        of_run=("bulk", "workers"),
        search_options=LuceneSearchOptions,
    )
