"""Cases of `break.py` about links in folders that are written: refused by name, and their targets stay as they are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from break_places import replaced
from break_toys import Case, Toys, judge
from preloaded import run

# Names that a writer of an index may use, and a file of somebody else: what is there is replaced, removed or left.
NEW = ("000099.segment", "000001.gone-99", ".commit.json.00000000", "notes")
WORK = (".lock", "settings.json", "progress.json", "part-00000.parquet", "part-00000.begun")


def link_cases(toys: Toys) -> Iterator[Case]:
    """Put a link in the place of each file of a store and of a work folder, and use the folder."""

    def stored(file: str, verb: str, missing: bool, folder: Path) -> tuple[str, str]:
        store, target, more = folder / "store", folder / "elsewhere", folder / "more.jsonl"
        shutil.copytree(toys.store, store)
        place = store / file
        if not missing:  # a copy, so that the folder can be read through the link
            target.write_bytes(place.read_bytes() if place.exists() else b"precious")
        content = target.read_bytes() if target.exists() else None
        replaced(place, lambda path: path.symlink_to(target))
        more.write_text('{"_id": "new", "text": "a list"}')
        commands: dict[str, list[object]] = {
            "search": ["search", store, "list"],
            "add": ["add", store, more],
            "delete": ["delete", store, "d1"],
        }
        unused = file in NEW or (file == "lock" and verb == "search")
        return _judged(folder, commands[verb], file, target, content, unused=unused)

    def working(file: str, folder: Path) -> tuple[str, str]:
        work, target = folder / "out.partial", folder / "elsewhere"
        work.mkdir()
        target.write_bytes(b"precious")
        (work / file).symlink_to(target)
        return _judged(folder, ["encode", toys.model, toys.corpus, "-o", folder / "out"], file, target, b"precious")

    paths = [path for path in sorted(toys.store.rglob("*")) if path.is_file()]
    files = [str(path.relative_to(toys.store)) for path in paths]
    for file in [*files, *(name for name in NEW if name not in files)]:
        for verb in ("search", "add", "delete"):
            for missing in (False, True):
                kind = "a link to nothing" if missing else "a link"
                yield Case("links", f"store/{file}: {kind}, {verb}", partial(stored, file, verb, missing))
    for file in WORK:
        yield Case("links", f"work folder/{file}: a link", partial(working, file))


def _judged(
    folder: Path, command: list[object], says: str, target: Path, content: bytes | None, *, unused: bool = False
) -> tuple[str, str]:
    """Run a command that has to be refused, or to succeed if the link is `unused`, and to leave the link's target."""
    outcome = judge(run(folder, command), says=[says], right=(lambda: True) if unused else None)
    if (target.read_bytes() if target.exists() else None) != content:
        return "WRONG", f"the target of the link has changed, {says}"
    return ("WRONG", f"refused: {outcome[1]}") if unused and outcome[0] == "refused" else outcome
