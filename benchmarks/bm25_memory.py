"""Memory of BM25, and of BM25 with RM3, without the texts, by the number of passages, and an estimate for MS MARCO.

    python benchmarks/bm25_memory.py wiki.jsonl.gz --sizes 60000 300000 600000

Texts are cut into passages of 56 words, the mean length in MS MARCO. If the file has too few passages, they repeat, and
every third has a new word, so that the vocabulary grows as in MS MARCO (2,660,824 stems in 8,841,823 passages). Each
size is measured in a separate process. The starts of posting lists, 8 bytes for each stem and 65,536 documents, grow
faster than the passages: they are computed for MS MARCO. The rest is assumed to be proportional to the passages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from time import perf_counter

import torch
from machine import machine, peak_memory, print_machine

from studies.beir import MSMARCO_SIZE
from vocable.core.tables import Table
from vocable.data import read_texts
from vocable.indexes.bm25 import RM3, BM25Index
from vocable.indexes.exact_numpy import windows_of

CPU = torch.device("cpu")
WORDS = 56  # of a passage
MSMARCO_STEMS = 2_660_824  # of Anserini's index, with another stemmer


def passages(source: Path) -> Iterator[str]:
    """Yield passages without an end."""
    for turn in count():
        for number, text in enumerate(_cut(source)):
            yield f"{text} w{turn}x{number}" if turn and number % 3 == 0 else text


def _cut(source: Path) -> Iterator[str]:
    for text in read_texts(source):
        words = text.split()
        yield from (" ".join(words[at : at + WORDS]) for at in range(0, len(words) - WORDS // 2, WORDS))


def measure(source: Path, size: int) -> dict[str, float]:
    """Return the peaks above the texts in bytes, the sizes of the index, and the seconds of its making."""
    texts = list(islice(passages(source), size))
    ids = list(map(str, range(size)))
    BM25Index(texts[:100], ids[:100])  # libraries are loaded
    indexes, start = list[BM25Index](), perf_counter()
    plain = peak_memory(lambda: indexes.append(BM25Index(texts, ids)), CPU)
    seconds = perf_counter() - start
    [index] = indexes
    rm3 = peak_memory(lambda: RM3(index, texts).expand(texts[:100]), CPU)
    if plain is None or rm3 is None:
        raise SystemExit("this system does not tell the memory of a process")
    starts, places, weights, *_ = (array.nbytes for array in index.arrays().values())
    kept = starts + places + weights
    return {
        "bm25": plain * 2**20,
        "rm3": max(plain * 2**20, kept + rm3 * 2**20),
        "stems": index.shape[1],
        "postings": places / 2,
        "starts": starts,
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="texts, as of vocable.read_texts")
    parser.add_argument("--sizes", type=int, nargs="+", default=[60_000, 300_000, 600_000])
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.source, options.measure)))
        return
    print_machine(machine(CPU))
    rows, far = [], 8 * MSMARCO_STEMS * windows_of(MSMARCO_SIZE)
    for size in options.sizes:
        command = [sys.executable, __file__, str(options.source), "--measure", str(size)]
        measured = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        cells = [
            f"{size:,}",
            f"{measured['stems']:,}",
            f"{measured['postings'] / size:.1f}",
            f"{measured['seconds']:.0f}",
        ]
        for name in ("bm25", "rm3"):
            each = (measured[name] - measured["starts"]) / size
            cells += [f"{measured[name] / size:,.0f}", f"{(each * MSMARCO_SIZE + far) / 1e9:.1f}"]
        rows.append(cells)
    header = ["passages", "stems", "stems of each", "seconds"]
    for name in ("BM25", "RM3"):
        header += [f"{name}: bytes a passage", f"{name}: GB at {MSMARCO_SIZE:,}"]
    print(Table("", header, rows))


if __name__ == "__main__":
    main()
