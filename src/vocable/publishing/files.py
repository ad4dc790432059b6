"""Write the files of a published collection, each named by its checksum and size.

A name changes with the content. So a cache never returns an outdated file, an unchanged file is not written again, and
a reader can check the content by the name.
"""

from __future__ import annotations

import re
from pathlib import Path

from vocable.publishing.binary import LEVEL, checksum, compressed

DATA = "data"  # folder of the files
NAME = re.compile("([0-9a-f]{8})-([0-9a-f]+)")


def name_of(content: bytes) -> str:
    """Return the name of a file with this content.

    >>> name_of(b"fox")
    '0fa0e0e6-3'
    """
    return f"{checksum(content)}-{len(content):x}"


def size_of(name: str) -> int:
    """Return the size in bytes of the file with this name."""
    return int(name.partition("-")[2], 16)


def path_of(folder: Path, name: str) -> Path:
    """Return the path of the file with this name."""
    return folder / DATA / f"{name}.bin"


class SiteFiles:
    """Writes files into a folder, except files that the folder `previous` of an earlier collection already has.

    Attributes:
        names: the names of all files, whether written or not.
        written: the number of written files.
    """

    def __init__(self, folder: Path, previous: Path | None = None) -> None:
        self.folder, self.previous = folder, previous
        self.names: dict[str, bytes] = {}  # contents by name
        self.written = 0
        (folder / DATA).mkdir(parents=True, exist_ok=True)

    def add(self, raw: bytes) -> str:
        """Compress and write the content of a file, and return its name."""
        for level in range(LEVEL, 0, -1):  # if another content has the name, another level gives another name
            content = compressed(raw, level)
            name = name_of(content)
            if self.names.setdefault(name, content) == content:
                break
        else:
            raise AssertionError("two files with the same checksum and size")
        if self.previous is None or not _holds(path_of(self.previous, name), content):
            path = path_of(self.folder, name)
            if not path.exists():
                path.write_bytes(content)
                self.written += 1
        return name

    @property
    def nbytes(self) -> int:
        """The size of all files."""
        return sum(map(size_of, self.names))


def is_site_file(path: Path) -> bool:
    """Return whether a file's name fits its content, as in the files of a publication."""
    if NAME.fullmatch(path.stem) is None or path.is_symlink() or not path.is_file():
        return False
    return path.stat().st_size == size_of(path.stem) and name_of(path.read_bytes()) == path.stem


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content
