"""Run the benchmarks that need nothing but this machine, and renew docs/benchmarks.md with the figures.

    make bench                                   # all of them, three times: about 65 minutes on two cores
    python benchmarks/bench.py --only head search --repeats 1 --output trial
    python benchmarks/bench.py --only            # no benchmark: only the page, from benchmarks.json

Each benchmark measures vocable and its peer in the same run. Before a run, the script waits until the machine is quiet,
five minutes at most, and records how busy it is. A figure is the median over the repetitions, with the least and the
most. benchmarks.json has all figures; the page has them between its marks, and growth.svg has the curves. Ctrl-C or a
failed benchmark loses no other benchmark's figures: the last line names those to go on with.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from machine import busy_share

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
MARKS = re.compile(r"(<!-- made by make bench -->\n).*?(\n<!-- end -->)", re.DOTALL)
LARGE_BATCH = 12, 256  # texts and tokens of the rows of large vocabularies; benchmarks.json has more
QUIET, PATIENCE = 0.1, 300.0  # share of the cores that others may take; seconds that are waited for it


class Row(NamedTuple):
    """One figure of vocable, and the peer's from the same run."""

    what: str
    unit: str
    ours: float
    peer: str = ""
    theirs: float | None = None

    @property
    def times(self) -> float | None:
        """How many times better ours is: faster, or less."""
        if not self.theirs or not self.ours:
            return None
        return self.ours / self.theirs if self.unit.endswith("/s") else self.theirs / self.ours


class Benchmark(NamedTuple):
    """A script of this folder with its arguments, and the rows of what it prints."""

    arguments: list[str]
    rows: Callable[[dict[str, Any]], Iterator[Row]]
    once: bool = False  # its figures do not vary


def head_rows(result: dict[str, Any]) -> Iterator[Row]:
    for dtype, passes in result["results"].items():
        for name, part in passes.items():
            for key, unit in (("milliseconds", "ms"), ("MiB", "MiB")):
                ours, theirs = part[key].values()
                if ours:
                    yield Row(f"head, {dtype}, {name}", unit, ours, "decoder + SpladePooling", theirs)


def encode_rows(result: dict[str, Any]) -> Iterator[Row]:
    speeds = result["texts a second"]
    for side, peer in (
        ("vocable float32", "sentence-transformers float32"),
        ("vocable auto (bfloat16)", "sentence-transformers float32"),
        ("vocable auto (bfloat16)", "sentence-transformers bfloat16"),
        ("vocable ONNX int8", "sentence-transformers float32"),
        ("vocable ONNX int8", "FastEmbed, the same graph"),
    ):
        if side in speeds and peer in speeds:
            yield Row(f"encoding, {side.removeprefix('vocable ')}", "texts/s", speeds[side], peer, speeds[peer])


def busy_rows(result: dict[str, Any]) -> Iterator[Row]:
    yield Row("encoding beside a busy process", "texts/s", result["busy"], "the same, quiet", result["quiet"])


def step_rows(result: dict[str, Any]) -> Iterator[Row]:
    parts = result["results"]
    for side, peer in (
        ("vocable float32, dropout 0", "sentence-transformers float32"),
        ("vocable bfloat16, dropout 0", "sentence-transformers float32"),
        ("vocable bfloat16, dropout 0", "sentence-transformers bfloat16, dropout 0"),
    ):
        if side in parts:
            name = f"training step, {side.split()[1].rstrip(',')}"
            yield Row(name, "ms", parts[side]["milliseconds"], peer, parts[peer]["milliseconds"])
    fastest = parts["vocable bfloat16, dropout 0" if len(parts) == 5 else "vocable float32, dropout 0"]
    peer = "sentence-transformers float32"
    yield Row("training step, memory", "MiB", fastest["MiB"], peer, parts[peer]["MiB"])


def busy_step_rows(result: dict[str, Any]) -> Iterator[Row]:
    times = {name: part["milliseconds"] for name, part in result["results"].items()}
    theirs, ours = ((ms, times[f"{name}, busy"]) for name, ms in times.items() if not name.endswith(", busy"))
    yield Row("training step beside a busy process", "ms", ours[1], "sentence-transformers, beside it", theirs[1])
    yield Row("training step beside a busy process", "ms", ours[1], "the same, quiet", ours[0])


def search_rows(result: dict[str, Any]) -> Iterator[Row]:
    times, count = result["milliseconds"], result["data"]["documents"]
    for peer in ("Qdrant Edge, one thread", "SciPy, query @ documents.T"):
        if peer in times:  # Qdrant Edge is installed
            yield Row(f"search of {count:,}, one thread", "ms", times["vocable, one thread"], peer, times[peer])


def wackiness_rows(result: dict[str, Any]) -> Iterator[Row]:
    yield Row("wackiness of stored vectors", "s", sum(v for k, v in result["found"].items() if k != "peak MiB"))


def vocabulary_rows(result: dict[str, Any]) -> Iterator[Row]:
    sides: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell in result["results"]:
        sides.setdefault((cell["task"], cell["v"], cell["b"], cell["s"]), {})[cell["side"]] = cell
    for (task, v, b, s), both in sides.items():
        peer, name = "sentence-transformers", f"{task}, v = {v:,}, {b} x {s} tokens"
        if (b, s) == LARGE_BATCH and both["vocable"]["MiB"] is not None:
            yield Row(name, "MiB", both["vocable"]["MiB"], peer, both[peer]["MiB"])


def service_rows(result: dict[str, Any]) -> Iterator[Row]:
    by_name = {side["side"]: side["requests/s"] for side in result["sides"]}
    for name in ("vocable", "vocable, no cache"):
        peer = "sentence-transformers"
        yield Row(f"service: {name}", "requests/s", by_name[name], f"{peer} behind FastAPI", by_name[peer])


def start_rows(result: dict[str, Any]) -> Iterator[Row]:
    for name, took in result["seconds"].items():
        yield Row(f"start: {name}", "s", took["median"])


BENCHMARKS = {
    "head": Benchmark(["head.py"], head_rows),
    "encode": Benchmark(["encode.py", "--model", "vocable-mini", "--count", "120"], encode_rows),
    "busy": Benchmark(["encode.py", "--model", "vocable-mini", "--count", "120", "--busy"], busy_rows),
    "training-step": Benchmark(["train_step.py", "--model", "vocable-mini"], step_rows),
    "training-step-busy": Benchmark(["train_step.py", "--model", "vocable-mini", "--busy"], busy_step_rows),
    "search": Benchmark(["search.py"], search_rows),
    "start": Benchmark(["start.py"], start_rows),
    "wackiness": Benchmark(["wackiness.py"], wackiness_rows),
    "service": Benchmark(["load.py", "--seconds", "30"], service_rows),
    "large-vocabularies": Benchmark(["large_vocabulary.py", "--limit", "5120"], vocabulary_rows, once=True),
    "growth": Benchmark(["growth.py"], lambda found: iter(()), once=True),
}


def quiet() -> float:
    """Wait until others take next to nothing of the cores; the share that they take at last."""
    until = time.monotonic() + PATIENCE
    while (share := busy_share()) > QUIET and time.monotonic() < until:
        time.sleep(5)
    return share


def run(name: str, output: Path) -> dict[str, Any]:
    """One run of a benchmark: what it printed, and how busy the machine was."""
    others, start = quiet(), time.monotonic()
    arguments = [*BENCHMARKS[name].arguments, *(["--figure", str(output / "growth.svg")] if name == "growth" else [])]
    print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
    printed = subprocess.run([sys.executable, *arguments, "--json"], cwd=HERE, capture_output=True, text=True)
    took = time.monotonic() - start
    if printed.returncode:
        raise RuntimeError(f"{printed.stderr}{' '.join(arguments)} ended with status {printed.returncode}")
    print(f"{took:.0f} s", file=sys.stderr)
    return {"date": f"{datetime.now(UTC):%F}", **json.loads(printed.stdout), "others": others, "took": took}


def tables(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the rows of all benchmarks in Markdown: figures beside a peer's, then figures alone."""
    compared = ["| | vocable | | peer | times better | least to most |", "|:--|--:|:--|--:|--:|--:|"]
    alone = ["| | |", "|:--|--:|"]
    for name, runs in results.items():
        for rows in zip(*(BENCHMARKS[name].rows(result) for result in runs), strict=True):
            first, times = rows[0], [row.times for row in rows if row.times]
            ours, theirs = median(row.ours for row in rows), [row.theirs for row in rows if row.theirs]
            cells = [first.what, f"{shown(ours)} {first.unit}"]
            if first.peer:
                spread = f"{min(times):.2f} to {max(times):.2f}" if len(times) > 1 else ""
                cells += [first.peer, shown(median(theirs)) if theirs else ""]
                cells += [f"{median(times):.2f}x" if times else "", spread]
            (compared if first.peer else alone).append(f"| {' | '.join(cells)} |")
    return "\n".join([*compared, "", *alone])


def shown(value: float) -> str:
    """Three figures.

    >>> shown(1234.5), shown(0.01234)
    ('1,234', '0.0123')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def page(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the text between the marks."""
    described = [result["machine"] for runs in results.values() for result in runs if "machine" in result]
    known = {key: value for result in reversed(described) for key, value in result.items() if key != "load before"}
    busiest = max((result["others"], name) for name, runs in results.items() for result in runs if "others" in result)
    days = defaultdict[str, list[str]](list)
    for name, runs in results.items():
        days[min(result["date"] for result in runs)].append(name)
    *earlier, newest = sorted(days)
    dates = [newest, *(f"{day} ({', '.join(days[day])})" for day in earlier)]
    lines = [f"Measured on {', '.join(dates)}.", "", "   ".join(f"{key}: {value}" for key, value in known.items()), ""]
    lines += [f"Other processes took at most {busiest[0]:.0%} of the cores before a run (of {busiest[1]}).", ""]
    lines.append(tables(results))
    for result in results.get("growth", [])[:1]:
        lines += ["", "![How time and memory grow](growth.svg)", "", "| | | by | exponent | from | to |"]
        lines += ["|:--|:--|:--|--:|--:|--:|"]
        for curve in result["curves"]:
            ends = [
                f"{shown(curve['values'][at])} ({int(at):,})" for at in (*curve["values"],)[:: len(curve["values"]) - 1]
            ]
            cells = [curve["what"], curve["unit"], curve["size"], f"{curve['exponent']:.2f}", *ends]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def in_order(results: dict[str, Any]) -> dict[str, Any]:
    """Return the results in the order of the benchmarks."""
    return {name: results[name] for name in BENCHMARKS if name in results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(BENCHMARKS), default=list(BENCHMARKS), metavar="NAME")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=DOCS, help="folder of benchmarks.json, .md and growth.svg")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    kept = options.output / "benchmarks.json"
    results: dict[str, list[dict[str, Any]]] = json.loads(kept.read_text()) if kept.exists() else {}
    waiting = list(options.only)
    for name in options.only:
        try:
            repeats = 1 if BENCHMARKS[name].once else options.repeats
            results[name] = [run(name, options.output) for _ in range(repeats)]
        except RuntimeError as failure:
            print(failure, file=sys.stderr)
            continue
        except KeyboardInterrupt:
            break
        kept.write_text(json.dumps(in_order(results), indent=1) + "\n")
        waiting.remove(name)
    if not results:
        raise SystemExit("nothing measured")
    results = in_order(results)
    written = options.output / "benchmarks.md"
    text = written.read_text(encoding="utf-8") if written.exists() else "<!-- made by make bench -->\n\n<!-- end -->\n"
    written.write_text(MARKS.sub(lambda mark: f"{mark[1]}{page(results)}{mark[2]}", text), encoding="utf-8")
    print(page(results))
    if waiting:
        raise SystemExit(f"not measured: --only {' '.join(waiting)}")


if __name__ == "__main__":
    main()
