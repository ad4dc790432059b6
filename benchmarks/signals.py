"""What does each signal of a search give: kinds of vectors, looked-up queries, feedback, a tuned model?

    python benchmarks/signals.py beir:cacm beir:scifact pydocs: manuals pages:manuals --work signals-work

Each collection is indexed once, in the work folder, by `vocable-mini` with BM25 and dense vectors. `pydocs:` stands for
the known items of the built-in corpus. Of a folder, up to 300 headings and 300 sentences are asked for, which their
sections then lack. `pages:FOLDER` has whole pages as documents, and queries from behind their beginnings; rows with
"documents cut" truncate them. `--tuned NAME=FOLDER` adds the rows of an index of collection NAME by a tuned model.
Differences are to the default search, with paired 95 % intervals (Student's t over the queries). Milliseconds are the
median of 100 searches, one at a time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import long_pages
import numpy as np
import torch
from hybrid import interval
from languages import known_items as questions_of
from machine import machine

import vocable as vo
from vocable.cli.demo import known_items
from vocable.collection.collection import Collection
from vocable.core.tables import Table
from vocable.encoding.hub import BUILT_IN_MODEL, BY_LOOKUP
from vocable.engines.protocols import Space
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import Evaluation
from vocable.options import LongDocuments
from vocable.tuning.questions import QUESTION_KINDS

MEASURE, TIMED, ASKED, PAGES = "nDCG@10", 100, 300, 300


class Search(NamedTuple):
    """A way to search: the kinds of vectors, the model of the queries, and the first hits whose terms are added."""

    spaces: tuple[Space, ...]
    model: str = BUILT_IN_MODEL
    feedback: int = 0


ALL: tuple[Space, ...] = ("sparse", "bm25", "dense")
DEFAULT = "all three, the default"
SEARCHES = {
    DEFAULT: Search(ALL),
    "words (BM25)": Search(("bm25",)),
    "terms": Search(("sparse",)),
    "dense vectors": Search(("dense",)),
    "terms, words": Search(("sparse", "bm25")),
    "words, dense vectors": Search(("bm25", "dense")),
    "all three, feedback of 5 hits": Search(ALL, feedback=5),
    "looked-up terms, words": Search(("sparse", "bm25"), BY_LOOKUP),
    "all three, looked up": Search(ALL, BY_LOOKUP),
    "all three, looked up, feedback of 5 hits": Search(ALL, BY_LOOKUP, 5),
}
TUNED = {f"{name}, tuned": search for name, search in SEARCHES.items() if name in (DEFAULT, "terms")}
TRUNCATED = {f"{name}, documents cut": SEARCHES[name] for name in (DEFAULT, "terms")}


def datasets(source: str) -> Iterator[Dataset]:
    """Yield the queries and documents of a source, of a folder by kind of question."""
    if source == "pydocs:":
        yield known_items(whole=True)
    elif source.startswith("beir:"):
        yield load_dataset(source)
    elif source.startswith("pages:"):
        yield from long_pages.known_items(Path(source.removeprefix("pages:")), PAGES)
    else:
        documents = list(vo.read_corpus(source))
        for kind in QUESTION_KINDS:
            if (asked := questions_of(documents, "english", kind, ASKED)).queries:
                yield asked


def indexed(dataset: Dataset, name: str, work: Path, long_documents: LongDocuments = "maxpool") -> Collection:
    """The index of a dataset's documents, made in the work folder unless it is there."""
    texts = hashlib.sha256("\0".join(document.full for document in dataset.documents).encode())
    folder = work / f"{name}-{long_documents}-{texts.hexdigest()[:8]}"
    if not folder.exists():
        vo.index(BUILT_IN_MODEL, dataset.documents, folder, long_documents=long_documents, device="cpu").close()
    return vo.open_index(folder, device="cpu")


def milliseconds(index: Collection, queries: list[str], search: Search) -> float:
    """The median time of a search."""
    times = []
    for query in islice(cycle(queries), TIMED):
        start = perf_counter()
        index.search([query], weights=dict.fromkeys(search.spaces, 1.0), feedback=search.feedback, plain=True)
        times.append(perf_counter() - start)
    return float(np.median(times)) * 1000


def measured(index: Collection, dataset: Dataset, search: Search) -> Evaluation:
    weights = dict.fromkeys(search.spaces, 1.0)
    judged = vo.evaluate(index, dataset, [MEASURE], weights=weights, feedback=search.feedback)
    return judged if isinstance(judged, Evaluation) else judged.evaluations[0]


def show(index: Collection, dataset: Dataset, tuned: Collection | None, truncated: Collection | None) -> None:
    """Print the quality and the time of each kind of search."""
    models = {name: index.with_model(name) for name in (BY_LOOKUP, BUILT_IN_MODEL)}
    ways = [(name, models[search.model], search) for name, search in SEARCHES.items()]
    ways += [] if tuned is None else [(name, tuned, search) for name, search in TUNED.items()]
    ways += [] if truncated is None else [(name, truncated, search) for name, search in TRUNCATED.items()]
    evaluations = {name: measured(opened, dataset, search) for name, opened, search in ways}
    texts = [query.text for query in dataset.queries]
    rows = [
        [
            name,
            f"{evaluations[name].values[MEASURE]:.4f}",
            "" if name == DEFAULT else interval(evaluations[DEFAULT], evaluations[name]),
            f"{milliseconds(opened, texts, search):.2f}",
        ]
        for name, opened, search in ways
    ]
    table = Table("", ["searched by", MEASURE, "over the default", "ms"], rows)
    print(f"{dataset.name}, {len(dataset.queries)} queries\n\n{table.markdown()}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="sources, as beir:DIR or a folder; pydocs: for known items")
    parser.add_argument("--tuned", action="append", default=[], metavar="NAME=INDEX", help="an index by a tuned model")
    parser.add_argument("--work", type=Path, default=Path("signals-work"), help="folder of the indexes")
    given = parser.parse_args()
    tuned = dict(pair.split("=", 1) for pair in given.tuned)
    for source in given.collections:
        name = source.rstrip("/:").rpartition("/")[2]
        for dataset in datasets(source):
            of_tuned = vo.open_index(tuned[name], device="cpu") if name in tuned else None
            cut = indexed(dataset, name, given.work, "truncate") if source.startswith("pages:") else None
            with indexed(dataset, name, given.work) as index:
                show(index, dataset, of_tuned, cut)
    print(json.dumps(machine(torch.device("cpu"))))


if __name__ == "__main__":
    main()
