"""Export of stored vectors: Anserini's JSON and topics, and the Common Index File Format (Lin et al. 2020).

Both formats hold whole numbers: a weight becomes round(weight * scale). The name of a term is the number of its column.
Other engines have no `query_idf`: for a model that multiplies query weights by the IDF, topics must be exported with
the documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from vocable.core.fingerprint import fingerprint, settings_of
from vocable.core.progress import track
from vocable.core.storage import finished, read_record, replacing_folder, write_record
from vocable.encoding.idf import idf
from vocable.encoding.load import load_encoder
from vocable.encoding.pruning import quantize
from vocable.encoding.vectors import Sources, StoredVectors, VectorsMeta, places_of, read_shards, read_vectors
from vocable.errors import ArgumentError, VectorsError, VocableError
from vocable.options import IdfPower, checked

Format = Literal["anserini", "ciff"]
RECORD = "export.json"
COLLECTION = "collection"  # a separate folder: Anserini reads every file of a folder as documents


class Exported(NamedTuple):
    """Counts of the written vectors and weights, and of the weights that were lost because they round to 0.

    `query_idf` is the power of the IDF in the weights of queries. `model_idf` is the power that the model sets: 0 for a
    model without IDF, None for documents and for a model that cannot be opened.
    """

    vectors: int
    weights: int
    lost: int
    heaviest: int
    scale: float
    role: str
    query_idf: float = 0.0
    model_idf: float | None = None

    def to_json(self) -> dict[str, object]:
        """Return the counts as JSON values."""
        return self._asdict()

    def __str__(self) -> str:
        kept = f"{self.vectors:,} vectors, {self.weights:,} weights from 1 to {self.heaviest:,}"
        lost = f"{self.lost:,} rounded to 0 and are left out"
        return f"{kept}: each times {self.scale:g}, rounded; {lost}\n{self._idf_note()}"

    def _idf_note(self) -> str:
        if self.role == "document":
            return "other engines have no query_idf: if the model has one, export its queries with --documents"
        if self.query_idf:
            return f"weights times the IDF of their terms in the documents to the power {self.query_idf:g}"
        if self.model_idf:
            missing = f"weights without IDF, which the model applies (query_idf {self.model_idf:g})"
            return f"{missing}: the hits will differ from vocable's: give the documents' vectors (--documents)"
        unknown = "; the model cannot be opened to see its query_idf" if self.model_idf is None else ""
        return f"weights without IDF{unknown}"


@checked
def export(
    vectors: Sources,
    output: str | Path,
    *,
    format: Format = "anserini",
    scale: float = 100.0,
    documents: Sources | None = None,
    query_idf: IdfPower = None,
) -> Exported:
    """Write stored vectors for other engines.

    Weights are multiplied and rounded; terms are named by their columns. No other engine knows query_idf: with
    `documents` the weights of queries contain it.

    Args:
        vectors: the output of `vocable encode`; vectors of queries become topics.
        output: output folder (written atomically).
        format: anserini writes collection/vectors.jsonl, or topics.tsv for queries, also for Pyserini; ciff writes
            index.ciff, the Common Index File Format, only for documents.
        scale: factor of all weights before they are rounded; it must be the same for documents and queries.
        documents: with vectors of queries: vectors of the documents to search. Weights are multiplied by the IDF of
            their terms in these documents.
        query_idf: with `documents`: power of the IDF; by default the model's.

    Raises:
        ArgumentError: the output exists, queries are exported as ciff, an argument is out of range, `documents` are
            given for documents, `query_idf` is given without `documents`, or the model cannot be opened to read it.
        VectorsError: the vectors cannot be read, or `documents` have another vocabulary.
    """
    if query_idf is not None and documents is None:
        raise ArgumentError("`query_idf` goes with `documents`")
    # A finished export of the same vectors is not repeated.
    places = places_of(vectors)
    counted = [] if documents is None else places_of(documents)
    contents = {"vectors": fingerprint(*places), "documents": fingerprint(*counted)}
    settings = settings_of(export, locals(), contents)
    folder = Path(output)
    if finished(folder, settings):
        return read_record(folder / RECORD, Exported)
    # The role of the vectors decides what the format has to hold.
    first = next(read_shards(places))
    topics = first.meta.role == "query"
    if topics and format == "ciff":
        raise ArgumentError(f"{places[0]}: ciff holds no vectors of queries: export them as anserini")
    if counted and not topics:
        raise ArgumentError(f"`documents` goes with vectors of queries: {places[0]} has vectors of documents")
    # The factor of each term [v], if queries are to carry the IDF.
    model_idf = _model_idf(first.meta) if topics else None
    factors, power = _idf_factors(first.meta, counted, model_idf if query_idf is None else query_idf)
    counts = np.zeros(4, dtype=np.int64)  # vectors, weights, lost, heaviest
    with replacing_folder(folder, settings) as work:
        name = "topics.tsv" if topics else f"{COLLECTION}/vectors.jsonl"
        path = work / ("index.ciff" if format == "ciff" else name)
        path.parent.mkdir(exist_ok=True)
        # A CIFF file begins with the number of documents, so all shards are written at once.
        shards = iter([read_vectors(vectors)]) if format == "ciff" else read_shards(vectors)
        for number, shard in enumerate(track(shards, "export")):
            matrix = shard.matrix
            # Weights times IDF, as whole numbers [n, v].
            if factors is not None:
                matrix = csr_array((matrix.data * factors[matrix.indices], matrix.indices, matrix.indptr), matrix.shape)
            whole = quantize(matrix, scale=scale)
            counts[:3] += len(shard.ids), whole.nnz, shard.matrix.nnz - whole.nnz
            counts[3] = max(counts[3], whole.data.max(initial=0))
            with path.open("ab" if number else "wb") as file:
                _write_ciff(file, shard, whole) if format == "ciff" else file.writelines(_lines(shard, whole, topics))
        count, kept, lost, heaviest = counts.tolist()
        result = Exported(
            vectors=count,
            weights=kept,
            lost=lost,
            heaviest=heaviest,
            scale=scale,
            role=first.meta.role,
            query_idf=power,
            model_idf=model_idf,
        )
        write_record(work / RECORD, result._asdict())
    return result


def _model_idf(meta: VectorsMeta) -> float | None:
    """Return the power of the IDF that a model applies to queries; None if it is unknown."""
    if (power := meta.fingerprint.get("query.query_idf")) is not None:
        return float(power)
    try:
        return load_encoder(meta.model, runtime=meta.runtime).encoder("query").settings.query_idf
    except VocableError:
        return None


def _idf_factors(meta: VectorsMeta, documents: list[Path], power: float | None) -> tuple[np.ndarray | None, float]:
    """Return the factor of each term, float32 [v], and the power of the IDF; None without documents or with power 0."""
    if not documents:
        return None, 0.0
    if power is None:
        raise ArgumentError(f"the model {meta.model} cannot be opened to read its query_idf: give `query_idf`")
    frequencies, count = term_counts(documents, meta)
    return (idf(frequencies, count) ** power, power) if power else (None, 0.0)


def term_counts(documents: Sources, queries: VectorsMeta) -> tuple[np.ndarray, int]:
    """Count the stored documents with each term, int64 [v], and all documents, for `queries` of the same vocabulary.

    Raises:
        VectorsError: the vectors cannot be read, are vectors of queries or of another vocabulary, or are missing.
    """
    frequencies, count = np.zeros(queries.size, dtype=np.int64), 0
    for shard in read_shards(documents):
        if shard.meta.role != "document" or shard.meta.vocabulary != queries.vocabulary:
            actual = f"{shard.meta.role} vectors of {shard.meta.model}"
            raise VectorsError(f"documents: {actual} do not fit queries of {queries.model}")
        frequencies += np.bincount(shard.matrix.indices, minlength=queries.size)
        count += len(shard.ids)
    if not count:
        raise VectorsError("documents: there are no vectors to count")
    return frequencies, count


def _lines(shard: StoredVectors, whole: csr_array, topics: bool) -> Iterator[bytes]:
    """Yield a JSON object for each document, or for each query its id, a tab, and its terms, repeated by weight."""
    for row, identifier in enumerate(shard.ids):
        part = slice(whole.indptr[row], whole.indptr[row + 1])
        terms, weights = whole.indices[part], whole.data[part]
        if topics:
            yield f"{identifier}\t{' '.join(map(str, np.repeat(terms, weights).tolist()))}\n".encode()
            continue
        vector = dict(zip(map(str, terms.tolist()), weights.tolist(), strict=True))
        yield json.dumps({"id": identifier, "contents": "", "vector": vector}, ensure_ascii=False).encode() + b"\n"


def _write_ciff(file: BinaryIO, shard: StoredVectors, whole: csr_array) -> None:
    """Write the header, the postings lists in the order of the terms' names, and the documents with their lengths."""
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
        gaps = np.diff(documents, prepend=0).tolist()  # document numbers are stored as differences
        pairs = zip(gaps, weights.tolist(), strict=True)
        entries = b"".join(_bytes(4, _number(1, gap) + _number(2, weight)) for gap, weight in pairs)
        figures = _number(2, len(gaps)) + _number(3, int(weights.sum(dtype=np.int64)))
        _delimited(file, _bytes(1, name.encode()) + figures + entries)
    for row, identifier in enumerate(shard.ids):
        _delimited(file, _number(1, row) + _bytes(2, identifier.encode()) + _number(3, int(lengths[row])))


def varint(value: int) -> bytes:
    """Encode a number in groups of 7 bits, lowest first, as protocol buffers do.

    >>> varint(300)
    b'\\xac\\x02'
    """
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def _key(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, 2) + varint(len(content)) + content


def _delimited(file: BinaryIO, message: bytes) -> None:
    file.write(varint(len(message)) + message)
