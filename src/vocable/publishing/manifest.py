"""The manifest of a published collection, manifest.json, and the directory of its files.

The manifest begins with a checksum of its remaining content. It names the directory; the directory names all files of
the data.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from vocable.core.records import as_record
from vocable.core.storage import regular
from vocable.errors import VectorsError
from vocable.language.languages import ENGLISH
from vocable.publishing.documents import FieldValues
from vocable.publishing.encoder import QueryGraph
from vocable.publishing.files import FileTable, checksum, varints
from vocable.publishing.tokenizer import Description, PieceTables

MANIFEST = "manifest.json"
SITE_FORMAT = 3
OPENING = b'{"checksum":"%s","collection":'
CLOSING = b"}\n"


@dataclass(frozen=True)
class QueryReading:
    """Settings for reading a query: its prompt, its largest number of tokens, and the power of the IDF."""

    prompt: str
    longest: int | None
    idf_power: float


@dataclass(frozen=True)
class Manifest:
    """A published collection.

    Attributes:
        title: heading of the page.
        documents: number of documents.
        together: number of documents in a file.
        model: name of the model.
        query: how the page reads queries.
        words: whether the collection has BM25 postings.
        fields: the fields for filters.
        directory: name of the directory file.
        blocks: name of the file with the names of all later blocks; only a copy of the whole collection needs it.
        nbytes: size of the data, without the files of the `encoder`.
        page: for each file of the page, its name as if it were a file of the data: its checksum and size.
        language: language of the words.
        encoder: the query encoder, if one is published.
        weights: the weights of the kinds of vectors that a search fuses.
        copies: name of the file with the rows of documents with the same title and text, if there are any.
        pages: name of the file with the rows of the sections of each page, if there are pages.
        format: version of this format.
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
    copies: str | None = None
    pages: str | None = None
    weights: dict[str, float] = field(default_factory=lambda: {"sparse": 1.0, "bm25": 1.0})
    format: int = SITE_FORMAT


class Directory(NamedTuple):
    """The description of the query tokenizer, and the tables of all files of the data."""

    tokenizer: Description
    pieces: PieceTables
    terms: FileTable
    words: FileTable
    documents: FileTable

    @property
    def tables(self) -> list[FileTable]:
        """The tables, in the order of the file."""
        return [self.pieces.initial, self.pieces.continuing, self.terms, self.words, self.documents]

    def to_bytes(self) -> bytes:
        """Encode the description, then the tables."""
        described = json.dumps(self.tokenizer, separators=(",", ":"), ensure_ascii=False).encode()
        return b"".join([varints([len(described)]), described, *(table.to_bytes() for table in self.tables)])


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the content of manifest.json."""
    body = json.dumps(asdict(manifest), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    return OPENING % checksum(body).encode() + body + CLOSING


def is_manifest(path: Path) -> bool:
    """Return whether a file is the manifest of a published collection, even if it is damaged."""
    opening = OPENING.partition(b"%")[0]
    return path.is_file() and path.read_bytes()[: len(opening)] == opening


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder.

    Raises:
        VectorsError: the manifest is missing, damaged or in another format.
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
        if (number := json.loads(body)["format"]) != SITE_FORMAT:
            raise VectorsError(f"{path}: in format {number}; this version reads format {SITE_FORMAT}")
        return as_record(json.loads(body), Manifest, forbid=False)
    except (KeyError, ValueError) as error:
        raise VectorsError(f"{path}: damaged: publish the collection again") from error
