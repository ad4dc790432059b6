"""Elasticsearch: `sparse_vector` fields, queried without pruning.

The address is http(s)://USER:PASSWORD@HOST:PORT/INDEX; alternatively, an API key is in ELASTIC_API_KEY.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vocable.errors import require_extra
from vocable.retrieval.engines.lucene import LuceneStore, about
from vocable.retrieval.engines.server import Server
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
        driver = require_extra("elasticsearch", "elasticsearch")
        login: dict[str, object] = {"api_key": os.environ.get("ELASTIC_API_KEY")}
        if server.password is not None:
            login = {"basic_auth": (server.user, server.password)}
        self._client = driver.Elasticsearch(server.url, **login)
        return driver.ApiError, driver.TransportError

    def _exists(self) -> bool:
        return bool(self._client.perform_request("HEAD", self._path, headers={"accept": JSON}))

    def _request(self, method: str, path: str, body: object) -> Any:
        headers = {"accept": JSON} | (
            {} if body is None else {"content-type": JSON_LINES if isinstance(body, list) else JSON}
        )
        return self._client.perform_request(method, path, headers=headers, body=body).body

    def _query_of(self, space: Space, weights: dict[str, float]) -> Mapping[str, object]:
        # By default the server ignores frequent query terms of small weight.
        return {"sparse_vector": {"field": space, "query_vector": weights, "prune": False}}


ENGINE = Elasticsearch
