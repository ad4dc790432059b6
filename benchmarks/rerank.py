"""What does reranking by a cross encoder gain, and what does it cost, depending on the depth?

    python benchmarks/rerank.py beir:cacm beir:scifact --rerank cross-encoder/ms-marco-MiniLM-L6-v2

Each collection is searched exactly by the sparse vectors, by BM25 and by both (the default hybrid); the first hits of
each are reranked. A pair is scored once, for the largest depth; figures of smaller depths follow from the same scores.
Times are measured with a query at a time, for the largest depth, and divided by its hits. Each row is tested against
the first stage (paired t-test over the queries).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np
import torch
from machine import machine

from vocable.core.tables import Table, p_value
from vocable.encoding.load import load_encoder
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import evaluate_run
from vocable.evaluation.retrieval import encode_dataset, rerank_dataset, retrieve, retrieve_lexically
from vocable.evaluation.significance import compare
from vocable.indexes.fusion import fused
from vocable.indexes.ranking import Ranking, ranking_of

MEASURE, RESULTS = "nDCG@10", 100


def first_stages(dataset: Dataset, model: str, names: list[str]) -> dict[str, Ranking]:
    """Return the named rankings: by sparse vectors, by BM25, or by both."""
    rankings = {}
    if {"sparse", "hybrid"} & {*names}:
        rankings["sparse"] = retrieve(encode_dataset(load_encoder(model, "cpu"), dataset)).ranking
    if {"bm25", "hybrid"} & {*names}:
        rankings["bm25"] = retrieve_lexically(dataset).ranking
    if "hybrid" in names:
        rankings["hybrid"] = fused(rankings, {"sparse": 1.0, "bm25": 1.0}, "weighted", RESULTS)
    return {name: rankings[name] for name in names}


def at_depth(first: Ranking, again: Ranking, depth: int) -> Ranking:
    """The ranking that a reranking of `depth` hits gives, by the scores of one of more."""
    hits = []
    for number in range(len(first)):
        scores, names = dict(again.hits(number)), [name for name, _ in first.hits(number)]
        order = sorted(names[:depth], key=lambda name: (-scores[name], name)) + names[depth:]
        hits.append([(name, float(len(order) - place)) for place, name in enumerate(order)])
    return ranking_of(hits, RESULTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="sources, as beir:DIR")
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--rerank", required=True, help="a cross encoder")
    parser.add_argument("--depths", default="10,20,50,100")
    parser.add_argument("--queries", type=int, help="at most so many queries, the first")
    parser.add_argument("--stages", default="sparse,bm25,hybrid")
    given = parser.parse_args()
    depths = sorted(map(int, given.depths.split(",")))
    for source in given.collections:
        dataset = load_dataset(source).judged()
        dataset = replace(dataset, queries=list(dataset.queries)[: given.queries]).judged()
        ids, rows = [query.id for query in dataset.queries], []
        for name, first in first_stages(dataset, given.model, given.stages.split(",")).items():
            again, times = rerank_dataset(first, dataset, "cpu", rerank=given.rerank, rerank_depth=depths[-1])
            rankings = {name: first} | {f"{name}, {depth} reranked": at_depth(first, again, depth) for depth in depths}
            evaluations = [evaluate_run(by, run.to_run(ids), dataset, [MEASURE]) for by, run in rankings.items()]
            compared = compare(evaluations)
            p_values = ["", *(p_value(p[MEASURE]) for p in compared.p_values)]
            for evaluation, p in zip(compared.evaluations, p_values, strict=True):
                rows.append([evaluation.name, f"{evaluation.values[MEASURE]:.3f}", p])
            print(f"{dataset.name}: {name}: {np.median(times) / depths[-1]:.1f} ms a hit", flush=True)
        print(f"{dataset.name}, {len(ids)} queries\n\n{Table('', ['', MEASURE, 'p'], rows).markdown()}\n", flush=True)
    print(json.dumps(machine(torch.device("cpu"), "sentence-transformers")))


if __name__ == "__main__":
    main()
