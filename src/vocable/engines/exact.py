"""The exact engine: a folder that is filled once, then read-only, and searched in memory.

FOLDER/store.json      settings, and checksums of the texts
FOLDER/parts/          documents and vectors in the order of their arrival, until the collection is complete
FOLDER/postings/       index of the sparse vectors, or its shards
FOLDER/texts.arrow     id, title, text and further fields by row, memory-mapped
FOLDER/bm25/           index of the words, if the collection has one
FOLDER/dense/          dense vectors in 8 bits, if the collection has them

Letters: n documents, m of them, q queries, k results.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar, Literal, NoReturn, Self, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
from scipy.sparse import csr_array

from vocable.core.arrays import Ids, read_whole
from vocable.core.storage import ANOTHER, regular
from vocable.core.verified import verifying
from vocable.data import Document
from vocable.data.text_table import TEXT_SCHEMA, documents_of, file_checksum, text_table, write_texts
from vocable.encoding.vectors import VectorsMeta, read_shards, read_vectors, write_vectors
from vocable.engines.base import FolderStore, Vectors
from vocable.engines.filters import Filter, matches
from vocable.engines.protocols import About, Space
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.dense_index import DenseIndex, rounded
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.exact_shards import Exact, load_exact, save_exact
from vocable.indexes.ranking import Ranking
from vocable.language.languages import ENGLISH
from vocable.options import Matching

TEXTS_FILE = "texts.arrow"


@dataclass(frozen=True)
class ExactOptions:
    """Options of the exact engine.

    `weight_bits` rounds the weights of documents. A posting takes 6 bytes without rounding, 4 bytes with 16 bits, and 3
    bytes with 8 bits. The error of a weight is below 2/65,535 (16 bits) or 2/255 (8 bits) of the largest weight.
    """

    weight_bits: Literal[8, 16] | None = None


class ExactStore(FolderStore):
    """Documents in an exact index, with a BM25 index of their words."""

    about = About(
        "exact",
        exact=True,
        changes=False,
        filters=True,
        matching=("minimum_match",),
        in_folder=True,
        weighs_words=True,
        spaces=("sparse", "bm25", "dense"),
        part=2048,
        options=ExactOptions,
    )
    index: ClassVar[type[ExactIndex]] = ExactIndex

    def __init__(self, folder: Path, spaces: dict[Space, int], settings: dict[str, object]) -> None:
        super().__init__(folder, spaces, settings)
        self._passing = lru_cache(16)(self._rows_that_pass)

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, object]) -> Self:
        folder = Path(address)
        if folder.exists():
            raise ArgumentError(f"{folder} already exists")
        folder.mkdir(parents=True)
        store = cls(folder, dict(spaces), settings)
        store.configure(settings)
        return store

    @classmethod
    def open(cls, address: str) -> Self:
        """Open a store, memory-mapped; compare its parts with each other, and new files with their checksums."""
        return read_whole(lambda: cls._open(Path(address)), address)

    @classmethod
    def _open(cls, folder: Path) -> Self:
        record = cls.read(folder)
        store = cls(folder, record.spaces, record.settings)
        store.files = record.files
        if TEXTS_FILE in store.files:
            postings, words = store.postings, store.words
            ids = Ids(store.texts.column("id").combine_chunks().cast(pa.large_string()))
            n = len(ids) if store.dense is None else len(store.dense.units)
            if ids != postings.ids or (words is not None and ids != words.ids) or n != len(ids):
                counts = f"{len(postings)} vectors, {len(ids)} texts"
                raise VectorsError(
                    f"{folder}: the index is damaged: its parts are not of the same documents ({counts})"
                )
        return store

    @cached_property
    def postings(self) -> Exact:
        """The index of the sparse vectors."""
        folder = self.folder / "postings"
        return load_exact(folder) if self.index is ExactIndex else self.index.load(folder)

    @cached_property
    def words(self) -> BM25Index | None:
        """The index of the words, if the collection has one."""
        return BM25Index.load(self.folder / "bm25") if self.settings.get("bm25") else None

    @cached_property
    def dense(self) -> DenseIndex | None:
        """The dense vectors, if the collection has them."""
        return DenseIndex.load(self.folder / "dense", self._ids) if "dense" in self.spaces else None

    @cached_property
    def texts(self) -> pa.Table:
        """The documents, a table with the schema `TEXT_SCHEMA`."""
        with verifying(self.folder) as is_new:
            return self._read_texts(self.folder / TEXTS_FILE, is_new)

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]) -> None:
        """Add documents with new ids as a part; the part counts after the next `configure`."""
        if TEXTS_FILE in self.files:
            self._refuse_change()
        documents, vectors = self._checked(documents, vectors)
        (self.folder / "parts").mkdir(exist_ok=True)
        texts = self.folder / "parts" / f"part-{len(self.files):05d}.arrow"
        ids = [document.id for document in documents]
        write_vectors(texts.with_suffix(".parquet"), ids, csr_array(vectors["sparse"]), self._meta)
        if "dense" in self.spaces:
            DenseIndex(*rounded(np.asarray(vectors["dense"]))).save(texts.with_suffix(".dense"))
        write_texts(texts, [text_table(documents)])
        self.files[texts.name] = file_checksum(texts)

    def optimize(self) -> None:
        """Build the indexes from all parts, and remove the parts."""
        parts = self.folder / "parts"
        if TEXTS_FILE in self.files or not self.files:
            return
        self._save_postings([parts / name.replace(".arrow", ".parquet") for name in self.files])
        write_texts(self.folder / TEXTS_FILE, (self._read_texts(parts / name) for name in self.files))
        if self.settings.get("bm25"):
            table = self._read_texts(self.folder / TEXTS_FILE, verify=False)
            texts = [document.weighed(self.settings.get("title_weight", 1)) for document in documents_of(table)]
            language = str(self.settings.get("language", ENGLISH))
            BM25Index(texts, table.column("id").to_pylist(), language=language).save(self.folder / "bm25")
        if "dense" in self.spaces:
            indexes = [DenseIndex.load((parts / name).with_suffix(".dense")) for name in self.files]
            numbers = np.concatenate([index.numbers for index in indexes])
            DenseIndex(numbers, np.concatenate([index.units for index in indexes])).save(self.folder / "dense")
        self.files = {TEXTS_FILE: file_checksum(self.folder / TEXTS_FILE)}
        self.configure(self.settings)
        shutil.rmtree(parts)

    def _save_postings(self, files: Sequence[Path]) -> None:
        options = self.settings.get("engine_options", {})
        if self.index is not ExactIndex:
            stored = read_vectors(files)
            self.index(stored.matrix, stored.ids, stored.meta, **options).save(self.folder / "postings")
            return
        bits, heaviest = options.get("weight_bits"), None
        if bits:
            heaviest = max(float(part.matrix.data.max(initial=0)) for part in read_shards(files))
        save_exact(read_shards(files), self.folder / "postings", weight_bits=bits, heaviest=heaviest)

    def delete(self, ids: Sequence[str]) -> int:
        self._refuse_change()

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        if TEXTS_FILE not in self.files:
            return [None] * len(ids)
        rows = self._ids.rows(ids)
        documents = dict(zip(rows[rows >= 0].tolist(), documents_of(self.texts.take(rows[rows >= 0])), strict=True))
        return [documents.get(row) for row in rows.tolist()]

    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> Vectors:
        rows = self._ids.rows(ids)
        if rows.min(initial=0) < 0:
            raise ArgumentError(f"{self.place}: there is no document {ids[int(rows.argmin())]!r}")
        return self._dense().get(rows) if space == "dense" else self._index(space).get(rows)

    def search(
        self,
        queries: Vectors,
        k: int = 10,
        *,
        space: Space = "sparse",
        filter: Filter | None = None,
        **matching: Unpack[Matching],
    ) -> Ranking:
        allowed = None if filter is None else self._passing(filter)
        if space == "dense":
            return self._dense().search(np.asarray(queries), k, allowed=allowed)
        return self._index(space).search(csr_array(queries), k, allowed=allowed, **matching)

    def query_vectors(self, texts: Sequence[str], *, stems: bool = False) -> csr_array:
        """Return the vectors [q, words] of q texts, or of q stems, as queries in the space bm25."""
        assert self.words is not None
        return self.words.query_vectors(texts, stems=stems)

    def words_like(self, initials: str, shortest: int, longest: int) -> list[tuple[str, int]]:
        """Return words of the documents, as `BM25Index.words_like` does."""
        assert self.words is not None
        return self.words.words_like(initials, shortest, longest)

    def document_frequencies(self) -> np.ndarray:
        return self.postings.document_frequency

    def ids(self) -> Iterator[str]:
        return iter(self._ids)

    def close(self) -> None:
        """Do nothing: the files are memory-mapped."""

    def __len__(self) -> int:
        return len(self.texts) if TEXTS_FILE in self.files else 0

    @property
    def _meta(self) -> VectorsMeta:
        meta = self.settings.get("meta")
        return (
            VectorsMeta.from_dict(meta, self.place) if meta else VectorsMeta("", "", "", "", 0, self.spaces["sparse"])
        )

    @property
    def _ids(self) -> Ids:
        assert self.postings.ids is not None
        return self.postings.ids

    def _index(self, space: Space) -> Exact:
        index: Exact | None = self.postings if space == "sparse" else self.words if space == "bm25" else None
        if index is None:
            raise ArgumentError(f"{self.place}: space {space!r}: the index was made without such vectors")
        return index

    def _dense(self) -> DenseIndex:
        if self.dense is None:
            raise ArgumentError(f"{self.place}: space 'dense': the index was made without such vectors")
        return self.dense

    def _rows_that_pass(self, filter: Filter) -> np.ndarray:
        """Return whether each document passes, bool [n]."""
        texts = (text for chunk in self.texts.column("fields").chunks for text in chunk.to_pylist())
        passing = (matches(filter, json.loads(text) if text else {}) for text in texts)
        return np.fromiter(passing, bool, len(self))

    def _read_texts(self, path: Path, verify: bool = True) -> pa.Table:
        """Read texts; `verify` compares their checksum first."""
        try:
            if verify and file_checksum(path) != self.files[path.name]:
                raise VectorsError(f"{path}: the index is damaged (its checksum differs): {ANOTHER}")
            with pa.memory_map(str(regular(path))) as source:
                table = ipc.open_file(source).read_all()
            table.validate(full=verify)
        except (OSError, pa.ArrowException) as error:
            raise VectorsError(f"{path}: the index is damaged: {error}") from error
        if not table.schema.equals(TEXT_SCHEMA) or any(column.null_count for column in table.columns):
            raise VectorsError(f"{path}: the index is damaged: expected the columns {', '.join(TEXT_SCHEMA.names)}")
        return table

    def _refuse_change(self) -> NoReturn:
        raise ArgumentError(f"{self.place} cannot change: index again to a plain folder, or to a server")


ENGINE = ExactStore
