"""Lines that repeat or contradict others, documents without text, and how many bad lines are tolerated."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vocable as vo
from vocable.data import (
    BadLines,
    Document,
    read_corpus,
    read_examples,
    read_judgments,
    read_mined_negatives,
    read_queries,
    read_run,
    read_texts,
    tolerating,
)
from vocable.data.bad_lines import tolerance
from vocable.errors import DataError
from vocable.indexes.bm25 import BM25Index

# What is read, a line, one that says the same, one that contradicts it, and what the message names.
REPEATS: dict[str, tuple[Callable[..., Iterator[Any]], str, str, str, str]] = {
    "c.jsonl": (
        read_corpus,
        '{"_id": "1", "text": "a", "lang": "de"}',
        '{"lang": "de", "id": 1, "contents": "a", "title": ""}',
        '{"_id": "1", "text": "a", "lang": "en"}',
        "duplicate id '1'",
    ),
    "c.tsv": (read_corpus, "1\ta", "1\ta", "1\tb", "duplicate id '1'"),
    "q.jsonl": (
        read_queries,
        '{"_id": "1", "text": "a"}',
        '{"id": 1, "text": "a"}',
        '{"_id": "1", "text": "A"}',
        "'1'",
    ),
    "q.tsv": (read_queries, "1\ta", "1\ta", "1\tb", "duplicate id '1'"),
    "r.tsv": (read_judgments, "q\td\t1", "q\td\t1.0", "q\td\t2", "doc_id 'd'"),
    "r.qrels": (read_judgments, "q 0 d 1", "q Q0 d  1", "q 0 d -1", "doc_id 'd'"),
    "r.run": (read_run, "q Q0 d 1 2.5 t", "q Q0 d 9 2.50 u", "q Q0 d 1 2.6 t", "doc_id 'd'"),
    "n.jsonl": (
        read_mined_negatives,
        '{"qid": 7, "pos": [1], "neg": {"a": [3]}}',
        '{"qid": "7", "pos": ["1"], "neg": {"a": ["3"]}}',
        '{"qid": 7, "pos": [1], "neg": {"a": [4]}}',
        "query_id '7'",
    ),
}


@pytest.mark.parametrize("name", REPEATS)
def test_a_repeat_is_passed_over_and_a_contradiction_named(tmp_path: Path, name: str) -> None:
    read, line, same, other, named = REPEATS[name]
    path, bad = tmp_path / name, BadLines()
    path.write_text(f"{line}\n{same}\n{line}\n", encoding="utf-8")
    assert len(list(read(path, bad=bad))) == 1
    assert (bad.count, bad.repeated) == (0, 2)
    path.write_text(f"{line}\n{same}\n{other}\n", encoding="utf-8")
    with pytest.raises(DataError, match=named) as caught:
        list(read(path))
    assert (caught.value.source, caught.value.line) == (str(path), 3)
    bad = BadLines(1)
    assert len(list(read(path, bad=bad))) == 1
    assert (bad.count, bad.repeated, bad.first) == (1, 1, str(caught.value))


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """A collection as they are published: documents without text, a judgment twice, and a query twice."""
    documents = [("d1", "T", "one"), ("d2", "", ""), ("d3", "", "three"), ("d4", " ", "")]
    rows = [{"_id": name, "title": title, "text": text} for name, title, text in documents]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    queries = '{"_id": "q1", "text": "one"}\n{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "three"}\n'
    (tmp_path / "queries.jsonl").write_text(queries, encoding="utf-8")
    judgments = "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td1\t1\nq1\td2\t1\nq2\td3\t1\nq2\td4\t0\n"
    for split in ("test", "train"):
        (tmp_path / f"qrels.{split}.tsv").write_text(judgments, encoding="utf-8")
    return tmp_path


def test_documents_without_text_of_a_published_collection_are_kept(beir: Path) -> None:
    bad = BadLines()
    found = list(read_corpus(f"beir:{beir}", bad=bad))
    assert [(one.id, one.full) for one in found] == [("d1", "T one"), ("d2", ""), ("d3", "three"), ("d4", "")]
    assert (bad.count, bad.empty, bad.repeated) == (0, 2, 0)
    assert found[1] == Document("d2", "")
    assert list(read_texts(f"beir:{beir}")) == ["T one", "three"]  # there is nothing to learn of the others
    assert [example.positive for example in read_examples(f"beir:{beir}#test")] == ["T one", "three"]
    with pytest.raises(DataError, match=r"corpus\.jsonl:2: .*'d2'"):
        list(read_corpus(beir / "corpus.jsonl"))


@pytest.mark.parametrize(
    "row", ['{"_id": "x"}', '{"_id": "x", "body": "a"}', '{"_id": "x", "text": 3}', '{"text": ""}']
)
def test_documents_of_a_published_collection_need_an_id_and_a_text(beir: Path, row: str) -> None:
    (beir / "corpus.jsonl").write_text(f"{row}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"corpus\.jsonl:1: "):
        list(read_corpus(f"beir:{beir}"))


def test_a_published_collection_is_evaluated_as_it_was_published(beir: Path, caplog: pytest.LogCaptureFixture) -> None:
    (beir / "run").write_text("q1 Q0 d1 1 2 t\nq2 Q0 d1 1 2 t\nq2 Q0 d3 2 1 t\n", encoding="utf-8")
    [run, lexical] = vo.evaluate(beir / "run", f"beir:{beir}", ["RR", "R@10", "NumRet"], bm25=True)
    assert run.per_query["RR"] == {"q1": 1.0, "q2": 0.5}
    assert lexical.per_query["RR"] == {"q1": 1.0, "q2": 1.0}
    assert lexical.per_query["R@10"] == {"q1": 0.5, "q2": 1.0}  # d2 is relevant, and nothing finds it
    assert lexical.per_query["NumRet"] == {"q1": 1.0, "q2": 1.0}
    said = [one.getMessage() for one in caplog.records if one.name.startswith("vocable")]
    assert sorted(said) == [
        f"{beir}/corpus.jsonl: 2 documents without text, which no search finds",
        f"{beir}/qrels.test.tsv: 1 repeated judgment skipped",
        f"{beir}/queries.jsonl: 1 repeated query skipped",
    ]


def test_bm25_does_not_find_documents_without_text() -> None:
    index = BM25Index(["one", "", "two"], ["a", "b", "c"])
    ranking = index.search(index.query_vectors(["one two", ""]), 3)
    assert [sorted(name for name, _ in ranking.hits(row)) for row in range(2)] == [["a", "c"], []]


LINES = '{"_id": "a", "text": "x"}\n{oops\n{"_id": "b", "text": ""}\n{"_id": "c", "text": "z"}\n'


def test_a_block_tolerates_bad_lines_of_all_that_is_opened_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [tmp_path / name for name in ("one.jsonl", "two.jsonl")]
    for path in paths:
        path.write_text(LINES, encoding="utf-8")
    with tolerating(4) as bad:
        opened = [read_corpus(path) for path in paths]
        assert tolerance() is bad
        with tolerating(0) as same:  # a verb that is called without a number of its own
            again = read_corpus(paths[0])
            assert same is bad
    assert tolerance() is not bad
    assert caplog.messages == []  # of what was read until then
    assert [[one.id for one in some] for some in (*opened, again)] == [["a", "c"]] * 3
    assert bad.count == 4  # a line that is read twice is one
    assert str(bad.first).startswith(f"{paths[0]}:2: not JSON")
    with pytest.raises(DataError, match=r"two\.jsonl:3: .*4 .*3 "), tolerating(3):
        [list(read_corpus(path)) for path in paths]
    with tolerating(2):
        list(read_corpus(paths[0]))
    assert caplog.record_tuples == [
        ("vocable.data.bad_lines", logging.WARNING, f"2 bad lines skipped, the first: {bad.first}")
    ]


def test_a_verb_tolerates_as_many_as_it_is_told(beir: Path, caplog: pytest.LogCaptureFixture) -> None:
    (beir / "run").write_text("q1 Q0 d1 1 2 t\nq2 Q0 d3\nq2 Q0 d3 2 1 t\n", encoding="utf-8")
    for name in ("qrels.test.tsv", "queries.jsonl"):
        with (beir / name).open("a", encoding="utf-8") as file:
            file.write("q1\n")
    for limit in (0, 2):
        with pytest.raises(DataError, match=rf"{beir}/(run:2|qrels.test.tsv:7|queries.jsonl:4): "):
            vo.evaluate(beir / "run", f"beir:{beir}", ["RR"], skip_bad=limit)
    [found] = vo.evaluate(beir / "run", f"beir:{beir}", ["RR"], skip_bad=3)
    assert found.values == {"RR": 1.0}
    assert sum(message.startswith("3 bad lines skipped, the first: ") for message in caplog.messages) == 1
