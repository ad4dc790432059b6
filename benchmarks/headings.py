"""Are the headings above a section of use to a search for it?

    python benchmarks/headings.py postgresql/html openjdk/api/java.base/java/util --questions 300

The sections of each folder are indexed twice for the hybrid of a model and BM25: after their own headings alone, and
after the headings of their paths. Questions ask for a section whose heading others share by the heading above it and
its own ("vacuumdb notes"), and for a document by nine words in a row, one in three left out and one in three cut short.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import torch
from machine import machine

import vocable as vo
from vocable.core.tables import Table
from vocable.data import Document, Qrel, Query, read_corpus
from vocable.data.folder import PART
from vocable.data.records import BETWEEN
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.significance import ComparedEvaluations

MEASURES = ["RR@10", "Success@10"]
QUOTED = 9  # words of a quotation
WORD = re.compile(r"[^\W\d_]{3,}")


def by_headings(documents: Sequence[Document]) -> list[tuple[str, list[str]]]:
    """Return questions by two headings, each with the documents of the only section that has them."""
    sections, parts = defaultdict[str, set[str]](set), defaultdict[str, list[str]](list)
    for document in documents:
        section = re.sub(rf"{PART}\d+$", "", document.id)
        headings = str(document.fields["path"]).split(BETWEEN)[-2:]
        parts[section].append(document.id)
        if len(headings) == 2:
            sections[" ".join(WORD.findall(" ".join(headings))).lower()].add(section)
    sharing = Counter(document.title for document in documents if PART not in document.id)
    titles = {document.id: document.title for document in documents}
    only = {question: next(iter(ids)) for question, ids in sections.items() if len(ids) == 1}
    return [(question, parts[section]) for question, section in only.items() if sharing[titles[section]] > 1]


def by_quotation(documents: Sequence[Document], rng: random.Random) -> list[tuple[str, list[str]]]:
    """Return garbled quotations, each with its document."""
    questions = []
    for document in documents:
        words = WORD.findall(document.text)
        if len(words) >= 3 * QUOTED:
            start = rng.randrange(len(words) - QUOTED)
            quoted = enumerate(words[start : start + QUOTED])
            kept = (word[: len(word) * 2 // 3] if place % 3 == 1 else word for place, word in quoted if place % 3 < 2)
            questions.append((" ".join(kept).lower(), [document.id]))
    return questions


def dataset(name: str, documents: list[Document], questions: Sequence[tuple[str, list[str]]]) -> Dataset:
    """Return a collection in which the documents of each question are relevant."""
    queries = [Query(str(number), text) for number, (text, _) in enumerate(questions)]
    judgments = [Qrel(str(number), identifier, 1) for number, (_, ids) in enumerate(questions) for identifier in ids]
    return Dataset(name, documents, queries, judgments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--model", default="vocable-mini-doc")
    parser.add_argument("--questions", type=int, default=300, help="of each kind")
    parser.add_argument("--documents", type=int, default=10_000, help="read at most so many of a folder")
    given = parser.parse_args()
    for folder in given.folders:
        rng, found = random.Random(1), []
        documents = list(read_corpus(folder))[: given.documents]
        kinds = {"two headings": by_headings(documents), "quotation": by_quotation(documents, rng)}
        kinds = {name: rng.sample(questions, min(given.questions, len(questions))) for name, questions in kinds.items()}
        for encoded in ("own heading", "headings of the path"):
            fields: dict[str, object] | None = {} if encoded == "own heading" else None
            kept = [document._replace(fields=document.fields if fields is None else fields) for document in documents]
            with vo.index(given.model, kept, bm25=True) as index:
                for kind, questions in kinds.items():
                    evaluated = vo.evaluate(index, dataset(kind, kept, questions), MEASURES, hybrid=True)
                    assert isinstance(evaluated, ComparedEvaluations)
                    for ranking in evaluated.evaluations:
                        values = [f"{ranking.values[measure]:.3f}" for measure in MEASURES]
                        found.append([f"{len(questions)} by {kind}", encoded, ranking.name, *values])
        columns = ["questions", "encoded", "searched by", *MEASURES]
        print(Table(f"{folder}: {len(documents):,} sections", columns, found).markdown(), flush=True)
    print(json.dumps(machine(torch.device("cpu"))))


if __name__ == "__main__":
    main()
