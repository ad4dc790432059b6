"""What does a search without an encoder lose, and what does it gain from looked-up dense queries?

    python benchmarks/looked_up.py beir:cacm beir:scifact pydocs: --work looked-up-work

Each collection is indexed once, in the work folder, by `vocable-mini` with BM25 and dense vectors. It is searched by
`vocable-mini-doc` (looked-up terms and BM25, then looked-up dense vectors in addition) and by `vocable-mini` with all
three kinds. Differences are to the first row, with paired 95 % intervals (Student's t over the queries). Milliseconds
are the median of 100 searches, one at a time. `pydocs:` stands for the known items of the built-in corpus.
"""

from __future__ import annotations

import argparse
import json
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from hybrid import interval
from machine import machine

import vocable as vo
from vocable.cli.demo import known_items
from vocable.collection.collection import Collection
from vocable.core.tables import Table
from vocable.encoding.hub import BUILT_IN_MODEL, BY_LOOKUP
from vocable.engines.protocols import Space
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import Evaluation

MEASURE, TIMED = "nDCG@10", 100
SEARCHES: dict[str, tuple[str, tuple[Space, ...]]] = {
    "looked-up terms": (BY_LOOKUP, ("sparse",)),
    "looked-up terms + BM25": (BY_LOOKUP, ("sparse", "bm25")),
    "looked-up dense": (BY_LOOKUP, ("dense",)),
    "all three, looked up": (BY_LOOKUP, ("sparse", "bm25", "dense")),
    "all three, encoded": (BUILT_IN_MODEL, ("sparse", "bm25", "dense")),
}
FIRST = "looked-up terms + BM25"


def indexed(dataset: Dataset, folder: Path) -> Collection:
    """The index of a dataset in a folder, made unless it is there."""
    if not folder.exists():
        vo.index(BUILT_IN_MODEL, dataset.documents, folder, device="cpu").close()
    return vo.open_index(folder, device="cpu")


def milliseconds(index: Collection, queries: list[str], spaces: tuple[Space, ...]) -> float:
    """The median time of a search."""
    times = []
    for query in islice(cycle(queries), TIMED):
        start = perf_counter()
        index.search([query], weights=dict.fromkeys(spaces, 1.0), plain=True)
        times.append(perf_counter() - start)
    return float(np.median(times)) * 1000


def show(index: Collection, dataset: Dataset) -> None:
    """Print the quality and the time of each kind of search."""
    evaluations, times = dict[str, Evaluation](), dict[str, float]()
    models = {name: index.with_model(name) for name in (BY_LOOKUP, BUILT_IN_MODEL)}
    for name, (model, spaces) in SEARCHES.items():
        judged = vo.evaluate(models[model], dataset, [MEASURE], weights=dict.fromkeys(spaces, 1.0))
        evaluations[name] = judged if isinstance(judged, Evaluation) else judged.evaluations[0]
        times[name] = milliseconds(models[model], [query.text for query in dataset.queries], spaces)
    rows = [
        [name, f"{of.values[MEASURE]:.4f}", interval(evaluations[FIRST], of), f"{times[name]:.2f}"]
        for name, of in evaluations.items()
    ]
    table = Table("", ["searched by", MEASURE, f"over {FIRST}", "ms"], rows)
    print(f"{dataset.name}, {len(dataset.queries)} queries\n\n{table.markdown()}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="sources, as beir:DIR; pydocs: for known items")
    parser.add_argument("--work", type=Path, default=Path("looked-up-work"), help="folder of the indexes")
    given = parser.parse_args()
    for source in given.collections:
        dataset = known_items(whole=True) if source == "pydocs:" else load_dataset(source)
        with indexed(dataset, given.work / source.rstrip("/:").rpartition("/")[2]) as index:
            show(index, dataset)
    print(json.dumps(machine(torch.device("cpu"))))


if __name__ == "__main__":
    main()
