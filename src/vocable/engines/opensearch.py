"""OpenSearch: `rank_features` fields, queried with linear functions, and `knn_vector` fields, scored by a script.

The address is http(s)://USER:PASSWORD@HOST:PORT/INDEX, with commas between several HOST:PORT of one cluster. User and
password can also be in OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD; `vocable.engines.logins` has the other variables.
OpenSearch's own `sparse_vector` field is not used: its search is approximate, and it stores 8 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from vocable.engines.addresses import Server
from vocable.engines.health import request_id
from vocable.engines.logins import Login
from vocable.engines.lucene import LuceneStore
from vocable.engines.lucene_answers import error_in, reason_of
from vocable.engines.lucene_options import about
from vocable.engines.lucene_vectors import CANDIDATES
from vocable.engines.patience import SHARD_SECONDS, seconds_left
from vocable.engines.protocols import Space
from vocable.engines.server import BUSY_STATUSES, BusyError, seconds_of
from vocable.errors import ArgumentError, MissingExtraError, require_extra

CONNECTIONS = 32  # to a node, that are kept open for threads


class OpenSearch(LuceneStore):
    """An index of OpenSearch."""

    about = about("opensearch")
    feature = "rank_features"
    state = ("local=true", f"cluster_manager_timeout={SHARD_SECONDS}s")

    def close(self) -> None:
        self._client.close()

    def _connect(self, servers: Sequence[Server]) -> tuple[type[Exception], ...]:
        self._driver = driver = require_extra("opensearchpy", "opensearch")
        login = Login.of("OPENSEARCH", servers)
        given: dict[str, Any] = {**login.tls, "headers": login.headers, "pool_maxsize": CONNECTIONS}
        if login.user is not None:
            given["http_auth"] = login.user, login.password
        elif login.region is not None:
            given["http_auth"] = _signer(driver, login.region, servers[0])
        self._client = driver.OpenSearch([server.url for server in servers], **given)
        self._nodes, self._node = list(self._client.transport.connection_pool.connections), 0
        return (driver.OpenSearchException,)

    def _wait(self, error: Exception) -> float | None:
        lost = isinstance(error, self._driver.ConnectionError) and not isinstance(error, self._driver.SSLError)
        return 0.0 if lost and self.reached else None

    def _answered(self, error: Exception) -> tuple[int | None, Mapping[str, Any]]:
        status, info = getattr(error, "status_code", None), getattr(error, "info", None)
        if not isinstance(status, int):  # the driver writes "N/A" if there was no answer
            return None, {}
        content = info.get("error") if isinstance(info, dict) else None
        return status, content if isinstance(content, dict) else {}

    def _request(self, method: str, path: str, body: object, *, missing: object = None) -> Any:
        dumps = self._client.transport.serializer.dumps
        lines = body if isinstance(body, list) else [] if body is None else [body]
        sent = "".join(f"{dumps(line)}\n" for line in lines).encode() or None
        status, headers, content = self._answer(method, path, sent, missing is not None)
        if status == 404:
            return missing
        return self._client.transport.deserializer.loads(content, headers.get("content-type"))

    def _answer(self, method: str, path: str, body: bytes | None, absent: bool) -> tuple[int, Mapping[str, str], str]:
        """Return status, headers and content of an answer; ask the node that answered last, then the other nodes.

        The nodes share the time, since a node may accept a connection and never answer.

        The driver's own transport is not used: it repeats a request three times without a pause, and hides the header
        `Retry-After`.
        """
        ignored = (404, *BUSY_STATUSES) if absent else BUSY_STATUSES
        seconds = seconds_left(len(self._nodes))
        named = {"X-Opaque-Id": waiting} if (waiting := request_id.get()) else None
        for tried in range(1, len(self._nodes) + 1):
            node = self._node
            try:
                status, headers, content = self._nodes[node].perform_request(
                    method, path, body=body, timeout=seconds, ignore=ignored, headers=named
                )
                break
            except self._driver.ConnectionError:
                self._turn(node)
                # If a node created the index and its answer was lost, the next node would refuse: `_ask` handles this.
                if tried == len(self._nodes) or (method == "PUT" and self.reached):
                    raise
        if status in BUSY_STATUSES:
            if status != 429:
                self._turn(node)
            error = error_in(content)
            busy = BusyError(f"{status} {reason_of(error)}", seconds_of(headers.get("retry-after")))
            raise self._refused(status, error) or busy
        return status, headers, content

    def _turn(self, node: int | None = None) -> None:
        """Ask another node from now on, unless another thread has turned from this `node`."""
        if node in (None, self._node):
            self._node = (self._node + 1) % len(self._nodes)

    def _query_of(self, space: Space, weights: dict[str, float]) -> Mapping[str, object]:
        # Functions other than `linear` would change the weights.
        products = [
            {"rank_feature": {"field": f"{space}.{column}", "linear": {}, "boost": weight}}
            for column, weight in weights.items()
        ]
        return {"bool": {"should": products, "minimum_should_match": 1}}

    def _dense_field(self, dimensions: int) -> Mapping[str, object]:
        field: dict[str, object] = {"type": "knn_vector", "dimension": dimensions}
        if self.options.dense == "hnsw":
            field["method"] = {"name": "hnsw", "engine": "lucene", "space_type": "innerproduct"}
        return field

    def _dense_settings(self) -> dict[str, object]:
        return {"knn": True} if self.options.dense == "hnsw" else {}

    def _dense_query(
        self, vector: Sequence[float], k: int, conditions: Sequence[Mapping[str, object]]
    ) -> Mapping[str, object]:
        candidates: dict[str, object] = {"bool": {"filter": conditions}}
        if self.options.dense == "hnsw":
            near: dict[str, object] = {"vector": vector, "k": max(k, CANDIDATES)}
            candidates = {"knn": {"dense": near | ({"filter": candidates} if conditions else {})}}
        given = {"field": "dense", "query_value": vector, "space_type": "innerproduct"}
        script = {"lang": "knn", "source": "knn_score", "params": given}
        return {"script_score": {"query": candidates, "script": script}}


def _signer(driver: Any, region: str, server: Server) -> Any:
    """Return what signs requests with the credentials of AWS that its own library finds."""
    try:
        session = import_module("boto3").Session()
    except ImportError as error:
        raise MissingExtraError("boto3 is not installed: pip install boto3") from error
    if (credentials := session.get_credentials()) is None:
        raise ArgumentError(f"{server.url}: OPENSEARCH_AWS_REGION needs credentials of AWS: boto3 finds none")
    service = "aoss" if ".aoss." in server.url else "es"
    return driver.Urllib3AWSV4SignerAuth(credentials, region, service)


ENGINE = OpenSearch
