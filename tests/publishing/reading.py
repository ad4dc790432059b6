"""Readers of the files of a published collection, for the reference of the page: what page/*.js reads."""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
from tokenizers import AddedToken, Tokenizer

from vocable.core.storage import regular
from vocable.errors import VectorsError
from vocable.publishing.documents import Shown
from vocable.publishing.files import FileTable, name_of, path_of
from vocable.publishing.manifest import Directory
from vocable.publishing.postings import PostingsBlock
from vocable.publishing.tokenizer import AS_NFKC, LEAF, MARK, WIDE, Description, PieceTables

MERGE_BYTES = 5  # of a merge in a file of pieces


class LaterBlock(NamedTuple):
    """A block of postings in a separate file: its name, the number of postings, and the largest weight."""

    name: str
    postings: int
    top: int


def from_varints(content: bytes) -> np.ndarray:
    """Decode all numbers of `varints`, int64."""
    found = np.frombuffer(content, dtype=np.uint8)
    ends = np.flatnonzero(found < 128)
    if len(found) and (not len(ends) or ends[-1] != len(found) - 1):
        raise VectorsError("a number is cut")
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    groups = np.arange(len(found)) - np.repeat(starts, ends - starts + 1)
    parts = (found & 127).astype(np.int64) << (7 * groups)
    return np.add.reduceat(parts, starts) if len(starts) else np.empty(0, dtype=np.int64)


class Cursor:
    """The place up to which bytes are read."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def take(self, size: int) -> bytes:
        """Return the next bytes; `VectorsError` if there are fewer."""
        found = self.content[self.place : self.place + size]
        if len(found) != size:
            raise VectorsError("the file is cut")
        self.place += size
        return found

    def number(self) -> int:
        """Return the next number of `varints`."""
        value = group = 0
        while True:
            [byte] = self.take(1)
            value |= (byte & 127) << group
            if byte < 128:
                return value
            group += 7

    def numbers(self, count: int) -> list[int]:
        """Return the next numbers."""
        return [self.number() for _ in range(count)]

    def floats(self, count: int) -> list[float]:
        """Return the next float32 numbers."""
        return list(struct.unpack(f"<{count}f", self.take(4 * count)))

    def texts(self) -> list[str]:
        """Return the texts of `front_coded`."""
        found, before = [], b""
        for _ in range(self.number()):
            shared, more = self.numbers(2)
            before = before[:shared] + self.take(more)
            found.append(before.decode())
        return found


def starts_of(lengths: Sequence[int]) -> list[int]:
    """Return the place at which each part of a sequence begins, and the end.

    >>> starts_of([2, 3])
    [0, 2, 5]
    """
    return [0, *accumulate(lengths)]


def decompressed(content: bytes) -> bytes:
    """Return the bytes of a raw deflate stream; `VectorsError` for anything else."""
    try:
        return zlib.decompress(content, -zlib.MAX_WBITS)
    except zlib.error as error:
        raise VectorsError(f"not compressed as it should be ({error})") from error


def read_file(folder: Path, name: str) -> bytes:
    """Return the content of a file, decompressed; `VectorsError` if it is missing, cut or changed."""
    path = path_of(folder, name)
    try:
        content = regular(path).read_bytes()
    except OSError as error:
        raise VectorsError(f"{path}: missing: publish the collection again") from error
    if name_of(content) != name:
        raise VectorsError(f"{path}: damaged: publish the collection again")
    return decompressed(content)


def read_table(cursor: Cursor) -> FileTable:
    """Read an encoded table."""
    keys = cursor.texts()
    sizes = cursor.numbers(cursor.number())
    return FileTable(keys, [f"{cursor.take(4).hex()}-{size:x}" for size in sizes])


def file_for(table: FileTable, key: str) -> str | None:
    """Return the name of the file whose range has a key; None for a key before all ranges."""
    place = bisect_right(table.keys, key) - 1
    return table.names[place] if place >= 0 else None


def read_directory(content: bytes) -> Directory:
    """Decode the description of the tokenizer and the tables."""
    cursor = Cursor(content)
    described = json.loads(cursor.take(cursor.number()))
    initial, continuing, *others = (read_table(cursor) for _ in range(5))
    return Directory(described, PieceTables(initial, continuing), *others)


def read_documents(content: bytes) -> list[Shown]:
    """Return the documents of a file."""
    return [Shown(*row) for row in json.loads(content)]


def rows_of_value(content: bytes, place: int) -> np.ndarray:
    """Return the rows of the documents with a value, by its place among the values of the field, int64, ascending."""
    numbers = from_varints(content)
    start = 0
    for _ in range(place):
        start += 1 + int(numbers[start])
    return np.cumsum(numbers[start + 1 : start + 1 + int(numbers[start])])


class Postings(NamedTuple):
    """The postings of a term: its factor and scale, the number of documents, the first block, and the later ones."""

    factor: float
    scale: float
    documents: int
    first: PostingsBlock
    later: list[LaterBlock]


def read_block(content: bytes, count: int) -> PostingsBlock:
    """Decode a number of postings."""
    places = from_varints(content[: len(content) - count])
    return PostingsBlock(np.cumsum(places), np.frombuffer(content[len(content) - count :], dtype=np.uint8))


def read_postings(content: bytes, name: str) -> Postings | None:
    """Return the postings of a term in the file of its range; None if no document has the term."""
    cursor = Cursor(content)
    cursor.texts()  # the stems
    names = cursor.texts()
    if name not in names:
        return None
    counts = [cursor.numbers(3) for _ in names]
    numbers = [cursor.floats(2) for _ in names]
    later = [[_later(cursor) for _ in range(more)] for _, _, more in counts]
    place = names.index(name)
    starts = starts_of([size for _, size, _ in counts])
    count, size, _ = counts[place]
    start = cursor.place + starts[place]
    first = read_block(content[start : start + size], count)
    documents = count + sum(block.postings for block in later[place])
    factor, scale = numbers[place]
    return Postings(factor, scale, documents, first, later[place])


def _later(cursor: Cursor) -> LaterBlock:
    digits = cursor.take(4).hex()
    size, count, top = cursor.numbers(3)
    return LaterBlock(f"{digits}-{size:x}", count, top)


def read_stems(content: bytes) -> dict[str, str]:
    """Return the words of a file with their stems."""
    texts = Cursor(content).texts()
    return dict(zip(texts[::2], texts[1::2], strict=True))


def read_model(model: Description, tables: PieceTables, content: Callable[[str], bytes]) -> Description:
    """Return a model's description with its vocabulary; `content` returns the content of a file."""
    initial, continuing = (_pieces_of(table, content) for table in (tables.initial, tables.continuing))
    if model["type"] == "Unigram":
        scores = [(piece, float(row[1:9].view("<f8")[0])) for piece, row in initial.items()]
        return model | {"vocab": scores, "unk_id": list(initial).index(model["unk_token"])}
    names = dict.fromkeys([*initial, *(MARK + piece for piece in continuing)])
    found = model | {"vocab": {name: place for place, name in enumerate(names)}}
    if model["type"] == "BPE":
        merges = sorted(merge for piece, row in initial.items() for merge in _merges_of(piece, row.tobytes()[1:]))
        found["merges"] = [(left, right) for _, left, right in merges]
    return found


def _merges_of(piece: str, content: bytes) -> Iterator[tuple[int, str, str]]:
    """Iterate over the merges that make a piece: rank, left and right."""
    for start in range(0, len(content), MERGE_BYTES):
        length, rank = (int.from_bytes(content[start + a : start + b], "little") for a, b in ((0, 2), (2, 5)))
        if length:
            yield rank, piece[:length], piece[length:]


def _pieces_of(table: FileTable, content: Callable[[str], bytes]) -> dict[str, np.ndarray]:
    """Return the pieces of all files of a table, in order, and the bytes of each."""
    found = dict[str, np.ndarray]()
    for name in table.names:
        cursor = Cursor(content(name))
        pieces = cursor.texts()
        rows = np.frombuffer(cursor.content[cursor.place :], dtype=np.uint8).reshape(-1, len(pieces))
        found |= zip(pieces, np.ascontiguousarray(rows.T), strict=True)
    return found


def charsmap_of(entries: Mapping[str, str]) -> bytes:
    """Return the map of keys, none of which begins with another one; each node of the trie has 256 units of its own."""
    units, texts = [WIDE | 1 << 10, *[0] * 511], b""
    bases = {b"": 256}  # of the nodes: the unit of a byte below is at base ^ byte
    for key, value in entries.items():
        spelled = key.encode()
        for end in range(1, len(spelled) + 1):
            if spelled[:end] not in bases:
                byte, place = spelled[end - 1], bases[spelled[: end - 1]] ^ spelled[end - 1]
                bases[spelled[:end]] = len(units) | place & 255
                units[place] = byte | WIDE | (len(units) ^ place) >> 8 << 10
                units += [0] * 256
        units[bases[spelled[:-1]] ^ spelled[-1]] |= LEAF
        units[bases[spelled]] = 1 << 31 | len(texts)
        texts += value.encode() + b"\0"
    trie = np.array(units, dtype="<u4").tobytes()
    return struct.pack("<I", len(trie)) + trie + texts


def tokenizer_of(described: Description, model: Description, content: Callable[[str], bytes]) -> Tokenizer:
    """Return the tokenizer of a description and a model with its vocabulary; `content` returns that of a file."""
    normalizers = [_normalizer_of(step, content) for step in described["normalizer"]]
    made = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": described["pre_tokenizer"]},
        "model": model,
    }
    found: Tokenizer = Tokenizer.from_str(json.dumps(made))
    for one in described["added_tokens"]:
        settings = {key: key in one for key in ("lstrip", "rstrip", "normalized")}
        found.add_tokens([AddedToken(one["content"], **settings)])
    return found


def _normalizer_of(step: Description, content: Callable[[str], bytes]) -> Description:
    if step["type"] != "Precompiled":
        return step
    cursor = Cursor(content(step["file"]))
    pairs = zip(cursor.texts(), cursor.texts(), strict=True)
    entries = {key: normalize("NFKC", key) if value == AS_NFKC else value for key, value in pairs}
    return {"type": "Precompiled", "precompiled_charsmap": b64encode(charsmap_of(entries)).decode()}
