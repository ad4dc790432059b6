"""Is what stands in the middle and at the end of whole pages found, if an index reads on, or if it truncates?

    python benchmarks/long_pages.py django=PATH/django/docs --work long-pages-work

A folder of pages is read as `vocable index` reads it, but each page is one document. Of each page with a section that
begins behind the first 600 words, one such heading and one sentence below another are drawn as queries and taken out
of the page; so is one sentence of the first 300 words. Headings are unique in the folder. An index is made with each
way to read long documents. Differences of nDCG@10 are to the first row, with 95 % intervals (Student's t over the
queries).
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from random import Random
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from machine import machine

import vocable as vo
from vocable.collection.collection import Collection
from vocable.core.tables import Table
from vocable.data import Document, read_corpus
from vocable.encoding.windows import SENTENCE
from vocable.evaluation.significance import mean_interval
from vocable.indexes.ranking import Ranking
from vocable.options import LongDocuments

BEHIND, AHEAD = 600, 300  # words; the models read about 400 and 200 of a page that is cut
SENTENCE_WORDS = range(8, 31)
DEPTH = 100
WAYS: tuple[LongDocuments, ...] = ("truncate", "maxpool")
SYSTEMS: dict[str, tuple[LongDocuments, str | None]] = {
    **{f"all three, {way}": (way, None) for way in WAYS},
    **{f"sparse, {way}": (way, "sparse") for way in WAYS},
    "BM25, whole pages": ("truncate", "bm25"),
    "dense, beginnings": ("truncate", "dense"),
}


class Asked(NamedTuple):
    """A query, the page that it was taken from, and the share of the page above its place."""

    query: str
    id: str
    place: float


def pages_of(folder: Path, most: int) -> tuple[list[Document], dict[str, list[Asked]]]:
    """Return the pages of a folder as documents without the queries' texts, and the queries by kind."""
    sections = [*read_corpus(folder)]
    titles = Counter(section.title.casefold() for section in sections if section.title)
    pages = [(file, [*of]) for file, of in groupby(sections, lambda section: str(section.fields["file"]))]
    documents, headings = list[Document](), list[Asked]()
    sentences: dict[str, list[Asked]] = {"sentences": [], "sentences of the beginning": []}
    for file, of in Random(0).sample(pages, min(most, len(pages))):
        texts, drawn = [[section.title or "", section.text] for section in of], Random(file)
        words = np.cumsum([0, *(len(section.full.split()) for section in of)])
        behind = [number for number in range(1, len(of)) if words[number] >= BEHIND and "~" not in of[number].id]
        named = [one for one in behind if titles[texts[one][0].casefold()] == 1 and " " in texts[one][0].strip()]
        if named:
            number = drawn.choice(named)
            headings.append(Asked(texts[number][0], file, words[number] / words[-1]))
            texts[number][0] = ""
            behind.remove(number)
        ahead = [number for number in range(len(of)) if behind and words[number + 1] <= AHEAD]
        for asked, among in zip(sentences.values(), (behind, ahead), strict=True):
            if found := [(number, one) for number in among for one in _sentences(texts[number][1])]:
                number, sentence = drawn.choice(found)
                asked.append(Asked(sentence, file, words[number] / words[-1]))
                texts[number][1] = texts[number][1].replace(sentence, "")
        text = "\n\n".join(part for pair in texts for part in pair if part)
        documents.append(Document(file, text, fields={"words": len(text.split())}))
    return documents, {"headings": headings, **sentences}


def _sentences(text: str) -> Iterator[str]:
    for one in SENTENCE.split(text):
        if len(one.split()) in SENTENCE_WORDS and re.fullmatch(r"[A-Z][^|`=_{}<>]+\.", one.strip()):
            yield one.strip()


def indexed(documents: list[Document], way: LongDocuments, folder: Path) -> Collection:
    """Return the index of documents in a folder, made unless it is there."""
    if not folder.exists():
        start = perf_counter()
        vo.index("vocable-mini", documents, folder, long_documents=way, device="cpu").close()
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(f"{way}: {perf_counter() - start:.0f} s, {size / len(documents) / 1000:.1f} KB a page", flush=True)
    return vo.open_index(folder, device="cpu")


def ndcg(ranking: Ranking, asked: list[Asked]) -> dict[str, float]:
    """Return nDCG@10 of each query, which has one right page."""
    values = {}
    for number, one in enumerate(asked):
        ids = [name for name, _ in ranking.hits(number)[:10]]
        values[str(number)] = float(1 / np.log2(2 + ids.index(one.id))) if one.id in ids else 0.0
    return values


def compare(indexes: dict[LongDocuments, Collection], asked: list[Asked]) -> None:
    """Print the quality of each system."""
    queries, rows, base = [one.query for one in asked], list[list[str]](), dict[str, float]()
    for name, (way, weights) in SYSTEMS.items():
        start = perf_counter()
        ranking = indexes[way].search(queries, DEPTH, weights=weights, plain=True)
        milliseconds = 1000 * (perf_counter() - start) / len(queries)
        found = ndcg(ranking, asked)
        base = base or found
        mean, (low, _) = float(np.mean([*found.values()])), mean_interval(found)
        difference = {query: value - base[query] for query, value in found.items()}
        middle, (least, most) = float(np.mean([*difference.values()])), mean_interval(difference)
        rows.append([name, f"{mean:.3f} ±{mean - low:.3f}"])
        rows[-1] += [f"{middle:+.3f} ({least:+.3f} to {most:+.3f})", f"{milliseconds:.1f}"]
    print(Table("", ["searched by", "nDCG@10", "difference", "ms"], rows).markdown(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="NAME=FOLDER", help="folders of pages")
    parser.add_argument("--most", type=int, default=600, help="pages of a folder, drawn at random")
    parser.add_argument("--work", type=Path, default=Path("long-pages-work"), help="folder of the indexes")
    arguments = parser.parse_args()
    print(machine(torch.device("cpu")))
    for given in arguments.folders:
        name, _, folder = given.partition("=")
        documents, by_kind = pages_of(Path(folder), arguments.most)
        words = [len(one.text.split()) for one in documents]
        print(f"\n{name}: {len(documents)} pages of {np.median(words):.0f} words (median), at most {max(words):,}")
        indexes = {way: indexed(documents, way, arguments.work / f"{name}-{way}") for way in WAYS}
        for kind, asked in by_kind.items():
            place = np.median([one.place for one in asked])
            print(f"\n{name}: {len(asked)} {kind}, at {place:.0%} of their pages (median)\n")
            compare(indexes, asked)


if __name__ == "__main__":
    main()
