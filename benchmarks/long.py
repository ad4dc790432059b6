"""Long documents: cut, read in windows of which the maximum is taken, or found by their passages; quality and cost.

    python benchmarks/long.py --dataset beir:DIR --max-length 64
    python benchmarks/long.py --sections SECTIONS.jsonl.gz --documents 200 --max-length 128

A file of sections has pairs of an article's title and a heading ("query") and the section under it ("positive"), the
sections of an article together and the one under the title alone first. An article is its sections without the
headings. A query is a heading, of at least two words, that one article alone has; the section under the title is none.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from machine import machine

from vocable.data import Document, Qrel, Query, read_examples
from vocable.encoder.load import load
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import evaluate_run
from vocable.search.indexing import index
from vocable.search.living import LivingCollection
from vocable.tables import Table

MEASURES = ("nDCG@10", "R@100")
SEED, K = 0, 100


def of_sections(file: str, count: int) -> Dataset:
    """The first articles of several sections, and the headings that one of them has."""
    articles: dict[str, list[tuple[str, str]]] = {}
    title = ""
    for example in read_examples(file):
        if not title or not example.query.startswith(f"{title} "):
            title = example.query
        articles.setdefault(title, []).append((example.query[len(title) :].strip(), example.positive))
    several = list(islice(((name, parts) for name, parts in articles.items() if len(parts) > 3), count))
    documents = [Document(str(n), "\n\n".join(text for _, text in parts)) for n, (_, parts) in enumerate(several)]
    times = Counter(heading for _, parts in several for heading, _ in parts)
    asked = [
        (heading, str(n))
        for n, (_, parts) in enumerate(several)
        for heading, _ in parts
        if times[heading] == 1 and len(heading.split()) > 1
    ]
    queries = [Query(str(n), heading) for n, (heading, _) in enumerate(asked)]
    return Dataset(Path(file).name, documents, queries, [Qrel(str(n), one, 1) for n, (_, one) in enumerate(asked)])


def sampled(dataset: Dataset, documents: int | None, queries: int | None) -> Dataset:
    """So many queries, and so many documents, those that are judged relevant to them among these."""
    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(dataset.queries))[:queries].tolist()
    asked = [dataset.queries[row] for row in order]
    known = {query.id for query in asked}
    judgments = [judgment for judgment in dataset.judgments if judgment.query_id in known]
    relevant = {judgment.doc_id for judgment in judgments if judgment.relevance > 0}
    others = [document.id for document in dataset.documents if document.id not in relevant]
    room = None if documents is None else max(0, documents - len(relevant))
    kept = relevant | {others[row] for row in rng.permutation(len(others))[:room]}
    return Dataset(dataset.name, [one for one in dataset.documents if one.id in kept], asked, judgments)


def measured(model: str, dataset: Dataset, long: str, max_length: int | None, folder: Path) -> Iterator[list[str]]:
    """A row for the learned vectors, and one for BM25 where it is of other texts than before."""
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(one._asdict()) + "\n" for one in dataset.documents), encoding="utf-8")
    made = index(load(model), corpus, folder / long, bm25=True, max_length=max_length, long=long)  # type: ignore[arg-type]
    assert isinstance(made, LivingCollection)
    assert made.built is not None
    ids, texts = [query.id for query in dataset.queries], [query.text for query in dataset.queries]
    vectors = made.query_encoder().encode(texts)
    times = []
    for row in range(min(100, len(texts))):
        began = perf_counter()
        made.rank(vectors[[row]], 10)
        times.append(perf_counter() - began)
    costs = [f"{made.built.seconds:.0f}", f"{len(made.store):,}", f"{(made.store.nbytes or 0) / 1e6:.1f}"]
    rankings = {long: made.rank(vectors, K)}
    if long != "max":
        rankings[f"BM25, {long}"] = made.rank(made.lexical_queries(texts), K, space="bm25")
    for name, ranking in rankings.items():
        values = evaluate_run(name, ranking.to_run(ids), dataset, MEASURES).values
        own = [*costs, f"{median(times) * 1e3:.2f}"] if name == long else [""] * 4
        yield [name, *(f"{values[measure]:.3f}" for measure in MEASURES), *own]
    made.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vocable-mini")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--dataset", metavar="SOURCE")
    source.add_argument("--sections", metavar="FILE")
    parser.add_argument("--documents", type=int)
    parser.add_argument("--queries", type=int)
    parser.add_argument("--max-length", type=int)
    settings = parser.parse_args()
    if settings.sections:
        dataset = sampled(of_sections(settings.sections, settings.documents), None, settings.queries)
    else:
        dataset = sampled(load_dataset(settings.dataset), settings.documents, settings.queries)
    lengths = [len(document.full.split()) for document in dataset.documents]
    title = f"{len(lengths):,} documents of {np.mean(lengths):.0f} words, {len(dataset.queries):,} queries"
    print(json.dumps(machine(torch.device("cpu"), "qdrant-edge-py")), title, sep="\n", flush=True)
    header = ["", *MEASURES, "index s", "points", "MB", "query ms"]
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for long in ("cut", "max", "passages"):
            rows += list(measured(settings.model, dataset, long, settings.max_length, Path(folder)))
            print(rows, flush=True)
    print(Table(title, header, rows).markdown())


if __name__ == "__main__":
    main()
