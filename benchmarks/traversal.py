"""Term at a time against document at a time, on the same vectors: the engine `exact`, and BMP (Mallia et al. 2024).

    pip install --no-deps bmp==0.2.8
    python benchmarks/traversal.py                                   # 100,000 random vectors of about 120 terms
    python benchmarks/traversal.py --vectors documents --queries queries

`exact` adds up the postings of one query term after the other. BMP skips blocks of documents by upper bounds of their
scores and scores those that are left document by document; its index is made of a CIFF file of `vocable export`, with
weights in 8 bits. At alpha and beta 1 nothing is left out. Times are of one query at a time, on one thread, from its
vector to the ids of its k best documents.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from machine import machine
from scipy.sparse import csr_array
from search import random_vectors

from vocable.retrieval.exact_index import ExactIndex
from vocable.retrieval.export import export
from vocable.tables import Table
from vocable.vectors import VectorsMeta, read_vectors, write_vectors

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
    parser.add_argument("--documents", type=int, default=100_000, help="number of random vectors")
    parser.add_argument("--count", type=int, default=200, help="queries")
    parser.add_argument("-k", type=int, default=10)
    given = parser.parse_args()
    bmp = import_module("bmp")
    if given.vectors:
        documents, queries = (read_vectors(place).matrix for place in (given.vectors, given.queries))
    else:
        rng = np.random.default_rng(0)
        documents, queries = (
            random_vectors(count, terms, "zipf", rng) for count, terms in ((given.documents, 120), (given.count, 40))
        )
    queries, k = queries[: given.count], given.k
    scale = int(min(50, 255 / documents.data.max()))  # a weight of BMP is below 256, a score below 65,536
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        export(stored(folder / "documents", "document", documents), folder / "ciff", format="ciff", scale=scale)
        bmp.ciff2bmp(str(folder / "ciff" / "index.ciff"), str(folder / "bmp"), BLOCK, False)
        searcher, size = bmp.Searcher(str(folder / "bmp")), (folder / "bmp").stat().st_size
        index = ExactIndex(documents, [f"document-{row}" for row in range(documents.shape[0])])
        took: dict[str, list[float]] = {"term at a time (exact)": [], "document at a time (BMP)": []}
        shared = 0
        index.search(queries[[0]], k, threads=1)  # compiled before it is timed
        for row in range(queries.shape[0]):
            query = queries[[row]]
            pairs = zip(query.indices.tolist(), query.data.tolist(), strict=True)
            counts = {str(term): round(100 * weight) for term, weight in pairs}
            start = time.perf_counter()
            found = [name for name, _ in index.search(query, k, threads=1).hits(0)]
            middle = time.perf_counter()
            others, _ = searcher.search(counts, k=k, alpha=1.0, beta=1.0)
            for name, seconds in zip(took, (middle - start, time.perf_counter() - middle), strict=True):
                took[name].append(1e3 * seconds)
            shared += len({*found} & {*others})
    rows = [[name, *(f"{np.percentile(some, q):.2f}" for q in (50, 95))] for name, some in took.items()]
    rows[0] += [f"{index.nbytes / 1e6:.0f}", "1"]
    rows[1] += [f"{size / 1e6:.0f}", f"{shared / (k * queries.shape[0]):.3f}"]
    title = f"{documents.shape[0]:,} documents of {documents.nnz / documents.shape[0]:.0f} terms, "
    title += f"{queries.shape[0]} queries of {queries.nnz / queries.shape[0]:.0f}, k = {k}"
    print(f"{title}\n\n{Table(title, ['engine', 'ms p50', 'ms p95', 'MB', 'recall'], rows).markdown()}")
    print(json.dumps(machine(torch.device("cpu"), "numba") | {"bmp": version("bmp")}))


if __name__ == "__main__":
    main()
