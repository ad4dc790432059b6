"""A server that answers the requests to Elasticsearch and OpenSearch which are documented, and no other.

Scores are Lucene's: the product of a query's weight with 9 significant bits of the document's, added up as float32.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import numpy as np

from tests.engines.cluster import Faults, serving_http

PARTLY = {
    "partly busy": (429, {"type": "es_rejected_execution_exception", "reason": "rejected execution of bulk"}),
    "partly refused": (400, {"type": "document_parsing_exception", "reason": "failed to parse field [x]"}),
}
FEATURE = {"elasticsearch": "sparse_vector", "opensearch": "rank_features"}
DENSE = {"elasticsearch": "dense_vector", "opensearch": "knn_vector"}


SHARDS = 3  # of every index
NO_SHARD = {"type": "no_shard_available_action_exception", "reason": "No shard available for [GET]"}
NOT_ACTIVE = {"type": "unavailable_shards_exception", "reason": "[documents][0] primary shard is not active"}


class Engine:
    """The indexes of a server: by name the mapping, the documents' sources by id, and those that a search sees.

    Documents of `lost` shards are not found, counted or written, as a real server does it: its searches answer from the
    other shards, and a lost shard is not among those that failed.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.lost = set[int]()
        self.blocked = ""  # the reason for which nothing can be written
        self.aliases: dict[str, str] = {}  # indexes by alias
        self.template: dict[str, Any] = {}  # what an index template adds to a mapping
        self.several: dict[str, list[str]] = {}  # indexes by an alias of more than one
        self.mappings: dict[str, dict[str, Any]] = {}
        self.written: dict[str, dict[str, Any]] = {}
        self.seen: dict[str, dict[str, Any]] = {}

    def answer(self, method: str, path: str, content: bytes, fault: str = "") -> tuple[int, Any]:
        """The status and the body."""
        path, _, asked = path.partition("?")
        assert asked.partition("=")[0] in (
            *("", "local", "cluster_manager_timeout", "master_timeout", "timeout", "filter_path"),
        )
        parts = asked.removeprefix("filter_path=").split(",") if asked.startswith("filter_path=") else None
        name, _, action = unquote(path).strip("/").partition("/")
        body = None if not content or action in ("_bulk", "_msearch") else json.loads(content)
        if name == "_aliases":
            return self.change_aliases(body["actions"])
        if name in self.aliases and (method, action) == ("DELETE", ""):
            return 400, {"error": {"type": "illegal_argument_exception", "reason": "an alias"}, "status": 400}
        if name in self.several:
            assert (method, action) == ("GET", "_mapping")
            return 200, {index: {"mappings": self.mappings[index]} for index in self.several[name]}
        name = self.aliases.get(name, name)
        if (method, action) == ("PUT", "") and name in self.mappings:
            reason = f"index [{name}] already exists"
            return 400, {"error": {"type": "resource_already_exists_exception", "reason": reason}, "status": 400}
        if (method, action) == ("PUT", ""):
            assert name == name.lower()
            if refused := self.refused_type(body["mappings"]["properties"]):
                return refused
            assert all(
                field["type"] in ("keyword", "text", "object", FEATURE[self.kind], DENSE[self.kind])
                for field in body["mappings"]["properties"].values()
            )
            self.mappings[name], self.written[name], self.seen[name] = body["mappings"] | self.template, {}, {}
            return 200, {"acknowledged": True}
        if name.endswith("*"):
            assert (method, action) == ("GET", "_mapping")
            begun = [index for index in self.mappings if index.startswith(name[:-1])]
            return 200, {index: {"mappings": self.mappings[index]} for index in begun}
        if name not in self.mappings:
            return 404, {
                "error": {"type": "index_not_found_exception", "reason": f"no such index [{name}]"},
                "status": 404,
            }
        answers = {
            ("DELETE", ""): lambda: {"acknowledged": self.mappings.pop(name) is not None},
            ("GET", "_mapping"): lambda: {name: {"mappings": self.mappings[name]}},
            ("PUT", "_mapping"): lambda: self.mappings[name].update(body) or {"acknowledged": True},
            ("POST", "_bulk"): lambda: self.results(list(self.bulk(name, content, fault)), fault),
            ("POST", "_refresh"): lambda: self.seen.update({name: dict(self.written[name])}) or self.shards(),
            ("POST", "_mget"): lambda: {"docs": [self.get(name, one) for one in body["docs"]]},
            ("POST", "_search"): lambda: self.search(name, body) | {"timed_out": False} | self.shards(),
            ("POST", "_msearch"): lambda: {"took": 1, "responses": self.searches(name, content)},
            ("GET", "_count"): lambda: {"count": len(self.there(name))} | self.shards(),
            ("POST", "_count"): lambda: {"count": self.matching(name, body["query"])} | self.shards(),
            ("GET", "_stats/store"): lambda: (
                {"_all": {"primaries": {"store": {"size_in_bytes": 1 + len(content)}}}} | self.shards()
            ),
        }
        answer = answers[method, action]()
        return 200, answer if parts is None else filtered(answer, [part.split(".") for part in parts])

    def shards(self) -> dict[str, Any]:
        """What an answer says of its shards."""
        return {"_shards": {"total": SHARDS, "successful": SHARDS - len(self.lost), "skipped": 0, "failed": 0}}

    def is_lost(self, key: str) -> bool:
        """Whether the document of a key is in a lost shard."""
        return zlib.crc32(key.encode()) % SHARDS in self.lost

    def there(self, name: str) -> dict[str, Any]:
        """The documents that a search finds."""
        return {key: source for key, source in self.seen[name].items() if not self.is_lost(key)}

    def refused_type(self, properties: dict[str, Any]) -> tuple[int, Any] | None:
        """The answer of a server without a module, which `blocked` names."""
        field = {"no module": "sparse", "no dense module": "dense"}.get(self.blocked)
        if field not in properties:
            return None
        reason = f"No handler for type [{properties[field]['type']}] declared on field [{field}]"
        cause = {"type": "mapper_parsing_exception", "reason": reason}
        return 400, {"error": cause | {"root_cause": [cause]}, "status": 400}

    def change_aliases(self, actions: list[dict[str, dict[str, str]]]) -> tuple[int, Any]:
        """Carry out all actions or none."""
        aliases, removed = dict(self.aliases), set[str]()
        for one in actions:
            [(action, said)] = one.items()
            there = said["index"] in self.mappings and said["index"] not in self.aliases
            if action == "remove_index":
                removed.add(said["index"])
            elif action == "remove":
                there = aliases.pop(said["alias"], None) == said["index"]
            else:
                assert action == "add"
                there = there and (said["alias"] not in self.mappings or said["alias"] in removed)
                aliases[said["alias"]] = said["index"]
            if not there:
                return 404, {"error": {"type": "aliases_not_found_exception", "reason": str(one)}, "status": 404}
        self.aliases = aliases
        for name in removed:
            del self.mappings[name]
        return 200, {"acknowledged": True}

    def results(self, items: list[Any], fault: str) -> dict[str, Any]:
        if fault == "reordered":
            random.Random(0).shuffle(items)
        return {"items": items, "errors": any("error" in one for item in items for one in item.values())}

    def bulk(self, name: str, content: bytes, fault: str) -> Iterator[Any]:
        assert content.endswith(b"\n")
        lines = iter(map(json.loads, content.splitlines()))
        for number, line in enumerate(lines):
            [(action, target)] = line.items()
            if self.is_lost(target["_id"]) or self.blocked:
                if action == "index":
                    next(lines)
                blocked = 429, {"type": "cluster_block_exception", "reason": self.blocked}
                status, error = blocked if self.blocked else (503, NOT_ACTIVE)
                yield {action: {"_id": target["_id"], "status": status, "error": error}}
                continue
            if number % 3 == 1 and fault in PARTLY and action == "index":
                next(lines)
                status, error = PARTLY[fault]
                yield {action: {"_id": target["_id"], "status": status, "error": error}}
                continue
            if action == "delete":
                there = self.written[name].pop(target["_id"], None)
                status = (
                    {"result": "deleted", "status": 200}
                    if there is not None
                    else {"result": "not_found", "status": 404}
                )
                yield {"delete": {"_id": target["_id"]} | status}
                continue
            source = next(lines)
            assert action == "index"
            assert len(target["_id"].encode()) <= 512
            assert set(source) <= set(self.mappings[name]["properties"])
            for field, weights in source.items():
                if self.mappings[name]["properties"][field]["type"] == FEATURE[self.kind]:
                    assert all(re.fullmatch(r"[^.]+", token) and weight > 0 for token, weight in weights.items())
                if field == "dense":
                    assert len(weights) == dimensions(self.mappings[name]["properties"]["dense"])
            self.written[name][target["_id"]] = source
            yield {"index": {"_id": target["_id"], "result": "created", "status": 201}}

    def get(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        if self.is_lost(asked["_id"]):
            return {"_id": asked["_id"], "error": NO_SHARD | {"root_cause": [NO_SHARD]}}
        source = self.written[name].get(asked["_id"])
        return {"_id": asked["_id"], "found": source is not None} | (
            {} if source is None else {"_source": chosen(source, asked["_source"])}
        )

    def searches(self, name: str, content: bytes) -> list[dict[str, Any]]:
        lines = content.splitlines()
        assert {*lines[::2]} == {b"{}"}
        bodies = map(json.loads, lines[1::2])
        return [self.search(name, body) | {"timed_out": False, "status": 200} | self.shards() for body in bodies]

    def search(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        assert body["size"] <= 10_000
        if body["size"] == 0:
            return self.counts(name, body)
        found = [
            (source, np.float32(0) if "query" not in body else self.score(body["query"], source))
            for source in self.there(name).values()
        ]
        if "query" in body:
            assert body["sort"] == [{"_score": "desc"}, {"id": "asc"}]
            assert body["track_scores"] is True
        else:
            after = body.get("search_after", [""])[0]
            found = [(source, score) for source, score in found if source["id"] > after]
        found = [(source, score) for source, score in found if score is not None]
        found.sort(key=lambda one: (-one[1], one[0]["id"]))
        hits = []
        for source, score in found[: body["size"]]:
            order = [float(score), source["id"]] if "query" in body else [source["id"]]
            hit = {"_index": name, "_score": float(score), "sort": order}
            if body["_source"]:
                hit["_source"] = chosen(source, body["_source"])
            hits.append(hit)
        return {"hits": {"hits": hits}}

    def counts(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """The number of documents, and of those that match each of the filters of an aggregation."""
        assert body["track_total_hits"] is True
        scope = {"bool": {"filter": [body["query"]] if "query" in body else []}}
        there = [one for one in self.there(name).values() if self.score(scope, one) is not None]
        filters = body.get("aggs", {"terms": {"filters": {"filters": {}}}})["terms"]["filters"]["filters"]
        having = Counter((field, token) for one in there for field in self.features(name) for token in one[field])

        def count(query: dict[str, Any]) -> int:
            if (token := token_of(query)) is None:
                return sum(self.score(query, one) is not None for one in there)
            for one in there[:1]:
                self.score(query, one)  # which checks the query's form
            return having[token]

        buckets = {label: {"doc_count": count(query)} for label, query in filters.items()}
        found = {"aggregations": {"terms": {"buckets": buckets}}} if "aggs" in body else {}
        return {"hits": {"total": {"value": len(there), "relation": "eq"}, "hits": []}, **found}

    def features(self, name: str) -> list[str]:
        """The fields of sparse vectors."""
        types = {field: settings["type"] for field, settings in self.mappings[name]["properties"].items()}
        return [field for field, kind in types.items() if kind == FEATURE[self.kind]]

    def matching(self, name: str, query: dict[str, Any]) -> int:
        """The number of documents that match a query."""
        return sum(self.score(query, source) is not None for source in self.there(name).values())

    def score(self, query: dict[str, Any], source: dict[str, Any]) -> np.float32 | None:
        """The score of a document; None if it does not match."""
        [(kind, said)] = query.items()
        if kind == "bool":
            assert set(said) <= {"must", "filter", "should", "must_not", "minimum_should_match"}
            assert ("should" in said) == ("minimum_should_match" in said)
            assert len(said.get("should", [])) <= 1024
            must = [self.score(part, source) for part in said.get("must", [])]
            should = [score for part in said.get("should", []) if (score := self.score(part, source)) is not None]
            allowed = all(self.score(part, source) is not None for part in said.get("filter", []))
            allowed = allowed and all(self.score(part, source) is None for part in said.get("must_not", []))
            if not allowed or None in must or len(should) < said.get("minimum_should_match", 0):
                return None
            return np.sum([np.float32(0), *must, *should], dtype=np.float32)
        if kind == "sparse_vector":
            assert self.kind == "elasticsearch"
            assert said["prune"] is False
            parts = [feature(source[said["field"]], *part) for part in said["query_vector"].items()]
            return np.sum([part for part in parts if part], dtype=np.float32) if any(parts) else None
        if kind == "rank_feature":
            assert self.kind == "opensearch"
            assert said["linear"] == {}
            field, token = said["field"].split(".")
            return feature(source[field], token, said["boost"])
        if kind == "script_score":
            return None if self.score(said["query"], source) is None else self.product(said["script"], source)
        if kind == "knn":
            near = (
                said["dense"] if self.kind == "opensearch" else said | {"filter": {"bool": {"filter": said["filter"]}}}
            )
            assert 0 < near["k"] <= 10_000
            return self.score(near["filter"], source) if "filter" in near else np.float32(0)
        [(field, value)] = said.items()
        assert field in ("equal", "order")
        if kind == "term":
            return np.float32(0) if value in source[field] else None
        assert kind == "range"
        order = {"lt": str.__lt__, "lte": str.__le__, "gt": str.__gt__, "gte": str.__ge__}
        holds = any(all(order[name](one, bound) for name, bound in value.items()) for one in source[field])
        return np.float32(0) if holds else None

    def product(self, script: dict[str, Any], source: dict[str, Any]) -> Any:
        """The score of a script: 1 more than the inner product with a vector, if that is not negative."""
        given = script["params"]
        if self.kind == "opensearch":
            assert (script["lang"], script["source"]) == ("knn", "knn_score")
            assert (given["field"], given["space_type"]) == ("dense", "innerproduct")
            product = np.float32(given["query_value"]) @ np.float32(source["dense"])
            return product + np.float32(1) if product >= 0 else np.float32(1) / (np.float32(1) - product)
        assert script["source"] == "Math.max(0.0, dotProduct(params.vector, 'dense')) + 1.0"
        return np.maximum(0, np.float32(given["vector"]) @ np.float32(source["dense"])) + np.float32(1)


def dimensions(field: dict[str, Any]) -> int:
    """The number of dimensions of a field of dense vectors."""
    return int(field["dimension"] if field["type"] == "knn_vector" else field["dims"])


def token_of(query: dict[str, Any]) -> tuple[str, str] | None:
    """The field and the token of a query for one token alone."""
    [(kind, said)] = query.items()
    if kind == "bool" and len(said.get("should", [])) == 1 and set(said) == {"should", "minimum_should_match"}:
        return token_of(said["should"][0])
    if kind == "rank_feature":
        field, token = said["field"].split(".")
        return field, token
    if kind == "sparse_vector" and len(said["query_vector"]) == 1:
        [token] = said["query_vector"]
        return said["field"], token
    return None


def feature(weights: dict[str, float], token: str, weight: float) -> np.float32 | None:
    assert 0 < weight <= 64
    if token not in weights:
        return None
    stored = np.float32(weights[token]).view(np.int32) >> 15 << 15
    return np.float32(weight) * stored.view(np.float32)


def filtered(answer: Any, paths: list[list[str]]) -> Any:
    """The parts of an answer that `filter_path` names; as the server does, nothing of what is left empty."""
    if any(not path for path in paths) or not isinstance(answer, dict | list):
        return answer
    if isinstance(answer, list):
        return [part for one in answer if (part := filtered(one, paths)) not in ({}, [])]
    kept = {}
    for name, value in answer.items():
        if inner := [path[1:] for path in paths if path[0] in (name, "*")]:
            part = filtered(value, inner)
            if part not in ({}, []):
                kept[name] = part
    return kept


def chosen(source: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The parts of a source that are asked for."""
    found: dict[str, Any] = {}
    for name in names:
        first, _, second = name.partition(".")
        found[first] = {second: source[first][second]} if second else source[first]
    return found


@contextmanager
def serving(kind: str, faults: Faults | None = None, made: Engine | None = None) -> Iterator[str]:
    """Serve as this engine, or as one that is `made` already, and give the URL."""
    headers = {"Content-Type": "application/json; charset=UTF-8"}
    if kind == "elasticsearch":
        headers = {
            "X-Elastic-Product": "Elasticsearch",
            "Content-Type": "application/vnd.elasticsearch+json;compatible-with=9",
        }
    with serving_http((made or Engine(kind)).answer, headers, faults) as url:
        yield url
