"""The manifest of a published collection, manifest.json, and the directory of its files.

The manifest begins with the checksum of the rest. It names the directory, which names all files but those of the page.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from vocable.core.storage import regular
from vocable.errors import VectorsError
from vocable.language.languages import ENGLISH
from vocable.publishing.binary import checksum, varints
from vocable.publishing.documents import FieldValues
from vocable.publishing.encoder import QueryGraph
from vocable.publishing.pieces import PieceTables
from vocable.publishing.tables import FileTable
from vocable.publishing.tokenizer import Description

MANIFEST = "manifest.json"
SITE_FORMAT = 3
OPENING = b'{"checksum":"%s","collection":'
CLOSING = b"}\n"


@dataclass(frozen=True)
class QueryReading:
    """The reading of a query: text before it, tokens that are read, and the power of the inverse document frequency."""

    prompt: str
    longest: int | None
    idf_power: float


@dataclass(frozen=True)
class Manifest:
    """A published collection.

    `together` documents are in one file; `words` says whether there are BM25's postings; `blocks` is the file with the
    names of the later blocks, which only a copy of the whole needs; `nbytes` is the size of the data. `page` has the
    name that each file of the page would have as a file of the data, which tells its checksum and size. `language` is
    that of the words. The files of an `encoder` are not counted in `nbytes`.
    """

    title: str
    documents: int
    together: int
    model: str
    query: QueryReading
    words: bool
    fields: list[FieldValues]
    directory: str
    blocks: str
    nbytes: int
    page: dict[str, str] = field(default_factory=dict)
    language: str = ENGLISH
    encoder: QueryGraph | None = None
    format: int = SITE_FORMAT


class Directory(NamedTuple):
    """The description of the tokenizer of queries, and the tables of all files of the data."""

    tokenizer: Description
    pieces: PieceTables
    terms: FileTable
    words: FileTable
    documents: FileTable

    @property
    def tables(self) -> list[FileTable]:
        """The tables, in order."""
        return [self.pieces.initial, self.pieces.continuing, self.terms, self.words, self.documents]

    def to_bytes(self) -> bytes:
        """Encode the description, and then the tables."""
        described = json.dumps(self.tokenizer, separators=(",", ":"), ensure_ascii=False).encode()
        return b"".join([varints([len(described)]), described, *(table.to_bytes() for table in self.tables)])


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the content of manifest.json."""
    body = json.dumps(asdict(manifest), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    return OPENING % checksum(body).encode() + body + CLOSING


def is_manifest(path: Path) -> bool:
    """Return whether a file is the manifest of a published collection, perhaps a damaged one."""
    opening = OPENING.partition(b"%")[0]
    return path.is_file() and path.read_bytes()[: len(opening)] == opening


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder.

    Raises:
        VectorsError: there is none, or it is damaged or of another format.
    """
    path = folder / MANIFEST
    try:
        content = regular(path).read_bytes()
    except OSError as error:
        raise VectorsError(f"{folder}: there is no published collection here (no {MANIFEST})") from error
    start = len(OPENING % b"00000000")
    body = content[start : -len(CLOSING)]
    if content != OPENING % checksum(body).encode() + body + CLOSING:
        raise VectorsError(f"{path}: damaged: publish the collection again")
    try:
        if (found := json.loads(body)["format"]) != SITE_FORMAT:
            raise VectorsError(f"{path}: in format {found}; this version reads format {SITE_FORMAT}")
        return TypeAdapter(Manifest).validate_json(body)
    except (ValidationError, KeyError, ValueError) as error:
        raise VectorsError(f"{path}: damaged: publish the collection again") from error
