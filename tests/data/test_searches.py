"""Logs of searches: the ways in which tables are written, and rows that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vocable.data import BadLines
from vocable.data.searches import LoggedSearch, read_searches
from vocable.errors import DataError

READ = [LoggedSearch("copy a file", "/io/", 3), LoggedSearch('quote "it", please', "b.html", 1)]


@pytest.mark.parametrize(
    "text",
    [
        'query,page,count\ncopy a file,/io/,3\n"quote ""it"", please",b.html,\n',
        '\ufeffQuery;URL;Clicks\r\ncopy  a file ;/io/;3\r\n"quote ""it"", please";b.html;1\r\n',
        'date,url,query,count\n1.2.,/io/,copy a file,3\n\n1.2.,b.html,"quote\n""it"", please",1\n',
        'query\tid\tcount\ncopy a file\t/io/\t3\n"quote ""it"", please"\tb.html\n',
        'copy a file,/io/,3\n"quote ""it"", please",b.html\n',
    ],
    ids=["quotes", "semicolons", "further columns and lines", "tabs", "no header"],
)
def test_a_table_has_queries_pages_and_counts(text: str, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(text, encoding="utf-8", newline="")
    assert list(read_searches(log, bad=BadLines())) == READ


def test_lines_of_json_have_the_same_fields(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = [{"query": "copy a file", "url": "/io/", "clicks": 3}, {"query": READ[1].query, "page": "b.html"}]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert list(read_searches(log, bad=BadLines())) == READ


@pytest.mark.parametrize(
    ("row", "line", "reason"),
    [
        (b"a,/b/,1,4", 3, "4 cells"),
        (b"a", 3, 'no "page"'),
        (b"a, ,1", 3, 'an empty "page"'),
        (b" ,/b/,1", 3, 'an empty "query"'),
        (b"a,/b/,0", 3, "'0'"),
        (b"a,/b/,-1", 3, "'-1'"),
        (b"a,/b/,1.5", 3, "'1.5'"),
        (b"a,/b/,many", 3, "'many'"),
        (b"a,/b/,99999999999", 3, "'99999999999'"),
        (b'"a"b,/b/,1', 3, "CSV"),
        (b'"a,/b/,1', 3, "CSV"),
        (b"\xff,/b/,1", 3, "UTF-8"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(row: bytes, line: int, reason: str, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_bytes(b"query,page,count\ncopy a file,/io/,3\n" + row + b"\n")
    with pytest.raises(DataError) as error:
        list(read_searches(log, bad=BadLines()))
    assert str(error.value).startswith(f"{log}:{line}: ")
    assert reason in str(error.value)


def test_bad_rows_are_tolerated_up_to_a_limit(tmp_path: Path) -> None:
    log, bad = tmp_path / "log.csv", BadLines(1)
    log.write_text("query,page\nb\ncopy a file,/io/\n", encoding="utf-8")
    assert list(read_searches(log, bad=bad)) == [LoggedSearch("copy a file", "/io/")]
    assert bad.count == 1


@pytest.mark.parametrize("name", ["missing.csv", "missing.jsonl"])
def test_a_missing_log_is_an_error_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read_searches(tmp_path / name, bad=BadLines())
    assert name in str(error.value)
