"""Print the table of faults for research/engines.md: `python -m tests.engines.fault_table`.

With VOCABLE_OPENSEARCH, the address of a node, there is a column of it, behind a server that makes the same faults.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from tests.engines.cluster import Faults, forwarding, serving_http
from tests.engines.test_server import ANY, DRIVERS, LUCENE, Cluster, assert_whole, cluster, index, write_corpus
from vocable.engines import patience, server
from vocable.errors import UnavailableError, VectorsError

NAMES = {
    "429": "429",
    "429 1": "429, `Retry-After: 1`",
    "503": "503",
    "503 1": "503, `Retry-After: 1`",
    "cut before": "connection cut before the request is carried out",
    "cut after": "connection cut after it is carried out",
    "cut inside": "half an answer",
    "slow": "no answer in time; carried out",
    "partly busy": "every third document refused as busy (429)",
    "reordered": "results in another order",
    "partly refused": "every third document refused for its content (400)",
    "away": "503 for longer than the patience",
}


def outcome(failing: Cluster, corpus: Path, fault: str) -> str:
    """Index with the fault in two requests of three, and say what happened."""
    if failing.lucene is None and fault in ("partly busy", "reordered", "partly refused"):
        return "no such answer" if failing.engine == "qdrant" else "not made here"
    place, began = failing.place(), time.monotonic()
    failing.faults.plan([fault, "", fault] if fault != "away" else ["", *["503"] * 1000])
    end = ""
    try:
        index(corpus, place).close()
    except UnavailableError as error:
        end = f"ends after {time.monotonic() - began:.1f} s ({str(error).rpartition('; ')[2].partition(':')[0]})"
    except VectorsError as error:
        end = "ends and names document " + str(error).partition("document ")[2].partition(":")[0].strip("'")
    sent = len(failing.faults.begun)
    if end:
        failing.faults.plan([])
        index(corpus, place).close()
    assert_whole(place)
    return f"{end}; repeated: whole" if end else f"whole after {sent} requests"


def outcomes_of(url: str, corpus: Path) -> list[str]:
    """The outcomes of a real OpenSearch behind a server that fails; it needs longer than one of tests."""
    faults, headers = Faults(), {"Content-Type": "application/json; charset=UTF-8"}
    with pytest.MonkeyPatch.context() as patched, serving_http(forwarding(url), headers, faults) as failing:
        for name, value in {"WRITE_PATIENCE": 12.0, "FIRST_PAUSE": 0.01, "LONGEST_PAUSE": 0.5, "TIMEOUT": 5.0}.items():
            patched.setattr(patience if hasattr(patience, name) else server, name, value)
        patched.setattr("tests.engines.cluster.SLOW", 6.0)
        patched.setattr(patience, "LEAST_SECONDS", (5.0, 5.0))
        behind = Cluster("opensearch", failing, faults, made=int(time.time()))
        return [outcome(behind, corpus, fault) for fault in NAMES]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        write_corpus(Path(folder))
        columns = {}
        for engine in DRIVERS:
            with cluster(engine) as failing:
                patched.setattr(patience, "WRITE_PATIENCE", 2.0)
                columns[engine] = [outcome(failing, Path(folder), fault) for fault in NAMES]
        if real := os.environ.get("VOCABLE_OPENSEARCH"):
            columns["OpenSearch at VOCABLE_OPENSEARCH"] = outcomes_of(real, Path(folder))
        print("| fault |", " | ".join(columns), "|")
        print("|:--" * (1 + len(columns)) + "|")
        for row, name in enumerate(NAMES.values()):
            print(f"| {name} |", " | ".join(column[row] for column in columns.values()), "|")


if __name__ == "__main__":
    assert {*ANY, *LUCENE} <= {*NAMES}
    main()
