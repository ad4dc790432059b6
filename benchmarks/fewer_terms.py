"""What fewer terms of queries and documents cost: quality of known items, latency and bytes, from stored vectors.

    python benchmarks/fewer_terms.py --vectors vectors --queries query-vectors --judgments qrels.tsv

`vocable select` prints the same for a collection that it encodes. Exact search, k = 10; times are medians of 200
queries, asked one at a time on one thread.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch
from machine import machine
from scipy.sparse import csr_array

from vocable.core.tables import Table
from vocable.data import read_judgments
from vocable.encoding.idf import idf
from vocable.encoding.pruning import prune
from vocable.encoding.vectors import read_vectors
from vocable.indexes.exact_index import ExactIndex

K = 10
TIMED = 200  # queries
QUERY_TERMS, DOCUMENT_TERMS = (30, 20, 10, 5), (128, 64, 32, 16)


def row(name: str, index: ExactIndex, queries: csr_array, items: np.ndarray) -> list[str]:
    """Return the cells of a setting; `items` [q] are the rows of the documents that the queries [q, v] ask for."""
    places = index.search(queries, K).rows == items[:, None]
    reciprocal_rank = (places / np.arange(1, K + 1)).sum(axis=1).mean()
    times = []
    for number in range(min(TIMED, queries.shape[0])):
        start = time.perf_counter()
        index.search(queries[[number]], K, threads=1)
        times.append(1e3 * (time.perf_counter() - start))
    size = index.nbytes / len(index)
    return [
        name,
        f"{reciprocal_rank:.4f}",
        f"{places.any(axis=1).mean():.3f}",
        f"{np.median(times):.2f}",
        f"{size:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", nargs="+", required=True, help="of documents")
    parser.add_argument("--queries", required=True, help="vectors of queries, without IDF")
    parser.add_argument("--judgments", required=True, help="the document of each query")
    parser.add_argument("--query-idf", type=float, default=0.75, help="power of the IDF that weighs --queries")
    given = parser.parse_args()
    documents, stored = read_vectors(given.vectors), read_vectors(given.queries)
    row_of = {identifier: number for number, identifier in enumerate(documents.ids)}
    item_of = {judgment.query_id: judgment.doc_id for judgment in read_judgments(given.judgments)}
    asked = [number for number, identifier in enumerate(stored.ids) if item_of.get(identifier) in row_of]
    items = np.array([row_of[item_of[stored.ids[number]]] for number in asked])
    index, queries = ExactIndex(documents.matrix), csr_array(stored.matrix[asked])
    rarity = idf(index.document_frequency, len(index)).astype(np.float32)
    queries.data *= rarity[queries.indices] ** np.float32(given.query_idf)
    rows = [row("all", index, queries, items)]
    rows += [row(f"{terms} of a query", index, prune(queries, terms), items) for terms in QUERY_TERMS]
    for terms in DOCUMENT_TERMS:
        index = ExactIndex(prune(documents.matrix, terms))
        rows.append(row(f"{terms} of a document", index, queries, items))
    title = f"{len(index):,} documents, {len(items):,} known items"
    print(Table(title, ["terms", f"RR@{K}", "found", "p50 ms", "bytes a document"], rows).markdown())
    print(json.dumps(machine(torch.device("cpu"), "numba", "numpy")))


if __name__ == "__main__":
    main()
