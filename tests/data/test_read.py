from __future__ import annotations

import datetime
import gzip
import io
import itertools
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from vocable.data import (
    BadLines,
    Document,
    Example,
    MinedNegatives,
    Qrel,
    Query,
    ScoredDoc,
    read_corpus,
    read_examples,
    read_judgments,
    read_mined_negatives,
    read_queries,
    read_scores,
)
from vocable.data.records import visible
from vocable.errors import ArgumentError, DataError

PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
DOCUMENTS = [Document("d1", "A list is a sequence.", "Lists"), Document("2", "Ein Wörterbuch.", "")]
JSONL = """{"_id": "d1", "title": "Lists", "text": "A list is a sequence."}
{"id": 2, "contents": "Ein Wörterbuch."}
""".encode()


def write(path: Path, content: bytes | str) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(PACK[path.suffix if path.suffix in PACK else ""](data))
    return path


class TestFormats:
    @pytest.mark.parametrize("packed", PACK)
    def test_jsonl(self, tmp_path: Path, packed: str) -> None:
        assert list(read_corpus(write(tmp_path / f"c.jsonl{packed}", JSONL))) == DOCUMENTS

    @pytest.mark.parametrize("packed", PACK)
    def test_parquet(self, tmp_path: Path, packed: str) -> None:
        buffer = io.BytesIO()
        columns = {
            "_id": ["d1", "2"],
            "title": ["Lists", None],
            "text": [one.text for one in DOCUMENTS],
            "other": [1, 2],
        }
        pq.write_table(pa.table(columns), buffer)
        expected = [one._replace(fields={"other": number}) for number, one in enumerate(DOCUMENTS, start=1)]
        assert list(read_corpus(write(tmp_path / f"c.parquet{packed}", buffer.getvalue()))) == expected

    def test_parquet_fields(self, tmp_path: Path) -> None:
        day, moment = datetime.date(2024, 3, 1), datetime.datetime(2024, 3, 1, 12, 30)
        columns = {
            "_id": ["d1", "d2"],
            "text": ["one", "two"],
            "lang": ["de", None],
            "year": [2024, 2025],
            "share": [0.5, float("nan")],
            "day": [day, None],
            "moment": [moment, None],
            "tags": [["a", "b"], []],
            "from": [{"city": "Rome"}, {"city": None}],
            "price": [Decimal("1.50"), None],
            "seen": [True, False],
            "json": ['["a", 1]', "[sic]"],
        }
        pq.write_table(pa.table(columns), tmp_path / "c.parquet")
        first = {"lang": "de", "year": 2024, "share": 0.5, "day": "2024-03-01", "moment": "2024-03-01 12:30:00"}
        first |= {"tags": ["a", "b"], "from": {"city": "Rome"}, "price": "1.50", "seen": True, "json": ["a", 1]}
        assert list(read_corpus(tmp_path / "c.parquet")) == [
            Document("d1", "one", "", first),
            Document("d2", "two", "", {"year": 2025, "from": {"city": None}, "seen": False, "json": "[sic]"}),
        ]

    def test_columns_that_no_record_has_are_not_read(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"id": ["1"], "text": ["a"], "other": [b"\xff"]}), tmp_path / "q.parquet")
        assert list(read_queries(tmp_path / "q.parquet")) == [Query("1", "a")]

    def test_parquet_negatives(self, tmp_path: Path) -> None:
        pq.write_table(
            pa.table({"anchor": ["q"], "positive": ["p"], "negatives": [["a", "b"]]}), tmp_path / "e.parquet"
        )
        assert list(read_examples(tmp_path / "e.parquet")) == [Example("q", "p", ("a", "b"), "e")]

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ("d1\tone\n", Document("d1", "one")),
            ("d1\tTitle\tone\n", Document("d1", "one", "Title")),
            ("d1\thttp://x\tTitle\tone\n", Document("d1", "one", "Title", {"url": "http://x"})),
            ("id\ttext\ttitle\nd1\tone\tTitle\n", Document("d1", "one", "Title")),
            ('d1\t"quoted\n', Document("d1", '"quoted')),
        ],
    )
    def test_tsv_corpus(self, tmp_path: Path, content: str, expected: Document) -> None:
        assert list(read_corpus(write(tmp_path / "c.tsv", content))) == [expected]

    def test_queries(self, tmp_path: Path) -> None:
        expected = [Query("7", "what is a list"), Query("8", "and a set")]
        assert list(read_queries(write(tmp_path / "q.tsv", "7\twhat is a list\n8\tand a set"))) == expected
        text = '{"id": 7, "text": "what is a list"}\n{"_id": "8", "text": "and a set"}'
        assert list(read_queries(write(tmp_path / "q.jsonl", text))) == expected

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("qrels.txt", "q1 0 d1 1\nq1 Q0 d2  0\n"),
            ("qrels.trec.gz", "q1\t0\td1\t1\nq1\t0\td2\t0\n"),
            ("qrels.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\n"),
            ("qrels.tsv.zst", "q1\td1\t1\nq1\td2\t0\n"),
            (
                "qrels.jsonl",
                '{"query-id": "q1", "corpus-id": "d1", "score": 1.0}\n{"query_id":"q1","doc_id":"d2","score":0}',
            ),
        ],
    )
    def test_judgments(self, tmp_path: Path, name: str, content: str) -> None:
        assert list(read_judgments(write(tmp_path / name, content))) == [Qrel("q1", "d1", 1), Qrel("q1", "d2", 0)]

    def test_ids_with_blanks_in_a_table_with_a_header(self, tmp_path: Path) -> None:
        path = write(tmp_path / "qrels.tsv", "query-id\tcorpus-id\tscore\nq 1\td 1\t1\n")
        assert list(read_judgments(path)) == [Qrel("q 1", "d 1", 1)]

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("pairs.tsv", "q\tp\nq2\tp2\tn1\tn2\n"),
            ("pairs.jsonl.gz", '{"query":"q","positive":"p"}\n{"anchor":"q2","positive":"p2","negatives":["n1","n2"]}'),
        ],
    )
    def test_examples(self, tmp_path: Path, name: str, content: str) -> None:
        expected = [Example("q", "p", (), "pairs"), Example("q2", "p2", ("n1", "n2"), "pairs")]
        assert list(read_examples(write(tmp_path / name, content))) == expected

    def test_single_negative(self, tmp_path: Path) -> None:
        path = write(tmp_path / "e.jsonl", '{"query":"q","positive":"p","negative":"n"}')
        assert list(read_examples(path)) == [Example("q", "p", ("n",), "e")]

    def test_numbered_negatives_and_scores(self, tmp_path: Path) -> None:
        expected = [Example("q", "p", ("a", "b"), "e", (3.0, 0.5, -1.0))]
        line = '{"query":"q","positive":"p","negative_1":"a","negative_2":"b","scores":[3,0.5,-1]}'
        assert list(read_examples(write(tmp_path / "e.jsonl", line))) == expected
        columns = {"anchor": ["q"], "positive": ["p"], "negative_1": ["a"], "negative_2": ["b"]}
        pq.write_table(pa.table(columns | {"scores": [[3.0, 0.5, -1.0]]}), tmp_path / "e.parquet")
        assert list(read_examples(tmp_path / "e.parquet")) == expected
        write(tmp_path / "e.tsv", "query\tpositive\tnegative_1\tnegative_2\nq\tp\ta\tb\n")
        assert list(read_examples(tmp_path / "e.tsv")) == [expected[0]._replace(scores=())]

    def test_mined_negatives(self, tmp_path: Path) -> None:
        line = '{"qid": 7, "pos": [1, 2], "neg": {"bm25": [3, 4], "dense": []}}'
        expected = [MinedNegatives("7", ("1", "2"), {"bm25": ("3", "4"), "dense": ()})]
        assert list(read_mined_negatives(write(tmp_path / "n.jsonl.gz", line))) == expected

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("s.tsv", "7\t1\t9.5\n7\t3\t-2\n"),
            ("s.tsv", "pid\tqid\tscore\n1\t7\t9.5\n3\t7\t-2\n"),
            ("s.jsonl", '{"qid": 7, "pid": 1, "score": 9.5}\n{"query_id": "7", "doc_id": "3", "score": -2}\n'),
        ],
    )
    def test_scores(self, tmp_path: Path, name: str, content: str) -> None:
        assert list(read_scores(write(tmp_path / name, content))) == [ScoredDoc("7", "1", 9.5), ScoredDoc("7", "3", -2)]

    @pytest.mark.parametrize("name", ["s.pkl", "s.pkl.gz", "s.pickle"])
    def test_pickles_are_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(DataError):
            read_scores(write(tmp_path / name, b"\x80\x04."))

    def test_text_file(self, tmp_path: Path) -> None:
        path = write(tmp_path / "c.txt", "one\tfield\n\nthree\n")
        assert list(read_corpus(path)) == [Document("1", "one\tfield"), Document("3", "three")]
        assert list(read_queries(path)) == [Query("1", "one\tfield"), Query("3", "three")]

    def test_json_lines_in_a_text_file_are_read_as_such(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = write(tmp_path / "c.txt", JSONL.decode())
        assert list(read_corpus(path)) == list(read_corpus(write(tmp_path / "c.jsonl", JSONL)))
        assert [record.getMessage() for record in caplog.records if "name it .jsonl" in record.getMessage()]
        braces = write(tmp_path / "b.txt", '{"_id": "d1", "text": "one"}\n{not JSON}\n')
        assert [one.text for one in read_corpus(braces)] == ['{"_id": "d1", "text": "one"}', "{not JSON}"]

    def test_marks_and_line_ends_are_passed_over(self, tmp_path: Path) -> None:
        content = b"\xef\xbb\xbfd1\tone\r\n\r\nd2\t\xe2\x80\xa8two\x85".replace(b"\x85", "\x85".encode())
        assert list(read_corpus(write(tmp_path / "c.tsv", content))) == [
            Document("d1", "one"),
            Document("d2", "\u2028two\x85"),
        ]
        content = b"\xef\xbb\xbf" + JSONL.replace(b"\n", b"\r\n\r\n")
        assert list(read_corpus(write(tmp_path / "c.jsonl", content))) == DOCUMENTS

    @pytest.mark.parametrize("packed", PACK)
    def test_empty_files_have_no_records(self, tmp_path: Path, packed: str) -> None:
        assert list(read_corpus(write(tmp_path / f"c.jsonl{packed}", b""))) == []

    @pytest.mark.parametrize("packed", [".gz", ".zst"])
    def test_members_after_the_first(self, tmp_path: Path, packed: str) -> None:
        first, second = JSONL.splitlines(keepends=True)
        path = tmp_path / f"c.jsonl{packed}"
        path.write_bytes(PACK[packed](first) + PACK[packed](second))
        assert list(read_corpus(path)) == DOCUMENTS


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(visible)
FIELD = TEXT.map(lambda text: text.replace("\t", " ").replace("\n", " ").replace("\r", " ")).filter(visible)
SCORES = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def _examples(draw: st.DrawFn) -> Example:
    negatives = draw(st.lists(TEXT, max_size=3))
    count = draw(st.sampled_from([0, 1 + len(negatives)]))
    scores = draw(st.lists(SCORES, min_size=count, max_size=count))
    return Example(draw(TEXT), draw(TEXT), tuple(negatives), "e", tuple(scores))


EXAMPLES = _examples()


FURTHER = st.dictionaries(
    st.sampled_from(["lang", "year", "id", "contents", "doc_id"]), st.sampled_from(["de", 3, 0.5, True, ["a"]])
)


def composed(example: Example) -> Example:
    """The example with its texts in Unicode's composed form, in which examples are read."""
    query, positive, *negatives = (
        normalize("NFC", one) for one in (example.query, example.positive, *example.negatives)
    )
    return example._replace(query=query, positive=positive, negatives=tuple(negatives))


class TestRoundTrip:
    @given(
        st.lists(st.builds(Document, FIELD, TEXT, st.one_of(st.just(""), TEXT), FURTHER), unique_by=lambda one: one.id),
        st.booleans(),
    )
    def test_jsonl(self, tmp_path: Path, documents: list[Document], ascii_only: bool) -> None:
        lines = (json.dumps(document._asdict(), ensure_ascii=ascii_only) + "\n" for document in documents)
        assert list(read_corpus(write(tmp_path / "c.jsonl.zst", "".join(lines)))) == documents

    @given(st.lists(st.builds(Document, FIELD, FIELD, FIELD, st.just({})), unique_by=lambda one: one.id))
    def test_tsv(self, tmp_path: Path, documents: list[Document]) -> None:
        # The header keeps a byte-order mark or the words "id", "text" of a first record from being read as such.
        lines = ("id\ttitle\ttext\n", *(f"{one.id}\t{one.title}\t{one.text}\n" for one in documents))
        assert list(read_corpus(write(tmp_path / "c.tsv", "".join(lines)))) == documents

    @given(st.lists(EXAMPLES))
    def test_examples(self, tmp_path: Path, examples: list[Example]) -> None:
        lines = (json.dumps(example._asdict()) + "\n" for example in examples)
        assert list(read_examples(write(tmp_path / "e.jsonl", "".join(lines)))) == [composed(one) for one in examples]

    @given(st.binary(max_size=200))
    def test_any_bytes_give_records_or_a_data_error(self, tmp_path: Path, content: bytes) -> None:
        for read, name in itertools.product((read_corpus, read_judgments, read_examples), ("a.jsonl", "a.tsv")):
            path = tmp_path / name
            path.write_bytes(content)
            lines = content.count(b"\n") + 1
            bad = BadLines(lines)
            assert len(list(read(path, bad=bad))) + bad.count <= lines


@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz"])
def test_json_lines_without_ids_are_numbered_as_lines_of_texts(tmp_path: Path, name: str) -> None:
    lines = b'{"text": "one"}\n\n{"contents": "two", "title": "B"}\n'
    path = tmp_path / name
    path.write_bytes(gzip.compress(lines) if name.endswith(".gz") else lines)
    first, second = read_corpus(path)
    assert (first.id, first.text, second.id, second.title) == ("1", "one", "3", "B")
    path.write_bytes(b"")
    assert [*read_corpus(path)] == []


PAIR = '{"query": "q", "positive": "p", "negatives": ["n"], "scores": %s}'
WANTED = '; expected a JSON object with "_id" or "id", "text" or "contents", and optionally "title"'
COLUMNS = "; expected id TAB text, id TAB title TAB text, or id TAB url TAB title TAB text"


class TestBadLines:
    @pytest.mark.parametrize(
        ("name", "line", "message"),
        [
            (
                "c.jsonl",
                b"{oops}",
                "not JSON (Expecting property name enclosed in double quotes at character 2)" + WANTED,
            ),
            ("c.jsonl", b"[1]", "a JSON list" + WANTED),
            ("c.jsonl", b"[" * 100_000, None),
            ("c.jsonl", b'{"text": "x"}', 'no "_id" or "id"' + WANTED),
            ("c.jsonl", b'{"_id": " ", "text": "x"}', "an empty id" + WANTED),
            ("c.jsonl", b'{"_id": "a\\tb", "text": "x"}', "the id 'a\\tb' has a tab or a line end" + WANTED),
            ("c.jsonl", b'{"_id": "a\\n", "text": "x"}', "the id 'a\\n' has a tab or a line end" + WANTED),
            ("c.jsonl", b'{"_id": 1.5, "text": "x"}', "the id must be a text, not float" + WANTED),
            ("c.jsonl", b'{"_id": true, "text": "x"}', "the id must be a text, not bool" + WANTED),
            ("c.jsonl", b'{"_id": "x", "text": ["x"]}', '"text" is a list' + WANTED),
            (
                "c.jsonl",
                b'{"_id": "x", "title": null, "text": " "}',
                "document 'x' has neither text nor title" + WANTED,
            ),
            ("c.jsonl", b'{"_id": "x"}', "document 'x' has neither text nor title" + WANTED),
            ("c.jsonl", b'{"_id": "x", "text": "\xff"}', "not UTF-8 (byte 23 is 0xff)" + WANTED),
            (
                "c.jsonl",
                b'{"_id": "x", "text": "\\ud800"}',
                "half of a surrogate pair, which is not a character" + WANTED,
            ),
            (
                "c.jsonl",
                b'{"_id": "d1", "text": "again"}',
                "duplicate id 'd1', with another title, text or field",
            ),
            ("c.tsv", b"x", "1 field" + COLUMNS),
            ("c.tsv", b"x\ty\tz\tu\tv", "5 fields" + COLUMNS),
            ("c.tsv", b"\tone", "an empty id" + COLUMNS),
            ("c.tsv", b"x\t", "document 'x' has neither text nor title" + COLUMNS),
            ("c.tsv", b"d1\tagain", "duplicate id 'd1', with another title, text or field"),
        ],
    )
    def test_documents(self, tmp_path: Path, name: str, line: bytes, message: str | None) -> None:
        good = (b'{"_id": "d%d", "text": "t"}\n' if name == "c.jsonl" else b"d%d\tt\n") % 1
        path = write(tmp_path / name, good + b"\r\n" + line + b"\n" + good.replace(b"d1", b"d2"))
        with pytest.raises(DataError) as caught:
            list(read_corpus(path))
        assert (caught.value.source, caught.value.line) == (str(path), 3)
        if message is not None:
            assert str(caught.value) == f"{path}:3: {message}"
        bad = BadLines(1)
        assert [document.id for document in read_corpus(path, bad=bad)] == ["d1", "d2"]
        assert (bad.count, bad.first) == (1, str(caught.value))

    @pytest.mark.parametrize(
        ("read", "name", "line", "message"),
        [
            (
                read_queries,
                "q.jsonl",
                '{"_id": "x", "text": ""}',
                'an empty "text"; expected a JSON object with "_id" or "id", ',
            ),
            (read_queries, "q.jsonl", '{"_id": "x"}', 'no "text" or "contents"; expected'),
            (read_queries, "q.tsv", "x\ty\tz", "3 fields; expected id TAB text"),
            (
                read_judgments,
                "r.tsv",
                "q1 d1",
                "2 fields; expected query, document and relevance (BEIR), or query, 0, ",
            ),
            (
                read_judgments,
                "r.tsv",
                "q1 d1 high",
                "the relevance is 'high', not a whole number of 32 bits; expected query, ",
            ),
            (read_judgments, "r.tsv", "q1 0 d1 0.5", "the relevance is '0.5', not a whole number of 32 bits; "),
            (read_judgments, "r.tsv", "q1 0 d1 1_0", "the relevance is '1_0', not a whole number"),
            (read_judgments, "r.tsv", "q1 0 d1 4294967297", "the relevance is '4294967297', not a whole number"),
            (
                read_judgments,
                "r.jsonl",
                '{"query-id": "q", "corpus-id": "d"}',
                "no relevance; expected a JSON object with ",
            ),
            (read_judgments, "r.jsonl", '{"corpus-id": "d", "score": 1}', 'no "query-id" or "query_id"; '),
            (read_examples, "e.tsv", "q", "1 field; expected query TAB positive, then optionally TAB negative..."),
            (read_examples, "e.tsv", "q\t ", 'an empty "positive"; expected'),
            (read_examples, "e.tsv", "q\tp\t", 'an empty "negative"; expected'),
            (
                read_examples,
                "e.jsonl",
                '{"positive": "p"}',
                'no "query" or "anchor"; expected a JSON object with "query" or ',
            ),
            (read_examples, "e.jsonl", '{"query": "q", "positive": "p", "negatives": 3}', '"negatives" is a int; '),
            (read_examples, "e.jsonl", '{"query": "q", "positive": "p", "negatives": [3]}', '"negative" is a int; '),
            (read_examples, "e.jsonl", PAIR % "3.0", '"scores" is a float; '),
            (read_examples, "e.jsonl", PAIR % "[1]", "1 scores for 2 texts, "),
            (read_examples, "e.jsonl", PAIR % "[1, NaN]", "the score is nan, not a finite number; "),
            (read_examples, "e.jsonl", PAIR % '[1, "2"]', "the score is '2', not a finite number; "),
            (read_examples, "e.jsonl", PAIR % "[true, 1]", "the score is True, not a finite number; "),
            (read_examples, "e.jsonl", PAIR % f"[1, {10**400}]", f"the score is {10**400}, not a finite number; "),
            (read_scores, "s.tsv", "q\td\thigh", "the score is 'high', not a finite number; expected qid TAB pid"),
            (read_scores, "s.tsv", "q\td", "2 fields; expected qid TAB pid TAB score"),
            (read_mined_negatives, "n.jsonl", '{"qid": 1, "pos": [2]}', 'no "neg", the ids of each system; expected'),
            (read_mined_negatives, "n.jsonl", '{"qid": 1, "pos": 2, "neg": {}}', "ids are a list, not a int; "),
            (
                read_mined_negatives,
                "n.jsonl",
                '{"qid": 1, "pos": [2.5], "neg": {}}',
                "the id must be a text, not float; ",
            ),
            (read_mined_negatives, "n.tsv", "1\t2\t3", 'no "neg", the ids of each system; expected JSON lines or'),
        ],
    )
    def test_bad_lines_of_other_records_name_their_fault(
        self, tmp_path: Path, read: Any, name: str, line: str, message: str
    ) -> None:
        path = write(tmp_path / name, line + "\n")
        with pytest.raises(DataError) as caught:
            list(read(path))
        assert str(caught.value).startswith(f"{path}:1: {message}")

    def test_records_of_one_id_that_differ_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"q\.tsv:2: .*'1'"):
            list(read_queries(write(tmp_path / "q.tsv", "1\ta\n1\tb\n")))
        with pytest.raises(DataError, match=r"r\.tsv:3: .*'q' .*'d'"):
            list(read_judgments(write(tmp_path / "r.tsv", "q d -1\nq e 1\nq d -2\n")))
        assert len(list(read_examples(write(tmp_path / "e.tsv", "q\tp\nq\tp\n")))) == 2

    def test_parquet_rows_are_counted_from_one(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"id": ["a", "b"], "text": ["x", ""]}), tmp_path / "c.parquet")
        with pytest.raises(DataError, match=r"c\.parquet:2: .*'b'"):
            list(read_corpus(tmp_path / "c.parquet"))

    def test_bad_lines_are_tolerated_up_to_the_limit(self, tmp_path: Path) -> None:
        path = write(tmp_path / "c.tsv", "a\tx\nb\n\nc\nd\td\n")
        bad = BadLines(2)
        assert [document.id for document in read_corpus(path, bad=bad)] == ["a", "d"]
        assert (bad.count, bad.first) == (2, f"{path}:2: 1 field{COLUMNS}")
        with pytest.raises(DataError, match=r"c\.tsv:4: .*2 .*1 "):
            list(read_corpus(path, bad=BadLines(1)))
        with pytest.raises(ArgumentError):
            BadLines(-1)
