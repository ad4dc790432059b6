"""Elasticsearch: `sparse_vector` fields, queried without pruning, and `dense_vector` fields, scored by a script.

The address is http(s)://USER:PASSWORD@HOST:PORT/INDEX, with commas between several HOST:PORT of one cluster. Without
user and password, the API key in ELASTIC_API_KEY is used (`vocable.engines.logins` has the other variables).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vocable.engines.addresses import Server
from vocable.engines.health import request_id
from vocable.engines.logins import Login
from vocable.engines.lucene import LuceneStore
from vocable.engines.lucene_options import about
from vocable.engines.lucene_vectors import CANDIDATES, DENSE_ZERO
from vocable.engines.patience import SHARD_SECONDS, seconds_left
from vocable.engines.protocols import Space
from vocable.engines.server import BUSY_STATUSES, seconds_of
from vocable.errors import require_extra

JSON = "application/vnd.elasticsearch+json; compatible-with=9"
JSON_LINES = "application/vnd.elasticsearch+x-ndjson; compatible-with=9"


class Elasticsearch(LuceneStore):
    """An index of Elasticsearch."""

    about = about("elasticsearch")
    feature = "sparse_vector"
    state = (f"master_timeout={SHARD_SECONDS}s",) * 2

    def close(self) -> None:
        self._client.close()

    def _connect(self, servers: Sequence[Server]) -> tuple[type[Exception], ...]:
        self._driver = driver = require_extra("elasticsearch", "elasticsearch")
        login = Login.of("ELASTIC", servers)
        options: dict[str, Any] = {**login.tls, "api_key": login.api_key, "bearer_auth": login.token}
        if login.user is not None:
            options["basic_auth"] = login.user, login.password
        self._nodes = len(servers)
        # By default the driver repeats a request three times without a pause: try each other node once instead.
        others = {"max_retries": len(servers) - 1, "retry_on_status": (), "retry_on_timeout": True}
        self._client = driver.Elasticsearch([server.url for server in servers], **others, **options)
        return driver.ApiError, driver.TransportError

    def _wait(self, error: Exception) -> float | None:
        if isinstance(error, self._driver.ApiError):
            return seconds_of(error.meta.headers.get("retry-after")) if error.meta.status in BUSY_STATUSES else None
        lost = isinstance(error, (self._driver.ConnectionError, self._driver.ConnectionTimeout))
        return 0.0 if lost and not isinstance(error, self._driver.SSLError) and self.reached else None

    def _answered(self, error: Exception) -> tuple[int | None, Mapping[str, Any]]:
        if not isinstance(error, self._driver.ApiError):
            return None, {}
        content = error.body.get("error") if isinstance(error.body, dict) else None
        return error.meta.status, content if isinstance(content, dict) else {}

    def _request(self, method: str, path: str, body: object, *, missing: object = None) -> Any:
        headers = {"accept": JSON} | (
            {} if body is None else {"content-type": JSON_LINES if isinstance(body, list) else JSON}
        )
        if waiting := request_id.get():
            headers["x-opaque-id"] = waiting
        # If a node created the index and its answer was lost, the next node would refuse: `_ask` handles this.
        once = {"max_retries": 0} if method == "PUT" and self.reached else {}
        client = self._client.options(request_timeout=seconds_left(self._nodes), **once)
        try:
            return client.perform_request(method, path, headers=headers, body=body).body
        except self._driver.NotFoundError:
            if missing is None:
                raise
            return missing

    def _turn(self) -> None:
        """The driver asks the nodes in turn."""

    def _query_of(self, space: Space, weights: dict[str, float]) -> Mapping[str, object]:
        # By default the server ignores frequent query terms with small weights.
        return {"sparse_vector": {"field": space, "query_vector": weights, "prune": False}}

    def _dense_field(self, dimensions: int) -> Mapping[str, object]:
        field: dict[str, object] = {"type": "dense_vector", "dims": dimensions, "index": self.options.dense == "hnsw"}
        if self.options.dense == "hnsw":  # by default, some vectors get one bit per dimension
            field |= {"similarity": "max_inner_product", "index_options": {"type": "hnsw"}}
        return field

    def _dense_query(
        self, vector: Sequence[float], k: int, conditions: Sequence[Mapping[str, object]]
    ) -> Mapping[str, object]:
        candidates: dict[str, object] = {"bool": {"filter": conditions}}
        if self.options.dense == "hnsw":
            depth = max(k, CANDIDATES)
            near = {"field": "dense", "query_vector": vector, "k": depth, "num_candidates": depth}
            candidates = {"knn": near | {"filter": conditions}}
        source = f"Math.max(0.0, dotProduct(params.vector, 'dense')) + {DENSE_ZERO}"  # a score cannot be negative
        return {"script_score": {"query": candidates, "script": {"source": source, "params": {"vector": vector}}}}


ENGINE = Elasticsearch
