"""A collection as gathered from packages, and as written: cut, sampled, without queries that a document quotes."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vocable.core.storage import replacing_folder

WORDS = 400  # of a document, with its title
MOST_DOCUMENTS = 6000
MOST_QUERIES = 300
FEWEST_WORDS = 5  # of a document
QUOTED_FROM = 3  # words: a query of as many must not stand in a relevant document as it is
REPEATED_FROM = 5  # words: a document without judgments that has a query of as many as it is, is a table of contents
SEED = 20


@dataclass
class Gathered:
    """Documents, as titles and texts by id, queries by id, and the relevant documents of each query."""

    documents: dict[str, tuple[str, str]] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)
    relevant: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, number: str, text: str, title: str = "") -> None:
        """Add a document, which is left out later if it has hardly any words."""
        self.documents[number] = title, text

    def ask(self, text: str, documents: Iterable[str]) -> None:
        """Add a query with its relevant documents; a text asked before gets these documents as well."""
        text = " ".join(text.split())
        self.queries[text] = text
        self.relevant[text] |= set(documents)


def words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return re.findall(r"\w+", text.lower())


def finished(gathered: Gathered) -> Gathered:
    """Return the collection to write: documents cut, copies and near-empty ones left out, and both sampled.

    A query is left out where it has fewer than two words, no document, or stands word by word in a relevant one; a
    document without judgments where it has a longer query word by word.
    """
    documents, same = _distinct(gathered.documents)
    runs = {number: _run(f"{title} {text}") for number, (title, text) in documents.items()}
    asked = dict[str, set[str]]()
    for query in sorted(gathered.queries):
        relevant = {same[number] for number in gathered.relevant[query] if number in same}
        quotes = len(words(query)) >= QUOTED_FROM and any(_run(query) in runs[number] for number in relevant)
        if relevant and len(words(query)) > 1 and not quotes:
            asked[query] = relevant
    chosen = random.Random(SEED)
    kept = sorted(chosen.sample(sorted(asked), min(MOST_QUERIES, len(asked))))
    judged = set().union(*(asked[query] for query in kept))
    repeated = [_run(query) for query in kept if len(words(query)) >= REPEATED_FROM]
    unjudged = sorted(documents.keys() - judged)
    others = [number for number in unjudged if not any(query in runs[number] for query in repeated)]
    more = chosen.sample(others, max(0, min(MOST_DOCUMENTS - len(judged), len(others))))
    numbers = judged | set(more)
    result = Gathered({number: document for number, document in documents.items() if number in numbers})
    for place, query in enumerate(kept, 1):
        result.queries[f"q{place}"] = query
        result.relevant[f"q{place}"] = asked[query]
    return result


def _distinct(documents: dict[str, tuple[str, str]]) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return the documents cut to `WORDS`, each text once, and for each id the id of the document that was kept."""
    first, same = dict[str, str](), dict[str, str]()
    kept = dict[str, tuple[str, str]]()
    for number, (title, text) in documents.items():
        cut = " ".join(text.split()[: max(0, WORDS - len(title.split()))])
        if len(words(cut)) < FEWEST_WORDS:
            continue
        same[number] = first.setdefault(f"{title}\n{cut}", number)
        kept.setdefault(same[number], (" ".join(title.split()), cut))
    return kept, same


def _run(text: str) -> str:
    """Return the words of a text with spaces between and around them, so that a search finds only whole words."""
    return f" {' '.join(words(text))} "


def write(collection: Gathered, folder: Path) -> None:
    """Write a collection as a folder in BEIR's layout: corpus.jsonl, queries.jsonl, qrels.tsv."""
    with replacing_folder(folder) as partial:
        documents = ({"_id": number, "title": a, "text": b} for number, (a, b) in collection.documents.items())
        _write_lines(partial / "corpus.jsonl", documents)
        queries = ({"_id": number, "text": text} for number, text in collection.queries.items())
        _write_lines(partial / "queries.jsonl", queries)
        lines = ["query-id\tcorpus-id\tscore", *_judgments(collection)]
        (partial / "qrels.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records), encoding="utf-8")


def _judgments(collection: Gathered) -> Iterator[str]:
    for query, relevant in collection.relevant.items():
        yield from (f"{query}\t{number}\t1" for number in sorted(relevant))
