"""Is a hybrid of learned sparse vectors, BM25 and dense vectors ahead of each alone?

    python benchmarks/hybrid.py beir:cacm beir:scifact --dense sentence-transformers/all-MiniLM-L6-v2 --work hybrid-work

Each collection is indexed once, in the work folder, and evaluated as `vocable evaluate INDEX --hybrid` does. Weights
are the default, 1 each, and those that cross-validation chooses on the known-item test of the built-in corpus
(`vocable.cli.demo.known_items`); neither has seen the collections. The difference to the best space alone has a paired
95 % interval (Student's t over the queries).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from scipy.stats import t as student_t

import vocable as vo
from vocable.cli.demo import known_items
from vocable.collection.collection import Collection
from vocable.core.tables import Table, p_value
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import Evaluation
from vocable.evaluation.significance import ComparedEvaluations, compare

MEASURE = "nDCG@10"


def cut(dataset: Dataset, limit: int) -> Dataset:
    """Return the dataset with at most `limit` documents: the documents relevant to a query, then the first others."""
    relevant = {judgment.doc_id for judgment in dataset.judgments if judgment.relevance > 0}
    others = [document.id for document in dataset.documents if document.id not in relevant]
    kept = relevant | set(others[: max(0, limit - len(relevant))])
    documents = [document for document in dataset.documents if document.id in kept]
    return Dataset(f"{dataset.name}, {len(documents):,} documents", documents, dataset.queries, dataset.judgments)


def indexed(dataset: Dataset, folder: Path, model: str, dense: str) -> Collection:
    """The index of a dataset in a folder, made unless it is there."""
    corpus, place = folder / "corpus.jsonl", folder / "index"
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        lines = ({"id": one.id, "title": one.title, "text": one.text} for one in dataset.documents)
        corpus.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        vo.index(model, corpus, place, bm25=True, dense=dense, device="cpu").close()
    return vo.open_index(place, device="cpu")


def interval(best: Evaluation, other: Evaluation) -> str:
    """The mean difference to the best, and its 95 % interval."""
    values = np.array([other.per_query[MEASURE][query] - one for query, one in best.per_query[MEASURE].items()])
    half = student_t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.3f} ({values.mean() - half:+.3f} to {values.mean() + half:+.3f})"


def show(index: Collection, dataset: Dataset, **fusions: Any) -> Evaluation:
    """Print the evaluations of an index, each compared with the best single space, and return the last."""
    evaluated = vo.evaluate(index, dataset, [MEASURE], hybrid=True, **fusions)
    assert isinstance(evaluated, ComparedEvaluations)
    search, best, *others = evaluated.evaluations
    compared = compare([best, search, *others])
    rows = [[best.name, f"{best.values[MEASURE]:.3f}", "", ""]]
    for other, p in zip(compared.evaluations[1:], compared.p_values, strict=True):
        rows.append([other.name, f"{other.values[MEASURE]:.3f}", interval(best, other), p_value(p[MEASURE])])
    table = Table("", ["searched by", MEASURE, f"over {best.name}", "p"], rows)
    print(f"{best.dataset}, {best.queries} queries\n\n{table.markdown()}\n", flush=True)
    return compared[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="sources, as beir:DIR")
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--dense", required=True, help="a model of sentence-transformers")
    parser.add_argument("--work", type=Path, default=Path("hybrid-work"), help="folder of the indexes")
    parser.add_argument("--documents", type=int, default=0, help="at most so many of a collection; 0 for all")
    parser.add_argument("--folds", type=int, default=5)
    given = parser.parse_args()
    tuning = known_items(whole=True)
    index = indexed(tuning, given.work / "known-items", given.model, given.dense)
    weights = show(index, tuning, folds=given.folds).name.split()[0]
    index.close()
    for source in given.collections:
        dataset = load_dataset(source)
        name = source.rstrip("/").rpartition("/")[2].replace(":", "-")
        if given.documents:
            dataset, name = cut(dataset, given.documents), f"{name}-{given.documents}"
        index = indexed(dataset, given.work / name, given.model, given.dense)
        show(index, dataset, weights=weights)
        index.close()
    print(json.dumps(machine(torch.device("cpu"))))


if __name__ == "__main__":
    main()
