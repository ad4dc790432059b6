"""How long the measure of wackiness takes on stored vectors, step by step, and how much memory it needs.

    python benchmarks/wackiness.py                          # 10,000 queries and 100,000 documents
    python benchmarks/wackiness.py --role document          # 10,000 documents as inputs, of about 120 terms
    python benchmarks/wackiness.py --threads 2 --json

Vectors and the texts' own terms are random: what is measured is time. Encoding is left out, and so is the tokenizing of
the texts, which `input_terms` does; `--model` adds that for texts of about 100 words.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from machine import machine, print_machine
from scipy.sparse import csr_array
from search import SIZE, random_vectors

from vocable.encoding.load import load
from vocable.encoding.terms import input_terms
from vocable.encoding.vectors import selected
from vocable.indexes.exact_index import ExactIndex
from vocable.options import check
from vocable.training_options import WackinessOptions
from vocable.wackiness.expansions import ExpansionData, without_itself, word_surfaces
from vocable.wackiness.measure import wackiness_of
from vocable.wackiness.score import expansions, lexical_importance

OWN = 0.3  # share of a vector's entries that stand in the text itself


def counted(vectors: csr_array, rng: np.random.Generator) -> csr_array:
    """Return some of the vectors' entries as terms of the texts, each once to three times."""
    entries = selected(vectors, rng.random(vectors.nnz) < OWN)
    return csr_array(
        (rng.integers(1, 4, entries.nnz).astype(np.float32), entries.indices, entries.indptr), shape=entries.shape
    )


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Seconds of each step, and the most memory that the process had, in MiB."""
    rng, seconds = np.random.default_rng(0), {}
    documents = random_vectors(options.documents, 120, "zipf", rng)
    queries = random_vectors(options.queries, 40, "zipf", rng)
    # A text has about 70 distinct tokens, whatever its vector has.
    counts = counted(random_vectors(options.documents, 230, "zipf", rng), rng)
    itself = np.sort(rng.choice(options.documents, options.queries)) if options.role == "document" else None
    inputs = queries if itself is None else documents[itself]
    input_counts, names = counted(inputs, rng), [f"w{column}" for column in range(SIZE)]

    def timed(name: str, step: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = step()
        seconds[name] = time.perf_counter() - start
        return result

    few = slice(0, 2)  # compiles
    tiny = ExactIndex(documents[:100]).search(inputs[few], options.k).rows
    lexical_importance(expansions(inputs[few], input_counts[few]), tiny, counts)
    depth = options.k if itself is None else options.k + 1
    index = timed("index", lambda: ExactIndex(documents))
    rows = timed("search", lambda: index.search(inputs, depth, threads=options.threads).rows)
    if itself is not None:
        rows = without_itself(rows, itself)
    timed("lexical importance", lambda: lexical_importance(expansions(inputs, input_counts), rows, counts))
    data = ExpansionData("random", inputs, input_counts, rows, counts, word_surfaces(names), names)
    once, drawn = (check(WackinessOptions, {"k": options.k, "bootstrap": draws}) for draws in (0, options.draws))
    timed("scores and curve", lambda: wackiness_of(data, once))
    timed(f"the same and {options.draws} draws", lambda: wackiness_of(data, drawn))
    if options.model is not None:
        model = load(options.model, device="cpu")
        text = " ".join(name for name in rng.permutation(["the old fox reads", "sparse vectors", "in 1985"] * 14))
        texts = [text] * options.documents
        timed("own terms of the documents", lambda: input_terms(model, texts))
    return seconds | {"peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000, help="inputs")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--role", choices=["query", "document"], default="query", help="what the inputs are")
    parser.add_argument("-k", type=int, default=100, help="documents that an input retrieves")
    parser.add_argument("--draws", type=int, default=100, help="of the bootstrap")
    parser.add_argument("--threads", type=int, help="of the search; all cores by default")
    parser.add_argument("--model", help="also count the own terms of as many texts with this model's tokenizer")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    described = machine(torch.device("cpu"), "scipy")
    figures = measure(options)
    if options.json:
        print(json.dumps({"machine": described, "options": vars(options), "found": figures}, indent=2))
        return
    print_machine(described)
    for name, value in figures.items():
        print(f"{name:<30} {value:10,.1f}")


if __name__ == "__main__":
    main()
