"""Time commands from a cold start of the process to their end, and the imports that they cannot avoid.

    python benchmarks/start.py

Each is run several times in turn with the others, the files being in memory after the first round, which is not
counted. The floors are an empty Python, and Python with the libraries imported that run a model. The index has 200
documents of the built-in corpus, encoded by the built-in model; the service serves it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from machine import machine, print_machine

from vocable.data import read_corpus

DOCUMENTS = 200
VOCABLE = [sys.executable, "-m", "vocable"]
IMPORTS = "python with torch", "python with sentence-transformers"


def run(command: list[str]) -> float:
    """Return the seconds of one run."""
    start = perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
    return perf_counter() - start


@contextmanager
def service(index: Path) -> Iterator[str]:
    """Serve the index, and yield the address."""
    command = [*VOCABLE, "serve", str(index), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield next(found[1] for line in process.stderr if (found := re.search(r" at (http://\S+)$", line)))
        finally:
            process.terminate()
            process.stderr.read()


def commands(folder: Path, url: str) -> dict[str, list[str]]:
    """Return the commands by their names."""
    index, vectors, evaluation = (str(folder / name) for name in ("index", "vectors", "evaluation.json"))
    named = {
        "--help": ["--help"],
        "recipes": ["recipes"],
        "compare, stored evaluations": ["compare", evaluation],
        "analyze-postings": ["analyze-postings", vectors],
        "search, a running service": ["search", url, "copy a file"],
        "search, a folder": ["search", index, "copy a file"],
    }
    python = {"python": "", "python with vocable": "import vocable"}
    python |= {IMPORTS[0]: "import torch", IMPORTS[1]: "import sentence_transformers"}
    return {name: [sys.executable, "-c", code] for name, code in python.items()} | {
        f"vocable {name}": [*VOCABLE, *words] for name, words in named.items()
    }


def prepare(folder: Path) -> None:
    """Make an index, vectors and an evaluation."""
    documents = [one._asdict() for one in islice(read_corpus("pydocs:"), DOCUMENTS)]
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(one) + "\n" for one in documents), encoding="utf-8")
    run([*VOCABLE, "encode", "vocable-mini", str(corpus), "-o", str(folder / "vectors")])
    run([*VOCABLE, "index", str(folder / "vectors"), str(corpus), "-o", str(folder / "index")])
    evaluation = {"name": "a", "dataset": "toy", "convention": "beir", "ties": "search", "values": {"nDCG@10": 0.5}}
    evaluation["per_query"] = {"nDCG@10": {"q": 0.5}}
    (folder / "evaluation.json").write_text(json.dumps(evaluation), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args()
    described = machine(torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        served = Path(folder, "served")  # a store is open in one process at a time
        subprocess.run(["cp", "-r", str(Path(folder, "index")), str(served)], check=True)
        with service(served) as url:
            sides = {name: partial(run, command) for name, command in commands(Path(folder), url).items()}
            times: dict[str, list[float]] = {name: [] for name in sides}
            for turn in range(options.repeats + 1):
                for name, side in sides.items():
                    took = side()
                    if turn:
                        times[name].append(took)
    seconds = {name: {"median": median(some), "least": min(some), "most": max(some)} for name, some in times.items()}
    if options.json:
        print(json.dumps({"machine": described, "seconds": seconds}, indent=1))
        return
    print_machine(described)
    print(f"\n{'':36}{'seconds':>9}{'least':>9}{'most':>9}")
    for name, figures in seconds.items():
        print(f"{name:36}{figures['median']:9.2f}{figures['least']:9.2f}{figures['most']:9.2f}")


if __name__ == "__main__":
    main()
