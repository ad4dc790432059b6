"""Counters and histograms for Prometheus; worker processes count in the files of one folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
ENDPOINTS = (
    *("/embed_sparse", "/search", "/explain", "/documents", "/info", "/mcp"),
    *("/view", "/postings", "/"),
    *("/health", "/ready", "/metrics", "/openapi.json"),
)


class Metrics:
    """The metrics of a service: of this process, or with a `folder` the sum over all processes that count there.

    >>> metrics = Metrics()
    >>> metrics.cache_hits.inc()
    >>> [line for line in metrics.render().decode().splitlines() if line.endswith(" 1.0")]
    ['vocable_cache_hits_total 1.0']
    """

    def __init__(self, folder: str | None = None) -> None:
        if folder is not None:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # the client reads it when it is imported
        from prometheus_client import (
            CollectorRegistry,
            Counter,
            Gauge,
            Histogram,
            disable_created_metrics,
            generate_latest,
            multiprocess,
        )

        disable_created_metrics()
        registry = CollectorRegistry()
        self.requests = Counter("vocable_requests", "Answered requests.", ["endpoint", "status"], registry=registry)
        self.request_seconds = Histogram(
            "vocable_request_seconds",
            "From the last byte of a request to the last byte of the answer.",
            ["endpoint"],
            buckets=SECONDS,
            registry=registry,
        )
        self.batch_texts = Histogram(
            "vocable_batch_texts", "Texts that were encoded together.", buckets=SIZES, registry=registry
        )
        self.cache_hits = Counter("vocable_cache_hits", "Queries whose vector was in the cache.", registry=registry)
        self.cache_misses = Counter("vocable_cache_misses", "Queries that were encoded.", registry=registry)
        self.in_progress = Gauge(
            "vocable_requests_in_progress", "Requests in progress.", multiprocess_mode="sum", registry=registry
        )
        self.queue_depth = Gauge(
            "vocable_queue_depth", "Waiting texts, searches and changes.", multiprocess_mode="sum", registry=registry
        )
        self.ready = Gauge(
            "vocable_index_ready", "1 if the index can be searched.", multiprocess_mode="mostrecent", registry=registry
        )
        self._server_requests = Counter(
            "vocable_server_requests", "Requests to the server.", ["kind", "outcome"], registry=registry
        )
        self._server_seconds = Histogram(
            "vocable_server_request_seconds",
            "Time of a request to the server of the index.",
            ["kind"],
            buckets=SECONDS,
            registry=registry,
        )
        self._server_in_progress = Gauge(
            "vocable_server_requests_in_progress",
            "Requests to the server in progress.",
            ["kind"],
            multiprocess_mode="sum",
            registry=registry,
        )
        self._registry, self._write = registry, generate_latest
        # Each process writes into the folder; this registry adds the numbers up.
        if folder is not None:
            self._registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(self._registry, folder)

    def request(self, path: str, status: int, seconds: float) -> str:
        """Count an answered request, and return its endpoint; any other path is counted as "other"."""
        endpoint = path if path in ENDPOINTS else "other"
        self.requests.labels(endpoint, str(status)).inc()
        self.request_seconds.labels(endpoint).observe(seconds)
        return endpoint

    @contextmanager
    def server_request(self, kind: str) -> Iterator[None]:
        """Count a request to the server of the index."""
        started, outcome = time.perf_counter(), "failed"
        self._server_in_progress.labels(kind).inc()
        try:
            yield
            outcome = "answered"
        finally:
            self._server_in_progress.labels(kind).dec()
            self._server_requests.labels(kind, outcome).inc()
            self._server_seconds.labels(kind).observe(time.perf_counter() - started)

    def render(self) -> bytes:
        """Return the metrics as Prometheus reads them."""
        return self._write(self._registry)
