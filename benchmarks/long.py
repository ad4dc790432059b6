"""Long documents: cut, read in windows and reduced to the maximum, or searched by passages; quality and cost.

    python benchmarks/long.py --dataset beir:DIR --max-length 64
    python benchmarks/long.py --sections SECTIONS.jsonl.gz --documents 200 --max-length 128
    python benchmarks/long.py --sections SECTIONS.jsonl.gz --documents 2500 --words 450 800 --limits

With `--limits` the windows are encoded once, and documents get numbers of terms by several rules: a number for a text,
for each window, or a number that grows with the number of windows w.

A file of sections has pairs: an article's title and a heading ("query"), and the section under it ("positive"). The
sections of an article are consecutive; the section under the title comes first. An article is its sections without the
headings. A query is a heading, of at least two words, that no other article has; the title is no query.
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
from typing import get_args

import numpy as np
import torch
from machine import machine
from scipy.sparse import csr_array, vstack

from vocable.collection.index import index
from vocable.core.tables import Table, p_value
from vocable.data import Document, Qrel, Query, read_examples
from vocable.encoding.load import load
from vocable.encoding.pruning import prune
from vocable.encoding.terms import terms
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.windows import maximum
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import Evaluation, evaluate_run
from vocable.evaluation.significance import paired_t_test
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.ranking import Ranking
from vocable.options import LongDocuments

MEASURES = ("nDCG@10", "R@100")
SEED, K = 0, 100


def of_sections(file: str, count: int) -> Dataset:
    """Return the first articles with several sections, and the headings that a single article has."""
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
    """Return the dataset with `queries` queries and `documents` documents, including their relevant documents."""
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


def of_words(dataset: Dataset, least: int, most: int) -> Dataset:
    """Return the documents of `least` to `most` words, and the queries that ask for them."""
    documents = [one for one in dataset.documents if least <= len(one.full.split()) <= most]
    kept = {one.id for one in documents}
    judgments = [one for one in dataset.judgments if one.doc_id in kept]
    asked = {one.query_id for one in judgments}
    return Dataset(dataset.name, documents, [one for one in dataset.queries if one.id in asked], judgments)


def limited(model: str, dataset: Dataset, max_length: int | None) -> Iterator[list[str]]:
    """Yield a row for each rule that limits a document's terms; p compares nDCG@10 with the first rule."""
    loaded = load(model)
    encoder, asking = (
        TextEncoder(loaded, max_terms=len(terms(loaded)), max_length=max_length),
        TextEncoder(loaded, "query"),
    )
    limit, texts = TextEncoder(loaded).max_terms, [document.full for document in dataset.documents]
    assert limit is not None
    spans = [encoder.windows(text) for text in texts]
    parts = [
        text[start:end] for text, windows_of_text in zip(texts, spans, strict=True) for start, end in windows_of_text
    ]
    counts = np.array([len(windows_of_text) for windows_of_text in spans])
    windows, queries = encoder.encode(parts), asking.encode([query.text for query in dataset.queries])
    whole = maximum(windows, counts.tolist())
    rules = {
        f"{limit} of a text": prune(whole, limit),
        f"{8 * limit // 5} of a text": prune(whole, 8 * limit // 5),
        f"{limit} √w": _each(whole, limit * np.sqrt(counts)),
        f"{limit} of a window": maximum(prune(windows, limit), counts.tolist()),
        f"{limit} w": _each(whole, limit * counts),
        "all": whole,
    }
    evaluations: list[Evaluation] = []
    for name, vectors in rules.items():
        asking.know_collection(np.bincount(vectors.indices, minlength=vectors.shape[1]), len(texts))
        ranking = ExactIndex(vectors, [document.id for document in dataset.documents]).search(
            asking.weighed(queries), K
        )
        evaluations.append(
            evaluate_run(name, ranking.to_run([query.id for query in dataset.queries]), dataset, MEASURES)
        )
        p = paired_t_test(*(one.per_query[MEASURES[0]] for one in (evaluations[0], evaluations[-1])))
        values = [f"{evaluations[-1].values[measure]:.4f}" for measure in MEASURES]
        yield [name, f"{counts.mean():.1f}", f"{np.diff(vectors.indptr).mean():.0f}", *values, p_value(p)]


def _each(vectors: csr_array, limits: np.ndarray) -> csr_array:
    """Return the vectors, each with its heaviest terms up to its limit."""
    return csr_array(vstack([prune(vectors[[row]], int(most)) for row, most in enumerate(limits)], format="csr"))


def measured(
    model: str, dataset: Dataset, long_documents: LongDocuments, max_length: int | None, folder: Path
) -> Iterator[list[str]]:
    """Yield a row for the sparse vectors, and a row for BM25 unless it has the same texts as in an earlier row."""
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(one._asdict()) + "\n" for one in dataset.documents), encoding="utf-8")
    collection = index(
        load(model), corpus, folder / long_documents, bm25=True, max_length=max_length, long_documents=long_documents
    )
    assert collection.built is not None
    ids, texts = [query.id for query in dataset.queries], [query.text for query in dataset.queries]
    vectors = collection.models.queries().encode(texts)
    times = []
    for row in range(min(100, len(texts))):
        began = perf_counter()
        collection.searcher.search_space(vectors[[row]], 10)
        times.append(perf_counter() - began)
    costs = [
        f"{collection.built.seconds:.0f}",
        f"{len(collection.store):,}",
        f"{(collection.store.nbytes or 0) / 1e6:.1f}",
    ]
    rankings: dict[str, Ranking] = {long_documents: collection.searcher.search_space(vectors, K)}
    if long_documents != "maxpool":
        rankings[f"BM25, {long_documents}"] = collection.searcher.search_space(
            collection.store.lexicon.query_vectors(texts), K, space="bm25"
        )
    for name, ranking in rankings.items():
        values = evaluate_run(name, ranking.to_run(ids), dataset, MEASURES).values
        cells = [*costs, f"{median(times) * 1e3:.2f}"] if name == long_documents else [""] * 4
        yield [name, *(f"{values[measure]:.3f}" for measure in MEASURES), *cells]
    collection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vocable-mini")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--dataset", metavar="SOURCE")
    source.add_argument("--sections", metavar="FILE")
    parser.add_argument("--documents", type=int)
    parser.add_argument("--queries", type=int)
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--words", type=int, nargs=2, metavar=("LEAST", "MOST"))
    parser.add_argument("--limits", action="store_true")
    settings = parser.parse_args()
    if settings.sections:
        dataset = sampled(of_sections(settings.sections, settings.documents), None, settings.queries)
    else:
        dataset = sampled(load_dataset(settings.dataset), settings.documents, settings.queries)
    if settings.words:
        dataset = of_words(dataset, *settings.words)
    lengths = [len(document.full.split()) for document in dataset.documents]
    title = f"{len(lengths):,} documents of {np.mean(lengths):.0f} words, {len(dataset.queries):,} queries"
    print(json.dumps(machine(torch.device("cpu"))), title, sep="\n", flush=True)
    if settings.limits:
        rows = list(limited(settings.model, dataset, settings.max_length))
        print(Table(title, ["terms", "windows", "doc terms", *MEASURES, "p"], rows).markdown())
        return
    header = ["", *MEASURES, "index s", "points", "MB", "query ms"]
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for long_documents in get_args(LongDocuments):
            rows += list(measured(settings.model, dataset, long_documents, settings.max_length, Path(folder)))
            print(rows, flush=True)
    print(Table(title, header, rows).markdown())


if __name__ == "__main__":
    main()
