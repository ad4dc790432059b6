"""What the service answers to requests that schemathesis makes of its description, right ones and wrong ones.

    python benchmarks/fuzz.py --requests 100000

Serves a small collection that can change, with a toy model, and counts answers by status. Each answer has to have a
status and a form that the description has. After each round the documents that it has written are deleted. The exit
status is 1 if there was a status from 500 on, another answer that is not as described, or none within 30 s; if the
process has gone; or if it has more memory after the last round than a third of the way before, and 10 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import requests
import schemathesis
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from machine import machine, print_machine
from random_model import write_toy_model
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from served import Served

import vocable

ROUND = 500  # requests
LIMIT = 30  # seconds of one
GROWTH = 10  # MiB
NO_HTTP = b"Invalid HTTP request received."  # uvicorn's own answer, which no description has
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


class Fuzz:
    """Requests to one service, and what came of them."""

    def __init__(self, served: Served) -> None:
        self.url = served.url
        schema = schemathesis.openapi.from_url(f"{self.url}/openapi.json")
        self.operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
        self.session = requests.Session()
        self.statuses: Counter[str] = Counter()
        self.failures: list[str] = []
        self.slowest = 0.0
        self.written: set[str] = set()

    @property
    def sent(self) -> int:
        """How many requests were sent."""
        return sum(self.statuses.values())

    def fill_caches(self) -> None:
        """Have texts of many lengths and numbers encoded, which leaves code for every shape of their products."""
        for texts, words in product((1, 2, 3, 8, 32), range(1, 130, 3)):
            body: dict[str, Any] = {"inputs": [" ".join(["fox"] * words)] * texts, "truncate": True}
            self.session.post(f"{self.url}/embed_sparse", json=body).raise_for_status()

    def round(self, number: int) -> None:
        """About `ROUND` requests, in shares that are alike, and the end of the documents that they have written."""
        end, part = self.sent + ROUND, 0
        while self.sent < end:
            for operation in self.operations:
                for mode in GenerationMode:
                    has_input = operation.body or operation.query
                    many(operation.as_strategy(generation_mode=mode), 20 if has_input else 1, (number, part), self.send)
            part += 1
        written = sorted(self.written)
        for start in range(0, len(written), 8):
            self.session.delete(f"{self.url}/documents", params={"id": written[start : start + 8]}).raise_for_status()
        self.written.clear()

    def send(self, case: Any) -> None:
        """Send one request, and compare the answer with the description."""
        began = time.perf_counter()
        try:
            response = case.call(session=self.session, timeout=LIMIT)
            self.statuses[str(response.status_code)] += 1
            no_http = response.content == NO_HTTP
            case.validate_response(response, checks=CHECKS[:1] if no_http else CHECKS)
        except FailureGroup as failures:
            self.failures.append("; ".join(" ".join(str(one).split()) for one in failures.exceptions))
        except requests.RequestException as error:
            self.statuses[type(error).__name__] += 1
            self.failures.append(f"{case.operation.label}: {error}")
            return
        self.slowest = max(self.slowest, time.perf_counter() - began)
        if case.operation.path == "/documents" and response.status_code == 200 and isinstance(case.body, dict):
            self.written.update(document["id"] for document in case.body["documents"])


def many(strategy: Any, count: int, seeds: Sequence[int], send: Callable[[Any], None]) -> None:
    """Draw `count` requests and send each."""

    @seed(hash(tuple(seeds)))
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def each(case: Any) -> None:
        send(case)

    with suppress(Unsatisfiable):  # what has no input has no wrong one
        each()


def make(folder: Path) -> Path:
    """An index of some documents, which can change."""
    texts = [f"{noun} {verb} the {thing}" for noun in ("fox", "owl") for verb in ("sees", "eats") for thing in "abcde"]
    model = write_toy_model(folder / "model", texts)
    rows = [{"_id": str(i), "text": text, "lang": ["de", "en"][i % 2], "year": i} for i, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    vocable.index(str(model), folder / "corpus.jsonl", folder / "index", bm25=True, device="cpu").close()
    return folder / "index"


def benchmark() -> int:
    """Send requests, and print what came back."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    began, memory = time.monotonic(), list[float]()
    with tempfile.TemporaryDirectory(prefix="vocable-fuzz-") as name:
        index = make(Path(name))
        # Few queries and few of oneDNN's products are kept: what grows then is no cache that fills.
        options_of_service = "--device", "cpu", "--max-characters", 2000, "--cache-size", 100
        environment = os.environ | {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}
        with Served.vocable(index, *options_of_service, environment=environment) as served:
            fuzz = Fuzz(served)
            fuzz.fill_caches()
            while fuzz.sent < options.requests and served.process.poll() is None:
                fuzz.round(options.seed + len(memory))
                memory.append(served.memory)
            gone = served.process.poll() is not None
    growth = memory[-1] - memory[len(memory) // 3]
    figures = {
        "requests": fuzz.sent,
        "by status": dict(sorted(fuzz.statuses.items())),
        "not as described": len(fuzz.failures),
        "slowest s": round(fuzz.slowest, 2),
        "memory MiB": [round(memory[0]), round(memory[len(memory) // 3]), round(memory[-1])],
        "seconds": round(time.monotonic() - began),
    }
    print_machine(machine(torch.device("cpu"), "schemathesis", "fastapi", "uvicorn"))
    print(*(f"{what}: {value}" for what, value in figures.items()), *fuzz.failures[:10], *served.failures[:3], sep="\n")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return int(bool(gone or fuzz.failures or growth > GROWTH))


if __name__ == "__main__":
    sys.exit(benchmark())
