"""Links in the folders that vocable writes: they are refused by name, and nothing is written through them.

A link in a copied or unpacked folder may lead to any file of the user who opens it. Therefore vocable writes and
truncates only regular files in a collection, a work folder or a published site. Links that a user names as an output
are followed (`storage.target_of`).
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from vocable.errors import VectorsError

# Windows has neither flag: on it, only the look of `refuse_link` at the path guards.
GUARDED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe would block


def refuse_link(path: Path) -> None:
    """Raise `VectorsError` if a path exists and is neither a regular file nor a folder, for example a link."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISLNK(mode):
        raise VectorsError(f"{path} is a link to {path.readlink()}: nothing is written through links: remove it")
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise VectorsError(f"{path} is a pipe or a device, not a regular file: remove it")


def refuse_links(folder: Path) -> None:
    """Call `refuse_link` for everything in a folder, which may be missing."""
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    elif not entry.is_file(follow_symlinks=False):
                        refuse_link(Path(entry.path))
        except (FileNotFoundError, NotADirectoryError):  # removed by another process
            continue


def open_regular(path: Path, flags: int) -> int:
    """Open a regular file with flags of `os.open`, and return its descriptor; refuse a link as `refuse_link` does."""
    refuse_link(path)
    try:
        descriptor = os.open(path, flags | GUARDED, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link since then
            refuse_link(path)
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise VectorsError(f"{path} is not a regular file: remove it")
    return descriptor
