"""Stored vectors for other engines: Anserini's JSON and topics, and the Common Index File Format (Lin et al. 2020).

Both hold whole numbers: a weight becomes round(weight * scale). A term is named by its column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from vocable.errors import ArgumentError
from vocable.progress import track
from vocable.storage import fingerprint, finished, read_record, replacing_folder, write_record
from vocable.vectors import Sources, StoredVectors, places_of, quantize, read_shards, read_vectors

Format = Literal["anserini", "ciff"]
RECORD = "export.json"


class Exported(NamedTuple):
    """How many vectors and weights were written, and how many weights were lost because they round to 0."""

    vectors: int
    weights: int
    lost: int
    heaviest: int
    scale: float

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    def __str__(self) -> str:
        kept = f"{self.vectors:,} vectors, {self.weights:,} weights from 1 to {self.heaviest:,}"
        return f"{kept}: each times {self.scale:g}, rounded; {self.lost:,} rounded to 0 and are left out"


def export(vectors: Sources, output: str | Path, *, format: Format = "anserini", scale: float = 100.0) -> Exported:
    """Write stored vectors in a form that other engines read.

    Args:
        vectors: what `vocable encode` wrote; of queries they become topics.
        output: the folder; there only when it is whole.
        format: "anserini" writes vectors.jsonl, or topics.tsv for queries; "ciff" writes index.ciff, for documents.
        scale: the factor of all weights, which are rounded to whole numbers; the same for documents and queries.

    Raises:
        ArgumentError: something is at the output already, queries as ciff, or a scale out of its range.
        VectorsError: the vectors cannot be read.
    """
    if format not in ("anserini", "ciff"):
        raise ArgumentError(f"format must be anserini or ciff, not {format!r}")
    places = places_of(vectors)
    settings = {"format": format, "scale": scale, "inputs": fingerprint(*places)}
    folder = Path(output)
    if finished(folder, settings):
        return Exported(**read_record(folder / RECORD, dict[str, Any]))
    counts = np.zeros(4, dtype=np.int64)  # vectors, weights, lost, heaviest
    with replacing_folder(folder, settings) as work:
        shards = iter([read_vectors(vectors)]) if format == "ciff" else read_shards(vectors)
        for number, shard in enumerate(track(shards, "export")):
            whole = quantize(shard.matrix, scale=scale)
            counts[:3] += len(shard.ids), whole.nnz, shard.matrix.nnz - whole.nnz
            counts[3] = max(counts[3], whole.data.max(initial=0))
            topics = shard.meta.role == "query"
            if topics and format == "ciff":
                raise ArgumentError(f"{places[0]}: vectors of queries have no form in ciff: export them as anserini")
            name = "index.ciff" if format == "ciff" else "topics.tsv" if topics else "vectors.jsonl"
            with (work / name).open("ab" if number else "wb") as file:
                _write_ciff(file, shard, whole) if format == "ciff" else file.writelines(_lines(shard, whole, topics))
        count, kept, lost, heaviest = counts.tolist()
        result = Exported(count, kept, lost, heaviest, scale)
        write_record(work / RECORD, result._asdict())
    return result


def _lines(shard: StoredVectors, whole: csr_array, topics: bool) -> Iterator[bytes]:
    """A JSON object for each document; for each query its id, a tab, and each term as often as it weighs."""
    for row, identifier in enumerate(shard.ids):
        part = slice(whole.indptr[row], whole.indptr[row + 1])
        terms, weights = whole.indices[part], whole.data[part]
        if topics:
            yield f"{identifier}\t{' '.join(map(str, np.repeat(terms, weights).tolist()))}\n".encode()
            continue
        vector = dict(zip(map(str, terms.tolist()), weights.tolist(), strict=True))
        yield json.dumps({"id": identifier, "contents": "", "vector": vector}, ensure_ascii=False).encode() + b"\n"


def _write_ciff(file: BinaryIO, shard: StoredVectors, whole: csr_array) -> None:
    """Write the header, the postings lists in the order of their names, and the documents, each with its length."""
    postings, (n, v) = whole.tocsc(), whole.shape
    lengths = np.asarray(whole.sum(axis=1, dtype=np.int64))
    terms = sorted((str(term), term) for term in np.flatnonzero(np.diff(postings.indptr)).tolist())
    mean = np.float64(lengths.mean() if n else 0.0).tobytes()
    numbers = enumerate((1, len(terms), n, len(terms), n, int(lengths.sum())), start=1)
    header = b"".join(_number(field, value) for field, value in numbers)
    _delimited(file, header + _key(7, 1) + mean + _bytes(8, f"vocable: {shard.meta.model}, {v} columns".encode()))
    for name, term in terms:
        part = slice(postings.indptr[term], postings.indptr[term + 1])
        documents, weights = postings.indices[part].astype(np.int64), postings.data[part]
        gaps = np.diff(documents, prepend=0).tolist()  # a document's number is told by its distance from the last one
        pairs = zip(gaps, weights.tolist(), strict=True)
        entries = b"".join(_bytes(4, _number(1, gap) + _number(2, weight)) for gap, weight in pairs)
        figures = _number(2, len(gaps)) + _number(3, int(weights.sum(dtype=np.int64)))
        _delimited(file, _bytes(1, name.encode()) + figures + entries)
    for row, identifier in enumerate(shard.ids):
        _delimited(file, _number(1, row) + _bytes(2, identifier.encode()) + _number(3, int(lengths[row])))


def _varint(value: int) -> bytes:
    """The number in groups of 7 bits, lowest first, as protocol buffers have it.

    >>> _varint(300)
    b'\\xac\\x02'
    """
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, 2) + _varint(len(content)) + content


def _delimited(file: BinaryIO, message: bytes) -> None:
    file.write(_varint(len(message)) + message)
