"""How soon an index in a folder answers, and what it finds while its vectors are computed.

    python benchmarks/first_answers.py --model vocable-mini --corpus pydocs: --topics pydocs:#test

`vocable index` runs as a process of its own. Meanwhile this process searches the folder for all topics, again and
again, and prints the seconds since the start, the share of documents that have vectors, and the quality of the hits.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean

import vocable as vo
from vocable.core.figures import save_figure
from vocable.errors import VectorsError
from vocable.evaluation.dataset import load_dataset
from vocable.evaluation.quality import evaluate_run

MEASURE = "RR@10"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--corpus", default="pydocs:")
    parser.add_argument("--topics", default="pydocs:#test")
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between two searches for all topics")
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the curve")
    parser.add_argument("--figure", type=Path, help=".svg or .png; with --curves, of these JSON files alone")
    parser.add_argument("--curves", type=Path, nargs="+", help="curves that were measured before")
    arguments = parser.parse_args()
    if arguments.curves:
        draw(arguments.figure, {file.stem: json.loads(file.read_text()) for file in arguments.curves})
        return
    dataset = load_dataset(arguments.topics)
    judged = dataset.judged()
    work = Path(tempfile.mkdtemp(prefix="vocable-first-"))
    place, curve = work / "index", list[dict[str, float]]()
    command = [sys.executable, "-m", "vocable", "index", arguments.model, arguments.corpus, "-o", str(place)]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ) as process:
        index = None
        while index is None:
            try:
                index = vo.open_index(place)
            except VectorsError:
                time.sleep(0.05)
        vo.search(index, [judged.queries[0].text])
        print(f"first answer after {time.perf_counter() - started:.1f} s, of {len(index):,} documents", flush=True)
        while True:
            ended = process.poll() is not None  # the last searches are of the finished index
            now = index.current()
            ranking = now.search([query.text for query in judged.queries], 10)
            run = ranking.to_run([query.id for query in judged.queries])
            value = fmean(evaluate_run("now", run, judged, [MEASURE]).per_query[MEASURE].values())
            curve.append({"seconds": time.perf_counter() - started, "vectors": now.store.encoded_share, MEASURE: value})
            print(json.dumps(curve[-1]), flush=True)
            if ended:
                break
            time.sleep(arguments.pause)
    index.close()
    shutil.rmtree(work)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(curve, indent=1))
    if arguments.figure is not None:
        draw(arguments.figure, {"": curve})


def draw(path: Path, curves: dict[str, list[dict[str, float]]]) -> None:
    """Draw the quality of the hits over the share of the documents that have vectors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, curve in curves.items():
        axes.plot([100 * point["vectors"] for point in curve], [point[MEASURE] for point in curve], "o-", label=name)
    axes.set(xlabel="documents with vectors, %", ylabel=MEASURE, ylim=(0, 1))
    axes.grid(alpha=0.3)
    if len(curves) > 1:
        axes.legend(frameon=False)
    save_figure(figure, path)


if __name__ == "__main__":
    main()
