"""Values of records that are written as text."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.test_read import write
from vocable.data import (
    Document,
    Example,
    read_corpus,
    read_examples,
)
from vocable.errors import DataError


class TestListsAsText:
    """Lists in the text of a column: JSON is read, Python's own notation is refused."""

    @pytest.mark.parametrize("negatives", ["['x', 'y']", "['x' 'y']", "[1, None]", "{'a': 1}", "[\"it's\", 'y']"])
    @pytest.mark.parametrize("form", ["e.jsonl", "e.tsv", "header.tsv", "e.parquet"])
    def test_lists_that_python_printed(self, tmp_path: Path, negatives: str, form: str) -> None:
        path = tmp_path / form
        if form == "e.parquet":
            pq.write_table(pa.table({"query": ["q"], "positive": ["p"], "negatives": [negatives]}), path)
        elif form == "e.jsonl":
            write(path, json.dumps({"query": "q", "positive": "p", "negatives": negatives}))
        else:
            write(path, ("query\tpositive\tnegatives\n" if "header" in form else "") + f"q\tp\t{negatives}\n")
        line = 2 if "header" in form else 1
        with pytest.raises(DataError, match=rf'{form}:{line}: "negatives" .*Python (list|dict)'):
            list(read_examples(path))

    @pytest.mark.parametrize("form", ["e.jsonl", "e.tsv", "header.tsv", "e.parquet"])
    def test_lists_in_json(self, tmp_path: Path, form: str) -> None:
        path, row = tmp_path / form, {"query": "q", "positive": "p", "negatives": '["x", "y"]', "scores": "[1, 2.5, 0]"}
        if form == "e.parquet":
            pq.write_table(pa.table({name: [value] for name, value in row.items()}), path)
        elif form == "e.jsonl":
            write(path, json.dumps(row))
        elif form == "e.tsv":
            write(path, "q\tp\t" + row["negatives"])
        else:
            write(path, "\t".join(row) + "\n" + "\t".join(row.values()))
        scores = () if form == "e.tsv" else (1.0, 2.5, 0.0)
        assert list(read_examples(path)) == [Example("q", "p", ("x", "y"), path.name.partition(".")[0], scores)]

    @pytest.mark.parametrize("negative", ["[sic] is no list", "[1] and [2]", "a, b", "{curly}", "[a b]"])
    def test_texts_that_look_like_lists_stay_texts(self, tmp_path: Path, negative: str) -> None:
        path = write(tmp_path / "e.jsonl", json.dumps({"query": "q", "positive": "p", "negatives": negative}))
        assert next(read_examples(path)).negatives == (negative,)
        path = write(tmp_path / "e.jsonl", json.dumps({"query": "q", "positive": "p", "negative": "['x', 'y']"}))
        assert next(read_examples(path)).negatives == ("['x', 'y']",)  # of one that is called one

    def test_fields_in_json_are_read_and_those_of_python_refused(self, tmp_path: Path) -> None:
        row = {"_id": "1", "text": "[1, 2]", "title": "{'a'}", "tags": '["a"]', "more": '{"n": {"m": 1}}', "no": "[x]"}
        fields = {"tags": ["a"], "more": {"n": {"m": 1}}, "no": "[x]"}
        assert list(read_corpus(write(tmp_path / "c.jsonl", json.dumps(row)))) == [
            Document("1", "[1, 2]", "{'a'}", fields)
        ]
        told = {"_id": "1", "text": "a", "fields": '{"lang": "de"}'}
        assert next(read_corpus(write(tmp_path / "c.jsonl", json.dumps(told)))).fields == {"lang": "de"}
        for name, value in (("tags", "['a']"), ("metadata", "{'lang': 'de', 'n': None}"), ("fields", "{'a': 1}")):
            path = write(tmp_path / "c.jsonl", json.dumps({"_id": "1", "text": "a", name: value}))
            with pytest.raises(DataError, match=rf'c\.jsonl:1: "{name}" .*Python (list|dict)'):
                list(read_corpus(path))
        for own, fields in (
            ({"year": 1, "n": None}, {"lang": "de", "year": 1}),
            ({"lang": "en", "fields": 2}, {"lang": "de", "fields": {"lang": "en", "fields": 2}}),  # none is lost
            ({"lang": None}, {"lang": "de"}),
        ):
            row = {"_id": "1", "text": "a", "lang": "de", "fields": own}
            assert next(read_corpus(write(tmp_path / "c.jsonl", json.dumps(row)))).fields == fields
        kept = {"_id": "1", "text": "a", "fields": {"tags": '["a"]'}}  # that vocable wrote
        assert next(read_corpus(write(tmp_path / "c.jsonl", json.dumps(kept)))).fields == {"tags": '["a"]'}
