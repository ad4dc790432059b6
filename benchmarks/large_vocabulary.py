"""Memory of encoding and of a training step as the vocabulary grows: ours and sentence-transformers', in the same run.

    python benchmarks/large_vocabulary.py                        # v = 30,522, 100,000, 250,000; 12 GiB at most

Every measurement runs in a separate process that may take --limit MiB above its libraries; if this is not enough, the
failed allocation is reported. Memory is the peak above the loaded model, so a training step includes the gradients and
AdamW's two moments, each [v, d]. The steps are the same as in train_step.py, with texts of equal length.

Least squares over all measured (v, b, s) tell how memory grows:
    bytes = c0 + c1 v + c2 bs + c3 bv + c4 bsv
with v terms, b texts, s tokens. A float32 matrix of logits that is held once makes c4 = 4.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import train_step
from machine import figure, limit_memory, machine, peak_memory, print_machine
from random_model import ACTIVE, HIDDEN, LAYERS, write_random_model
from sentence_transformers import SparseEncoder

from vocable.data import read_texts
from vocable.torch_models.fuse import fuse

VOCABULARIES = (30_522, 100_000, 250_000)
SHAPES = ((12, 32), (12, 128), (12, 256), (48, 32))  # b texts of s tokens; the last has the tokens of the second
COLUMNS = 3  # texts of a training example: query, positive, negative
PEER, OURS = "sentence-transformers", "vocable"
SIDES = {
    PEER: train_step.SIDES["sentence-transformers float32, dropout 0"],
    OURS: train_step.SIDES["vocable float32, dropout 0"],
}
REFUSED = re.compile(r"tried to allocate (\d+) bytes")


class Cell(NamedTuple):
    """What is measured: the shape of a batch, and who does what with it."""

    v: int
    b: int
    s: int
    task: str
    side: str


def encode(cell: Cell, path: str, texts: list[str]) -> dict[str, Any]:
    """MiB to encode b texts at once, and the mean weight of a term."""
    model = SparseEncoder(path, device="cpu").float()
    model[0].document_length = cell.s
    if SIDES[cell.side].ours:
        fuse(model)
    running = iter(" ".join(texts).split())
    batch = [" ".join(islice(running, cell.s)) for _ in range(cell.b)]
    vectors: list[torch.Tensor] = []
    memory = peak_memory(lambda: vectors.append(model.encode_document(batch, batch_size=cell.b)), torch.device("cpu"))
    return {"MiB": memory, "check": float(vectors[0].to_dense().mean())}


def step(cell: Cell, path: str, texts: list[str]) -> dict[str, Any]:
    """MiB of two training steps over b texts, optimizer included, and the first loss."""
    options = argparse.Namespace(
        device="cpu", pairs=cell.b // COLUMNS, query_length=cell.s, document_length=cell.s, steps=1
    )
    measured = train_step.measure(SIDES[cell.side], path, texts, options)
    return {"MiB": measured["MiB"], "check": measured["loss"]}


TASKS: dict[str, Callable[[Cell, str, list[str]], dict[str, Any]]] = {"encode": encode, "training step": step}


def measure(cell: Cell, path: str, texts: list[str], limit: int, threads: int) -> dict[str, Any]:
    """Return the figures of the task, or the MiB that it was refused; runs in a separate process."""
    torch.set_num_threads(threads)
    limit_memory(limit)
    try:
        return TASKS[cell.task](cell, path, texts)
    except (RuntimeError, MemoryError) as error:
        refused = REFUSED.search(str(error))
        if refused is None:
            raise
        return {"MiB": None, "refused MiB": int(refused[1]) / 2**20}


def growth(results: Mapping[Cell, dict[str, Any]]) -> dict[str, float] | None:
    """Bytes per v, bs, bv and bsv; None where too few cells were measured to tell."""
    measured = [(cell, part["MiB"] * 2**20) for cell, part in results.items() if part["MiB"] is not None]
    shapes = np.array([[1, c.v, c.b * c.s, c.b * c.v, c.b * c.s * c.v] for c, _ in measured], dtype=np.float64)
    if len(shapes) <= 5 or np.linalg.matrix_rank(shapes / shapes.max(axis=0)) < 5:
        return None
    scale = shapes.max(axis=0)
    slopes = np.linalg.lstsq(shapes / scale, np.array([held for _, held in measured]), rcond=None)[0] / scale
    return dict(zip(("v", "bs", "bv", "bsv"), slopes[1:].tolist(), strict=True))


def check(results: Mapping[Cell, dict[str, Any]]) -> None:
    """Exit with a message unless both sides compute the same."""
    for cell, part in results.items():
        other = results[cell._replace(side=PEER)]
        if None not in (part["MiB"], other["MiB"]) and abs(part["check"] - other["check"]) > 1e-3 * abs(part["check"]):
            raise SystemExit(f"{cell}: {part['check']} and {other['check']} are not the same")


def measure_all(options: argparse.Namespace) -> dict[Cell, dict[str, Any]]:
    texts, results = list(islice(read_texts("pydocs:"), 5000)), {}
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["train_step"])  # the libraries are read once, and not for every measurement
    for v in options.v:
        with tempfile.TemporaryDirectory() as folder:
            path = str(write_random_model(Path(folder), texts, v))
            for cell in (Cell(v, b, s, task, side) for task in TASKS for b, s in SHAPES for side in SIDES):
                with ProcessPoolExecutor(1, processes) as process:
                    done = process.submit(measure, cell, path, texts, options.limit, options.threads)
                    try:
                        results[cell] = done.result()
                    except BrokenProcessPool:  # the system had less memory than --limit, and took its own way
                        results[cell] = {"MiB": None, "refused MiB": None}
    return results


def print_table(results: Mapping[Cell, dict[str, Any]], task: str) -> None:
    print(f"\n{task}, MiB\n{'v':>10}{'b':>6}{'s':>6}{OURS:>12}{PEER:>32}")
    for cell, part in results.items():
        if (cell.task, cell.side) == (task, PEER):
            ours = results[cell._replace(side=OURS)]
            print(f"{cell.v:>10,}{cell.b:>6}{cell.s:>6}{amount(ours):>12}{amount(part):>32}")
    for side, slopes in growths(results, task).items():
        told = "too few shapes fitted" if slopes is None else f"{slopes['bv']:.1f} per bv, {slopes['bsv']:.3f} per bsv"
        print(f"{side}, bytes: {told}")


def growths(results: Mapping[Cell, dict[str, Any]], task: str) -> dict[str, dict[str, float] | None]:
    return {
        side: growth({c: part for c, part in results.items() if (c.task, c.side) == (task, side)}) for side in SIDES
    }


def amount(part: Mapping[str, Any]) -> str:
    if "refused MiB" not in part:
        return figure(part["MiB"], ",.0f")
    return "killed" if part["refused MiB"] is None else f"out of memory, asking for {part['refused MiB']:,.0f}"


def rows(results: Mapping[Cell, dict[str, Any]]) -> Iterable[dict[str, Any]]:
    return ({**cell._asdict(), **part} for cell, part in results.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-v", type=int, nargs="+", default=VOCABULARIES, help="sizes of the vocabulary")
    parser.add_argument("--limit", type=int, default=12 * 2**10, help="MiB that a process may take (default 12 GiB)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    described, results = machine(torch.device("cpu")), measure_all(options)
    check(results)
    model = f"random BERT, {LAYERS} layers, d = {HIDDEN}, {ACTIVE:.0%} of terms active"
    if options.json:
        slopes = {task: growths(results, task) for task in TASKS}
        said = {"machine": described, "model": model, "limit MiB": options.limit, "growth": slopes}
        print(json.dumps({**said, "results": list(rows(results))}, indent=1))
        return
    print_machine(described)
    print(f"{model}   at most {options.limit:,} MiB a process")
    for task in TASKS:
        print_table(results, task)


if __name__ == "__main__":
    main()
