"""Cases of `break.py` about places: damaged files, outputs where none can be, full disks, two commands on one."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from break_toys import BAD, Case, Toys, judge, leftovers, to
from preloaded import USED, end, run, start


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
    query = ["list of chapter 3", "--json", "--explain"]
    readers: dict[str, Callable[[Path], list[object]]] = {
        "index": lambda path: ["search", path, *query],
        "store": lambda path: ["search", path, *query],
        "vectors": lambda path: ["analyze-postings", path, "--json", "--model", toys.model],
        "expanded": lambda path: ["encode", path, toys.corpus, "-o", path.parent / "out"],
    }
    truth = {}
    for name, command in readers.items():
        with tempfile.TemporaryDirectory() as place:
            shutil.copytree(toys.folder / name, Path(place, name))
            truth[name] = run(Path(place), command(Path(place, name))).out

    def damaged(name: str, file: str, how: Callable[[Path], Any]) -> Callable[[Path], tuple[str, str]]:
        def case(folder: Path) -> tuple[str, str]:
            copy = folder / name
            shutil.copytree(toys.folder / name, copy)
            how(copy / file)
            ran = run(folder, readers[name](copy))
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


PLACED = ("vectors", "index", "rescale", "pretrain", "train", "wackiness", "mine", "values.json", "prune", "vocabulary")


def place_cases(toys: Toys) -> Iterator[Case]:
    """Outputs where they cannot be, disks that are full, two commands on one output."""
    commands = toys.writers

    def at(name: str, prepare: Callable[[Path], Path]) -> Callable[[Path], tuple[str, str]]:
        def case(folder: Path) -> tuple[str, str]:
            output = prepare(folder)
            before = sorted(folder.rglob("*"))
            ran = run(folder, to(commands[name], output))
            outcome, what = judge(ran, right=lambda: output.exists())
            left = set(folder.rglob("*")) - {*before, *(folder / name for name in USED)}
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
    for name in PLACED:
        for place, prepare in places.items():
            yield Case("places", f"{name}: {place}", at(name, prepare))

    def full(name: str, kilobytes: int) -> Callable[[Path], tuple[str, str]]:
        def case(folder: Path) -> tuple[str, str]:
            small = folder / "small"
            small.mkdir()
            if os.system(f"mount -t tmpfs -o size={kilobytes}k tmpfs {small} 2>/dev/null"):
                return "right", "not tried: no permission to mount a small file system"
            try:
                ran = run(folder, to(commands[name], small / "o"))
                if (small / "o").exists() and ran.status and name != "index":  # which is searched by what it has
                    return "WRONG", "half made in sight"
                if ran.status == 0:
                    return "right", ""
                last = ran.err.splitlines()[-1:]  # after the plan of a tuning
                return judge(ran._replace(err="".join(last)), says=["o space left"])
            finally:
                os.system(f"umount {small}")

        return case

    for name in PLACED:
        for kilobytes in (4, 16, 40, 120):
            yield Case("places", f"{name}: a disk of {kilobytes} kB", full(name, kilobytes))
    for kilobytes in (500, 1000, 2000):  # room for all but a checkpoint, which PyTorch writes
        yield Case("places", f"tune: a disk of {kilobytes} kB", full("tune", kilobytes))


def pair_cases(toys: Toys) -> Iterator[Case]:
    """Two commands on one output at once."""

    def two(name: str) -> Callable[[Path], tuple[str, str]]:
        def case(folder: Path) -> tuple[str, str]:
            others = folder / "other"
            others.mkdir()
            command = to(toys.writers[name], folder / "o")
            first, second = start(folder, command), start(others, command)
            ended = end(first, folder), end(second, others)
            outcomes = [judge(one, right=lambda: (folder / "o").exists()) for one in ended]
            bad = next((found for found in outcomes if found[0] in BAD), None)
            if bad or not any(one.status == 0 for one in ended):
                return bad or ("WRONG", f"neither succeeded: {outcomes}")
            left = leftovers(folder, "o", "other")
            return ("WRONG", f"left behind: {left}") if left else ("right", "")

        return case

    for name in PLACED:
        for number in range(3):
            yield Case("pairs", f"{name}: two at once, {number + 1}", two(name))
