"""Packages of a Debian distribution: their list, their files, and their licences."""

from __future__ import annotations

import gzip
import re
import subprocess
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from studies.packages.texts import format_of
from vocable.errors import DataError

LARGEST, LARGEST_FILE = 40 << 20, 4 << 20  # bytes of a package, and of a file in it
SECTIONS = {"doc", "perl", "python"}
FIELDS = re.compile(r"^(Package|Section|Size|Version|Description-en): (.*(?:\n .*)*)", re.MULTILINE)
TRANSLATED = re.compile(  # and packages of generated lists, or of PDF
    r"-doc-(?!en|html|common)[a-z]{2}(-[a-z]+)?$|-(help|docs?|guide|handbook)-(?!en)[a-z]{2}(-[a-z]{2})?$"
    r"|-java-doc$|^libghc-|-pdf|^texlive-|^installation-guide-(?!amd64)|-manual-[a-z]{2}$|-dev-doc$"
)
HELPER = "/usr/lib/apt/apt-helper"
LICENCE = re.compile(r"^License: *([\w.+-]+(?:,? (?:or|and|with) [\w.+-]+)*) *$", re.MULTILINE | re.IGNORECASE)
KNOWN = {  # in the texts of files without machine-readable fields, the first that occurs
    "GFDL": r"free documentation license",
    "LGPL": r"lesser general public|library general public",
    "Artistic or GPL": r"same terms as perl|artistic",
    "GPL": r"general public license|\bGPL",
    "Apache-2.0": r"apache license",
    "BSD": r"redistribution and use in source and binary",
    "Expat": r"permission is hereby granted, free of charge|\bMIT\b",
    "CC": r"creative commons",
    "public domain": r"public domain",
}


class Package(NamedTuple):
    """A package of the distribution; `size` is in bytes."""

    name: str
    version: str
    section: str
    size: int
    description: str


class Apt:
    """The list of packages in a folder of our own, with descriptions, and downloads by it."""

    def __init__(self, folder: Path) -> None:
        self.options = [
            "-o",
            f"Dir::State::lists={folder}",
            "-o",
            "Acquire::Languages=en",
            "-o",
            f"Dir::Cache={folder}",
        ]
        if not folder.exists():
            (folder / "partial").mkdir(parents=True)
            self._run("apt-get", "update", "-q")

    def _run(self, *command: str, folder: Path | None = None) -> str:
        """Run a command of apt and return its output; raise `DataError` with its last message if it fails."""
        full = [command[0], *self.options, *command[1:]]
        done = subprocess.run(full, cwd=folder, text=True, capture_output=True)
        if done.returncode:
            raise DataError((done.stderr.strip().splitlines() or ["failed"])[-1], source=command[0])
        return done.stdout

    def packages(self) -> list[Package]:
        """Return the packages with their English descriptions, in an order that depends on their names alone."""
        names = self._run("apt-get", "indextargets", "--format", "$(FILENAME)", "Created-By: Translations").split()
        return parse(self._run("apt-cache", "dumpavail"), self._run(HELPER, "cat-file", *names))

    def download(self, names: Sequence[str], folder: Path) -> list[Path]:
        """Download packages, and return the files."""
        self._run("apt-get", "download", "-q", *names, folder=folder)
        return sorted(folder.glob("*.deb"))


def parse(control: str, translations: str) -> list[Package]:
    """Return the packages of a list, shuffled by a hash of the name, so that each part of it is a fair sample."""
    texts, found = {}, dict[str, Package]()
    for stanza in translations.split("\n\n"):
        fields = dict(FIELDS.findall(stanza))
        texts[fields.get("Package")] = fields.get("Description-en", "")
    for stanza in control.split("\n\n"):
        fields = dict(FIELDS.findall(stanza))
        if name := fields.get("Package"):
            size, section = int(fields.get("Size", 0)), fields.get("Section", "")
            found.setdefault(name, Package(name, fields["Version"], section, size, texts.get(name, "")))
    return sorted(found.values(), key=lambda package: zlib.crc32(package.name.encode()))


def is_documentation(package: Package) -> bool:
    """Return whether a package is likely to have many English texts for its size."""
    wanted = package.section in SECTIONS or package.name.endswith(("-doc", "-docs"))
    return wanted and package.size <= LARGEST and not TRANSLATED.search(package.name)


def files(deb: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the paths and contents of the files that are read, unpacked, and of the file of licences."""
    with (
        subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as unpacking,
        tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive,
    ):
        yield from members(archive)


def members(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Yield the paths and contents of the files of an archive that are read."""
    for member in archive:
        packed = member.name.endswith((".gz", ".dz"))
        path = member.name[:-3] if packed else member.name
        if member.isfile() and member.size <= LARGEST_FILE and (path.endswith("/copyright") or format_of(path)):
            file = archive.extractfile(member)
            assert file is not None
            try:
                yield path, gzip.decompress(file.read()) if packed else file.read()
            except (OSError, EOFError, zlib.error):
                continue


def licences(text: str) -> list[str]:
    """Return the names of the licences in a file `copyright`.

    >>> licences("Files: *\\nLicense: GPL-2+ or Artistic\\n\\nFiles: debian/*\\nLicense: GPL-3\\n This is free")
    ['GPL-2+ or Artistic', 'GPL-3']
    >>> licences("It is distributed under the same terms as Perl.")
    ['Artistic or GPL']
    """
    if names := sorted({name.strip() for name in LICENCE.findall(text)}):
        return names
    return [next((name for name, words in KNOWN.items() if re.search(words, text, re.IGNORECASE)), "other")]
