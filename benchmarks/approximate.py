"""Approximate engines against exact search, on the same vectors: recall, latency, and what the index costs.

    pip install --no-deps pyseismic-lsr==0.5.4 pyvsag==0.18.5 bmp==0.2.8 kannolo==0.15.1
    python benchmarks/approximate.py --vectors vectors --queries query-vectors -o measured
    python benchmarks/approximate.py --vectors vectors --queries query-vectors -o measured --documents 8800000 \
        --engine exact --engine sindi

Each engine is built in a process of its own, with all cores, and then answers a query at a time on one thread, from the
query's vector to the rows of its hits. The engine's process takes each of its settings in turn. Settings are the
engines' published recipes for SPLADE, and steps to both sides of them. Recall is the share of the exact hits; a hit
that ties with the last exact hit does not count. If the vectors are fewer than --documents, the rest is mixed of near
neighbours. The folder gets results.json, which a repeated call adds to, and recall-N.svg.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from large import memory
from machine import busy_share, machine
from scipy.sparse import csr_array
from search import mixtures, some

from vocable.core.arrays import Strings
from vocable.core.figures import MARKERS, add_legend, empty_panels, save_figure
from vocable.core.tables import Table
from vocable.encoding.vectors import StoredVectors, VectorsMeta, read_vectors, write_vectors
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.exact_shards import Exact, load_exact, save_exact
from vocable.indexes.export import export

DEPTHS = (10, 100)
PART = 32_768  # documents that are handed to an engine at once
Search = Callable[[csr_array, int], Any]  # a query vector [1, v] and k: rows of the hits
Engine = Callable[[csr_array, Path], Iterator[tuple[str, Search]]]  # builds, saves, and yields its settings


def exact(documents: csr_array, folder: Path) -> Iterator[tuple[str, Search]]:
    index = exact_index(documents, folder / "index")
    yield "32 bits", lambda query, k: index.search(query, k, threads=1).rows[0]


def exact_rounded(documents: csr_array, folder: Path) -> Iterator[tuple[str, Search]]:
    """Exact search of weights in 8 bits; the index is made of all documents at once."""
    ExactIndex(documents, weight_bits=8).save(folder / "index")
    index = ExactIndex.load(folder / "index")
    yield "8 bits", lambda query, k: index.search(query, k, threads=1).rows[0]


def exact_index(documents: csr_array, folder: Path) -> Exact:
    """Save an exact index, in shards if there are many documents, and open it; ids are in the order of the rows."""
    meta = VectorsMeta("v", "none", "max", "document", 8, documents.shape[1])
    parts = ((start, documents[start : start + PART]) for start in range(0, documents.shape[0], PART))
    names = ((Strings([f"{start + row:08}" for row in range(part.shape[0])]), part) for start, part in parts)
    save_exact((StoredVectors(ids, part, meta) for ids, part in names), folder)
    return load_exact(folder)


def seismic(documents: csr_array, folder: Path, postings: int = 3000) -> Iterator[tuple[str, Search]]:
    """Seismic by its guide for SPLADE on MS MARCO: `postings` a list on average, 10 query terms, heap factor 0.8."""
    package = import_module("seismic")
    text, dataset = package.get_seismic_string(), package.SeismicDataset(documents.shape[1])
    for start in range(0, documents.shape[0], PART):  # all columns as int64 would take 7 GB for 8.8 million documents
        part = documents[start : start + PART]
        names = [str(start + row) for row in range(part.shape[0])]
        dataset.add_documents_by_id(names, part.indices.astype(np.int64), part.data, part.indptr.astype(np.int64))
    recipe = {"n_postings": postings, "centroid_fraction": 0.2, "summary_energy": 0.5, "max_fraction": 6.0}
    index = package.SeismicIndex.build_from_dataset(dataset, **recipe, min_cluster_size=2)
    index.save(str(folder / "index"))

    def search(query: csr_array, k: int, terms: int, factor: float) -> list[int]:
        hits = index.search("0", query.indices.astype(text), query.data, k, terms, factor, sorted=False)
        return [int(row) for _, _, row in hits]

    for terms, factor in (
        (5, 0.9),
        (5, 0.8),
        (10, 0.9),
        (10, 0.8),
        (15, 0.8),
        (20, 0.7),
        (30, 0.7),
        (30, 0.5),
        (48, 0.4),
    ):
        yield f"{terms} terms, {factor}", partial(search, terms=terms, factor=factor)


def seismic_short(documents: csr_array, folder: Path) -> Iterator[tuple[str, Search]]:
    """Seismic with lists in the guide's proportion to the number of documents, at least 500 postings."""
    yield from seismic(documents, folder, max(500, round(3000 * documents.shape[0] / 8_841_823)))


def sindi(documents: csr_array, folder: Path) -> Iterator[tuple[str, Search]]:
    """SINDI of VSAG, "pruned high-accuracy": 60 % of a document's terms in 8 bits, candidates scored in float32."""
    package = import_module("pyvsag")
    package.set_logger_off()
    recipe = {"term_id_limit": documents.shape[1], "window_size": 50_000, "doc_prune_ratio": 0.4, "use_reorder": True}
    most = int(np.diff(documents.indptr).max())
    about = {"dtype": "sparse", "metric_type": "ip", "dim": most, "index_param": recipe | {"use_quantization": True}}
    index = package.Index("sindi", json.dumps(about))
    rows = np.arange(documents.shape[0], dtype=np.int64)
    index.build(documents.indptr.astype(np.uint32), documents.indices.view(np.uint32), documents.data, rows)
    index.save(str(folder / "index"))

    def search(query: csr_array, k: int, pruned: float, candidates: int) -> np.ndarray:
        options = {"query_prune_ratio": pruned, "n_candidate": max(k, candidates)}
        arrays = query.indptr.astype(np.uint32), query.indices.astype(np.uint32), query.data
        rows, _ = index.knn_search(*arrays, k, json.dumps({"sindi": options}))
        return np.asarray(rows).ravel()

    for pruned, candidates in ((0.8, 100), (0.6, 100), (0.4, 200), (0.2, 200), (0.1, 200), (0.0, 500)):
        yield (
            f"{1 - pruned:.0%} of terms, {candidates} candidates",
            partial(search, pruned=pruned, candidates=candidates),
        )


def bmp(documents: csr_array, folder: Path) -> Iterator[tuple[str, Search]]:
    """BMP with blocks of 32, weights and queries in 8 bits, by way of a CIFF file."""
    package = import_module("bmp")
    names, size = list(map(str, range(documents.shape[0]))), documents.shape[1]
    vectors, scale = folder / "vectors", int(min(50, 255 / documents.data.max()))  # weights below 256
    vectors.mkdir()
    write_vectors(
        vectors / "part-00000.parquet", names, documents, VectorsMeta("v", "none", "max", "document", 8, size)
    )
    export(str(vectors), folder / "ciff", format="ciff", scale=scale)
    package.ciff2bmp(str(folder / "ciff" / "index.ciff"), str(folder / "index"), 32, False)
    shutil.rmtree(vectors)
    shutil.rmtree(folder / "ciff")
    searcher = package.Searcher(str(folder / "index"))

    def search(query: csr_array, k: int, alpha: float, beta: float) -> list[int]:
        pairs = zip(query.indices.tolist(), query.data.tolist(), strict=True)
        counts = {str(term): round(100 * weight) for term, weight in pairs}
        return list(map(int, searcher.search(counts, k=k, alpha=alpha, beta=beta)[0]))

    for alpha, beta in ((1.0, 1.0), (0.85, 1.0), (0.7, 1.0), (0.6, 0.8)):
        yield f"alpha {alpha}, beta {beta}", partial(search, alpha=alpha, beta=beta)


def kannolo(documents: csr_array, folder: Path) -> Iterator[tuple[str, Search]]:
    """An HNSW graph of kANNolo with 32 neighbours; the recipe's 2,000 candidates a document would take hours."""
    package = import_module("kannolo")
    arrays = documents.indices.astype(np.int32), documents.data, documents.indptr.astype(np.int64)
    index = package.SparsePlainHNSW.build_from_arrays(*arrays, m=32, ef_construction=200)
    index.save(str(folder / "index"))

    def search(query: csr_array, k: int, candidates: int) -> np.ndarray:
        return np.asarray(index.search(query.indices, query.data, k, max(k, candidates))[1])

    for candidates in (10, 20, 40, 80, 160, 320, 640):
        yield f"ef {candidates}", partial(search, candidates=candidates)


ENGINES: dict[str, Engine] = {
    "exact": exact,
    "exact, 8 bits": exact_rounded,
    "sindi": sindi,
    "seismic, short lists": seismic_short,
    "seismic": seismic,
    "bmp": bmp,
    "kannolo": kannolo,
}


def measured(name: str, documents: csr_array, queries: csr_array, wanted: np.ndarray, folder: Path) -> Iterator[Any]:
    """Yield a result for each setting of an engine; `wanted` [q, 100] are the exact rows."""
    settings = ENGINES[name](documents, folder)
    first, built = memory(lambda: next(settings))  # builds and saves the index
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    about = {"engine": name, "documents": documents.shape[0], "real": None, "built": built, "bytes": size}
    for setting, search in (first, *settings):
        result: dict[str, Any] = {**about, "setting": setting}
        for k in DEPTHS:
            result[f"@{k}"] = asked(search, queries, wanted[:, :k])
        yield result


def asked(search: Search, queries: csr_array, wanted: np.ndarray) -> dict[str, float]:
    """Return recall against `wanted` [q, k], and the latency of the queries in milliseconds, each asked once before."""
    k, times, shares = wanted.shape[1], list[float](), list[float]()
    rows = [queries[[row]] for row in range(queries.shape[0])]
    processor, began = time.process_time(), time.perf_counter()
    for query, expected in zip(rows, wanted, strict=True):
        search(query, k)
        start = time.perf_counter()
        hits = search(query, k)
        times.append(1e3 * (time.perf_counter() - start))
        expected = expected[expected >= 0]
        shares.append(np.isin(expected, hits).sum() / max(1, len(expected)))
    used = (time.process_time() - processor) / (time.perf_counter() - began)
    p50, p95, p99 = np.percentile(times, (50, 95, 99)).tolist()
    return {"recall": float(np.mean(shares)), "p50": p50, "p95": p95, "p99": p99, "threads": used}


def in_process(name: str, limit: float, *given: Any) -> list[dict[str, Any]]:
    """Return the results of `measured` in a process of its own; those that there were after `limit` seconds."""
    context, results = multiprocessing.get_context("fork"), list[dict[str, Any]]()
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        for result in measured(name, *given):
            sender.send(result)

    process, end = context.Process(target=work), time.monotonic() + limit
    process.start()
    sender.close()
    try:
        while receiver.poll(max(0.0, end - time.monotonic())):
            results.append(receiver.recv())
            print(row(results[-1]), flush=True)
    except EOFError:  # the process has ended
        pass
    process.kill()
    process.join()
    if process.exitcode:
        print(f"{name}: ended with status {process.exitcode} after {len(results)} settings", flush=True)
    return results


def row(result: dict[str, Any]) -> list[str]:
    """Return the cells of a result."""
    built, n = result["built"], result["documents"]
    cells = [result["engine"], result["setting"]]
    for k in DEPTHS:
        at = result[f"@{k}"]
        cells += [f"{at['recall']:.3f}", *(f"{at[name]:.2f}" for name in ("p50", "p95", "p99"))]
    return [*cells, f"{built['seconds']:.0f}", f"{built['resident GiB']:.1f}", f"{result['bytes'] / n:,.0f}"]


def table(results: list[dict[str, Any]], title: str) -> Table:
    header = ["engine", "setting"]
    for k in DEPTHS:
        header += [f"recall@{k}", "p50 ms", "p95", "p99"]
    return Table(title, [*header, "s to build", "GiB", "bytes a document"], [row(result) for result in results])


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Draw recall against the median latency, a panel for each k; the dashed line is exact search."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    figure = empty_panels(len(DEPTHS), len(DEPTHS))
    engines = list(dict.fromkeys(result["engine"] for result in results))
    for axes, k in zip(figure.axes, DEPTHS, strict=True):
        for number, engine in enumerate(engines):
            points = sorted(
                (result[f"@{k}"]["p50"], result[f"@{k}"]["recall"]) for result in results if result["engine"] == engine
            )
            style = {"marker": MARKERS[number % len(MARKERS)], "color": f"C{number}", "label": engine}
            axes.plot(*zip(*points, strict=True), **style, markersize=5, linewidth=1)
            if engine == "exact":
                axes.axvline(points[0][0], color="0.5", linestyle="--", linewidth=1)
        axes.set(xscale="log", xlabel="median latency (ms, one thread)", ylabel=f"recall@{k}")
        axes.set_ylim(bottom=max(0.5, axes.get_ylim()[0]))
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3)
    add_legend(figure, *figure.axes[0].get_legend_handles_labels())
    save_figure(figure, path)


def on_disk(parts: Iterator[csr_array], folder: Path) -> tuple[csr_array, np.ndarray]:
    """Return the rows of `parts` as one matrix [n, v], memory-mapped, and the number of documents with each term."""
    counts, frequency = list[np.ndarray](), np.zeros(0, np.int64)
    with (folder / "indices").open("wb") as indices, (folder / "data").open("wb") as data:
        for part in parts:
            part.indices.astype(np.int32).tofile(indices)
            part.data.astype(np.float32).tofile(data)
            counts.append(np.diff(part.indptr))
            frequency = np.bincount(part.indices, minlength=part.shape[1]) + (frequency if len(frequency) else 0)
    indptr = np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]))
    if indptr[-1] <= np.iinfo(np.int32).max:  # else SciPy copies the indices, as int64
        indptr = indptr.astype(np.int32)
    arrays = np.memmap(folder / "data", np.float32, "c"), np.memmap(folder / "indices", np.int32, "c"), indptr
    for name in ("indices", "data"):  # the mapped files last as long as the process
        (folder / name).unlink()
    return csr_array(arrays, shape=(len(indptr) - 1, len(frequency))), frequency


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", nargs="+", required=True, help="of documents")
    parser.add_argument("--queries", required=True, help="vectors of queries, without IDF")
    parser.add_argument("--query-idf", type=float, default=0.75, help="power of the IDF that weighs --queries")
    parser.add_argument("--documents", type=int, help="all vectors by default; more are mixed")
    parser.add_argument("--count", type=int, default=200, help="queries")
    parser.add_argument("--engine", action="append", choices=[*ENGINES], help="may be repeated; all by default")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each engine")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    stored = read_vectors(given.vectors).matrix
    count, real = given.documents or stored.shape[0], stored.shape[0]
    given.output.mkdir(parents=True, exist_ok=True)
    documents, frequency = on_disk(mixtures(stored, count), given.output)
    del stored
    queries = some(read_vectors(given.queries).matrix, given.count, frequency, count, given.query_idf)
    wanted = exact_index(documents, given.output / "wanted").search(queries, max(DEPTHS)).rows
    shutil.rmtree(given.output / "wanted")
    file = given.output / "results.json"
    results = json.loads(file.read_text())["results"] if file.exists() else []
    about = machine(torch.device("cpu"), "numpy") | {"busy": busy_share()}
    for name in given.engine or ENGINES:
        folder = given.output / "index"
        folder.mkdir()
        try:
            measured_now = in_process(name, given.limit, documents, queries, wanted, folder)
        finally:
            shutil.rmtree(folder)
        kept = [result for result in results if (result["engine"], result["documents"]) != (name, count)]
        results = kept + [result | {"real": min(real, count)} for result in measured_now]
        file.write_text(json.dumps({"machine": about, "results": results}, indent=1))
    shown = [result for result in results if result["documents"] == count]
    title = f"{count:,} documents of {documents.nnz / count:.0f} terms, {max(0, count - real):,} of them mixed; "
    title += f"{queries.shape[0]} queries of {queries.nnz / queries.shape[0]:.0f} terms"
    draw(shown, given.output / f"recall-{count}.svg")
    print(f"{title}\n\n{table(shown, title).markdown()}\n{json.dumps(about)}")


if __name__ == "__main__":
    main()
