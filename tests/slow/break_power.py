"""Cases of `break.py` that cut the power: what was not forced to disk is gone, or as torn as a disk may leave it.

The model is the strictest that POSIX allows. The content of a file is what it was when the file was last forced to
disk, empty if it never was; the names in a folder are those of when the folder was. "torn" leaves of each file and
folder, by chance, that or what was there when the power went, of files perhaps half: a disk writes in any order.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from break_kills import Writers, at_steps, small_parts
from break_toys import Case
from preloaded import Hook, run

Inode = tuple[int, int]


class Disk:
    """The part of a folder that would outlast a loss of power; nothing else may be read or written when it is made."""

    def __init__(self, root: Path) -> None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._root = root
        self._held: dict[Inode, int] = {}  # descriptors: the number of an inode that is open is not given again
        self._content: dict[Inode, bytes] = {}
        self._names: dict[Inode, dict[str, Inode]] = {}
        for path in (root, *root.rglob("*")):
            self._force(self._inode(path))

    def _inode(self, path: str | Path) -> Inode:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        state = os.fstat(descriptor)
        inode = state.st_dev, state.st_ino
        if self._held.setdefault(inode, descriptor) != descriptor:
            os.close(descriptor)
        return inode

    def _is_folder(self, inode: Inode) -> bool:
        return stat.S_ISDIR(os.fstat(self._held[inode]).st_mode)

    def _now(self, inode: Inode) -> bytes:
        descriptor = self._held[inode]
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)

    def _names_now(self, inode: Inode) -> dict[str, Inode]:
        descriptor = self._held[inode]
        return {name: self._inode(f"/proc/self/fd/{descriptor}/{name}") for name in os.listdir(descriptor)}

    def _force(self, inode: Inode) -> None:
        if self._is_folder(inode):
            self._names[inode] = self._names_now(inode)
        else:
            self._content[inode] = self._now(inode)

    def force(self, descriptor: int) -> None:
        """Note what is forced to disk by `os.fsync` of this descriptor, if it is in the folder."""
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if Path(path).is_relative_to(self._root) and os.path.exists(path):
            self._force(self._inode(path))

    def rebuild(self, target: Path, chance: random.Random | None) -> None:
        """Write what outlasts the power; with `chance`, what else happens to be on the disk."""
        self._rebuild(self._inode(self._root), target, chance)

    def _rebuild(self, inode: Inode, target: Path, chance: random.Random | None) -> None:
        late = chance is not None and chance.random() < 0.5
        if not self._is_folder(inode):
            content = self._now(inode) if late else self._content.get(inode, b"")
            if late and chance is not None and content != self._content.get(inode) and chance.random() < 0.3:
                content = content[: len(content) // 2]
            target.write_bytes(content)
            return
        target.mkdir()
        names = self._names_now(inode) if late else self._names.get(inode, {})
        for name, inner in sorted(names.items()):
            self._rebuild(inner, target / name, chance)


def cut_power(root: Path, rebuilt: Path, share: float, steps: int, seed: int | None) -> Hook:
    """Have the power go at this share of the steps on the disk, or when the command has ended; rebuild what is left."""
    small_parts()
    disk, left = Disk(root), max(1, round(share * steps))

    def go() -> None:
        disk.rebuild(rebuilt, None if seed is None else random.Random(seed))
        os.kill(os.getpid(), signal.SIGKILL)

    def step(over: bool, name: str, *arguments: int) -> None:
        nonlocal left
        if over and name == "fsync":
            disk.force(arguments[0])
        left -= 1
        if not left:
            go()

    at_steps(step)
    return go


def power_cases(writers: Writers, cuts: int, rng: random.Random) -> Iterator[Case]:
    """Cut the power so many times in every verb that writes, strictly and torn, and once after each has ended."""

    def cut(name: str, share: float, seed: int | None, inner: str = "") -> Callable[[Path], tuple[str, str]]:
        def case(folder: Path) -> tuple[str, str]:
            root, rebuilt = folder / "disk", folder / "rebuilt"
            root.mkdir()
            if not inner:
                writers.prepare(name, root / writers.output(name))
            output, steps = root / inner / writers.output(name), writers.whole(name).steps
            hook = partial(cut_power, root, rebuilt, share, steps, seed)
            ran = run(folder, writers.command(name, output), before=hook)
            if ran.status != -signal.SIGKILL:
                return "WRONG", f"the power did not go: status {ran.status}: {ran.err.strip()[-200:]}"
            shutil.rmtree(root)
            rebuilt.rename(root)
            if share > 1 and (not output.exists() or writers.unfinished(name, output)):
                return "WRONG", "it had ended, and its result is gone"
            if seen := writers.seen(name, output):
                return "WRONG", seen
            output.parent.mkdir(parents=True, exist_ok=True)
            return writers.again(name, output)

        return case

    for name in writers.names:
        for number in range(cuts):
            share, kind = (number + rng.random()) / cuts, "torn" if number % 2 else "strict"
            seed = rng.randrange(2**32) if number % 2 else None
            yield Case("power", f"{name}: {kind}, at {share:.1%} of its steps", cut(name, share, seed))
        yield Case("power", f"{name}: strict, after its end", cut(name, 2, None))
        if name not in writers.before and ".json" not in name:
            inner = "new/folder"
            yield Case("power", f"{name}: strict, after its end in a new folder", cut(name, 2, None, inner))
