"""Does the fusion bury a verbatim match, and which rule brings it back?

    python benchmarks/verbatim.py pydocs: /usr/share/cmake-3.25/Help beir:cacm beir:scifact --sample 2500

Each source is indexed once, in the work folder, and searched by its words (BM25), by the model, by dense vectors and by
their fusion with equal weights. Queries are titles, the last two headings of a section, names of programs that one
document has, sentences, and as a control garbled quotations: nine words in a row, one in three left out and one in
three cut short. They are known items: Success@1 is the share of queries whose document comes first. The judged queries
of a collection have nDCG@10. A source `pairs:FILE` has texts and, as their queries, headings that the texts lack.

"search" is what a search returns; each other rule changes the fusion. A difference to the fusion has a paired 95 %
interval (Student's t over the queries).
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log2
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from machine import machine
from scipy.stats import t as student_t

import vocable as vo
from vocable.collection.collection import Collection
from vocable.core.tables import Table
from vocable.data import Document, read_corpus
from vocable.data.records import BETWEEN
from vocable.evaluation.dataset import load_dataset
from vocable.indexes.fusion import MIN_DEPTH
from vocable.language.phrases import SpelledText
from vocable.language.words import stemmed

SEED = 80
MOST_CHARACTERS = 2000  # of a text of pairs
NAME = re.compile(  # of programs: os.path, std::move, snake_case, camelCase, CamelCase, uuid4, IBM-7090
    r"(?<![\w.])(?:[A-Za-z_]\w*(?:(?:\.[a-z_]|::\w)\w*)+|[A-Za-z]+_\w+|[a-z]+[A-Z]\w+|[A-Z][a-z]+[A-Z]\w+"
    r"|[A-Z]+[0-9-]+[A-Z0-9]*|[A-Za-z]+\d\w*)(?!\w)"
)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
LETTERS = re.compile(r"[^\W\d_]{3,}")
Judged: TypeAlias = tuple[str, Mapping[str, int]]  # a query, and the relevance of its documents
Hits: TypeAlias = list[tuple[str, float]]


def squashed(text: str) -> str:
    """A text in lower case with single blanks."""
    return " ".join(text.lower().split())


def titles(documents: Sequence[Document]) -> list[tuple[str, str]]:
    """Titles that no other document has, with the id of their document."""
    count = Counter(squashed(document.title) for document in documents)
    return [
        (document.title, document.id)
        for document in documents
        if document.title
        if count[squashed(document.title)] == 1
    ]


def two_headings(documents: Sequence[Document]) -> list[tuple[str, str]]:
    """The last two headings of sections whose path no other section has."""
    count = Counter(squashed(document.heading) for document in documents)
    deep = [document for document in documents if BETWEEN in str(document.fields.get("path", ""))]
    only = [document for document in deep if count[squashed(document.heading)] == 1]
    return [(" ".join(str(document.fields["path"]).split(BETWEEN)[-2:]), document.id) for document in only]


def names(documents: Sequence[Document]) -> list[tuple[str, str]]:
    """Names of programs that stand in the text of one document."""
    homes: dict[str, list[str]] = {}
    for document in documents:
        for name in set(NAME.findall(document.text)):
            homes.setdefault(name, []).append(document.id)
    return sorted((name, ids[0]) for name, ids in homes.items() if len(ids) == 1 and len(name) > 4)


def sentences(documents: Sequence[Document], rng: random.Random) -> list[tuple[str, str]]:
    """A sentence of six to thirty words of each document, which no other document has."""
    cut = {
        document.id: [" ".join(part.split()) for part in SENTENCE_END.split(document.text)] for document in documents
    }
    count = Counter(sentence for parts in cut.values() for sentence in {squashed(part) for part in parts})
    drawn = []
    for name, parts in cut.items():
        if usable := [part for part in parts if 6 <= len(part.split()) <= 30 and count[squashed(part)] == 1]:
            drawn.append((rng.choice(usable), name))
    return drawn


def garbled(documents: Sequence[Document], rng: random.Random) -> list[tuple[str, str]]:
    """Nine words in a row of each document: of each three one is cut short and one left out."""
    drawn = []
    for document in documents:
        if len(words := LETTERS.findall(document.text)) >= 27:
            start = rng.randrange(len(words) - 9)
            quoted = enumerate(words[start : start + 9])
            parts = (word[: len(word) * 2 // 3] if place % 3 == 1 else word for place, word in quoted if place % 3 < 2)
            drawn.append((" ".join(parts).lower(), document.id))
    return drawn


def questions(documents: Sequence[Document], most: int) -> dict[str, list[Judged]]:
    """At most so many known items of each kind that has twenty."""
    rng = random.Random(SEED)
    kinds = {
        "title": titles(documents),
        "two headings": two_headings(documents),
        "name in code": names(documents),
        "sentence": sentences(documents, rng),
        "garbled": garbled(documents, rng),
    }
    drawn = {kind: rng.sample(items, min(most, len(items))) for kind, items in kinds.items() if len(items) >= 20}
    return {kind: [(query, {name: 1}) for query, name in items] for kind, items in drawn.items()}


def scaled(hits: Hits) -> dict[str, float]:
    """Scores from 0 to 1, as `vocable.indexes.fusion` scales them."""
    scores = [score for _, score in hits]
    low, spread = min(scores, default=0.0), max(scores, default=0.0) - min(scores, default=0.0)
    return {name: (score - low) / spread if spread else 1.0 for name, score in hits}


@dataclass(frozen=True)
class Case:
    """A query with its hits by words, by the model and by dense vectors, and the documents of all."""

    query: str
    words: Hits
    model: Hits
    dense: Hits
    searched: Hits
    documents: Mapping[str, Document]

    def fused(self, *weights: float) -> dict[str, float]:
        """The fused scores of the documents."""
        total: dict[str, float] = {}
        for hits, weight in zip((self.words, self.model, self.dense), weights or (1, 1, 1), strict=True):
            for name, score in scaled(hits).items():
                total[name] = total.get(name, 0) + weight * score
        return total

    def with_all_words(self, most: int) -> list[str]:
        """The best hits by words that have all stemmed words of the query."""
        ids = [name for name, _ in self.words[:most]]
        stems, *of_hits = stemmed([self.query, *(self.documents[name].full for name in ids)])
        return [name for name, there in zip(ids, of_hits, strict=True) if {*stems} <= {*there}]

    @cached_property
    def verbatim(self) -> dict[str, int]:
        """Hits by words that have the query as a run of words: 2 if it is the title, else 1."""
        query = SpelledText(self.query)
        levels = {}
        for name, _ in self.words:
            document = self.documents[name]
            if SpelledText(document.title).lines == query.lines:
                levels[name] = 2
            elif SpelledText(document.heading).has(query) or SpelledText(document.text).has(query):
                levels[name] = 1
        return levels


def first(case: Case, best: str | None) -> dict[str, float]:
    """The fused scores, with one document before all others."""
    scores = case.fused()
    return scores if best is None else scores | {best: 4.0}


def margin(case: Case, times: float) -> dict[str, float]:
    """The best hit by words goes first if the second scores far less."""
    clear = case.words and (len(case.words) == 1 or case.words[0][1] >= times * case.words[1][1])
    return first(case, case.words[0][0] if clear else None)


def all_words(case: Case) -> dict[str, float]:
    """The best hit by words goes first if it has all words of the query."""
    return first(case, next(iter(case.with_all_words(1)), None))


def only_with_all(case: Case) -> dict[str, float]:
    """A hit by words goes first if it alone of the best ten has all words of the query."""
    having = case.with_all_words(10)
    return first(case, having[0] if len(having) == 1 else None)


def heavier_words(case: Case) -> dict[str, float]:
    """Words count threefold if their best hit has all words of a query of four or more."""
    return case.fused(3, 1, 1) if len(case.query.split()) > 3 and case.with_all_words(1) else case.fused()


def bonus(case: Case) -> dict[str, float]:
    """All hits with the query as a run of words go before all others."""
    return {name: score + 3 * (name in case.verbatim) for name, score in case.fused().items()}


def run_first(case: Case, most: int = 20, *, titles: bool = True, runs: int | None = None) -> dict[str, float]:
    """One of the best hits by words goes first: whose title is the query, else one of at most so many `runs` of it."""
    ids = [name for name, _ in case.words[:most] if name in case.verbatim]
    named = [name for name in ids if titles and case.verbatim[name] == 2]
    few = ids if runs is None or len(ids) <= runs else []
    return first(case, next(iter(named or few), None))


RULES: dict[str, Callable[[Case], dict[str, float]]] = {
    "words alone": lambda case: dict(case.words),
    "model alone": lambda case: dict(case.model),
    "fusion": Case.fused,
    "search": lambda case: dict(case.searched),
    "margin 1.1": lambda case: margin(case, 1.1),
    "margin 1.5": lambda case: margin(case, 1.5),
    "all words": all_words,
    "only one with all words": only_with_all,
    "words x 3": heavier_words,
    "runs before all": bonus,
    "run first, of 10": lambda case: run_first(case, 10),
    "run first, of 20": run_first,
    "run first, of 100": lambda case: run_first(case, 100),
    "run first, no titles": lambda case: run_first(case, titles=False),
    "title first, no runs": lambda case: run_first(case, runs=0),
    "title or only run first": lambda case: run_first(case, runs=1),
    "title or one of 3 runs first": lambda case: run_first(case, runs=3),
}


def value(scores: Mapping[str, float], relevant: Mapping[str, int], *, judged: bool) -> float:
    """nDCG@10 of judged queries, else Success@1."""
    order = sorted(scores, key=lambda name: (-np.float32(scores[name]), name))
    if not judged:
        return float(bool(order) and relevant.get(order[0], 0) > 0)
    gain = sum(relevant.get(name, 0) / log2(rank + 2) for rank, name in enumerate(order[:10]))
    best = sorted(relevant.values(), reverse=True)[:10]
    return gain / sum(level / log2(rank + 2) for rank, level in enumerate(best))


def cell(values: np.ndarray, fusion: np.ndarray) -> str:
    """The mean, and the mean difference to the fusion with its 95 % interval."""
    difference = values - fusion
    half = student_t.ppf(0.975, len(values) - 1) * difference.std(ddof=1) / np.sqrt(len(values))
    low, high = difference.mean() - half, difference.mean() + half
    return f"{values.mean():.3f}" + (f" ({low:+.3f} to {high:+.3f})" if difference.any() else "")


def pairs_of(file: str, most: int) -> dict[str, str]:
    """Texts by their headings, drawn from lines of {"query": heading, "positive": text}."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    random.Random(SEED).shuffle(rows)
    texts: dict[str, tuple[str, str]] = {}
    for row in rows:
        if len(row["positive"]) <= MOST_CHARACTERS:
            texts.setdefault(squashed(row["query"]), (row["query"], row["positive"]))
    return dict([*texts.values()][: most or None])


def opened(source: str, folder: Path, model: str, sample: int) -> tuple[Collection, dict[str, list[Judged]] | None]:
    """The index of a source, made unless it is there, and the queries of pairs."""
    queries = None
    if source.startswith("pairs:"):
        texts = pairs_of(source.removeprefix("pairs:"), sample)
        documents = [Document(f"m{number}", text) for number, text in enumerate(texts.values())]
        headings: list[Judged] = [(heading, {f"m{number}": 1}) for number, heading in enumerate(texts)]
        queries = {
            "headings of up to three words": [pair for pair in headings if len(pair[0].split()) <= 3],
            "longer headings": [pair for pair in headings if len(pair[0].split()) > 3],
        }
    else:
        documents = list(read_corpus(source))
        if sample and not source.startswith("beir:"):
            documents = random.Random(SEED).sample(documents, min(sample, len(documents)))
    if not folder.exists():
        vo.index(model, documents, folder, device="cpu").close()
    return vo.open_index(folder, device="cpu"), queries


def cases(index: Collection, queries: Sequence[str]) -> Iterator[Case]:
    """The queries with their hits."""
    kinds = ("bm25", "sparse", "dense")
    found = {kind: index.search(queries, MIN_DEPTH, weights={kind: 1.0}, plain=True) for kind in kinds}
    searched = index.search(queries, MIN_DEPTH, plain=True)
    for number, query in enumerate(queries):
        hits = [found[kind].hits(number) for kind in kinds]
        ids = sorted({name for ranked in hits for name, _ in ranked})
        documents = {document.id: document for document in index.documents(ids) if document is not None}
        words, model, dense = hits
        yield Case(query, words, model, dense, searched.hits(number), documents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", help="folders, pydocs:, beir:DIR or pairs:FILE")
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--work", type=Path, default=Path("verbatim-work"), help="folder of the indexes")
    parser.add_argument("--sample", type=int, default=0, help="documents of a folder; 0 for all")
    parser.add_argument("--queries", type=int, default=300, help="of each kind")
    given = parser.parse_args()
    for source in given.sources:
        name = re.sub(r"\W+", "-", source.rstrip("/").rpartition("/")[2]).strip("-")
        index, pairs = opened(source, given.work / name, given.model, given.sample)
        documents = [document for document in index.documents(sorted(index.units.ids())) if document is not None]
        asked = questions(documents, given.queries) if pairs is None else pairs
        if source.startswith("beir:"):
            dataset = load_dataset(source)
            relevant: dict[str, dict[str, int]] = {}
            for judgment in dataset.judgments:
                relevant.setdefault(judgment.query_id, {})[judgment.doc_id] = max(0, judgment.relevance)
            asked["judged, nDCG@10"] = [
                (query.text, relevant[query.id])
                for query in dataset.queries
                if any(relevant.get(query.id, {}).values())
            ]
        columns: dict[str, list[str]] = {}
        for kind, items in asked.items():
            ranked = [*cases(index, [query for query, _ in items])]
            values = {
                rule: np.array(
                    [
                        value(scores(case), levels, judged=kind.startswith("judged"))
                        for case, (_, levels) in zip(ranked, items, strict=True)
                    ]
                )
                for rule, scores in RULES.items()
            }
            columns[f"{len(items)} by {kind}"] = [cell(of_rule, values["fusion"]) for of_rule in values.values()]
        rows = [[rule, *cells] for rule, *cells in zip(RULES, *columns.values(), strict=True)]
        title = f"{source}: {len(documents):,} documents"
        print(Table(title, ["rule", *columns], rows).markdown(), flush=True)
        index.close()
    print(json.dumps(machine(torch.device("cpu"))))


if __name__ == "__main__":
    main()
