"""Sparse vectors: their form in memory and on disk.

A matrix of n sparse vectors over an output vocabulary of v terms is a `csr_array` [n, v] with sorted int32 indices,
float32 weights > 0 and no explicit zeros (`as_vectors`).

On disk a vector is a Parquet row (id: string, indices: list<int32>, values: list<float32>). A model that also gives
dense vectors adds a column (dense: fixed_size_list<float32>[d]). The offsets of an Arrow list column are the `indptr`
of a CSR matrix, so reading needs no conversion. Truncated and damaged files are refused: pages have checksums, the
metadata has a checksum of itself and of all ids and numbers, and Parquet writes the footer last.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack

from vocable.core.arrays import Strings, place_state, read_whole, wrong_entries
from vocable.core.fingerprint import INPUTS_KEY
from vocable.core.lfs import POINTER, is_pointer
from vocable.core.records import WrongRecordError, as_record
from vocable.core.storage import SETTINGS, StrPath, read_record, regular, replacing
from vocable.data.slices import Span
from vocable.errors import VectorsError, require_extra
from vocable.options import Runtime

if TYPE_CHECKING:
    import pyarrow as pa
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

METADATA_KEY = b"vocable"
PROGRESS = "progress.json"  # the counts of vocable encode
SHARDS = "shards.json"  # plan of a folder of shards
FORMAT = 1
LEAVES = "id", "indices.list.element", "values.list.element", "dense.list.element"
ENCODING = dict(zip(LEAVES, ("PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "BYTE_STREAM_SPLIT"), strict=True))

FingerprintParts: TypeAlias = dict[str, str | int | float | bool | None]  # values or digests of a model's parts by name


@dataclass(frozen=True)
class VectorsMeta:
    """Origin of vectors; two sets of vectors are comparable if `vocabulary` and `size` are equal.

    `vocabulary` is a fingerprint of the term list, `size` its length v, `max_length` a number of tokens, and `runtime`
    the library that computed the vectors. The `fingerprint` (`vocable.encoding.model_fingerprint`) of an unknown model
    is {}.
    """

    vocabulary: str
    model: str
    pooling: str
    role: str
    max_length: int
    size: int
    runtime: Runtime = "torch"
    fingerprint: FingerprintParts = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: object, place: str) -> VectorsMeta:
        """Return the record in parsed JSON; errors begin with `place`."""
        try:
            return as_record(values, cls, forbid=False)
        except WrongRecordError as error:
            raise VectorsError(f"{place}: made by another version of vocable: encode again") from error


@cache
def _schema() -> pa.Schema:
    """Return the columns of a file of vectors."""
    pa = require_extra("pyarrow", "parquet")  # slow to import, and a search does not need it
    lists = (pa.list_(pa.field("element", kind, nullable=False)) for kind in (pa.int32(), pa.float32()))
    kinds = zip(("id", "indices", "values"), (pa.string(), *lists), strict=True)
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds])


def vocabulary_fingerprint(names: Sequence[str]) -> str:
    """Return 16 hexadecimal digits that identify a list of terms."""
    return blake2b("\n".join(names).encode(), digest_size=8).hexdigest()


def token_names(tokenizer: PreTrainedTokenizerBase | Tokenizer, size: int) -> list[str]:
    """Return the tokens with the ids from 0 to `size` - 1; `<id>` for an id without a token."""
    named = {column: token for token, column in tokenizer.get_vocab().items()}
    return [named.get(column, f"<{column}>") for column in range(size)]


Sources = StrPath | Sequence[StrPath]


class StoredVectors(NamedTuple):
    """Vectors read from disk: n `ids`, `matrix` csr_array [n, v], their origin, and any `dense` vectors [n, d]."""

    ids: Strings
    matrix: csr_array
    meta: VectorsMeta
    dense: NDArray[np.float32] | None = None

    @property
    def dimensions(self) -> int | None:
        """The dimensions d of the dense vectors; None without dense vectors."""
        return None if self.dense is None else int(self.dense.shape[1])


def as_vectors(matrix: Any, name: str = "vectors") -> csr_array:
    """Return a matrix [n, v] as a csr_array with sorted int32 indices and float32 weights > 0, copied only if needed.

    Duplicate entries are summed and explicit zeros dropped. Error messages begin with `name`.
    """
    if not issparse(matrix) or len(matrix.shape) != 2:
        raise VectorsError(f"{name}: expected a sparse matrix of two dimensions, not {type(matrix).__name__}")
    try:
        if hasattr(matrix, "check_format"):  # CSR or CSC: SciPy does not check the bounds by itself
            matrix.check_format(full_check=True)
    except ValueError as error:
        raise VectorsError(f"{name}: not a matrix of {matrix.shape}: {error}") from error
    result: csr_array = csr_array(cast(Any, matrix))
    # A step that changes entries copies them first: the caller's matrix stays as it is.
    if not result.has_canonical_format:
        result = result.copy()
        result.sum_duplicates()
    if result.dtype != np.float32 or result.indices.dtype != np.int32:
        result = _matrix(result.data.astype(np.float32, copy=False), result.indices, result.indptr, result.shape[1])
    smallest = result.data.min(initial=np.inf)
    if smallest < 0 or not np.isfinite(result.data).all():
        raise VectorsError(f"{name}: weights must be finite and not negative")
    if smallest == 0:
        result = result.copy()
        result.eliminate_zeros()
    return result


def write_vectors(
    path: StrPath,
    ids: Sequence[str],
    matrix: csr_array,
    meta: VectorsMeta,
    dense: NDArray[np.float32] | None = None,
) -> None:
    """Write `matrix` [n, v] and any `dense` vectors [n, d] with their n `ids` to one Parquet file, atomically."""
    pa, pq = require_extra("pyarrow", "parquet"), require_extra("pyarrow.parquet", "parquet")
    matrix = as_vectors(matrix)
    if len(ids) != matrix.shape[0] or meta.size != matrix.shape[1]:
        raise VectorsError(f"{len(ids)} ids and {meta.size} terms were given for a matrix of shape {matrix.shape}")
    if matrix.nnz > np.iinfo(np.int32).max:
        raise VectorsError(
            f"{path}: {matrix.nnz:,} weights are too many for one file: write shards of at most 2^31 - 1"
        )
    # Lists over the arrays of the CSR matrix, without a copy.
    schema, offsets = _schema(), pa.array(matrix.indptr.astype(np.int32, copy=False))
    indices, values = (
        pa.ListArray.from_arrays(offsets, pa.array(entries), type=schema.field(name).type)
        for name, entries in (("indices", matrix.indices), ("values", matrix.data))
    )
    names, metadata = ids if isinstance(ids, Strings) else Strings(ids), {"format": FORMAT, **asdict(meta)}
    columns, arrays = [pa.array(names, pa.string()), indices, values], [matrix.indices, matrix.data]
    if dense is not None:
        if len(dense) != len(ids) or not np.isfinite(dense).all():
            raise VectorsError(f"{path}: dense vectors {list(dense.shape)} of {len(ids)} texts, or not all finite")
        kind = pa.list_(pa.field("element", pa.float32(), nullable=False), dense.shape[1])
        schema = schema.append(pa.field("dense", kind, nullable=False))
        arrays.append(np.ascontiguousarray(dense, dtype=np.float32).ravel())
        columns.append(pa.FixedSizeListArray.from_arrays(pa.array(arrays[-1]), type=kind))
    metadata |= {"crc32": _checksum(metadata, names, matrix.indptr, *arrays)}
    table = pa.Table.from_arrays(columns, schema=schema.with_metadata({METADATA_KEY: json.dumps(metadata)}))
    with replacing(path) as file:
        pq.write_table(
            table,
            file,
            row_group_size=max(1, len(ids)),  # a single chunk, which is read without a copy
            compression="zstd",
            use_dictionary=False,
            column_encoding={leaf: ENCODING[leaf] for leaf in LEAVES[: len(columns)]},
            write_page_checksum=True,
        )


def _checksum(metadata: dict[str, object], ids: Strings, indptr: np.ndarray, *arrays: np.ndarray) -> int:
    """Return the CRC-32 of the whole content, which also detects damaged footers and page headers."""
    text, record = ids.content[ids.offsets[0] : ids.offsets[-1]], json.dumps(metadata, sort_keys=True)
    total = zlib.crc32(text.data, zlib.crc32(record.encode()))
    for array in (np.diff(ids.offsets), np.diff(indptr).astype(np.int32), *arrays):
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total


def _numbers(array: pa.Array, kind: type[np.generic]) -> np.ndarray:
    """Return the values of an Arrow array without nulls; unlike Arrow's `to_numpy`, this does not import pandas."""
    buffer = array.buffers()[1]
    return np.frombuffer(memoryview(buffer or b"").toreadonly(), kind)[array.offset :][: len(array)]


def holds_vectors(source: Sources) -> bool:
    """Return whether a source names at least one place, and all its places are files or folders of vectors."""
    places = places_of(source)
    return bool(places) and all(
        place.suffix == ".parquet" if place.is_file() else any(place.glob("part-*.parquet")) for place in places
    )


def places_of(source: Sources) -> list[Path]:
    """Return the files and folders of vectors, with the shards, in order, for a folder of shards.

    Raises:
        VectorsError: a shard is missing, differs from the plan, or is named twice.
    """
    named = [source] if isinstance(source, str | os.PathLike) else source
    places = [place for name in named for place in _shards_of(Path(name))]
    seen = set[Path]()
    for place in places:
        if (resolved := place.resolve()) in seen:
            raise VectorsError(f"{place}: the same vectors are named twice")
        seen.add(resolved)
    return places


def shard_folder(folder: Path, number: int) -> Path:
    """Return the folder of a shard, counted from 1."""
    return folder / f"shard-{number:05d}"


def _shards_of(place: Path) -> list[Path]:
    """Return the place itself or its shards; raise `VectorsError` unless all shards exist and match the plan."""
    if not (place / SHARDS).is_file():
        return [place]
    spans = read_record(place / SHARDS, list[Span])
    shards = [shard_folder(place, number) for number in range(1, len(spans) + 1)]
    if missing := [shard.name for shard in shards if not shard.exists()]:
        what = f"{len(missing)} of {len(shards)} shards are missing, the first: {missing[0]}"
        raise VectorsError(f"{place}: {what}: repeat the vocable encode that began it")
    whole = read_record(place / SETTINGS, dict[str, object])
    whole.pop("shards", None)  # the number of shards
    for number, (shard, span) in enumerate(zip(shards, spans, strict=True), start=1):
        planned = whole | {"shard": [number, len(spans)], INPUTS_KEY: span.digest}
        settings = read_record(shard / SETTINGS, dict[str, object])
        names = planned.keys() | settings.keys()
        if differing := sorted(name for name in names if planned.get(name) != settings.get(name)):
            raise VectorsError(f"{shard}: differs from the plan in {SHARDS}: {', '.join(differing)}")
    return shards


def read_vectors(path: Sources) -> StoredVectors:
    """Read Parquet files of vectors and folders of such files (`part-00000.parquet`, ... in that order)."""
    return joined(read_whole(lambda: list(read_shards(path)), *places_of(path)))


def joined(parts: Sequence[StoredVectors]) -> StoredVectors:
    """Join the vectors of parts with the same origin, at least one part."""
    first = parts[0]
    if len(parts) == 1:
        return first
    ids, matrices = Strings.joined([part.ids for part in parts]), [part.matrix for part in parts]
    # A single copy of each array; SciPy's vstack makes several.
    lengths = np.concatenate([np.diff(matrix.indptr) for matrix in matrices])
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    data = np.concatenate([matrix.data for matrix in matrices])
    indices = np.concatenate([matrix.indices for matrix in matrices])
    dense = [part.dense for part in parts if part.dense is not None]
    matrix = _matrix(data, indices, indptr, first.meta.size)
    return StoredVectors(ids, matrix, first.meta, np.concatenate(dense) if dense else None)


class StoredRows:
    """Rows of stored vectors by id, read one shard at a time: a shard is held until all its rows are taken.

    If rows are taken in the order of the vectors, one or two shards are in memory; otherwise all shards may be.
    """

    def __init__(self, shards: Iterator[StoredVectors]) -> None:
        self.read = self.taken = 0  # rows
        self._shards, self._held = shards, dict[int, StoredVectors]()
        self._rows, self._left = dict[str, tuple[int, int]](), dict[int, int]()  # (shard, row) by id; rows by shard

    def take(self, ids: Sequence[str]) -> StoredVectors | None:
        """Return the rows of m distinct ids, each once; None if an id has no vector (`missing`)."""
        while self.missing(ids) is not None:
            if (shard := next(self._shards, None)) is None:
                return None
            number = max(self._held, default=-1) + 1
            self._rows |= {name: (number, row) for row, name in enumerate(shard.ids)}
            self._held[number], self._left[number] = shard, len(shard.ids)
            self.read += len(shard.ids)
        of, places = np.array([self._rows.pop(name) for name in ids], dtype=np.int64).reshape(-1, 2).T
        numbers, back = np.unique(of).tolist(), np.argsort(np.argsort(of, kind="stable"))
        parts = [(self._held[number], places[of == number]) for number in numbers]
        meta, dense = parts[0][0].meta, [shard.dense[rows] for shard, rows in parts if shard.dense is not None]
        stacked = vstack([shard.matrix[rows] for shard, rows in parts], format="csr")
        for number in numbers:
            self._left[number] -= int((of == number).sum())
            if not self._left[number]:
                del self._held[number], self._left[number]
        self.taken += len(ids)
        matrix = csr_array(stacked if len(numbers) == 1 else stacked[back])
        return StoredVectors(Strings(ids), matrix, meta, np.concatenate(dense)[back] if dense else None)

    def missing(self, ids: Sequence[str]) -> str | None:
        """Return the first of `ids` without a vector in the shards read so far; None if all have vectors."""
        return next((name for name in ids if name not in self._rows), None)

    def rest(self) -> int:
        """Read the remaining shards, and return the number of rows that were not taken."""
        self.read += sum(len(shard.ids) for shard in self._shards)
        return self.read - self.taken


def read_shards(path: Sources) -> Iterator[StoredVectors]:
    """Yield stored vectors one shard at a time.

    Raises:
        VectorsError: a shard is missing, truncated, damaged or of another model; a folder has fewer parts than
            `vocable encode` counted; two vectors have the same id.
    """
    hashes = list[np.ndarray]()
    files, first, places = list[Path](), None, places_of(path)
    states = {place: place_state(place) for place in places}
    # Find all files before the first is read: a missing part is an error at once.
    for place in places:
        parts = sorted(place.glob("part-*.parquet")) if place.is_dir() else [place]
        if not parts:
            raise VectorsError(f"{place}: no vectors (part-*.parquet) in the folder")
        record = place / PROGRESS
        if record.exists() and (count := read_record(record, dict[str, Any]).get("parts", 0)) > len(parts):
            raise VectorsError(f"{place}: {len(parts)} parts (part-*.parquet), but {record.name} counts {count}")
        files += parts
    # Ids are remembered as hashes; equal hashes are looked up at the end.
    for file in files:
        shard = read_file(file)
        origin = asdict(shard.meta) | shard.meta.fingerprint | {"number of dense dimensions": shard.dimensions}
        del origin["fingerprint"]
        first = first or origin
        if origin != first:
            differing = ", ".join(
                f"{name} is {value!r} and not {first[name]!r}" for name, value in origin.items() if value != first[name]
            )
            raise VectorsError(f"{file}: not comparable with {files[0]}: {differing}")
        hashes.append(np.fromiter(map(hash, shard.ids), np.int64, len(shard.ids)))
        yield shard
    _refuse_repeated(files, hashes)
    for place, state in states.items():
        if place_state(place) != state:
            raise VectorsError(f"{place}: replaced while it was read: repeat the command")


def _refuse_repeated(files: Sequence[Path], hashes: Sequence[np.ndarray]) -> None:
    """Raise `VectorsError` for a duplicate id; `hashes` has the hashes of the ids of each file."""
    ordered = np.sort(np.concatenate(hashes)) if hashes else np.empty(0, np.int64)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        file = files[next(number for number, ids in enumerate(hashes) if np.isin(ids, repeated).any())]
        name = next(name for name in read_file(file).ids if hash(name) in set(repeated.tolist()))
        raise VectorsError(f"{file}: duplicate id {name!r}: the same texts were encoded or named twice")


def read_table(
    path: Path, schema: pa.Schema, key: bytes, what: str, verb: str = "encode", *, further: str = ""
) -> tuple[pa.Table, dict[str, object]]:
    """Read a Parquet file of `what` that the command `verb` writes: the table and the JSON metadata at `key`.

    A column `further` may follow the columns of the schema; its type is not checked. Raises `VectorsError` if the file
    is missing, truncated, damaged, or has another schema.
    """
    if is_pointer(path):
        raise VectorsError(f"{path}: {POINTER}")
    pa, pq = require_extra("pyarrow", "parquet"), require_extra("pyarrow.parquet", "parquet")
    try:
        # Not memory-mapped: a later truncation of the file would crash the process.
        with pq.ParquetFile(regular(path), page_checksum_verification=True) as file:
            table = file.read()
        table.validate(full=True)
    except FileNotFoundError as error:
        raise VectorsError(f"{path}: no such file; vocable {verb} writes it") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise VectorsError(f"{path}: truncated or damaged file of {what}: {error}") from error
    if key not in (table.schema.metadata or {}):
        raise VectorsError(f"{path}: a Parquet file, but not of {what}")
    try:
        values = dict(json.loads(table.schema.metadata[key]))
    except (TypeError, ValueError) as error:
        raise VectorsError(f"{path}: its metadata is damaged: {error}") from error
    if values.get("format") != FORMAT:
        raise VectorsError(f"{path}: stored in format {values.get('format')}; this version reads format {FORMAT}")
    if table.schema.names == [*schema.names, further]:
        schema = schema.append(table.schema.field(further))
    if not table.schema.equals(schema) or any(column.null_count for column in table.columns):
        raise VectorsError(f"{path}: expected the columns {', '.join(schema.names)}, without nulls")
    return table, values


def read_file(path: Path) -> StoredVectors:
    """Read one Parquet file of vectors; ids may repeat, since the windows of a text have the same id."""
    pa = require_extra("pyarrow", "parquet")
    table, values = read_table(path, _schema(), METADATA_KEY, "vectors", further="dense")
    meta, expected = VectorsMeta.from_dict(values, str(path)), values.pop("crc32", None)
    names, indices, weights, *more = (column.combine_chunks() for column in table.columns)
    if not (ids := _strings(names.cast(pa.large_string()))).valid():
        raise VectorsError(f"{path}: damaged: an id is not text in UTF-8")
    indptr = _numbers(indices.offsets, np.int32)
    if not np.array_equal(indptr, _numbers(weights.offsets, np.int32)):
        raise VectorsError(f"{path}: a row has different numbers of indices and values")
    arrays = _numbers(weights.values, np.float32), _numbers(indices.values, np.int32), indptr
    if wrong := wrong_entries(arrays, meta.size):
        outside = f"a term index lies outside the vocabulary of {meta.size}"
        what = "", outside, "the term indices of a row are not in order", "a weight is not a positive number"
        raise VectorsError(f"{path}: {what[wrong]}")
    dense = _dense_vectors(more[0], path) if more else None
    if expected != _checksum(values, ids, indptr, arrays[1], arrays[0], *([] if dense is None else [dense.ravel()])):
        raise VectorsError(f"{path}: damaged (its checksum differs)")
    return StoredVectors(ids, _matrix(*arrays, meta.size), meta, dense)


def _strings(array: pa.LargeStringArray) -> Strings:
    """Return the strings of an Arrow array without nulls."""
    _, offsets, content = array.buffers()
    ends = np.frombuffer(offsets or bytes(8), np.int64)[array.offset :][: len(array) + 1]
    return Strings.of(ends, np.frombuffer(content or b"", np.uint8))


def _dense_vectors(column: pa.Array, path: Path) -> NDArray[np.float32]:
    """Return a column of dense vectors as an array [n, d]."""
    pa = require_extra("pyarrow", "parquet")
    if not pa.types.is_fixed_size_list(column.type) or column.type.value_type != pa.float32():
        raise VectorsError(f"{path}: the column dense is {column.type}, not of vectors of one length")
    dense = _numbers(column.flatten(), np.float32).reshape(len(column), column.type.list_size)
    if not np.isfinite(dense).all():
        raise VectorsError(f"{path}: a number of a dense vector is not finite")
    return dense


def selected(matrix: csr_array, keep: np.ndarray) -> csr_array:
    """Return `matrix` with only the entries where `keep` (a bool for each entry) is true."""
    indptr = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])[matrix.indptr]
    return _matrix(matrix.data[keep], matrix.indices[keep], indptr, matrix.shape[1])


def _matrix(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, size: int) -> csr_array:
    """Return a csr_array [n, size] with int32 indices, or int64 where SciPy needs them for a large indptr."""
    kind = np.int32 if indptr[-1] <= np.iinfo(np.int32).max else np.int64
    parts = data, indices.astype(np.int32, copy=False), indptr.astype(kind, copy=False)
    return csr_array(parts, shape=(len(indptr) - 1, size))
