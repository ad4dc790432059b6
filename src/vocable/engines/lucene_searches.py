"""Bodies of searches and counts of Elasticsearch and OpenSearch, which share a request, and what their answers say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vocable.engines.base import Hits
from vocable.engines.kept_counts import Counted

# The parts of answers that are read: others would be most of the bytes.
HIT_PARTS = ("_index", "_score", "sort")
ANSWER_PARTS = ("error", "status", "timed_out", "_shards", "hits.total.value", "aggregations.*.buckets.*.doc_count")
ANSWERED = "filter_path=" + ",".join(
    f"responses.{part}" for part in (*ANSWER_PARTS, *(f"hits.hits.{part}" for part in HIT_PARTS))
)


class Body(NamedTuple):
    """A search, None for a query without terms, and how its scores become dot products."""

    asked: Mapping[str, object] | None
    scale: float
    lowest: float = 0.0


def search_body(query: Mapping[str, object], k: int) -> dict[str, object]:
    """Return a search for the k best documents; the ids of hits are among the keys of their order."""
    return {
        "size": k,
        "query": query,
        "sort": [{"_score": "desc"}, {"id": "asc"}],
        "track_scores": True,
        "track_total_hits": False,
        "_source": False,
        "stored_fields": "_none_",
    }


def hits_of(body: Body, answer: Mapping[str, Any]) -> Hits:
    """Return the hits in the answer to a search."""
    hits = answer.get("hits", {}).get("hits", ())
    return [(hit["sort"][1], (hit["_score"] - body.lowest) * body.scale) for hit in hits]


def indexes_of(answer: Mapping[str, Any]) -> set[str]:
    """Return the indexes that the hits of a search are from."""
    return {hit["_index"] for hit in answer.get("hits", {}).get("hits", ())}


def count_body(terms: Mapping[str, object], condition: Mapping[str, object] | None) -> dict[str, object]:
    """Return a count of the documents that match each of `terms`, queries by name, and a condition."""
    body: dict[str, object] = {"size": 0, "track_total_hits": True}
    if condition is not None:
        body["query"] = {"bool": {"filter": [condition]}}
    return body | ({"aggs": {"terms": {"filters": {"filters": terms}}}} if terms else {})


def counted_in(answers: Iterable[Mapping[str, Any]]) -> Counted:
    """Return the counts in answers: of documents by term, and of all documents."""
    counts, documents = dict[int, int](), 0
    for answer in answers:
        buckets = answer.get("aggregations", {"terms": {"buckets": {}}})["terms"]["buckets"]
        counts |= {int(name): int(bucket["doc_count"]) for name, bucket in buckets.items()}
        documents = int(answer["hits"]["total"]["value"])
    return counts, documents
