"""How time and memory grow: search with the documents, the head with terms, tokens and texts, encoding with cores.

    python benchmarks/growth.py --figure growth.svg

The sizes take turns, several times. A curve's exponent is the slope of a straight line through the logarithms of sizes
and medians (1: twice the size takes twice the time). Vectors and hidden states are random, as in search.py and head.py.
The built-in model encodes documents of `pydocs:` in float32, in a separate process for each number of threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import head
import numpy as np
import torch
from machine import machine, medians, peak_memory, print_machine
from search import random_vectors

from vocable.core.figures import empty_panels, save_figure
from vocable.data import read_texts
from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.indexes.exact_index import ExactIndex

CPU = torch.device("cpu")
DOCUMENTS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
QUERIES, TEXTS = 50, 96
HEAD = {"b": 16, "s": 64, "d": 384, "v": 30_522, "active": 0.01}  # of which one at a time is varied
VARIED = {"v": (7_500, 15_000, 30_000, 60_000, 120_000), "s": (16, 32, 64, 128, 256), "b": (4, 8, 16, 32, 64)}
NAMED = {"v": "terms", "s": "tokens of a text", "b": "texts"}


class Curve(NamedTuple):
    """Values by size, and the exponent of their growth."""

    what: str
    unit: str
    size: str
    values: dict[int, float]

    @property
    def exponent(self) -> float:
        """The slope in logarithms."""
        sizes, values = np.log(list(self.values)), np.log(list(self.values.values()))
        return float(np.polyfit(sizes, values, 1)[0])

    def to_json(self) -> dict[str, Any]:
        return self._asdict() | {"exponent": self.exponent}


def searching(largest: int) -> Iterator[Curve]:
    """A query's time on one thread, the bytes of the index and the time to make it, against the documents."""
    random = np.random.default_rng(0)
    sizes = [size for size in DOCUMENTS if size <= largest]
    documents, queries = random_vectors(max(sizes), 120, "zipf", random), random_vectors(QUERIES, 40, "zipf", random)
    times, size_of, making = dict[int, float](), dict[int, float](), dict[int, float]()
    ExactIndex(documents[:100]).search(queries, threads=1)  # which may have to be compiled
    for size in sizes:
        start = perf_counter()
        index = ExactIndex(documents[:size])
        making[size], size_of[size] = perf_counter() - start, index.nbytes / 2**20
        index.search(queries, threads=1)
        each = [partial(index.search, queries[[row]], threads=1) for row in range(QUERIES)]
        times[size] = 1e3 * median(medians({str(row): run for row, run in enumerate(each)}, 3, CPU).values())
    yield Curve("exact search, one thread", "ms", "documents", times)
    yield Curve("exact index", "MiB", "documents", size_of)
    yield Curve("making the exact index", "s", "documents", making)


def the_head(repeats: int) -> Iterator[Curve]:
    """The forward pass of max pooling, and its peak memory above its inputs."""
    for letter, sizes in VARIED.items():
        runs: dict[int, Callable[[], object]] = {}
        for size in sizes:
            inputs = head.draw(argparse.Namespace(**HEAD | {letter: size}), CPU)
            runs[size] = head.forward(head.ours, inputs)
        seconds = medians({str(size): run for size, run in runs.items()}, repeats, CPU)
        peaks = {size: peak_memory(run, CPU) for size, run in runs.items()}
        yield Curve("head, forward", "ms", NAMED[letter], {int(size): 1e3 * took for size, took in seconds.items()})
        memory = {size: peak for size, peak in peaks.items() if peak}
        if len(memory) == len(peaks):  # no peak is known where the system gave memory back in between
            yield Curve("head, forward", "MiB", NAMED[letter], memory)


def encode_texts(threads: int) -> float:
    """Return the texts a second with `threads` threads; runs in a separate process."""
    torch.set_num_threads(threads)
    model, texts = load(device="cpu"), list(islice(read_texts("pydocs:"), 1500))[:: 1500 // TEXTS][:TEXTS]
    encode(model, texts[:8], dtype="float32")
    return len(texts) / median(medians({"": lambda: encode(model, texts, dtype="float32")}, 3, CPU).values())


def encoding() -> Iterator[Curve]:
    """Texts a second against threads: 1, 2, 4, ... and all cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = sorted({cores, *(2**power for power in range(10) if 2**power <= cores)})
    speeds = {}
    for threads in counts:
        code = f"import growth; print(growth.encode_texts({threads}))"
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        done = subprocess.check_output([sys.executable, "-c", code], cwd=Path(__file__).parent, env=environment)
        speeds[threads] = float(done.split()[-1])
    if len(speeds) > 1:
        yield Curve("encoding", "texts/s", "threads", speeds)


def draw(curves: list[Curve], path: Path) -> None:
    """One panel for each curve, both axes logarithmic."""
    figure = empty_panels(len(curves), 3)
    for axes, curve in zip(figure.axes, curves, strict=True):
        axes.loglog(list(curve.values), list(curve.values.values()), marker="o")
        axes.set(title=f"{curve.what}: exponent {curve.exponent:.2f}", xlabel=curve.size, ylabel=curve.unit)
        axes.grid(alpha=0.3, which="both")
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000, help="at most; a million takes 4 GB of memory")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--figure", type=Path, help="also draw the curves here (.svg or .png)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args()
    described = machine(CPU)
    curves = [*searching(options.documents), *the_head(options.repeats), *encoding()]
    if options.figure:
        draw(curves, options.figure)
    if options.json:
        print(json.dumps({"machine": described, "curves": [curve.to_json() for curve in curves]}, indent=1))
        return
    print_machine(described)
    for curve in curves:
        shown = "  ".join(f"{size:,}: {value:.3g}" for size, value in curve.values.items())
        print(f"{curve.what}, {curve.unit}, by {curve.size} (exponent {curve.exponent:.2f}):  {shown}")


if __name__ == "__main__":
    main()
