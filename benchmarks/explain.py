"""How much longer a search takes that explains its hits.

    python benchmarks/explain.py                       # vocable-mini over the standard library's documentation
    python benchmarks/explain.py my-index --searches 50

Each search is made with and without explanations in turn, ten hits each, in one process and over one open index.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from machine import machine, print_machine

import vocable

QUERIES = ["copy a file", "an ordered sequence without duplicates", "wait until a thread ends", "read a line of text"]


def milliseconds(index: vocable.Collection, query: str, *, explain: bool) -> tuple[float, float]:
    """Return the processor time and the time of one search, with all of its hits."""
    processor, started = time.process_time(), time.perf_counter()
    vocable.search(index, [query], explain=explain)[0]
    return 1000 * (time.process_time() - processor), 1000 * (time.perf_counter() - started)


def main() -> None:
    """Print the medians, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", nargs="?", help="place of an index")
    parser.add_argument("--searches", type=int, default=20, help="searches of each kind")
    options = parser.parse_args()
    print_machine(machine(torch.device("cpu")))
    index = vocable.index("vocable-mini", "pydocs:") if options.index is None else vocable.open_index(options.index)
    queries = [QUERIES[number % len(QUERIES)] for number in range(options.searches + 2)]  # the first two load the rest
    times = np.array([[milliseconds(index, query, explain=way) for way in (False, True)] for query in queries])[2:]
    rows = [("search", *np.median(times[:, 0], axis=0)), ("with explanations", *np.median(times[:, 1], axis=0))]
    rows.append(("ratio", *np.median(times[:, 1] / times[:, 0], axis=0)))
    print(f"{len(index):,} documents; milliseconds of the processor, and of the clock")
    for name, processor, clock in rows:
        print(f"{name:18} {processor:8.2f} {clock:8.2f}")


if __name__ == "__main__":
    main()
