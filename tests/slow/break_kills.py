"""Cases of `break.py` that kill: every verb that writes, at each step that it takes on the disk and at random moments.

A step is a call that changes names or forces to disk. After the kill, nothing is under the output's name, or what was
there before, or the whole result; then the same command, in a process with another seed of the hashes, gives what an
undisturbed run gives, byte for byte.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from break_toys import Case, Toys, judge, leftovers, same, to
from preloaded import Command, Hook, Ran, end, run, start

from tests.kill_moments import kill_at_call
from tests.tuning.small import make_small
from vocable.core.folders import COMMIT
from vocable.engines.folder import FolderStore

STEPS = ("fsync", "replace", "rename", "unlink", "remove", "rmdir", "mkdir")
SIGNALS = (signal.SIGKILL,) * 8 + (signal.SIGTERM, signal.SIGHUP)
Step = Callable[..., object]  # called with whether a step is over, its name and its arguments

MOMENTS: dict[str, tuple[str, str, str, int, str]] = {  # the n-th call of a function, and what is there by then
    "while the third part is written": (
        "vectors",
        "vocable.encoding.stream",
        "write_vectors",
        3,
        "o.partial/part-00001.parquet",
    ),
    "while the words are written": ("index", "vocable.engines.folder", "_write_commit", 4, "o/000001.segment"),
    "before the second vectors": (
        "index",
        "vocable.collection.writer",
        "CollectionWriter._encoded",
        2,
        "o/lock",
    ),
    "before the index is finished": (
        "index",
        "vocable.engines.segmented",
        "SegmentedStore.optimize",
        1,
        "o/lock",
    ),
    "while its index is made": ("mine", "vocable.engines.folder", "_write_commit", 3, "o.partial/index/commit.json"),
    "in the middle of the second chunk": (
        "mine",
        "vocable.training.mine",
        "Miner._with_negatives",
        24,
        "o.partial/progress.json",
    ),
    "before the second chunk": ("teacher-scores", "vocable.training.mine", "_scored", 2, "o.partial/progress.json"),
    "between a model and its checkpoint": (
        "train",
        "transformers.trainer",
        "Trainer._save_rng_state",
        3,
        "o.partial/train/checkpoint-6/model.safetensors",
    ),
    "before the scores are measured": ("tune", "vocable.tuning.tune", "measure_scale", 1, "o.partial/plan.json"),
    "between a tuned model and its checkpoint": (
        "tune",
        "transformers.trainer",
        "Trainer._save_rng_state",
        2,
        "o.partial/trained.partial/train/checkpoint-4/model.safetensors",
    ),
}


def small_parts() -> None:
    """Work in parts that are small enough for there to be several."""
    make_small()
    vars(import_module("vocable.encoding.stream"))["PART_SIZE"] = 8
    vars(import_module("vocable.encoding.encode"))["PART_SIZE"] = 8
    vars(import_module("vocable.training.example_files"))["CHUNK"] = 16
    store = vars(import_module("vocable.engines.folder"))["FolderStore"]
    store.about = replace(store.about, part=8)


def at_steps(step: Step) -> None:
    """Call `step` before and after every step of this process on the disk."""

    def patched(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            step(False, name, *arguments)
            done = original(*arguments, **named)
            step(True, name, *arguments)
            return done

        return call

    for name in STEPS:
        setattr(os, name, patched(name, getattr(os, name)))


def count_steps(file: Path) -> Hook:
    """Write the number of steps, before and after each, to a file when the command has ended."""
    small_parts()
    steps = 0

    def step(*_: object) -> None:
        nonlocal steps
        steps += 1

    at_steps(step)
    return lambda: file.write_text(str(steps))


def kill_at_step(share: float, steps: int) -> None:
    """Kill this process at this share of its steps."""
    small_parts()
    left = max(1, round(share * steps))

    def step(*_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    at_steps(step)


def kill_in_small_parts(module: str, function: str, times: int) -> None:
    """Kill this process, which works in small parts, when a function is called for the n-th time."""
    small_parts()
    kill_at_call(module, function, times)


def save_again(kind: str, source: Path, output: Path) -> None:
    """Save stored arrays, an index, over what is at the output."""
    index: Any = getattr(import_module("vocable"), kind)
    index.load(source).save(output)


class Whole(NamedTuple):
    """An undisturbed run: what it made, its steps and its seconds."""

    result: Path
    steps: int
    seconds: float


class Writers:
    """Commands of every verb that writes, with what was at their outputs before, and their undisturbed runs."""

    def __init__(self, toys: Toys, again: Callable[..., Ran]) -> None:
        self.toys, self._again, self._whole = toys, again, dict[str, Whole]()
        index = toys.folder / "index"
        self.before: dict[str, Path] = {  # commands that replace what is there
            "values.json over another": index / "commit.json",
            "an index over another": toys.words,
            "a lexical index over another": toys.postings,
        }
        self.names = [*toys.writers, *self.before]

    @staticmethod
    def output(name: str) -> str:
        """The output's name, which says of what kind it is."""
        return "o.json" if ".json" in name else "o"

    def command(self, name: str, output: Path) -> Command:
        """The command that makes this output."""
        if name == "an index over another":
            return partial(save_again, "ExactIndex", self.toys.postings, output)
        if name == "a lexical index over another":
            return partial(save_again, "BM25Index", self.toys.words, output)
        return to(self.toys.writers[name.partition(" over ")[0]], output)

    def prepare(self, name: str, output: Path) -> Path:
        """Put what is there before, if anything, at the output, and return the output."""
        output.parent.mkdir(parents=True, exist_ok=True)
        if (before := self.before.get(name)) is not None:
            (shutil.copytree if before.is_dir() else shutil.copy)(before, output)
        return output

    def whole(self, name: str) -> Whole:
        """The run that nothing happens to, made once in every process of this benchmark."""
        if name not in self._whole:
            folder = self.toys.folder / f"whole-{os.getpid()}" / name.replace(" ", "-")
            output, count = self.prepare(name, folder / self.output(name)), folder / "steps"
            done = run(folder, self.command(name, output), before=partial(count_steps, count))
            if done.status:
                raise RuntimeError(f"{name}: {done.err}")
            self._whole[name] = Whole(output, int(count.read_text()), done.seconds)
        return self._whole[name]

    def unfinished(self, name: str, output: Path) -> bool:
        """Return whether an output is an index that is being made, which is searched by what it has."""
        commit = output / COMMIT
        return name == "index" and commit.exists() and not json.loads(commit.read_text())["settings"]["whole"]

    def _unfinished_fault(self, output: Path) -> str:
        """Return the fault of an index that is being made: "" if it has some of the documents, whole."""
        store, whole = FolderStore.open(str(output)), FolderStore.open(str(self.whole("index").result))
        ids = [*store.ids()]
        differ = store.documents(ids) != whole.documents(ids)
        if not differ and store.encoded_share == 1:
            differ = bool((store.vectors(ids) != whole.vectors(ids)).nnz)
        return "other documents" if differ else ""

    def seen(self, name: str, output: Path) -> str:
        """Return the fault of an output at any moment: "" if it is absent, whole, or an index that is being made."""
        if not output.exists():
            return "what was there is gone" if name in self.before else ""
        if self.unfinished(name, output):
            return self._unfinished_fault(output)
        wholes = [self.whole(name).result, *filter(None, [self.before.get(name)])]
        differs = [same(output, whole) for whole in wholes]
        return "" if "" in differs else f"half made in sight: {differs[0]}"

    def again(self, name: str, output: Path) -> tuple[str, str]:
        """Run the command once more and return the outcome: right if all is as after an undisturbed run."""
        ran = self._again(output.parent, self.command(name, output), before=small_parts)
        if ran.status:
            outcome = judge(ran)
            return outcome if outcome[0] != "refused" else ("refused", f"{outcome[1]} {ran.err.strip()[-300:]}")
        differs = same(output, self.whole(name).result) or leftovers(output.parent, output.name)
        return ("WRONG", f"not as an undisturbed run: {differs}") if differs else ("right", "")


def _killed(writers: Writers, name: str, first: Callable[[Path, Command], Ran], there: str = "") -> Any:
    """A case that runs a command until it is killed, by `first`, and then once more; by then something is `there`."""

    def case(folder: Path) -> tuple[str, str]:
        output = writers.prepare(name, folder / writers.output(name))
        writers.whole(name)  # which takes its time, too
        ran = first(folder, writers.command(name, output))
        stopped = {*(-number for number in SIGNALS), *(128 + number for number in SIGNALS)}
        if ran.status not in {0, *stopped}:
            return judge(ran)
        if there and (ran.status != -signal.SIGKILL or not (folder / there).exists()):
            return "WRONG", f"not killed at that moment: status {ran.status}, no {there}"
        stray = leftovers(folder, output.name, f"{output.name}.partial").split()
        if others := [left for left in stray if not (left.lstrip(".").startswith("o.") and left.endswith(".part"))]:
            return "WRONG", f"beside the output: {others}"
        if seen := writers.seen(name, output):
            return "WRONG", seen
        outcome, what = writers.again(name, output)
        return ("WRONG", f"the same command: {what}") if outcome == "refused" else (outcome, what)

    return case


def kill_cases(writers: Writers, kills: int, rng: random.Random) -> Iterator[Case]:
    """Kill every verb that writes so many times, all together: half of them at its steps, evenly, half at random."""

    def at_step(name: str, share: float) -> Callable[[Path, Command], Ran]:
        return lambda folder, command: run(
            folder, command, before=partial(kill_at_step, share, writers.whole(name).steps)
        )

    def at_moment(name: str, share: float, number: int) -> Callable[[Path, Command], Ran]:
        def first(folder: Path, command: Command) -> Ran:
            child = start(folder, command, before=small_parts)
            time.sleep(share * writers.whole(name).seconds)
            os.kill(child, number)
            return end(child, folder)

        return first

    each, more = divmod(kills, 2 * len(writers.names))
    for place, name in enumerate(writers.names):
        count = each + (2 * place < more)
        for number in range(count):
            share = (number + rng.random()) / count
            yield Case("kills", f"{name}: at {share:.1%} of its steps", _killed(writers, name, at_step(name, share)))
        for _ in range(each + (2 * place + 1 < more)):
            share, kind = rng.random(), rng.choice(SIGNALS)
            first = at_moment(name, share, kind)
            yield Case("kills", f"{name}: {kind.name} after {share:.1%} of its time", _killed(writers, name, first))


def moment_cases(writers: Writers) -> Iterator[Case]:
    """Kill at moments that are known to be bad."""
    for what, (name, module, function, times, there) in MOMENTS.items():
        hook = partial(kill_in_small_parts, module, function, times)

        def first(folder: Path, command: Command, hook: Hook = hook) -> Ran:
            return run(folder, command, before=hook)

        yield Case("moments", f"{name}: {what}", _killed(writers, name, first, there))
