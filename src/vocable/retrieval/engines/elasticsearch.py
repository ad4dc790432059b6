"""Elasticsearch: `sparse_vector` fields, queried without pruning.

The address is http(s)://USER:PASSWORD@HOST:PORT/INDEX; alternatively, an API key is in ELASTIC_API_KEY.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vocable.errors import require_extra
from vocable.retrieval.engines.lucene import LuceneStore, about
from vocable.retrieval.engines.server import BUSY_STATUSES, TIMEOUT, Server, seconds_of
from vocable.retrieval.protocols import Space

JSON = "application/vnd.elasticsearch+json; compatible-with=9"
JSON_LINES = "application/vnd.elasticsearch+x-ndjson; compatible-with=9"


class Elasticsearch(LuceneStore):
    """An index of Elasticsearch."""

    about = about("elasticsearch")
    feature = "sparse_vector"

    def close(self) -> None:
        self._client.close()

    def _connect(self, server: Server) -> tuple[type[Exception], ...]:
        self._driver = driver = require_extra("elasticsearch", "elasticsearch")
        login: dict[str, object] = {"api_key": os.environ.get("ELASTIC_API_KEY")}
        if server.password is not None:
            login = {"basic_auth": (server.user, server.password)}
        # The driver would repeat a request three times without a pause.
        self._client = driver.Elasticsearch(server.url, request_timeout=TIMEOUT, max_retries=0, **login)
        return driver.ApiError, driver.TransportError

    def _wait(self, error: Exception) -> float | None:
        if isinstance(error, self._driver.ApiError):
            return seconds_of(error.meta.headers.get("retry-after")) if error.meta.status in BUSY_STATUSES else None
        lost = isinstance(error, (self._driver.ConnectionError, self._driver.ConnectionTimeout))
        return 0.0 if lost and not isinstance(error, self._driver.SSLError) and self.reached else None

    def _is_there(self, path: str) -> bool:
        return bool(self._client.perform_request("HEAD", path, headers={"accept": JSON}))

    def _request(self, method: str, path: str, body: object) -> Any:
        headers = {"accept": JSON} | (
            {} if body is None else {"content-type": JSON_LINES if isinstance(body, list) else JSON}
        )
        return self._client.perform_request(method, path, headers=headers, body=body).body

    def _query_of(self, space: Space, weights: dict[str, float]) -> Mapping[str, object]:
        # By default the server ignores frequent query terms of small weight.
        return {"sparse_vector": {"field": space, "query_vector": weights, "prune": False}}


ENGINE = Elasticsearch
