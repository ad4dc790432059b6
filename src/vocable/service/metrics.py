"""What Prometheus reads: counters and histograms, of all worker processes together.

Each process counts in an array of its own, where there are several in a file that all of them read: a page has the sum.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
STATUSES = (200, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 424, 429, 500, 503, 504, 507)
ENDPOINTS = (
    *("/embed_sparse", "/search", "/explain", "/documents", "/v1/embeddings", "/info"),
    *("/view", "/postings", "/"),
    *("/health", "/ready", "/metrics", "/openapi.json", "other"),
)


class Family(NamedTuple):
    """A metric: what its samples are called and labelled with; the bounds of a histogram's buckets."""

    name: str
    kind: str
    about: str
    labels: Sequence[str] = ("",)
    bounds: Sequence[float] = ()


FAMILIES = (
    Family(
        "vocable_requests_total",
        "counter",
        "Requests that were answered.",
        [f'endpoint="{endpoint}",status="{status}"' for endpoint in ENDPOINTS for status in (*STATUSES, "other")],
    ),
    Family(
        "vocable_request_seconds",
        "histogram",
        "From the last byte of a request to the last byte of the answer.",
        [f'endpoint="{endpoint}"' for endpoint in ENDPOINTS],
        SECONDS,
    ),
    Family("vocable_batch_texts", "histogram", "Texts that were encoded together.", bounds=SIZES),
    Family("vocable_cache_hits_total", "counter", "Queries whose vector was kept from before."),
    Family("vocable_cache_misses_total", "counter", "Queries that were encoded."),
    Family("vocable_requests_in_progress", "gauge", "Requests that are being answered."),
    Family("vocable_queue_depth", "gauge", "Texts, searches and changes that wait."),
)


class Metrics:
    """The numbers of this process; `render` adds those of the others that count in the same folder.

    >>> metrics = Metrics()
    >>> metrics.add("vocable_cache_hits_total")
    >>> metrics.observe("vocable_batch_texts", 3)
    >>> [line for line in metrics.render().splitlines() if line.endswith(" 1") and "batch" not in line]
    ['vocable_cache_hits_total 1']
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._places: dict[tuple[str, str], int] = {}
        size = 0
        for family in FAMILIES:
            for label in family.labels:
                self._places[family.name, label] = size
                size += len(family.bounds) + 2 if family.bounds else 1  # buckets, the last one without bound; the sum
        self._bounds = {family.name: family.bounds for family in FAMILIES}
        self._folder = None if folder is None else Path(folder)
        if self._folder is None:
            self._values = np.zeros(size)
        else:
            self._values = np.memmap(self._folder / f"{os.getpid()}.metrics", np.float64, "w+", shape=(size,))

    def add(self, name: str, label: str = "", amount: float = 1) -> None:
        """Count; of a gauge the amount may be below 0."""
        self._values[self._places[name, label]] += amount

    def observe(self, name: str, value: float, label: str = "") -> None:
        """Put a value into its bucket."""
        place, bounds = self._places[name, label], self._bounds[name]
        self._values[place + bisect_left(bounds, value)] += 1
        self._values[place + len(bounds) + 1] += value

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        known = status if status in STATUSES else "other"
        self.add("vocable_requests_total", f'endpoint="{endpoint}",status="{known}"')
        self.observe("vocable_request_seconds", seconds, f'endpoint="{endpoint}"')

    def render(self) -> str:
        """The text that Prometheus reads; what never happened is left out of what has labels."""
        values = self._values
        if self._folder is not None:
            values = np.sum([np.fromfile(path) for path in self._folder.glob("*.metrics")], axis=0)
        lines = []
        for family in FAMILIES:
            lines += [f"# HELP {family.name} {family.about}", f"# TYPE {family.name} {family.kind}"]
            for label in family.labels:
                place = self._places[family.name, label]
                if family.bounds:
                    lines += _histogram(family, label, values[place : place + len(family.bounds) + 2])
                elif values[place] or not label:
                    lines.append(f"{family.name}{f'{{{label}}}' if label else ''} {values[place]:.15g}")
        return "\n".join([*lines, ""])


def _histogram(family: Family, label: str, values: np.ndarray) -> list[str]:
    *counts, total = values.tolist()
    below = np.cumsum(counts).tolist()
    if label and not below[-1]:
        return []
    before, own = (f"{label},", f"{{{label}}}") if label else ("", "")
    bounds = [*(f"{bound:g}" for bound in family.bounds), "+Inf"]
    buckets = zip(bounds, below, strict=True)
    lines = [f'{family.name}_bucket{{{before}le="{bound}"}} {count:.15g}' for bound, count in buckets]
    return [*lines, f"{family.name}_sum{own} {total:.15g}", f"{family.name}_count{own} {below[-1]:.15g}"]
