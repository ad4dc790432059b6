"""Every door gives the ranking that `evaluate` measures: Python, the command, HTTP, MCP and the page of a service.

    python benchmarks/doors.py cacm=beir:cacm scifact=beir:scifact 'python-docs=pydocs:#test' manual

The arguments are indexes, each with a dataset; without one, the queries are headings that one section alone has. For
each index the first row of `vocable evaluate`, and the same measure, by ir_measures, of the hits that each door returns
for the same queries. Queries of a dataset are searched as they are, as `--queries` does; no other option is given.
A service names documents of the same text as copies of one hit: here they are hits again in the measure, and no hits
where doors are compared. Agents and the page have one entry for the sections of a page: there the best section of each
page is compared. "equal" counts the queries whose hits are the same in all doors, with scores that differ by
less than one in 100,000: queries are encoded one by one or together. The exit status is 1 if hits differ, or if the
command or Python does not give the value of `evaluate`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import ir_measures
import numpy as np
import torch
from machine import machine
from mcp.client.client import Client as Agent
from mcp.client.streamable_http import streamable_http_client
from served import Served

import vocable as vo
from vocable.collection.collection import Collection
from vocable.collection.groups import page_of
from vocable.core.tables import Table
from vocable.data import Qrel, Query
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.significance import ComparedEvaluations
from vocable.indexes.ranking import read_trec
from vocable.options import SearchOptions, check

MEASURE, K = "nDCG@10", 10
BY_PAGE = {"MCP", "page"}  # doors that show the sections of a page as one entry
Hits = list[tuple[str, float]]


def known_items(index: Collection, count: int) -> Dataset:
    """Return headings that a single document of an index has, each with its document."""
    documents = [document for document in index.documents([*index.store.ids()]) if document is not None]
    shared = Counter(document.title.lower() for document in documents)
    only = [one for one in documents if shared[one.title.lower()] == 1 and len(one.title.split()) > 1]
    drawn = random.Random(1).sample(only, min(count, len(only)))
    queries = [Query(str(number), document.title) for number, document in enumerate(drawn)]
    judgments = [Qrel(str(number), document.id, 1) for number, document in enumerate(drawn)]
    return Dataset(index.name, documents, queries, judgments)


class Found(NamedTuple):
    """The hits of a query, and the documents among them that are copies of an earlier hit."""

    hits: Hits
    copies: frozenset[str] = frozenset()

    @classmethod
    def of(cls, hits: Sequence[dict[str, Any]]) -> Found:
        """Return hits, each before its copies."""
        listed = [(name, hit["score"]) for hit in hits for name in (hit["id"], *hit.get("copies", ()))]
        return cls(listed, frozenset(copy for hit in hits for copy in hit.get("copies", ())))


def by_command(place: str, queries: Sequence[Query], k: int) -> list[Found]:
    """Return the hits of `vocable search INDEX --queries FILE --run RUN`."""
    with tempfile.TemporaryDirectory() as folder:
        asked, run = Path(folder) / "queries.jsonl", Path(folder) / "run.trec"
        asked.write_text("".join(json.dumps({"_id": query.id, "text": query.text}) + "\n" for query in queries))
        words = ["search", place, "--queries", str(asked), "--run", str(run), "-k", str(k)]
        subprocess.run([sys.executable, "-m", "vocable", *words], check=True, stdout=subprocess.DEVNULL)
        hits: dict[str, Hits] = {query.id: [] for query in queries}
        for hit in read_trec(run):
            hits[hit.query_id].append((hit.doc_id, hit.score))
    return [Found(found) for found in hits.values()]


async def by_agent(url: str, queries: Sequence[Query], k: int) -> list[Found]:
    """Return the hits of the tool `search` over MCP."""
    hits = []
    async with Agent(streamable_http_client(f"{url}/mcp")) as agent:
        for query in queries:
            answer = await agent.call_tool("search", {"query": query.text, "k": k, "plain": True})
            hits.append(Found.of(answer.structured_content["hits"]))
    return hits


def by_page(http: httpx.Client, query: Query, usual: str, k: int) -> Found:
    """Return the hits that the page of a service draws first."""
    seen = http.post("/view", json={"query": query.text, "k": k, "show": [usual], "plain": True}).json()
    ranked = sorted(seen["documents"], key=lambda document: document["ranks"][usual])
    return Found.of([document | {"score": document["scores"][usual]} for document in ranked])


def measured(dataset: Dataset, answers: Sequence[Found]) -> float:
    """Return the measure of hits by ir_measures alone."""
    run = [
        ir_measures.ScoredDoc(query.id, identifier, float(-rank))
        for query, found in zip(dataset.queries, answers, strict=True)
        for rank, (identifier, _) in enumerate(found.hits[: dataset.search_depth(K)])
        if dataset.convention != "beir" or identifier != query.id
    ]
    judgments = [ir_measures.Qrel(*judgment) for judgment in dataset.judgments]
    return float(ir_measures.calc_aggregate([ir_measures.parse_measure(MEASURE)], judgments, run).popitem()[1])


def alike(answers: Mapping[str, Found], pages: Mapping[str, str]) -> bool:
    """Return whether the doors' hits of a query are the same; `pages` {section: page} are of all documents."""
    copies = frozenset[str]().union(*(found.copies for found in answers.values()))
    hits_of = {door: [hit for hit in found.hits if hit[0] not in copies] for door, found in answers.items()}
    by_page = [best_of_pages(hits, pages) for hits in hits_of.values()]
    by_section = [hits for door, hits in hits_of.items() if door not in BY_PAGE]
    return equal(by_page) and equal(by_section)


def best_of_pages(hits: Hits, pages: Mapping[str, str]) -> Hits:
    """Return the best section of each page."""
    best: dict[str, tuple[str, float]] = {}
    for hit in hits:
        best.setdefault(pages.get(hit[0], hit[0]), hit)
    return list(best.values())


def equal(lists: Sequence[Hits]) -> bool:
    """Return whether lists begin with the same hits, down to the end of the shortest."""
    first, *others = (hits[: min(map(len, lists))] for hits in lists)
    return all(
        [name for name, _ in hits] == [name for name, _ in first]
        and np.allclose([score for _, score in hits], [score for _, score in first], rtol=1e-5)
        for hits in others
    )


def row_of(place: str, source: str, count: int) -> tuple[list[str], bool]:
    """Return the row of an index, and whether all doors agree."""
    with vo.open_index(place) as index:
        dataset = (load_dataset(source) if source else known_items(index, count)).judged()
        compared = vo.evaluate(index, dataset, [MEASURE])
        assert isinstance(compared, ComparedEvaluations)
        usual = compared.evaluations[0]
        k = dataset.search_depth(K)
        ranking = index.search([query.text for query in dataset.queries], k, plain=True)
        doors = {"Python": [Found(ranking.hits(number)) for number in range(len(dataset.queries))]}
        pages = {document.id: page for document in dataset.documents if (page := page_of(document)) is not None}
        name = "hybrid" if len(index.searcher.weighting(check(SearchOptions, {}))) > 1 else "sparse"
    doors["command"] = by_command(place, dataset.queries, k)
    with Served.vocable(place) as served, httpx.Client(base_url=served.url, timeout=60) as http:
        asked = [{"query": query.text, "k": k, "plain": True} for query in dataset.queries]
        doors["HTTP"] = [Found.of(http.post("/search", json=body).json()["hits"]) for body in asked]
        doors["MCP"] = asyncio.run(by_agent(served.url, dataset.queries, k))
        doors["page"] = [by_page(http, query, name, k) for query in dataset.queries]
    answers_of = ({door: answers[number] for door, answers in doors.items()} for number in range(len(dataset.queries)))
    agreeing = sum(alike(answers, pages) for answers in answers_of)
    values = {door: measured(dataset, answers) for door, answers in doors.items()}
    expected = usual.values[MEASURE]
    cells = [place, str(len(dataset.queries)), f"{expected:.4f}", *(f"{value:.4f}" for value in values.values())]
    same = all(abs(values[door] - expected) < 1e-12 for door in ("Python", "command"))
    return [*cells, str(agreeing)], same and agreeing == len(dataset.queries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("indexes", nargs="+", help="INDEX=DATASET, or INDEX for its headings")
    parser.add_argument("--headings", type=int, default=200, help="queries of an index without a dataset")
    given = parser.parse_args()
    rows, agree = [], True
    for argument in given.indexes:
        place, _, source = argument.partition("=")
        row, same = row_of(place, source, given.headings)
        rows.append(row)
        agree = agree and same
        print(" ".join(row), flush=True)
    columns = ["index", "queries", f"evaluate: {MEASURE}", "Python", "command", "HTTP", "MCP", "page", "equal"]
    print(Table("", columns, rows).markdown())
    print(json.dumps(machine(torch.device("cpu"))))
    sys.exit(0 if agree else 1)


if __name__ == "__main__":
    main()
