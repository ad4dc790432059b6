"""Elasticsearch: `sparse_vector` fields, queried without pruning.

The address is http(s)://USER:PASSWORD@HOST:PORT/INDEX; in place of user and password, an API key in ELASTIC_API_KEY.
"""

from __future__ import annotations

import os
from typing import Any

from vocable.errors import require_extra
from vocable.retrieval.engines.base import Server
from vocable.retrieval.engines.lucene import MAX_TERMS, LuceneStore
from vocable.retrieval.protocols import About, Space

JSON = "application/vnd.elasticsearch+json; compatible-with=9"
LINES = "application/vnd.elasticsearch+x-ndjson; compatible-with=9"


class Elasticsearch(LuceneStore):
    """An index of Elasticsearch."""

    about = About(
        "elasticsearch",
        exact=True,
        precision="9 bits",
        max_terms=MAX_TERMS,
        durable=True,
        filters=True,
        spaces=("sparse", "bm25"),
    )
    feature = "sparse_vector"

    def close(self) -> None:
        """As `Store.close`."""
        self._client.close()

    def _connect(self, server: Server) -> tuple[type[Exception], ...]:
        driver = require_extra("elasticsearch", "elasticsearch")
        given: dict[str, Any] = {"api_key": os.environ.get("ELASTIC_API_KEY")}
        if server.password is not None:
            given = {"basic_auth": (server.user, server.password)}
        self._client = driver.Elasticsearch(server.url, **given)
        return driver.ApiError, driver.TransportError

    def _exists(self, path: str) -> bool:
        return bool(self._client.perform_request("HEAD", path, headers={"accept": JSON}))

    def _request(self, method: str, path: str, body: Any) -> Any:
        headers = {"accept": JSON} | (
            {} if body is None else {"content-type": LINES if isinstance(body, list) else JSON}
        )
        return self._client.perform_request(method, path, headers=headers, body=body).body

    def _query(self, space: Space, weights: dict[str, float]) -> dict[str, Any]:
        # By default the server leaves out query terms that are frequent and light.
        return {"sparse_vector": {"field": space, "query_vector": weights, "prune": False}}


ENGINE = Elasticsearch
