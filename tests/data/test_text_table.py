"""Documents as Arrow tables: what goes in comes out, from memory and from a file."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from vocable.data.records import Document
from vocable.data.text_table import TEXT_SCHEMA, documents_of, file_checksum, text_table, write_texts

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUE = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | TEXT
FIELDS = st.dictionaries(TEXT, VALUE | st.lists(VALUE), max_size=3)
DOCUMENTS = st.lists(st.builds(Document, TEXT, TEXT, TEXT, FIELDS), max_size=5)


@given(DOCUMENTS)
def test_documents_come_back_with_all_their_fields(documents: list[Document]) -> None:
    table = text_table(documents)
    assert table.schema == TEXT_SCHEMA
    assert documents_of(table) == documents


@given(st.lists(DOCUMENTS, max_size=3))
def test_tables_are_one_file_in_their_order(tmp_path_factory: object, parts: list[list[Document]]) -> None:
    path = tmp_path_factory.mktemp("texts") / "texts.arrow"  # type: ignore[attr-defined]
    write_texts(path, map(text_table, parts))
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
        assert documents_of(table) == [document for part in parts for document in part]


def test_the_checksum_of_a_file_is_its_crc_32(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc" * 1000)
    assert file_checksum(tmp_path / "a") == zlib.crc32(b"abc" * 1000)
