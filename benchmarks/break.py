"""What vocable does when things go wrong: kills, damage, malformed input, bad arguments, full disks, neighbours.

    python benchmarks/break.py                             # all groups
    python benchmarks/break.py --quick                     # a part of each group
    python benchmarks/break.py --group kills --kills 1000  # so many kills, over all verbs that write
    python benchmarks/break.py --group input --only gz -v

Every case is a command in a process of its own, on a toy model. Its outcome is one of

    right        it succeeded, and its result is right: that of an undisturbed run, or of what is in the file
    refused      status 2, one line on stderr that says what the case expects it to say, nothing left behind
    WRONG        success with a wrong result, a refusal that names something else, something half made in sight
    TRACEBACK    an internal error
    HANG, CRASH  no end within the time limit, the end of the process

The exit status is 1 if there is an outcome in capitals that is not among the KNOWN, which are listed as such.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

from vocable.cli import main, silence

silence()  # before the libraries are imported, as the command line does

import torch  # noqa: E402
from break_input import argument_cases, input_cases, model_cases  # noqa: E402
from machine import machine, print_machine  # noqa: E402
from random_model import write_toy_model  # noqa: E402

LIMIT = 20  # seconds of a command that takes one or two
Hook = Callable[[], object]


class Ran(NamedTuple):
    """A command that has ended: its exit status (below 0 the signal), None if it had to be stopped."""

    status: int | None
    out: str
    err: str
    seconds: float


class Case(NamedTuple):
    """Something that goes wrong; `run` is given an empty folder and returns the outcome and what to say of it."""

    group: str
    name: str
    run: Callable[[Path], tuple[str, str]]


def start(folder: Path, arguments: Sequence[object], stdin: bytes = b"", before: Hook = lambda: None) -> int:
    """Start a command in a fork of this process, after `before`; its output goes to files in the folder."""
    (folder / ".in").write_bytes(stdin)
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        for descriptor, name, flags in ((0, ".in", os.O_RDONLY), (1, ".out", os.O_WRONLY), (2, ".err", os.O_WRONLY)):
            os.dup2(os.open(folder / name, flags | (os.O_CREAT | os.O_TRUNC if descriptor else 0)), descriptor)
        sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        before()
        status = main([str(argument) for argument in arguments])
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(status)


def end(child: int, folder: Path, limit: float = LIMIT) -> Ran:
    """Wait for the command's end, and stop it at the time limit."""
    began = time.monotonic()
    while True:
        done, code = os.waitpid(child, os.WNOHANG)
        seconds = time.monotonic() - began
        if done or seconds > limit:
            break
        time.sleep(0.005)
    status = os.waitstatus_to_exitcode(code) if done else None
    if not done:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    out, err = ((folder / name).read_bytes().decode("utf-8", "replace") for name in (".out", ".err"))
    return Ran(status, out, err, seconds)


def run(folder: Path, *arguments: object, stdin: bytes = b"", before: Hook = lambda: None) -> Ran:
    """Run a command to its end."""
    return end(start(folder, arguments, stdin, before), folder)


def judge(ran: Ran, *, says: Sequence[str] = (), right: Callable[[], bool] | None = None) -> tuple[str, str]:
    """The outcome of a command that has to be refused in words that are among `says`, or, with `right`, may succeed."""
    line = ran.err.strip().splitlines()
    if ran.status is None:
        return "HANG", f"not done after {LIMIT} s"
    if ran.status < 0:
        return "CRASH", f"signal {-ran.status}"
    if "Traceback" in ran.err or "internal error" in ran.err or ran.status not in (0, 2):
        return "TRACEBACK", line[-1] if line else f"status {ran.status}"
    if ran.status == 0:
        ok = right is not None and right()
        return "right" if ok else "WRONG", "" if ok else f"status 0: {ran.out.strip()[:100]!r}"
    missing = [word for word in says if word not in ran.err]
    if len(line) != 1 or not line[0].startswith("vocable: ") or missing:
        return (
            "WRONG",
            f"does not say {missing}: {ran.err.strip()[:300]!r}" if missing else f"{len(line)} lines: {line}",
        )
    return "refused", line[0]


class Toys:
    """A toy model and what the verbs make of it, in one folder: made once, and copied where a case changes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.texts = [
            f"The {name} of chapter {i}: reads, indexes and forgets {name}s."
            for i in range(15)
            for name in ("list", "vector", "query", "index")
        ]
        self.model = write_toy_model(folder / "model", self.texts)
        self.corpus, self.pairs, self.beir = folder / "corpus.jsonl", folder / "pairs.jsonl", folder / "beir"
        self._write(self.corpus, [{"_id": f"d{i}", "text": text} for i, text in enumerate(self.texts)])
        rows = [
            {"query": text[:26], "positive": text, "negatives": [f"Nothing of {i} at all."]}
            for i, text in enumerate(self.texts)
        ]
        self._write(self.pairs, rows)
        self.beir.mkdir()
        shutil.copy(self.corpus, self.beir)
        self._write(self.beir / "queries.jsonl", [{"_id": f"q{i}", "text": self.texts[5 * i][:22]} for i in range(9)])
        judged = "".join(f"q{i}\td{5 * i}\t1\n" for i in range(9))
        (self.beir / "qrels").mkdir()
        (self.beir / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
        training = {"steps": 6, "batch_size": 8, "save_every": 2, "log_every": 1, "learning_rate": 1e-3}
        recipe = {"model": str(self.model), "data": {"examples": [str(self.pairs)]}, "training": training}
        self.recipe = folder / "recipe.yaml"
        self.recipe.write_text(json.dumps(recipe))
        for name, arguments in self.stored.items():
            made = run(folder, *arguments, "-o", folder / name)
            assert made.status == 0, made.err

    @staticmethod
    def _write(path: Path, rows: list[dict[str, Any]]) -> None:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    @property
    def stored(self) -> dict[str, list[object]]:
        """Commands whose results other cases damage or read."""
        return {
            "index": ["index", self.model, self.corpus, "--bm25"],
            "vectors": ["encode", self.model, self.corpus],
            "expanded": ["expand", self.model, "--texts", self.corpus, "--size", 20],
            "values.json": ["evaluate", self.model, "--dataset", f"beir:{self.beir}"],
        }

    @property
    def writers(self) -> dict[str, list[object]]:
        """A command of each verb that writes, without its output."""
        return {
            **self.stored,
            "prune": ["prune", self.folder / "vectors", "--top-k", 3],
            "mine": ["mine", self.model, self.pairs, "--negatives", 2],
            "teacher-scores": ["teacher-scores", self.model, self.pairs],
            "make-testset": ["make-testset", self.pairs, "--queries", 9, "--clusters", 3, "--kind", "plain"],
            "rescale": ["rescale", self.model, "--factor", 2],
            "transfer": ["transfer", self.model, "--target", self.model, "--init", "mean", "--bias", "keep"],
            "vocabulary": ["vocabulary", self.corpus, "--size", 60],
            "pretrain": ["pretrain", self.model, self.corpus, "--steps", 6, "--save-every", 2, "--max-length", 16],
            "calibrate": ["calibrate", self.model, self.corpus, "--activation-rate", 0.1],
            "inference-free": ["inference-free", self.model, "--texts", self.corpus],
            "train": ["train", self.recipe],
            "wackiness": [
                "wackiness",
                self.model,
                "--corpus",
                f"beir:{self.beir}",
                "--queries",
                f"beir:{self.beir}",
                "--bootstrap",
                3,
                "-k",
                5,
            ],
            "removal": ["removal", self.model, f"beir:{self.beir}", "--thresholds", "2,5", "--draws", 2],
        }


def same(one: Path, other: Path) -> str:
    """What differs between two results, "" if nothing does; how long something took does not count."""
    if one.is_file() or not one.exists():
        same_bytes = one.exists() and other.exists() and _content(one) == _content(other)
        return "" if same_bytes else one.name
    names = [sorted(str(path.relative_to(root)) for path in root.rglob("*")) for root in (one, other)]
    if names[0] != names[1]:
        return f"files {set(names[0]) ^ set(names[1])}"
    files = [name for name in names[0] if (one / name).is_file()]
    return next((name for name in files if _content(one / name) != _content(other / name)), "")


def _content(path: Path) -> object:
    if path.name == "README.md":  # a model card, which says how long the training took
        return re.sub(r"(?m)^- \*\*Training\*\*: .*$", "", path.read_text())
    if path.suffix not in (".json", ".jsonl"):
        return path.read_bytes() if path.suffix not in (".png", ".svg", ".html") else None
    texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    return [_timeless(json.loads(text)) for text in texts]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _timeless(inner) for key, inner in value.items() if not key.endswith(("seconds", "_second", "_ms"))
        }
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


def leftovers(folder: Path, *expected: str) -> str:
    """What is in a folder beside the files of `start` and what is expected."""
    beside = {f".{name}.settings.json" for name in expected}  # what a result that is a file was made with
    return " ".join(sorted({path.name for path in folder.iterdir()} - {".in", ".out", ".err", *expected, *beside}))


def kill_at(count: int, after: bool) -> Hook:
    """Kill this process at its `count`-th rename, before or after it."""
    calls = 0

    def patched(original: Callable[..., Any]) -> Callable[..., Any]:
        def rename(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == count and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            done = original(*arguments, **named)
            if calls == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return rename

    def hook() -> None:
        os.replace, os.rename = patched(os.replace), patched(os.rename)

    return hook


def kill_cases(toys: Toys, kills: int, rng: random.Random) -> Iterator[Case]:
    """Kill every verb that writes: at each of its renames, then at random moments until there are so many kills."""
    seconds: dict[str, float] = {}

    def undisturbed(name: str) -> Path:
        """The result of a run that nothing happens to, made once in every process of this benchmark."""
        whole = toys.folder / f"whole-{os.getpid()}"
        if name not in seconds:
            whole.mkdir(exist_ok=True)
            done = run(whole, *toys.writers[name], "-o", whole / name)
            assert done.status == 0, done.err
            seconds[name] = done.seconds
        return whole / name

    def killed(name: str, hook: Hook, moment: float | None) -> Callable[[Path], tuple[str, str]]:
        def case(folder: Path) -> tuple[str, str]:
            whole = undisturbed(name)
            command = [*toys.writers[name], "-o", folder / name]
            child = start(folder, command, before=hook)
            if moment is not None:
                time.sleep(moment * seconds[name])
                os.kill(child, signal.SIGKILL)
            first = end(child, folder)
            if first.status not in (0, -signal.SIGKILL):
                return judge(first)
            seen = (folder / name).exists() and same(folder / name, whole)
            if seen:
                return "WRONG", f"half made in sight: {seen}"
            again = run(folder, *command)
            if again.status:
                return "WRONG", f"the same command: {again.err.strip()[-200:]}"
            differs = same(folder / name, whole) or leftovers(folder, name)
            return ("WRONG", f"not as an undisturbed run: {differs}") if differs else ("right", "")

        return case

    total = 0
    for name in toys.writers:
        for step in range(1, 4):
            for after in (False, True):
                total += 1
                yield Case(
                    "kills",
                    f"{name}: {'after' if after else 'at'} rename {step}",
                    killed(name, kill_at(step, after), None),
                )
    names = list(toys.writers)
    for number in range(max(0, kills - total)):
        name = names[number % len(names)]
        moment = rng.random()
        yield Case("kills", f"{name}: after {moment:.1%} of the time", killed(name, lambda: None, moment))


def _flip(rng: random.Random) -> Callable[[Path], Any]:
    def flip(path: Path) -> object:
        content = bytearray(path.read_bytes())
        place = rng.randrange(len(content))
        content[place] ^= 1 << rng.randrange(8)
        return path.write_bytes(content)

    return flip


def replaced(path: Path, make: Callable[[Path], object]) -> Path:
    """Put something else in the place of what is there."""
    path.unlink(missing_ok=True)
    make(path)
    return path


def damage_cases(toys: Toys, flips: int, rng: random.Random) -> Iterator[Case]:
    """Damage each file of what is stored: bits flipped, ends cut off, files exchanged, emptied or gone."""
    query = ["list of chapter 3", "--json", "--explain", "--hybrid"]
    readers: dict[str, Callable[[Path], list[object]]] = {
        "index": lambda path: ["search", path, *query],
        "vectors": lambda path: ["postings", path, "--json", "--model", toys.model],
        "expanded": lambda path: ["encode", path, toys.corpus, "-o", path.parent / "out"],
    }
    truth = {}
    for name, command in readers.items():
        with tempfile.TemporaryDirectory() as place:
            shutil.copytree(toys.folder / name, Path(place, name))
            truth[name] = run(Path(place), *command(Path(place, name))).out

    def damaged(name: str, file: str, how: Callable[[Path], Any]) -> Callable[[Path], tuple[str, str]]:
        def case(folder: Path) -> tuple[str, str]:
            copy = folder / name
            shutil.copytree(toys.folder / name, copy)
            how(copy / file)
            ran = run(folder, *readers[name](copy))
            expected = truth[name]
            return judge(ran, right=lambda: name == "expanded" or ran.out == expected)

        return case

    hows: dict[str, Callable[[Path], Any]] = {
        "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        "emptied": lambda path: path.write_bytes(b""),
        "a byte longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        "gone": os.remove,
        "a folder": lambda path: replaced(path, os.mkdir),
        "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
        "a pipe": lambda path: replaced(path, os.mkfifo),
    }
    for name in readers:
        files = [
            str(path.relative_to(toys.folder / name))
            for path in sorted((toys.folder / name).rglob("*"))
            if path.is_file() and path.suffix != ".md"
        ]
        for file in files:
            for how, function in hows.items():
                yield Case("damage", f"{name}/{file}: {how}", damaged(name, file, function))
        # A flipped bit of a checkpoint's weights is another model; those of texts and vectors have checksums.
        sizes = [(toys.folder / name / file).stat().st_size for file in files]
        for number in range(flips if name != "expanded" else 0):
            [file] = rng.choices(files, [size**0.5 for size in sizes])
            yield Case(
                "damage", f"{name}/{file}: bit {number}", damaged(name, file, _flip(random.Random(rng.random())))
            )


def place_cases(toys: Toys) -> Iterator[Case]:
    """Outputs where they cannot be, disks that are full, two commands on one output, readers while it is replaced."""
    names = [
        "encode",
        "index",
        "rescale",
        "pretrain",
        "train",
        "wackiness",
        "mine",
        "values.json",
        "prune",
        "vocabulary",
    ]
    commands = {name: toys.writers.get(name, toys.writers["vectors"]) for name in names}

    def at(name: str, prepare: Callable[[Path], Path]) -> Callable[[Path], tuple[str, str]]:
        def case(folder: Path) -> tuple[str, str]:
            output = prepare(folder)
            before = sorted(folder.rglob("*"))
            ran = run(folder, *commands[name], "-o", output)
            outcome, what = judge(ran, right=lambda: output.exists())
            left = set(folder.rglob("*")) - {*before, folder / ".in", folder / ".out", folder / ".err"}
            return ("WRONG", f"left behind: {left}") if outcome == "refused" and left else (outcome, what)

        return case

    def made(path: Path, make: Callable[[Path], Any]) -> Path:
        make(path)
        return path

    places: dict[str, Callable[[Path], Path]] = {
        "an existing file": lambda folder: made(folder / "o", lambda path: path.write_text("mine")),
        "a full folder": lambda folder: made(
            folder / "o", lambda path: (replaced(path, os.mkdir) / "a").write_text("mine")
        ),
        "an empty folder": lambda folder: made(folder / "o", os.mkdir),
        "below a file": lambda folder: made(folder / "f", lambda path: path.write_text("mine")) / "o",
        "in a missing folder": lambda folder: folder / "a" / "b" / "o",
        "a device": lambda folder: Path("/dev/full"),
        ".": lambda folder: Path("."),
        "no name": lambda folder: Path(""),
        "a name that is too long": lambda folder: folder / ("o" * 300),
        "a dangling link": lambda folder: made(folder / "o", lambda path: path.symlink_to(folder / "x" / "y")),
    }
    for name in names:
        for place, prepare in places.items():
            yield Case("places", f"{name}: {place}", at(name, prepare))

    def full(name: str, kilobytes: int) -> Callable[[Path], tuple[str, str]]:
        def case(folder: Path) -> tuple[str, str]:
            small = folder / "small"
            small.mkdir()
            if os.system(f"mount -t tmpfs -o size={kilobytes}k tmpfs {small} 2>/dev/null"):
                return "right", "not tried: no permission to mount a small file system"
            try:
                ran = run(folder, *commands[name], "-o", small / "o")
                if (small / "o").exists() and ran.status:
                    return "WRONG", "half made in sight"
                if ran.status == 0:
                    return "right", ""
                return judge(ran, says=["No space left"])
            finally:
                os.system(f"umount {small}")

        return case

    for name in names:
        for kilobytes in (4, 16, 40, 120):
            yield Case("places", f"{name}: a disk of {kilobytes} kB", full(name, kilobytes))

    def two(name: str) -> Callable[[Path], tuple[str, str]]:
        def case(folder: Path) -> tuple[str, str]:
            others = folder / "other"
            others.mkdir()
            command = [*commands[name], "-o", folder / "o"]
            first, second = start(folder, command), start(others, command)
            ended = end(first, folder), end(second, others)
            outcomes = [judge(one, right=lambda: (folder / "o").exists()) for one in ended]
            bad = next((found for found in outcomes if found[0] in BAD), None)
            if bad or not any(one.status == 0 for one in ended):
                return bad or ("WRONG", f"neither succeeded: {outcomes}")
            left = leftovers(folder, "o", "other")
            return ("WRONG", f"left behind: {left}") if left else ("right", "")

        return case

    for name in names:
        for number in range(3):
            yield Case("pairs", f"{name}: two at once, {number + 1}", two(name))


BAD = ("WRONG", "TRACEBACK", "HANG", "CRASH")
KNOWN: dict[str, str] = {}  # "group: name" of a case that goes wrong, and why it may for now
GROUPS = ("input", "arguments", "models", "damage", "places", "pairs", "kills")


def all_cases(toys: Toys, options: argparse.Namespace) -> list[Case]:
    """All cases of the groups asked for; of each group every n-th if it has to be quick."""
    rng = random.Random(options.seed)
    tables = {"input": input_cases, "arguments": argument_cases, "models": model_cases}
    chosen: list[Case] = []
    for group, table in tables.items():
        if group in options.group:
            chosen += [
                Case(group, name, _table_case(prepare, says, right)) for name, prepare, says, right in table(toys)
            ]
    if "damage" in options.group:
        chosen += damage_cases(toys, 20 if options.quick else 60, rng)
    if {"places", "pairs"} & set(options.group):
        chosen += [case for case in place_cases(toys) if case.group in options.group]
    if "kills" in options.group:
        chosen += kill_cases(toys, options.kills, rng)
    chosen = [case for case in chosen if options.only in case.name]
    return [case for number, case in enumerate(chosen) if number % 24 == options.seed % 24] if options.quick else chosen


def _table_case(prepare: Callable[[Path], Any], says: Sequence[str], right: Any) -> Callable[[Path], tuple[str, str]]:
    """A case of a table: `prepare` writes what is wrong and returns the command, and perhaps what it reads."""

    def case(folder: Path) -> tuple[str, str]:
        command, stdin = prepare(folder)
        before = set(folder.rglob("*"))
        ran = run(folder, *command, stdin=stdin)
        found = judge(ran, says=says, right=(lambda: right(ran)) if right else None)
        left = set(folder.rglob("*")) - before - {folder / ".in", folder / ".out", folder / ".err"}
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
            reason = KNOWN.get(f"{group}: {name}")
            print(f"{outcome:>9}  {group}: {name}: {f'known ({reason}): ' if reason else ''}{what}")
    return int(any(line[2] in BAD and f"{line[0]}: {line[1]}" not in KNOWN for line in lines))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--group", action="append", choices=GROUPS)
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--kills", type=int, default=150)
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
    with tempfile.TemporaryDirectory(prefix="vocable-break-") as name:
        folder = Path(name)
        toys = Toys(folder)
        chosen = all_cases(toys, options)
        random.Random(0).shuffle(chosen)
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
