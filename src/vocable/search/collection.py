"""A searchable corpus on disk: postings, texts, and the name of the model that made them.

FOLDER/collection.json   what made it
FOLDER/postings/         the exact index
FOLDER/texts.arrow       id, title and text by row, memory-mapped
FOLDER/bm25/             the lexical index, where it was asked for
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as ipc

from vocable.data import Document
from vocable.encoder.encode import TextEncoder
from vocable.encoder.stream import TEXT_SCHEMA, StreamProgress, encode_stream
from vocable.errors import ArgumentError, VectorsError
from vocable.search.bm25 import BM25Index
from vocable.search.exact import ExactIndex
from vocable.storage import replacing
from vocable.vectors import read_vectors

MANIFEST = "collection.json"


@dataclass(frozen=True)
class Collection:
    """An opened collection. `texts` is an Arrow table with columns id, title, text; `bm25` is None if not built."""

    model: str
    source: str
    postings: ExactIndex
    texts: pa.Table
    bm25: BM25Index | None

    def document(self, row: int) -> Document:
        """The document in a row of the index."""
        values = {name: self.texts.column(name)[row].as_py() for name in ("id", "text", "title")}
        return Document(**values)


def build_collection(
    encoder: TextEncoder,
    documents: Iterable[Document],
    folder: str | Path,
    *,
    model: str,
    source: str = "",
    bm25: bool = False,
    advance: Callable[[int], object] = lambda done: None,
) -> StreamProgress:
    """Encode `documents` and make them searchable in `folder`; a killed call goes on when it is repeated.

    Arguments and errors are those of `encode_stream`; `bm25` also builds the lexical index, for hybrid search.

    Raises:
        ArgumentError: the folder is there already, or there is no document.
    """
    folder, work = Path(folder), _partial(folder)
    if folder.exists():
        raise ArgumentError(f"{folder} is already there: name another output, or remove it")
    work.mkdir(parents=True, exist_ok=True)
    encoded = work / "encoded"
    progress = encode_stream(encoder, documents, encoded, model=model, source=source, keep_texts=True, advance=advance)
    if not progress.texts:
        shutil.rmtree(work)
        raise ArgumentError(f"{source or 'the corpus'} has no documents")
    vectors = read_vectors(encoded)
    ExactIndex(vectors.matrix, vectors.ids, vectors.meta).save(work / "postings")
    _join_texts(encoded, work / "texts.arrow")
    if bm25:
        _build_bm25(_read_texts(work / "texts.arrow"), work / "bm25")
    with replacing(work / MANIFEST) as file:
        file.write(json.dumps({"model": model, "source": source, **asdict(progress)}, indent=2).encode())
    shutil.rmtree(encoded)
    os.replace(work, folder)
    return progress


def open_collection(folder: str | Path) -> Collection:
    """Open what `build_collection` made, memory-mapped.

    Raises:
        VectorsError: there is no collection, or it is damaged.
    """
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        model, source = str(manifest["model"]), str(manifest["source"])
        texts = _read_texts(folder / "texts.arrow")
    except FileNotFoundError as error:
        unfinished = " (an unfinished one is: repeat the command that began it)" if _partial(folder).exists() else ""
        raise VectorsError(f"{folder}: there is no index here{unfinished}") from error
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowInvalid) as error:
        raise VectorsError(f"{folder}: the index is damaged: {error}") from error
    postings = ExactIndex.load(folder / "postings")
    bm25 = BM25Index.load(folder / "bm25") if (folder / "bm25").exists() else None
    if len(postings) != len(texts):
        raise VectorsError(f"{folder}: the index is damaged: {len(postings)} vectors for {len(texts)} texts")
    return Collection(model, source, postings, texts, bm25)


def _partial(folder: str | Path) -> Path:
    return Path(f"{folder}.partial")


def _join_texts(parts: Path, path: Path) -> None:
    with replacing(path) as file, ipc.new_file(file, TEXT_SCHEMA) as writer:
        for part in sorted(parts.glob("part-*.arrow")):
            writer.write_table(_read_texts(part))


def _read_texts(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return ipc.open_file(source).read_all()


def _build_bm25(texts: pa.Table, folder: Path) -> None:
    full = [
        Document(id, text, title).full
        for id, text, title in zip(*(texts.column(name).to_pylist() for name in ("id", "text", "title")), strict=True)
    ]
    BM25Index(full, texts.column("id").to_pylist()).save(folder)
