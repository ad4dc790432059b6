"""Term at a time against document at a time, on the same vectors: the engine `exact`, and BMP (Mallia et al. 2024).

    pip install --no-deps bmp==0.2.8
    python benchmarks/traversal.py                                   # 100,000 random vectors of about 120 terms
    python benchmarks/traversal.py --vectors documents --queries queries --documents 1000000 --alpha 1 --alpha 0.9

`exact` adds up the postings of each query term in turn. BMP skips blocks of documents by upper bounds of their scores,
and scores the other blocks document by document. Its index is made from a CIFF file of `vocable export`, with weights
in 8 bits. At alpha 1 nothing is left out; below 1, blocks are left out if their bound times alpha is too low. If the
vectors are too few, each missing vector is mixed from two vectors. Times are measured with a query at a time, on a
single thread, from its vector to the ids of its k best documents.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from scipy.sparse import csr_array, vstack
from search import mixtures, random_vectors, some

from vocable.core.tables import Table
from vocable.encoding.vectors import VectorsMeta, read_vectors, write_vectors
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.export import export

BLOCK = 32  # documents of BMP's blocks


def stored(folder: Path, role: str, matrix: csr_array) -> str:
    folder.mkdir()
    names = [f"{role}-{row}" for row in range(matrix.shape[0])]
    write_vectors(
        folder / "part-00000.parquet", names, matrix, VectorsMeta("v", "none", "max", role, 8, matrix.shape[1])
    )
    return str(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", help="of documents; random ones by default")
    parser.add_argument("--queries", help="vectors of queries")
    parser.add_argument("--query-idf", type=float, default=0.75, help="power of the IDF that weighs --queries")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--alpha", type=float, action="append", help="of BMP; may be repeated")
    parser.add_argument("--count", type=int, default=200, help="queries")
    parser.add_argument("-k", type=int, default=10)
    given = parser.parse_args()
    bmp = import_module("bmp")
    if given.vectors:
        documents = csr_array(vstack(list(mixtures(read_vectors(given.vectors).matrix, given.documents)), format="csr"))
        frequency = np.bincount(documents.indices, minlength=documents.shape[1])
        queries = some(read_vectors(given.queries).matrix, given.count, frequency, given.documents, given.query_idf)
    else:
        rng = np.random.default_rng(0)
        documents, queries = (
            random_vectors(count, terms, "zipf", rng) for count, terms in ((given.documents, 120), (given.count, 40))
        )
    scale = int(min(50, 255 / documents.data.max()))  # a weight of BMP is below 256, a score below 65,536
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        export(stored(folder / "documents", "document", documents), folder / "ciff", format="ciff", scale=scale)
        start = time.perf_counter()
        bmp.ciff2bmp(str(folder / "ciff" / "index.ciff"), str(folder / "bmp"), BLOCK, False)
        built, size = time.perf_counter() - start, (folder / "bmp").stat().st_size
        index = ExactIndex(documents, [f"document-{row}" for row in range(documents.shape[0])])
        searcher = bmp.Searcher(str(folder / "bmp"))
        rows = [found for alpha in given.alpha or [1.0] for found in sides(index, searcher, queries, given.k, alpha)]
    title = f"{documents.shape[0]:,} documents of {documents.nnz / documents.shape[0]:.0f} terms, "
    title += f"{queries.shape[0]} queries of {queries.nnz / queries.shape[0]:.0f}, k = {given.k}; "
    title += f"exact {index.nbytes / 1e6:.0f} MB, BMP {size / 1e6:.0f} MB, built in {built:.0f} s of CIFF"
    print(f"{title}\n\n{Table(title, ['engine', 'ms p50', 'ms p95', 'ms p99', 'recall'], rows).markdown()}")
    print(json.dumps(machine(torch.device("cpu"), "numba") | {"bmp": version("bmp")}))


def sides(index: ExactIndex, searcher: Any, queries: csr_array, k: int, alpha: float) -> list[list[str]]:
    """Return the rows of both engines, which answer each query in turn."""
    took: dict[str, list[float]] = {"term at a time (exact)": [], f"document at a time (BMP), alpha {alpha:g}": []}
    shared = []
    index.search(queries[[0]], k, threads=1)  # compiled before it is timed
    for row in range(queries.shape[0]):
        query = queries[[row]]
        pairs = zip(query.indices.tolist(), query.data.tolist(), strict=True)
        counts = {str(term): round(100 * weight) for term, weight in pairs}
        start = time.perf_counter()
        hits = [name for name, _ in index.search(query, k, threads=1).hits(0)]
        middle = time.perf_counter()
        others, _ = searcher.search(counts, k=k, alpha=alpha, beta=1.0)
        for name, seconds in zip(took, (middle - start, time.perf_counter() - middle), strict=True):
            took[name].append(1e3 * seconds)
        shared.append(len({*hits} & {*others}) / max(1, len(hits)))
    rows = [[name, *(f"{np.percentile(each, q):.2f}" for q in (50, 95, 99))] for name, each in took.items()]
    return [[*cells, share] for cells, share in zip(rows, ("1", f"{np.mean(shared):.3f}"), strict=True)]


if __name__ == "__main__":
    main()
