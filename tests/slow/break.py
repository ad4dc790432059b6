"""Make things go wrong for vocable: kills, power loss, damage, malformed input, full disks, neighbours, changes.

    python tests/slow/break.py                             # all groups
    python tests/slow/break.py --quick                     # a part of each group
    python tests/slow/break.py --group kills --kills 1000  # so many kills, over all verbs that write
    python tests/slow/break.py --group input --only gz -v

Every case is a command in a process of its own, on a toy model: a fork of one that has imported everything
(`preloaded.py`), but for the group "fresh". Its outcome is one of

    right        it succeeded, and its result is right: that of an undisturbed run, or of what is in the file
    refused      status 2, one line on stderr that says what the case expects it to say, nothing left behind
    WRONG        success with a wrong result, a refusal that names something else, something half made in sight
    TRACEBACK    an internal error
    HANG, CRASH  no end within the time limit, the end of the process

The exit status is 1 if there is an outcome in capitals.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from preloaded import LIMIT, USED, Elsewhere, Ran, preload, run

preload()

import torch  # noqa: E402
from break_hostile import hostile_cases  # noqa: E402
from break_http import http_cases  # noqa: E402
from break_input import argument_cases, input_cases, model_cases  # noqa: E402
from break_kills import Writers, kill_cases, moment_cases  # noqa: E402
from break_links import link_cases  # noqa: E402
from break_living import living_cases  # noqa: E402
from break_pages import FILES, page_cases  # noqa: E402
from break_places import damage_cases, pair_cases, place_cases  # noqa: E402
from break_power import power_cases  # noqa: E402
from break_readers import reader_cases  # noqa: E402
from break_stale import stale_cases  # noqa: E402
from break_toys import BAD, Case, Toys, judge, leftovers, same  # noqa: E402
from machine import machine, print_machine  # noqa: E402

GROUPS = (
    "input",
    "arguments",
    "models",
    "hostile",
    "pages",
    "stale",
    "damage",
    "places",
    "links",
    "http",
    "pairs",
    "readers",
    "living",
    "moments",
    "kills",
    "power",
    "fresh",
)
WHOLE = ("living", "moments")  # groups of which a quick run has all cases
THINNED = 24  # of a quick run: one case of so many


def all_cases(toys: Toys, again: Callable[..., Ran], options: argparse.Namespace) -> list[Case]:
    """All cases of the groups asked for, or a part of them; `again` runs a command that was killed."""
    rng, writers = random.Random(options.seed), Writers(toys, again)
    tables = {"input": input_cases, "arguments": argument_cases, "models": model_cases}
    tables |= {"hostile": hostile_cases, "stale": stale_cases}
    groups: dict[str, Callable[[], Iterable[Case]]] = {
        **{group: partial(_table_cases, group, table, toys) for group, table in tables.items()},
        "pages": lambda: page_cases(5 if options.quick else FILES),
        "damage": lambda: damage_cases(toys, 20 if options.quick else 60, rng),
        "places": lambda: place_cases(toys),
        "links": lambda: link_cases(toys),
        "http": lambda: http_cases(toys),
        "pairs": lambda: pair_cases(toys),
        "readers": lambda: reader_cases(toys, 1.0 if options.quick else 4.0),
        "living": lambda: living_cases(toys, 1 if options.quick else 12),
        "moments": lambda: moment_cases(writers),
        "kills": lambda: kill_cases(writers, options.kills, rng),
        "power": lambda: power_cases(writers, options.cuts, rng),
        "fresh": lambda: fresh_cases(writers, rng),
    }
    chosen = [
        case for group in GROUPS if group in options.group for case in groups[group]() if options.only in case.name
    ]
    if not options.quick:
        return chosen
    thinned = [case for number, case in enumerate(chosen) if number % THINNED == options.seed % THINNED]
    return [case for case in chosen if case.group in WHOLE or (case in thinned and case.group != "fresh")]


def fresh_cases(writers: Writers, rng: random.Random) -> Iterator[Case]:
    """Commands in fresh processes: the same as in a fork, and stopped by signals while Python imports."""

    def start_fresh(folder: Path, name: str) -> subprocess.Popen[bytes]:
        command = writers.command(name, folder / writers.output(name))
        assert not callable(command)
        words = [sys.executable, "-m", "vocable", *map(str, command)]
        with (folder / ".out").open("wb") as out, (folder / ".err").open("wb") as err:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def equal(name: str, folder: Path) -> tuple[str, str]:
        (folder / "forked").mkdir()
        output = writers.output(name)
        forked = run(folder, writers.command(name, folder / "forked" / output))
        status = start_fresh(folder, name).wait(10 * LIMIT)
        if status or forked.status:
            return "WRONG", f"status {status} and {forked.status}: {forked.err}"
        differs = same(folder / output, folder / "forked" / output)
        return ("WRONG", f"not as in a fork: {differs}") if differs else ("right", "")

    def stopped(name: str, number: int, seconds: float, folder: Path) -> tuple[str, str]:
        process = start_fresh(folder, name)
        time.sleep(seconds)
        process.send_signal(number)
        status, error = process.wait(10 * LIMIT), (folder / ".err").read_text()
        if "Traceback" in error:
            return "TRACEBACK", error.strip().splitlines()[-1]
        if status not in (-number, 128 + number):
            return "WRONG", f"status {status}: {error}"
        return ("WRONG", f"left behind: {left}") if (left := leftovers(folder)) else ("right", "")

    names = [name for name in writers.names if name not in writers.before and name != "tune"]  # which is made small
    for name in names:
        yield Case("fresh", f"{name}: as in a fork", partial(equal, name))
    for place, number in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGHUP) * 10):
        name, seconds = names[place % len(names)], rng.uniform(0.2, 2.0)
        case = partial(stopped, name, number, seconds)
        yield Case("fresh", f"{name}: {number.name} after {seconds:.2f} s", case)


def _table_cases(group: str, table: Callable[[Toys], Iterator[Any]], toys: Toys) -> Iterator[Case]:
    for name, prepare, says, right in table(toys):
        yield Case(group, name, _table_case(prepare, says, right))


def _table_case(prepare: Callable[[Path], Any], says: Sequence[str], right: Any) -> Callable[[Path], tuple[str, str]]:
    """A case of a table: `prepare` writes what is wrong and returns the command, and perhaps what it reads."""

    def case(folder: Path) -> tuple[str, str]:
        command, stdin = prepare(folder)
        before = set(folder.rglob("*"))
        ran = run(folder, command, stdin)
        found = judge(ran, says=says, right=(lambda: right(ran)) if right else None)
        left = set(folder.rglob("*")) - before - {folder / name for name in USED}
        if command[0] == "train":  # one that was stopped keeps its log and why, and --no-resume takes the name
            left -= {folder / "out.partial", *(folder / "out.partial").rglob("*")}
        return (
            ("WRONG", f"left behind: {sorted(path.name for path in left)}") if found[0] == "refused" and left else found
        )

    return case


def worker(chosen: list[Case], folder: Path, results: Path) -> None:
    """Run cases one after the other, and write a line of JSON for each."""
    with results.open("w") as file:
        for number, case in enumerate(chosen):
            place = folder / f"{number}"
            place.mkdir(parents=True)
            began = time.monotonic()
            try:
                outcome, what = case.run(place)
            except Exception as error:  # of this benchmark itself
                outcome, what = "WRONG", f"the case could not be tried: {type(error).__name__}: {error}"
            seconds = round(time.monotonic() - began, 2)
            file.write(json.dumps([case.group, case.name, outcome, what, seconds]) + "\n")
            file.flush()
            shutil.rmtree(place, ignore_errors=True)


def report(lines: list[list[Any]], options: argparse.Namespace) -> int:
    """Print the table of outcomes, and the cases that went wrong; return the exit status."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for group, _, outcome, _, _ in lines:
        counts[group][outcome] += 1
    header = ["group", "cases", "right", "refused", *BAD]
    print("  ".join(f"{name:>9}" for name in header))
    for group, found in [*counts.items(), ("all", sum(counts.values(), Counter[str]()))]:
        print("  ".join(f"{cell:>9}" for cell in [group, found.total(), *(found[name] for name in header[2:])]))
    for group, name, outcome, what, _ in lines:
        if outcome in BAD or options.verbose:
            line = f"{outcome:>9}  {group}: {name}: {what}"
            print(line.encode(errors="backslashreplace").decode())  # a case may have half of a character
    return int(any(line[2] in BAD for line in lines))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--group", action="append", choices=GROUPS)
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--kills", type=int, default=150, help="how many kills, over all verbs that write")
    parser.add_argument("--cuts", type=int, default=12, help="how many losses of power, in every verb that writes")
    parser.add_argument("--part", default="1/1", help="run only the cases of one part, as 2/5")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="also write the outcomes here")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every case")
    options = parser.parse_args()
    options.group = options.group or GROUPS
    return options


def benchmark() -> int:
    """Run the cases in so many processes and report them."""
    options = parse()
    with tempfile.TemporaryDirectory(prefix="vocable-break-") as name, ExitStack() as stack:
        folder = Path(name)
        # A quick run saves the seconds of its imports.
        other = None if options.quick else stack.enter_context(Elsewhere(folder))
        chosen = all_cases(Toys(folder), other.run if other else run, options)
        if other:
            other.wait()
        random.Random(0).shuffle(chosen)
        part, parts = map(int, options.part.split("/"))
        chosen = chosen[part - 1 :: parts]
        results = [folder / f"results-{job}.jsonl" for job in range(options.jobs)]
        children = []
        for job, file in enumerate(results):
            child = os.fork()
            if not child:
                worker(chosen[job :: options.jobs], folder / f"job-{job}", file)
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        lines = sorted(json.loads(line) for file in results for line in file.read_text().splitlines())
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1))
    print_machine(machine(torch.device("cpu")))
    return report(lines, options) or int(len(lines) < len(chosen))


if __name__ == "__main__":
    sys.exit(benchmark())
