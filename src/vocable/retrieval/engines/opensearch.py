"""OpenSearch: `rank_features` fields, queried with linear functions.

The address is http(s)://USER:PASSWORD@HOST:PORT/INDEX; user and password can also be in
OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD. OpenSearch's own `sparse_vector` field is approximate and stores 8 bits; it
is not used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vocable.errors import require_extra
from vocable.retrieval.engines.lucene import LuceneStore, about
from vocable.retrieval.engines.server import Server
from vocable.retrieval.protocols import Space


class OpenSearch(LuceneStore):
    """An index of OpenSearch."""

    about = about("opensearch")
    feature = "rank_features"

    def close(self) -> None:
        self._client.close()

    def _connect(self, server: Server) -> tuple[type[Exception], ...]:
        driver = require_extra("opensearchpy", "opensearch")
        user = server.user or os.environ.get("OPENSEARCH_USERNAME")
        password = server.password or os.environ.get("OPENSEARCH_PASSWORD")
        self._client = driver.OpenSearch([server.url], http_auth=(user, password) if user and password else None)
        return (driver.OpenSearchException,)

    def _exists(self) -> bool:
        return bool(self._client.transport.perform_request("HEAD", self._path))

    def _request(self, method: str, path: str, body: object) -> Any:
        lines = self._client.transport.serializer
        if isinstance(body, list):
            body = "".join(f"{lines.dumps(line)}\n" for line in body)
        return self._client.transport.perform_request(method, path, body=body)

    def _query_of(self, space: Space, weights: dict[str, float]) -> Mapping[str, object]:
        # Functions other than `linear` would change the weights.
        products = [
            {"rank_feature": {"field": f"{space}.{column}", "linear": {}, "boost": weight}}
            for column, weight in weights.items()
        ]
        return {"bool": {"should": products, "minimum_should_match": 1}}


ENGINE = OpenSearch
