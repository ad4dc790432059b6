"""Sources: files, standard input, folders in BEIR's layout, ir_datasets and datasets of the Hub."""

from __future__ import annotations

import io
import itertools
import sys
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.data.test_read import DOCUMENTS, JSONL, write
from vocable.data import (
    BadLines,
    Document,
    Example,
    Qrel,
    Query,
    read_corpus,
    read_examples,
    read_judgments,
    read_queries,
)
from vocable.errors import ArgumentError, DataError, MissingExtraError


def feed(monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    write(
        folder / "corpus.jsonl",
        '{"_id": "d1", "title": "T", "text": "one"}\n{"_id": "d2", "title": "", "text": "two"}\n',
    )
    write(folder / "queries.jsonl.gz", "".join(f'{{"_id": "q{n}", "text": "query {n}"}}\n' for n in range(4)))
    write(folder / "qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    write(
        folder / "qrels/train.tsv",
        "query-id\tcorpus-id\tscore\nq0\td2\t1\nq2\td1\t2\nq2\td2\t0\nq3\tgone\t1\nq9\td1\t1\n",
    )
    return folder


class TestPlaces:
    def test_missing_files_and_unknown_endings_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"none\.jsonl"):
            read_corpus(tmp_path / "none.jsonl")
        path = write(tmp_path / "c.csv.gz", "x")
        with pytest.raises(DataError, match=r"c\.csv\.gz: .*\.zst"):
            read_corpus(path)
        with pytest.raises(DataError, match=r"e\.txt: .*\.ndjson"):
            read_examples(write(tmp_path / "e.txt", "x"))
        with pytest.raises(DataError):
            read_queries(tmp_path)

    @pytest.mark.parametrize("packed", [".gz", ".zst"])
    @pytest.mark.parametrize("name", ["c.jsonl", "c.parquet"])
    def test_compressed_files_that_are_cut_short_are_refused(self, tmp_path: Path, packed: str, name: str) -> None:
        path = write(tmp_path / f"{name}{packed}", b"".join(b'{"_id": "%d", "text": "t"}\n' % n for n in range(20_000)))
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(DataError):
            list(read_corpus(path, bad=BadLines(10)))

    def test_damaged_files_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "c.jsonl.gz").write_bytes(JSONL)
        with pytest.raises(DataError, match=r"c\.jsonl\.gz"):
            list(read_corpus(tmp_path / "c.jsonl.gz"))
        with pytest.raises(DataError, match=r"c\.parquet"):
            list(read_corpus(write(tmp_path / "c.parquet", JSONL)))

    def test_a_missing_pyarrow_names_the_extra(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(MissingExtraError):
            next(read_corpus(write(tmp_path / "c.parquet", JSONL)))

    def test_stdin_streams(self, monkeypatch: pytest.MonkeyPatch) -> None:
        endless = (b'{"_id": %d, "text": "t"}\n' % number for number in itertools.count())
        feed(monkeypatch, SimpleNamespace(readline=lambda limit: next(endless)))
        assert list(itertools.islice(read_corpus("-"), 2)) == [Document("0", "t"), Document("1", "t")]
        assert next(endless) == b'{"_id": 2, "text": "t"}\n'  # nothing was read ahead

    @pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz", "-"])
    def test_a_line_without_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        monkeypatch.setenv("VOCABLE_MAX_LINE", "1")
        content = JSONL + b'{"_id": "d3", "text": "' + b"x" * (1 << 20)
        feed(monkeypatch, io.BytesIO(content))
        source = name if name == "-" else write(tmp_path / name, content)
        with pytest.raises(DataError, match=rf"{name}:3: a line of more than 1 MB"):
            list(read_corpus(source))

    def test_longer_lines_when_asked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        long = "x" * (1 << 20)
        source = write(tmp_path / "c.jsonl", JSONL + f'{{"_id": "d3", "text": "{long}"}}\n'.encode())
        monkeypatch.setenv("VOCABLE_MAX_LINE", "2")
        assert [document.text for document in read_corpus(source)][-1] == long
        monkeypatch.setenv("VOCABLE_MAX_LINE", "0.5")
        with pytest.raises(ArgumentError, match="VOCABLE_MAX_LINE"):
            list(read_corpus(source))

    def test_stdin_bad_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        feed(monkeypatch, io.BytesIO(b'{"query": "q", "positive": "p"}\nx\n'))
        examples = read_examples("-")
        assert next(examples) == Example("q", "p", (), "stdin")
        with pytest.raises(DataError, match=r"^-:2: .* 1\)"):
            next(examples)

    def test_hf_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
        write(tmp_path / "one/train.jsonl", JSONL.splitlines()[0])
        assert list(read_corpus(f"hf:{tmp_path / 'one'}")) == DOCUMENTS[:1]
        write(tmp_path / "one/test.jsonl", b'{"_id": "", "title": "", "text": ""}')
        assert list(read_corpus(f"hf:{tmp_path / 'one'}#train")) == DOCUMENTS[:1]
        with pytest.raises(DataError, match=r"hf:.*one:1: "):
            list(read_corpus(f"hf:{tmp_path / 'one'}#test"))
        with pytest.raises(DataError):
            list(read_corpus(f"hf:{tmp_path / 'one'}"))
        with pytest.raises(DataError, match=r"'dev', .* train, test$"):
            list(read_corpus(f"hf:{tmp_path / 'one'}#dev"))
        with pytest.raises(DataError):
            list(read_corpus(f"hf:{tmp_path / 'none'}"))


class TestBeir:
    def test_the_split_of_a_beir_folder_is_chosen_after_a_number_sign(self, beir: Path) -> None:
        place = f"beir:{beir}"
        assert list(read_corpus(f"{place}#train")) == [Document("d1", "one", "T"), Document("d2", "two")]
        assert list(read_judgments(place)) == [Qrel("q1", "d1", 1)]
        assert len(list(read_judgments(f"{place}#train"))) == 5
        assert list(read_queries(place)) == [Query("q1", "query 1")]
        assert [query.id for query in read_queries(f"{place}#train")] == ["q0", "q2", "q3"]
        assert len(list(read_queries(beir / "queries.jsonl.gz"))) == 4

    def test_examples_are_the_judged_pairs_of_train(self, beir: Path) -> None:
        expected = [Example("query 2", "T one", (), "tiny"), Example("query 0", "two", (), "tiny")]
        assert list(read_examples(f"beir:{beir}")) == expected
        assert list(read_examples(f"beir:{beir}#")) == expected
        assert list(read_examples(f"beir:{beir}#test")) == [Example("query 1", "T one", (), "tiny")]

    @pytest.mark.parametrize("name", ["qrels.tsv", "qrels.test.tsv.gz", "qrels/test.jsonl"])
    def test_names_of_judgments(self, tmp_path: Path, name: str) -> None:
        line = '{"query-id": "q", "corpus-id": "d", "score": 1}' if name.endswith("jsonl") else "q d 1"
        write(tmp_path / name, line)
        assert list(read_judgments(f"beir:{tmp_path}")) == [Qrel("q", "d", 1)]
        assert list(read_judgments(f"beir:{tmp_path}#test")) == [Qrel("q", "d", 1)]

    def test_what_is_not_there(self, beir: Path, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=f"beir:{beir}$"):
            read_corpus(beir)
        for read in (read_queries, read_judgments):
            with pytest.raises(DataError, match=r"'dev', only qrels/test\.tsv, qrels/train\.tsv"):
                read(f"beir:{beir}#dev")
        with pytest.raises(DataError):
            read_corpus(f"beir:{beir}/none")
        with pytest.raises(DataError, match=r"corpus\.jsonl"):
            read_corpus(f"beir:{tmp_path}")
        with pytest.raises(DataError, match="'test'"):
            read_judgments(f"beir:{tmp_path}")

    def test_a_folder_without_judgments_gives_all_queries(self, tmp_path: Path) -> None:
        write(tmp_path / "queries.tsv", "1\ta\n2\tb\n")
        assert [query.id for query in read_queries(f"beir:{tmp_path}")] == ["1", "2"]
        with pytest.raises(DataError):
            read_queries(f"beir:{tmp_path}#train")

    def test_bad_judgments_count_once(self, beir: Path) -> None:
        write(beir / "qrels/test.tsv", "q1 d1 1\nq2\n")
        bad = BadLines(1)
        assert [query.id for query in read_queries(f"beir:{beir}", bad=bad)] == ["q1"]
        assert len(list(read_judgments(f"beir:{beir}", bad=bad))) == bad.count == 1
        with pytest.raises(DataError, match=r"test\.tsv:2: "):
            list(read_queries(f"beir:{beir}"))


class Dataset:
    """A dataset of ir_datasets whose document type has no field named text."""

    Doc = namedtuple("Doc", ["doc_id", "title", "body"])
    Ask = namedtuple("Ask", ["query_id", "text"])
    Judged = namedtuple("Judged", ["query_id", "doc_id", "relevance", "iteration"])

    def docs_iter(self) -> Iterator[Any]:
        kind = type("Page", (self.Doc,), {"default_text": lambda page: f"{page.title} {page.body}"})
        yield kind("d1", "T", "one")

    def queries_iter(self) -> Iterator[Any]:
        yield self.Ask("q1", "query 1")

    def qrels_iter(self) -> Iterator[Any]:
        yield self.Judged("q1", "d1", 2, "0")


class TestIrDatasets:
    @pytest.fixture
    def library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        known = {"tiny/test": Dataset(), "tiny": object()}
        monkeypatch.setitem(sys.modules, "ir_datasets", SimpleNamespace(load=known.__getitem__))

    @pytest.mark.usefixtures("library")
    def test_records_of_ir_datasets_are_read(self) -> None:
        place = "ir_datasets:tiny/test"
        assert list(read_corpus(place)) == [Document("d1", "T one")]
        assert list(read_queries(place)) == [Query("q1", "query 1")]
        assert list(read_judgments(place)) == [Qrel("q1", "d1", 2)]
        assert list(read_examples(place)) == [Example("query 1", "T one", (), "tiny/test")]

    @pytest.mark.usefixtures("library")
    def test_what_is_not_there(self) -> None:
        with pytest.raises(DataError, match=r"^ir_datasets:none: "):
            read_corpus("ir_datasets:none")
        with pytest.raises(DataError, match=r"^ir_datasets:tiny: "):
            read_judgments("ir_datasets:tiny")
        with pytest.raises(DataError):
            read_queries("ir_datasets:tiny#test")

    def test_a_missing_ir_datasets_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "ir_datasets", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'vocable\[ir-datasets\]'"):
            read_corpus("ir_datasets:tiny/test")
