"""Cases of `break.py` about folders, recipes and models that are made to hang or to end a process."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from break_input import Row
from break_places import replaced
from break_toys import Toys, changed_commit

PAGE = "# Foxes\n\n" + "river mountain " * 300
RULES = {
    "stars": "*a*a*a*a*a*a*a*a*a*b",
    "folders": "**/" * 30 + "b",
    "stars in folders": "**/*a*a*a*/" * 10 + "b",
    "classes": "*[!b]*[!b]*[!b]*[!b]*[!b]*[!b]b",
}
PAGES = {
    "images that do not end": (".md", "![" * 100_000),
    "links that do not end": (".md", "[" * 100_000),
    "deep links": (".md", "[" * 50_000 + "](b)" * 50_000),
    "deep quotes": (".md", "> " * 50_000 + "a"),
    "a heading of 1 MB, Markdown": (".md", f"# {'x' * 10**6}\n\n" + "river mountain " * 30_000),
    "a heading of 1 MB, HTML": (".html", f"<h1>{'x' * 10**6}</h1><p>" + "river mountain " * 30_000),
    "a heading of 1 MB, reStructuredText": (".rst", f"{'x' * 10**6}\n{'=' * 10**6}\n\n" + "river mountain " * 30_000),
    "a field of 1 MB": (".md", f"---\na: {'x' * 10**6}\n---\n# b\n\n" + "river mountain " * 30_000),
    "tabs": (".rst", "\t" * 100_000 + "a"),
    "deep front matter": (".md", f"---\na: {'[' * 10_000}\n---\n{PAGE}"),
}
VALUES = ("!!bool maybe", '!!int ""', "!!int _", '!!float ""', "!!timestamp x")


def hostile_cases(toys: Toys) -> Iterator[Row]:
    """Folders of documents that end at once, and recipes and models that are refused."""
    for name, line in RULES.items():
        yield f".gitignore: {name}", _folder(toys, {".gitignore": line, f"{'a' * 100}.md": PAGE}), (), _indexed
    yield (
        ".gitignore: many lines",
        _folder(toys, {".gitignore": "a\n" * 100_000, "a.md": PAGE}),
        ("10,000 lines",),
        None,
    )
    for name, (ending, text) in PAGES.items():
        yield name, _folder(toys, {f"a{ending}": text}), (), _indexed
    yield "a page of 5 MB", _folder(toys, {"a.md": "a " * (5 << 19)}), ("a.md:1", "4 MB"), None
    for value in VALUES:
        yield f"front matter: {value}", _folder(toys, {"a.md": f"---\na: {value}\n---\n{PAGE}"}), (), _indexed
        yield f"a recipe: {value}", _recipe(f"seed: {value}\n"), ("recipe.yaml",), None
        yield f"an override: {value}", _override(f"training.steps={value}"), ("training.steps",), None
    for name, text in {"lists": "a: " + "[" * 1_000_000, "maps": "{a: " * 50_000}.items():
        yield f"a recipe: deep {name}", _recipe(text), ("recipe.yaml",), None
    yield "an override: deep lists", _override("training.steps=" + "[" * 100_000), ("training.steps",), None
    yield "a loop of links", _loop, ("loop: there is no index here",), None
    yield "a head that is a pipe", _piped(toys), ("sparse_linear.pt",), None
    yield "limits that are a list", _listed(toys), ("damaged", "limits"), None


def _folder(toys: Toys, files: dict[str, str]) -> Callable[[Path], Any]:
    def prepare(folder: Path) -> Any:
        pages = folder / "pages"
        pages.mkdir()
        for name, text in {"z.md": PAGE, **files}.items():
            (pages / name).write_text(text)
        return ["index", toys.model, pages, "-o", folder / "out"], b""

    return prepare


def _indexed(ran: Any) -> bool:
    texts = re.search(r"out: (\d+) texts", ran.out)  # of the page z.md there are three
    return texts is not None and 3 <= int(texts[1]) < 1000


def _recipe(text: str) -> Callable[[Path], Any]:
    def prepare(folder: Path) -> Any:
        (folder / "recipe.yaml").write_text(text)
        return ["train", folder / "recipe.yaml", "-o", folder / "out"], b""

    return prepare


def _override(override: str) -> Callable[[Path], Any]:
    return lambda folder: (["train", "my-pairs", "-o", folder / "out", "--override", override], b"")


def _loop(folder: Path) -> Any:
    (folder / "loop").symlink_to("loop")
    return ["search", folder / "loop", "river"], b""


def _piped(toys: Toys) -> Callable[[Path], Any]:
    def prepare(folder: Path) -> Any:
        shutil.copytree(toys.model, folder / "model")
        replaced(folder / "model" / "sparse_linear.pt", os.mkfifo)
        return ["explain", folder / "model", "river"], b""

    return prepare


def _listed(toys: Toys) -> Callable[[Path], Any]:
    def prepare(folder: Path) -> Any:
        shutil.copytree(toys.store, folder / "store")
        changed_commit(folder / "store", lambda commit: commit["settings"].update(limits=["passages"]))
        return ["search", folder / "store", "river"], b""

    return prepare
