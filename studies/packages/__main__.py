"""Make a corpus of English passages of the documentation in a Debian distribution, and questions about them.

    python -m studies.packages OUT --count 1000000     # passages-NUMBER.jsonl.gz and sources-NUMBER.json
    python -m studies.packages OUT --pairs             # pairs.jsonl.gz, of the passages that are there
    python -m studies.packages OUT --queries 2000      # queries.jsonl and qrels.tsv: known items

A repeated call keeps the files that are there. It needs apt, dpkg and the network.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from studies.packages.corpus import all_lines, make_corpus, read, sources, write
from studies.packages.questions import known_items, pairs
from vocable.core.storage import replacing
from vocable.errors import VocableError


def write_queries(output: Path, count: int) -> None:
    """Write known items with their judgments, half of them lost sentences, half headings, chosen by a hash."""
    items = sorted(known_items(all_lines(output)), key=lambda item: zlib.crc32(item.text.encode()))
    lost, headings = ([item for item in items if item.is_sentence is kind][: count // 2] for kind in (True, False))
    with replacing(output / "queries.jsonl") as queries, replacing(output / "qrels.tsv") as judgments:
        judgments.write(b"query-id\tcorpus-id\tscore\n")
        for number, item in enumerate([*lost, *headings], start=1):
            queries.write(json.dumps({"_id": f"q{number}", "text": item.text}, ensure_ascii=False).encode() + b"\n")
            judgments.write(f"q{number}\t{item.document}\t1\n".encode())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.packages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--count", type=int, default=1_000_000, help="stop after so many passages")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--queries", type=int)
    given = parser.parse_args(arguments)
    try:
        if given.pairs:
            path = given.output / "pairs.jsonl.gz"
            write(path, pairs(all_lines(given.output)))
            print(json.dumps(Counter(line["kind"] for line in read(path))))
        elif given.queries:
            write_queries(given.output, given.queries)
        else:
            make_corpus(given.output, given.count, given.processes)
            print(sources(given.output).markdown())
    except (VocableError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
