"""Documents as Arrow tables and files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as ipc

from vocable.core.storage import regular, replacing
from vocable.data.records import Document

TEXT_SCHEMA = pa.schema(  # fields: a JSON object, "" for none
    [("id", pa.string()), *((name, pa.large_string()) for name in ("title", "text", "fields"))]
)


def text_table(documents: Sequence[Document]) -> pa.Table:
    """Return documents as a table of `TEXT_SCHEMA`, with their further fields as JSON."""
    fields = [json.dumps(d.fields, ensure_ascii=False) if d.fields else "" for d in documents]
    texts = ([getattr(document, name) for document in documents] for name in TEXT_SCHEMA.names[:-1])
    return pa.table([*texts, fields], schema=TEXT_SCHEMA)


def documents_of(table: pa.Table) -> list[Document]:
    """Return the documents in a table that `text_table` made."""
    rows = zip(*(table.column(name).to_pylist() for name in TEXT_SCHEMA.names), strict=True)
    return [Document(id, text, title, json.loads(fields) if fields else {}) for id, title, text, fields in rows]


def write_texts(path: Path, tables: Iterable[pa.Table]) -> None:
    """Write tables of `TEXT_SCHEMA` as one Arrow file, atomically."""
    with replacing(path) as file, ipc.new_file(file, TEXT_SCHEMA) as writer:
        for table in tables:
            writer.write_table(table)


def file_checksum(path: Path) -> int:
    """Return the CRC-32 of a file."""
    with pa.memory_map(str(regular(path))) as file:
        return zlib.crc32(file.read_buffer())
