"""Cases of `break.py` that change a collection under a living service: it answers as a fresh service of the folder."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from break_toys import Case, Toys, judge
from preloaded import run

import vocable as vo
from vocable.data import Document
from vocable.options import check
from vocable.service import ServiceLimits

QUERIES = ["the list of chapter 3", "reads and forgets vectors", "query", "chaptr"]
POWERS = (None, 0.0, 0.5, 1.0)
STEPS = 12


class Served:
    """A service of a place in this process, beside a collection that was opened with it."""

    def __init__(self, place: Path) -> None:
        from vocable.service.metrics import Metrics
        from vocable.service.service import Service

        self.opened = vo.open_index(place)
        self.service = Service(vo.open_index(place), check(ServiceLimits, {}), Metrics())

    def step(self, rng: random.Random, texts: list[str]) -> None:
        """Change the documents by the service or the open collection, or search."""
        names = [f"d{rng.randrange(80)}" for _ in range(rng.randrange(1, 20))]
        documents = [Document(name, f"{rng.choice(texts)} {rng.choice(texts)[:9]}") for name in dict.fromkeys(names)]
        kind = rng.choice(["put", "delete", "add", "delete elsewhere", "search"])
        if kind == "put":
            asyncio.run(self.service.add(documents, replace=True))
        elif kind == "delete":
            asyncio.run(self.service.delete(names))
        elif kind == "add":
            self.opened.add(documents)
        elif kind == "delete elsewhere":
            self.opened.delete(names)
        else:
            self.answers(QUERIES[:2])

    def answers(self, queries: list[str]) -> list[Any]:
        """Return the hits and the scores of every search, and the suggestions."""
        from vocable.service.schemas import SearchRequest

        found: list[Any] = [len(self.opened)]
        for query in queries:
            for power in POWERS:
                for weights in ({}, {"weights": "sparse"}):
                    asked: Any = weights | ({} if power is None else {"query_idf": power})
                    request = SearchRequest(query=query, k=80, **asked)
                    answer = asyncio.run(self.service.search(request))
                    opened = vo.search(self.opened, [query], 80, **asked)[0]
                    for one in (answer, opened):
                        # A store adds up a score in any order, so its last bits and the ranks of equal ones differ.
                        hits = sorted((hit.document.id, float(f"{hit.score:.3g}")) for hit in one.hits)
                        found.append([query, power, weights, hits, one.suggestion])
        return found


def change(place: Path, texts: list[str], seed: int) -> None:
    """Change a served collection, and print the answers at the end."""
    served, rng = Served(place), random.Random(seed)
    served.answers(QUERIES)
    for _ in range(STEPS):
        served.step(rng, texts)
    print(json.dumps(served.answers(QUERIES)))
    served.service.close()


def ask(place: Path) -> None:
    """Print the answers of a fresh service."""
    served = Served(place)
    print(json.dumps(served.answers(QUERIES)))
    served.service.close()


def living_cases(toys: Toys, seeds: int) -> Iterator[Case]:
    """Change the collection of a service, and compare its answers with those of a fresh process."""

    def case(seed: int, folder: Path) -> tuple[str, str]:
        place = folder / "store"
        shutil.copytree(toys.store, place)
        living = run(folder, partial(change, place, toys.texts, seed))
        if living.status:
            return judge(living)
        fresh = run(folder, partial(ask, place))
        if fresh.status:
            return judge(fresh)
        pairs = zip(json.loads(living.out), json.loads(fresh.out), strict=True)
        differ = [(one, other) for one, other in pairs if one != other]
        return ("WRONG", f"{len(differ)} answers, as {str(differ[0])[:300]}") if differ else ("right", "")

    for seed in range(seeds):
        yield Case("living", f"changes, {seed + 1}", partial(case, seed))
