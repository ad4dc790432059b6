"""The columns of a Parquet corpus are fields that filters find, dates in their order."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SparseEncoder

import vocable as vo


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_filters_find_parquet_columns(toy_model: SparseEncoder, tmp_path: Path, place: str) -> None:
    days = [datetime.date(2024, 3, day) for day in (1, 2, 3)]
    columns = {
        "_id": ["a", "b", "c"],
        "text": ["the old fox reads", "an old fox at night", "old books of a fox"],
        "lang": ["de", "en", "de"],
    }
    moments = [datetime.datetime.combine(day, datetime.time(12)) for day in days]
    columns |= {"day": days, "moment": moments, "tags": [["x"], ["x", "y"], []], "year": [2024, 2025, 2026]}
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    index = vo.index(toy_model, tmp_path / "c.parquet", tmp_path / "ix" if place == "folder" else None, dtype="float32")
    found = {
        "lang=de": {"a", "c"},
        "year>2024": {"b", "c"},
        "day>=2024-03-02": {"b", "c"},
        "day=2024-03-01": {"a"},
        "moment>2024-03-02": {"b", "c"},
        "tags=y": {"b"},
    }
    for asked, ids in found.items():
        [answer] = vo.search(index, ["old fox"], filter=asked)
        assert {hit.document.id for hit in answer.hits} == ids, asked
    assert index.documents(["a"])[0].fields == {
        "lang": "de",
        "day": "2024-03-01",
        "moment": "2024-03-01 12:00:00",
        "tags": ["x"],
        "year": 2024,
    }
    index.close()
