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
from vocable.retrieval.engines.server import BUSY_STATUSES, TIMEOUT, BusyError, Server, seconds_of
from vocable.retrieval.protocols import Space


class OpenSearch(LuceneStore):
    """An index of OpenSearch."""

    about = about("opensearch")
    feature = "rank_features"

    def close(self) -> None:
        self._client.close()

    def _connect(self, server: Server) -> tuple[type[Exception], ...]:
        self._driver = driver = require_extra("opensearchpy", "opensearch")
        user = server.user or os.environ.get("OPENSEARCH_USERNAME")
        password = server.password or os.environ.get("OPENSEARCH_PASSWORD")
        login = (user, password) if user and password else None
        self._client = driver.OpenSearch([server.url], http_auth=login, timeout=TIMEOUT)
        return (driver.OpenSearchException,)

    def _wait(self, error: Exception) -> float | None:
        lost = isinstance(error, self._driver.ConnectionError) and not isinstance(error, self._driver.SSLError)
        return 0.0 if lost and self.reached else None

    def _is_there(self, path: str) -> bool:
        return self._answer("HEAD", path)[0] == 200

    def _request(self, method: str, path: str, body: object) -> Any:
        dumps = self._client.transport.serializer.dumps
        lines = body if isinstance(body, list) else [] if body is None else [body]
        _, headers, content = self._answer(method, path, "".join(f"{dumps(line)}\n" for line in lines).encode() or None)
        return self._client.transport.deserializer.loads(content, headers.get("content-type"))

    def _answer(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Mapping[str, str], str]:
        """Return status, headers and content of an answer.

        The driver's transport would repeat a request three times without a pause, and hide the header `Retry-After`.
        """
        connection = self._client.transport.get_connection()
        ignored = (404, *BUSY_STATUSES) if method == "HEAD" else BUSY_STATUSES
        status, headers, content = connection.perform_request(method, path, body=body, ignore=ignored)
        if status in BUSY_STATUSES:
            raise BusyError(f"{status} {content}", seconds_of(headers.get("retry-after")))
        return status, headers, content

    def _query_of(self, space: Space, weights: dict[str, float]) -> Mapping[str, object]:
        # Functions other than `linear` would change the weights.
        products = [
            {"rank_feature": {"field": f"{space}.{column}", "linear": {}, "boost": weight}}
            for column, weight in weights.items()
        ]
        return {"bool": {"should": products, "minimum_should_match": 1}}


ENGINE = OpenSearch
