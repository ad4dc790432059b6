"""Score documents of an index that grew by tens against the same documents encoded in one call.

    python benchmarks/batches.py --model vocable-mini --corpus pydocs: --count 1000

Half of the documents are encoded together, the others ten at a time, as by `add`. For each number type, with queries
(titles) weighted by no IDF and by IDF, it prints the change of the scores among the ten best documents.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from machine import machine, print_machine
from scipy.sparse import csr_array, vstack

from vocable.data import read_corpus
from vocable.encoding.idf import idf
from vocable.encoding.load import load_encoder
from vocable.encoding.text_encoder import TextEncoder
from vocable.options import DType, Runtime

TOGETHER = 10  # documents of one addition
BEST = 10


def compare(queries: csr_array, whole: csr_array, grown: csr_array) -> dict[str, float]:
    """Return what the ten best documents [n] of q queries lose by the growth of the index."""
    scores, others = (queries @ whole.T).toarray(), (queries @ grown.T).toarray()
    best, best_others = (np.argsort(-found, axis=1, kind="stable")[:, :BEST] for found in (scores, others))
    first, second = (np.take_along_axis(found, best, axis=1) for found in (scores, others))
    changes = (np.abs(first - second)[first > 0]) / first[first > 0]
    return {
        "score, 99 % of hits": np.quantile(changes, 0.99),
        "score, largest": changes.max(),
        "queries with another order": (best != best_others).any(axis=1).mean(),
        "queries with another first hit": (best[:, 0] != best_others[:, 0]).mean(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--corpus", default="pydocs:")
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    print_machine(machine(torch.device("cpu")))
    documents = [document for document, _ in zip(read_corpus(options.corpus), range(options.count), strict=False)]
    texts = [document.full for document in documents]
    titles = [document.title for document in documents if document.title][::5]
    queries = TextEncoder(load_encoder(options.model, "cpu"), "query").encode(titles)
    ways: tuple[tuple[DType, Runtime | None], ...] = (("bfloat16", "torch"), ("float32", "torch"), ("auto", None))
    for dtype, runtime in ways:
        encoder = TextEncoder(load_encoder(options.model, "cpu", runtime, dtype), "document", dtype=dtype)
        half = len(texts) // 2
        whole = encoder.encode(texts)
        additions = [encoder.encode(texts[start : start + TOGETHER]) for start in range(half, len(texts), TOGETHER)]
        grown = csr_array(vstack([encoder.encode(texts[:half]), *additions]))
        counts = np.bincount(whole.indices, minlength=whole.shape[1])
        for power in (0, 1):
            weighted = csr_array(queries.multiply(idf(counts, len(texts))[None, :] ** power))
            figures = ", ".join(f"{name} {value:.2%}" for name, value in compare(weighted, whole, grown).items())
            print(f"{encoder.model.dtype}, query_idf {power}, {len(titles)} queries: {figures}")


if __name__ == "__main__":
    main()
