"""By the IDF of which documents does a search with a filter rank best?

    python benchmarks/idf_filter.py beir:cacm beir:scifact --others msdocs.jsonl.gz wiki_sections.jsonl.gz -o mixed

All documents are one index, each collection a tenant. The queries of a collection are searched with the filter of its
tenant, and with the IDF of mixes in which the tenant has a share of the documents, from 100 % (the filter's own IDF) to
2 %. Then filters pass some documents of a tenant by chance: they are a small tenant beside the IDF of the last mix, and
say nothing about words beside the IDF of the tenant, of which theirs is a worse estimate.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from machine import machine

import vocable as vo
from vocable.collection.collection import Collection
from vocable.core.tables import Table
from vocable.data import Document, Qrel, ScoredDoc
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import evaluate_run

MEASURE = "nDCG@10"
SHARES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)  # of the tenant in the documents that are counted
PASSING = (1000, 300, 100, 30, 10)  # documents that pass a filter by chance
DRAWS = 5  # filters of each of these sizes
RANKINGS = {"words": "bm25=1", "model": "sparse=1", "both": "bm25=1,sparse=1"}


def mixed(datasets: dict[str, Dataset], others: list[str], most: int) -> Iterator[Document]:
    """Yield the documents of all tenants, each with a random number."""
    random = np.random.default_rng(0)
    texts = {Path(path).name.partition(".")[0]: _positives(path) for path in others}
    for tenant, rows in texts.items():
        for row in random.permutation(len(rows))[:most].tolist():
            yield Document(f"{tenant}:{row}", rows[row], "", {"tenant": tenant, "draw": round(random.random(), 6)})
    for tenant, dataset in datasets.items():
        for document in dataset.documents:
            fields = {"tenant": tenant, "draw": round(random.random(), 6)}
            yield Document(f"{tenant}:{document.id}", document.text, document.title, fields)


def _positives(path: str) -> list[str]:
    with gzip.open(path, "rt") as lines:
        return [text for line in lines if (text := json.loads(line)["positive"].strip())]


def quality(
    collection: Collection, dataset: Dataset, tenant: str, filter: str, kept: set[str], ranking: str, idf_filter: str
) -> float:
    """Return the quality of the queries that have a relevant document among the `kept` that pass the filter."""
    qrels = [Qrel(qrel.query_id, qrel.doc_id, qrel.relevance) for qrel in dataset.judgments if qrel.doc_id in kept]
    asked = {qrel.query_id for qrel in qrels if qrel.relevance > 0}
    queries = [query for query in dataset.queries if query.id in asked]
    hits = collection.search(
        [query.text for query in queries], 10, weights=RANKINGS[ranking], filter=filter, idf_filter=idf_filter
    )
    run = [
        ScoredDoc(query.id, name.removeprefix(f"{tenant}:"), score)
        for row, query in enumerate(queries)
        for name, score in hits.hits(row)
    ]
    judged = Dataset(tenant, [], queries, [qrel for qrel in qrels if qrel.query_id in asked])
    return evaluate_run(ranking, run, judged, [MEASURE]).values[MEASURE]


def counted(tenant: str, share: float, size: int, others: int) -> str:
    """Return a filter that passes documents of which the tenant's `size` are a share."""
    part = min(1.0, share * others / ((1 - share) * size)) if share < 1 else 1.0
    rest = part * size * (1 - share) / (share * others)
    return f"(tenant={tenant} and draw<{part:.6f}) or (not tenant={tenant} and draw<{rest:.6f})"


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--others", nargs="*", default=[])
    parser.add_argument("--most", type=int, default=3_000, help="documents of each other tenant")
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("-o", "--output", required=True)
    given = parser.parse_args()
    datasets = {Path(source.removeprefix("beir:")).name: load_dataset(source) for source in given.datasets}
    if not Path(given.output).exists():
        documents = mixed(datasets, given.others, given.most)
        vo.index(given.model, list(documents), given.output, no_dense=True, max_length=given.max_length).close()
    print(machine(torch.device("cpu")))
    with vo.open_index(given.output) as collection:
        for name in RANKINGS:
            print(mixes(collection, datasets, name))
            print(chances(collection, datasets, name))


def mixes(collection: Collection, datasets: dict[str, Dataset], ranking: str) -> Table:
    """Return the quality of each tenant by the share that it has of the counted documents."""
    rows = []
    for tenant, dataset in datasets.items():
        kept, filter = {document.id for document in dataset.documents}, f"tenant={tenant}"
        row = [tenant]
        for share in SHARES:
            idf_filter = counted(tenant, share, len(kept), len(collection) - len(kept))
            row.append(f"{quality(collection, dataset, tenant, filter, kept, ranking, idf_filter):.4f}")
        rows.append(row)
    names = [f"{100 * share:g} %" for share in SHARES]
    return Table(f"{ranking}: {MEASURE} by the tenant's share of the counted documents", ["tenant", *names], rows)


def chances(collection: Collection, datasets: dict[str, Dataset], ranking: str) -> Table:
    """Return the quality by three IDFs, by the documents that a random filter passes."""
    rows = []
    for tenant, dataset in datasets.items():
        ids = [document.id for document in dataset.documents]
        stored = collection.documents([f"{tenant}:{identifier}" for identifier in ids])
        draws = {name: float(str(one.fields["draw"])) for name, one in zip(ids, stored, strict=True) if one}
        for passing in PASSING:
            width, values = passing / len(dataset.documents), []
            for start in [number * width for number in range(DRAWS) if (number + 1) * width <= 1]:
                filter = f"tenant={tenant} and draw>={start:.6f} and draw<{start + width:.6f}"
                kept = {name for name, draw in draws.items() if start <= draw < start + width}
                if any(qrel.relevance > 0 and qrel.doc_id in kept for qrel in dataset.judgments):
                    mix = counted(tenant, SHARES[-1], len(ids), len(collection) - len(ids))
                    of = mix, f"tenant={tenant}", filter
                    values.append([quality(collection, dataset, tenant, filter, kept, ranking, one) for one in of])
            means = np.mean(values, axis=0) if values else [np.nan] * 3
            rows.append([tenant, f"{passing:,}", *(f"{mean:.4f}" for mean in means)])
    heads = ["tenant", "documents that pass", "IDF of the mix", "IDF of the tenant", "IDF of the filter"]
    return Table(f"{ranking}: {MEASURE} of filters by chance", heads, rows)


if __name__ == "__main__":
    main()
