"""How long it takes to measure what expansion terms are worth, once everything is encoded.

    python benchmarks/removal.py                        # 5 thresholds x 11 searches x 10,000 queries, 100,000 documents
    python benchmarks/removal.py --role document --queries 1000
    python benchmarks/removal.py --threads 2

Vectors and judgments are random: what is measured is time, not quality.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch
from machine import machine, print_machine
from scipy.sparse import csr_array
from search import SIZE, random_vectors

from vocable.data import Document, Qrel, Query
from vocable.encoding.vectors import selected
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import Encoded
from vocable.wackiness.ablate import ABLATION_MEASURES, RANDOM_DRAWS, Ablation, remove_wackiest

THRESHOLDS = (10, 100, 1000, 3000, 10_000)
OWN = 0.3  # share of a vector's entries that stand in the text itself


def encoded(queries: int, documents: int, rng: np.random.Generator) -> Encoded:
    """Random vectors of about 40 and 120 terms, and one judged document a query."""
    corpus = [Document(f"d{row}", "") for row in range(documents)]
    asked = [Query(f"q{row}", "") for row in range(queries)]
    judgments = [
        Qrel(query.id, f"d{row}", 1) for query, row in zip(asked, rng.integers(0, documents, queries), strict=True)
    ]
    vectors = random_vectors(queries, 40, "zipf", rng), random_vectors(documents, 120, "zipf", rng)
    return Encoded(Dataset("random", corpus, asked, judgments), *vectors, 0.0)


def input_terms(vectors: csr_array, rng: np.random.Generator) -> csr_array:
    return selected(vectors, rng.random(vectors.nnz) < OWN)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    data = encoded(options.queries, options.documents, rng)
    input_counts = input_terms(data.queries if options.role == "query" else data.documents, rng)
    start = time.perf_counter()
    ablation = Ablation(data, input_counts, options.measures, role=options.role, threads=options.threads)
    ablation.values()  # builds the index, and searches and measures with the whole vectors
    ready = time.perf_counter()
    result = remove_wackiest(ablation, rng.permutation(SIZE), THRESHOLDS, draws=RANDOM_DRAWS)
    end = time.perf_counter()
    searched = [outcome.changed for point in result.points for outcome in (point.wacky, *point.random)]
    return {
        "removals": len(searched),
        "queries searched again, share": float(np.mean(searched)) / options.queries,
        "index and first search, seconds": ready - start,
        "removals, seconds": end - ready,
        "all, seconds": end - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--role", choices=["query", "document"], default="query")
    parser.add_argument("--measures", nargs="+", default=list(ABLATION_MEASURES))
    parser.add_argument("--threads", type=int, help="of a search; all cores by default")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the lines")
    options = parser.parse_args()
    described = machine(torch.device("cpu"), "numpy", "numba", "ir-measures")
    measured = measure(options)
    if options.json:
        print(json.dumps({"machine": described, "options": vars(options), "measured": measured}, indent=1))
        return
    print_machine(described)
    for name, value in measured.items():
        print(f"{name:32}{value:10.2f}")


if __name__ == "__main__":
    main()
