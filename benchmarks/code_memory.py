"""How much memory, time and disk the index of source code needs, by the number of its functions.

    python benchmarks/code_memory.py SITE_PACKAGES --functions 10000 100000

Files of Python, drawn by seed 0, are copied into a folder until they define so many functions and methods. `vocable
index` reads it in a process of its own, whose peaks of the resident set, mapped files included, and of its anonymous
part are looked up every 0.1 s. So many seconds after its first vectors it is interrupted. The same command resumes, and
is interrupted so many seconds after its start. `--options` go to `vocable index`.
"""

from __future__ import annotations

import argparse
import ast
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import torch
from machine import machine

import vocable as vo
from vocable.errors import VocableError

MOST = 200_000  # bytes of a file; larger ones are tables
PAUSE = 0.1  # seconds between two looks


def draw(source: Path, folder: Path, functions: int) -> int:
    """Copy files of Python until they define so many functions; return the number of functions."""
    files, count = sorted(source.rglob("*.py")), 0
    Random(0).shuffle(files)
    for number, file in enumerate(files):
        try:
            text = file.read_text(encoding="utf-8")
            tree = ast.parse(text) if len(text) < MOST else ast.Module([], [])
        except (UnicodeDecodeError, SyntaxError, ValueError):
            continue
        if defined := sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree)):
            place = folder / f"{number % 100:02}" / f"{file.parent.name}_{number}_{file.name}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
            count += defined
        if count >= functions:
            break
    return count


def run(command: list[str], place: Path, seconds: float, log: Path) -> dict[str, Any]:
    """Run a command that makes an index; return its peaks in MiB, and the seconds until it answers and ends."""
    peaks, result = {"VmHWM": 0, "RssAnon": 0}, dict[str, Any]()
    start = time.perf_counter()
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        looked = start
        while process.poll() is None:
            status = dict(line.split(":", 1) for line in _status(process.pid).splitlines())
            peaks |= {name: max(peak, int(status.get(name, "0").split()[0])) for name, peak in peaks.items()}
            if time.perf_counter() - looked > 2 and "vectors after" not in result:
                _look(place, start, peaks, result)
                looked = time.perf_counter()
            if time.perf_counter() - start > result.get("vectors after", float("inf")) + seconds:
                process.send_signal(signal.SIGTERM)
                seconds = float("inf")
            time.sleep(PAUSE)
    result |= {"seconds": time.perf_counter() - start, "exit": process.returncode, "peak": _mebibytes(peaks)}
    with vo.open_index(place) as index:
        result |= {"documents": len(index), "with vectors": index.store.encoded_share}
    result["MiB on disk"] = sum(path.stat().st_blocks for path in place.rglob("*")) / 2048
    return result


def _look(place: Path, start: float, peaks: dict[str, int], result: dict[str, Any]) -> None:
    """Note when an index first answers, when all its documents have their words, and when some have vectors."""
    try:
        with vo.open_index(place) as index:
            after = time.perf_counter() - start
            if len(index):
                result.setdefault("answers after", after)
            if index.store.settings["stored"] and "words after" not in result:
                result |= {"words after": after, "peak of words": _mebibytes(peaks)}
            if index.store.encoded_share:
                result.setdefault("vectors after", after)
    except (VocableError, OSError):
        pass  # it has not begun


def _status(process: int) -> str:
    try:
        return Path(f"/proc/{process}/status").read_text()
    except OSError:  # it has just ended
        return ""


def _mebibytes(peaks: dict[str, int]) -> dict[str, int]:
    return {"resident": peaks["VmHWM"] // 1024, "anonymous": peaks["RssAnon"] // 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a folder of Python packages")
    parser.add_argument("--functions", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--seconds", type=float, default=60, help="of encoding, before an interruption")
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="further options of `vocable index`")
    arguments = parser.parse_args()
    print(machine(torch.device("cpu")), flush=True)
    for functions in arguments.functions:
        with TemporaryDirectory() as work:
            folder, place, log = Path(work, "code"), Path(work, "index"), Path(work, "log")
            count = draw(arguments.source, folder, functions)
            size = sum(path.stat().st_size for path in folder.rglob("*.py")) / 2**20
            print(f"{count:,} functions in {size:.0f} MiB of files", flush=True)
            command = [sys.executable, "-m", "vocable", "index", arguments.model, str(folder), "-o", str(place)]
            command += arguments.options
            first = run(command, place, arguments.seconds, log)
            print(json.dumps(first), flush=True)
            if first["with vectors"] < 1:
                print("resumed:", json.dumps(run(command, place, arguments.seconds, log)), flush=True)


if __name__ == "__main__":
    main()
