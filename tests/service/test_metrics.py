"""The page of metrics: what was counted, in the form that Prometheus reads, and the sum over processes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.conftest import Client

SAMPLE = re.compile(r"(?P<name>[a-z_]+)(\{(?P<labels>[^}]*)\})? (?P<value>[0-9.e+-]+)")


def samples(page: str) -> dict[str, float]:
    """The samples of a page, each on a line that the format allows, after the type of its family."""
    found, kinds = {}, {}
    for line in page.splitlines():
        if line.startswith("#"):
            _, word, name, rest = line.split(" ", 3)
            if word == "TYPE":
                kinds[name] = rest
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert re.sub("_(bucket|sum|count)$", "", match["name"]) in kinds
        assert line.rpartition(" ")[0] not in found
        found[line.rpartition(" ")[0]] = float(match["value"])
    return found


def test_answered_requests_are_counted(served: Callable[..., Client], exact: Path) -> None:
    client = served(exact, cache_size=2, batch_wait=100)
    for query in ("a", "b", "a", "c", "b"):  # b was the one that had not been used for longest when c came
        client("POST", "/search", json={"query": query})
    client("POST", "/search", json={"query": "a", "k": 0})
    client.together([("POST", "/embed_sparse", {"json": {"inputs": ["x", "y", "z"]}})] * 2)
    client("GET", "/nowhere")
    found = samples(client("GET", "/metrics").text)
    assert found["vocable_cache_hits_total"] == 1
    assert found["vocable_cache_misses_total"] == 4
    assert found['vocable_requests_total{endpoint="/search",status="200"}'] == 5
    assert found['vocable_requests_total{endpoint="/search",status="422"}'] == 1
    assert found['vocable_requests_total{endpoint="other",status="404"}'] == 1
    assert found['vocable_request_seconds_count{endpoint="/search"}'] == 6
    assert found['vocable_request_seconds_bucket{endpoint="/search",le="+Inf"}'] == 6
    assert found["vocable_batch_texts_sum"] == 4 + 6
    assert found['vocable_batch_texts_bucket{le="1.0"}'] == 4
    assert found["vocable_requests_in_progress"] == 1  # the page itself
    assert found["vocable_queue_depth"] == 0


COUNTING = """
import sys
from vocable.service.metrics import Metrics
metrics = Metrics(sys.argv[1])
metrics.request("/search", 200, 0.003)
metrics.request("/nowhere", 404, 40.0)
metrics.in_progress.inc()
sys.stdout.buffer.write(metrics.render())
"""


def test_metrics_of_all_processes_are_added_up(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COUNTING, str(tmp_path)]
    pages = [subprocess.run(command, capture_output=True, check=True, text=True).stdout for _ in range(2)]
    found = samples(pages[-1])
    assert found['vocable_requests_total{endpoint="/search",status="200"}'] == 2
    assert found['vocable_requests_total{endpoint="other",status="404"}'] == 2
    assert found["vocable_requests_in_progress"] == 2
    bounds = {"0.0025": 0, "0.005": 2, "30.0": 2, "+Inf": 2}
    for bound, below in bounds.items():
        assert found[f'vocable_request_seconds_bucket{{endpoint="/search",le="{bound}"}}'] == below
    assert found['vocable_request_seconds_bucket{endpoint="other",le="30.0"}'] == 0
    assert found['vocable_request_seconds_sum{endpoint="other"}'] == pytest.approx(80)
