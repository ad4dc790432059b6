"""Search an index that PyTorch made and indexes that graphs made: the quality of each, and the hits they share.

    python benchmarks/runtimes.py beir:cacm beir:scifact --work runtimes-work
    python benchmarks/runtimes.py beir:cacm --model MODEL --graphs EXPORTED ANOTHER

Each side indexes each collection once, in the work folder. PyTorch computes in float32; its index comes first, and the
graphs are compared with it. A graph is the model's own graph, or an exported model in a folder. The side that made the
index also encodes the queries.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine, print_machine

import vocable as vo
from vocable.collection.collection import Collection
from vocable.data import read_corpus
from vocable.evaluation.dataset import load_dataset
from vocable.evaluation.significance import ComparedEvaluations
from vocable.indexes.ranking import Ranking

MEASURE, K = "nDCG@10", 10


def indexed(source: str, place: Path, model: str, **options: Any) -> Collection:
    """The index of a collection in a folder, made unless it is there."""
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        corpus = place.with_suffix(".jsonl")
        lines = ({"id": one.id, "title": one.title, "text": one.text} for one in read_corpus(source))
        corpus.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        vo.index(model, corpus, place, **options).close()
    return vo.open_index(place)


def shared(expected: Ranking, actual: Ranking) -> float:
    """Return the mean share of the first K hits of a query that are also among the first K of the other ranking."""
    hits = [
        [{name for name, _ in ranking.hits(query)} for query in range(len(ranking))] for ranking in (expected, actual)
    ]
    return float(np.mean([len(one & other) / max(1, len(one)) for one, other in zip(*hits, strict=True)]))


def compared(source: str, model: str, graphs: list[str], work: Path) -> list[dict[str, Any]]:
    """Return the nDCG of each side, and for each graph the difference from PyTorch and the share of its hits."""
    dataset, folder = load_dataset(source), work / Path(source.partition(":")[2]).name
    sides: dict[str, tuple[str, dict[str, Any]]] = {"PyTorch": (model, {"runtime": "torch", "dtype": "float32"})}
    for graph in graphs or [model]:
        sides[Path(graph).name + ", graph"] = graph, {"runtime": "onnx"}
    indexes = {name: indexed(source, folder / name, of, **options) for name, (of, options) in sides.items()}
    comparison = vo.evaluate(indexes, dataset, [MEASURE])
    assert isinstance(comparison, ComparedEvaluations)
    values = {one.name.removesuffix(": sparse"): one.values[MEASURE] for one in comparison.evaluations}
    texts = [query.text for query in dataset.queries]
    rankings = {name: index.search(texts, k=K) for name, index in indexes.items()}
    expected = rankings["PyTorch"]
    return [
        {
            "side": name,
            "queries": len(texts),
            MEASURE: values[name],
            "difference": values[name] - values["PyTorch"],
            "shared": shared(expected, ranking),
            "same order": float((expected.rows == ranking.rows).all(1).mean()),
        }
        for name, ranking in rankings.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="sources, as beir:DIR")
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--graphs", nargs="*", default=[], help="exported models; by default the model's own graph")
    parser.add_argument("--work", type=Path, default=Path("runtimes-work"), help="folder of the indexes")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    options = parser.parse_args()
    described = machine(torch.device("cpu"))
    results = {source: compared(source, options.model, options.graphs, options.work) for source in options.collections}
    if options.json:
        print(json.dumps({"machine": described, "collections": results}, indent=1))
        return
    print_machine(described)
    for source, rows in results.items():
        print(f"\n{source}, {rows[0]['queries']} queries\n")
        print(f"{'':32}{MEASURE:>9}{'difference':>12}{f'same top {K}':>13}{'same order':>12}")
        for row in rows:
            numbers = f"{row[MEASURE]:9.4f}{row['difference']:+12.4f}{row['shared']:13.1%}{row['same order']:12.1%}"
            print(f"{row['side']:32}{numbers}")


if __name__ == "__main__":
    main()
