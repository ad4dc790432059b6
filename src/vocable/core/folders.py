"""Folders of documents: the files that are read, in order, and folders that are something else.

Hidden files and folders, files that git ignores, folders that vocable made, and parts and copies of pages are not read.
Symbolic links to folders are not followed; symbolic links to files are followed only within the folder.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from vocable.core.gitignore import Rules, is_ignored, rules_in

PACKAGE_OF = {
    ".pdf": "pypdfium2",
    ".docx": "mammoth",
}  # packages of the extra `documents`
ENDINGS = (
    *(".md", ".markdown", ".mdx", ".html", ".htm", ".txt", ".rst", ".ipynb"),
    *(ending for ending, package in PACKAGE_OF.items() if find_spec(package)),
)
REPOSITORY = ".git"
PARTS = ("_sources", "_includes", "_layouts")  # folders with copies of pages (Sphinx) and parts of pages (Jekyll)
MADE_WITH = "settings.json"  # in each folder that vocable made; has the fingerprint of the inputs
FINGERPRINT = re.compile(r"[0-9a-f]*")  # "" without local inputs
SETTINGS_BYTES = 1 << 20
BEGINNING = 4096  # bytes of a page that name its generator
OTHER_FOLDERS = {  # by names of files at the top of a folder
    r"(corpus|queries)\.(jsonl|tsv|parquet)(\.gz|\.zst)?": "a folder: read it as beir:{}",
    r"modules\.json|tokenizer(_config)?\.json|.*\.safetensors": "a model, not a folder of documents",
    r".*\.(parquet|arrow)": "a folder of tables: name one of its files",
}


@dataclass
class FolderFiles:
    """The files of a folder of documents as relative paths with forward slashes, and counts of the files not read.

    `others` counts files of other kinds by their endings. `hidden` counts hidden folders, and hidden files that would
    be read otherwise, by their names; `copies` counts files and folders that have all pages of a book in one.
    """

    files: list[str] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)


def something_else(folder: Path) -> str | None:
    """Return what a folder is if it is not a folder of documents, as part of a message."""
    if _is_made(folder):
        return "an index, vectors or other work of vocable, not a folder of documents"
    names = os.listdir(folder)
    kinds = (what for pattern, what in OTHER_FOLDERS.items() if any(re.fullmatch(pattern, name) for name in names))
    return next(kinds, "").format(folder) or None


def _is_made(folder: Path) -> bool:
    """Return whether vocable made, or is making, a folder: its settings have a fingerprint of the inputs."""
    inputs = settings_in(folder).get("inputs")
    return isinstance(inputs, str) and FINGERPRINT.fullmatch(inputs) is not None


def settings_in(folder: Path) -> dict[str, object]:
    """Return the settings that vocable wrote into a folder; {} if they are missing or unreadable."""
    with suppress(OSError, ValueError, RecursionError):
        with (folder / MADE_WITH).open("rb") as file:
            values = json.loads(file.read(SETTINGS_BYTES))
        return values if isinstance(values, dict) else {}
    return {}


def files_of(folder: Path) -> FolderFiles:
    """Return the files of a folder of documents, sorted by the parts of their paths.

    Raises:
        OSError: a folder in it cannot be read.
    """
    listing, root = FolderFiles(), folder.resolve()
    prefix, rules = _repository(root)
    waiting = [(root, "", rules)]
    while waiting:
        place, inner, rules = waiting.pop()
        rules += rules_in(place, os.fsencode(prefix + inner))
        with os.scandir(place) as entries:
            children = list(entries)
        for entry in children:
            path, is_folder = inner + entry.name, entry.is_dir(follow_symlinks=False)
            if is_ignored(prefix + path, is_folder, rules):
                continue
            ending = Path(path).suffix.lower()
            if entry.name.startswith("."):
                listing.hidden[entry.name] += entry.name != REPOSITORY and (is_folder or ending in ENDINGS)
            elif _has_all_pages(entry):
                listing.copies[entry.name] += 1
            elif is_folder:
                if entry.name not in PARTS and not _is_made(Path(entry)):
                    waiting.append((Path(entry), f"{path}/", rules))
            elif ending not in ENDINGS:
                listing.others[ending] += 1
            elif _is_readable(entry, root):
                listing.files.append(path)
    listing.files.sort(key=lambda path: path.split("/"))
    return listing


def _has_all_pages(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry has all pages of a book in one: Sphinx's `singlehtml`, or `print.html` of mdBook."""
    if entry.name == "print.html" and entry.is_file():
        with open(entry, "rb") as file:
            return b"mdBook" in file.read(BEGINNING)
    return entry.name == "singlehtml" and entry.is_dir(follow_symlinks=False)


def _is_readable(entry: os.DirEntry[str], root: Path) -> bool:
    """Return whether an entry is a regular file, or a symbolic link to a regular file in the folder `root`."""
    return os.path.isfile(entry) and (not entry.is_symlink() or Path(os.path.realpath(entry)).is_relative_to(root))


def _repository(root: Path) -> tuple[str, tuple[Rules, ...]]:
    """Return the path of a folder in its Git repository, and the rules of the folders above it in the repository.

    If these rules ignore the folder, it is read nevertheless, without them.
    """
    top = next((folder for folder in (root, *root.parents) if (folder / REPOSITORY).exists()), root)
    names, inner = root.relative_to(top).parts, ""
    rules: tuple[Rules, ...] = ()
    for number, name in enumerate(names):
        rules += rules_in(top.joinpath(*names[:number]), os.fsencode(inner))
        if is_ignored(inner + name, True, rules):
            return "".join(f"{part}/" for part in names), ()
        inner += f"{name}/"
    return inner, rules
