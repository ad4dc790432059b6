from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ir_measures import ScoredDoc, read_trec_run

from vocable.errors import ArgumentError, DataError
from vocable.indexes.ranking import Ranking, best, read_trec

RANKING = Ranking(
    np.array([[2, 0, -1], [1, -1, -1], [-1, -1, -1]], dtype=np.int32),
    np.array([[0.1, 1e-7, 0], [16777217.0, 0, 0], [0, 0, 0]], dtype=np.float32),
    ["a", "b", "c"],
)


def test_a_ranking_becomes_a_run() -> None:
    run = RANKING.to_run(["q1", "q2", "q3"])
    assert run == [
        ScoredDoc("q1", "c", float(np.float32(0.1))),
        ScoredDoc("q1", "a", float(np.float32(1e-7))),
        ScoredDoc("q2", "b", 16777216.0),
    ]
    assert Ranking(RANKING.rows, RANKING.scores).to_run(["x", "y", "z"])[0].doc_id == "2"
    assert len(RANKING) == 3


def test_a_written_run_is_read_back_to_the_last_bit(tmp_path: Path) -> None:
    path = tmp_path / "run.trec"
    RANKING.write_trec(path, ["q1", "q2", "q3"], tag="toy")
    assert path.read_text().splitlines()[0] == "q1 Q0 c 1 0.1 toy"
    run = read_trec(path)
    assert [(hit.query_id, hit.doc_id) for hit in run] == [("q1", "c"), ("q1", "a"), ("q2", "b")]
    again = Ranking.from_run(run, ["q1", "q2", "q3"], ["a", "b", "c"])
    np.testing.assert_array_equal(again.rows, RANKING.rows[:, :2])
    np.testing.assert_array_equal(again.scores, RANKING.scores[:, :2])
    assert list(read_trec_run(str(path))) == run  # another reader agrees


def test_from_run_orders_and_pads() -> None:
    run = [ScoredDoc("q2", "b", 1.0), ScoredDoc("q2", "a", 1.0), ScoredDoc("q2", "c", 5.0), ScoredDoc("q1", "c", -2.0)]
    ranking = Ranking.from_run(run, ["q1", "q2", "q3"], ["c", "b", "a"])
    assert ranking.rows.tolist() == [[0, -1, -1], [0, 2, 1], [-1, -1, -1]]
    assert ranking.scores.tolist() == [[-2, 0, 0], [5, 1, 1], [0, 0, 0]]
    assert Ranking.from_run([], ["q1"], ["a"]).rows.shape == (1, 0)
    assert Ranking.from_run([], [], []).rows.shape == (0, 0)


@pytest.mark.parametrize("hit", [ScoredDoc("q9", "a", 1.0), ScoredDoc("q1", "z", 1.0)])
def test_from_run_refuses_strangers(hit: ScoredDoc) -> None:
    with pytest.raises(DataError, match=f"query '{hit.query_id}', document '{hit.doc_id}'"):
        Ranking.from_run([hit], ["q1"], ["a"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"q1 Q0 d2 2 0.5", "5 fields; expected the six fields of a TREC run"),
        (b"q1 Q0 my d2 2 0.5 tag", "more than six fields"),
        (b"q1 Q0 d 2 2 0.5 tag", "more than six fields"),
        (b"q1 Q0 d2 2 half tag", "the score 'half' is not a finite number"),
        (b"q1 Q0 d2 2 nan tag", "the score 'nan'"),
        (b"q1 Q0 d2 2 1_0 tag", "the score '1_0'"),
        (b"q1 Q0 d1 2 0.5 tag", "duplicate query_id 'q1' and doc_id 'd1', with another score"),
        (b"q1 Q0 d\xff 2 0.5 tag", "not UTF-8"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "run.trec"
    path.write_bytes(b"\xef\xbb\xbfq1 Q0 d1 1 1.5 tag\r\n\r\n" + line + b"\n")
    with pytest.raises(DataError, match=rf"run\.trec:3: {message}") as caught:
        read_trec(path)
    assert caught.value.line == 3


def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_bytes(b"\n\n")
    with pytest.raises(DataError, match=r"run\.trec"):
        read_trec(tmp_path / "run.trec")


def test_byte_order_mark_and_blank_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "run.trec"
    path.write_bytes(b"\xef\xbb\xbfq1 Q0 d1 1 1.5 tag\r\n\r\n")
    assert read_trec(path) == [ScoredDoc("q1", "d1", 1.5)]


def test_a_missing_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.trec"):
        read_trec(tmp_path / "none.trec")


def test_what_trec_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    spaced = Ranking(RANKING.rows, RANKING.scores, ["a", "b", "c d"])
    with pytest.raises(DataError, match="'c d'"):
        spaced.write_trec(tmp_path / "run.trec", ["q1", "q2", "q3"])
    with pytest.raises(DataError, match="query ''"):
        RANKING.write_trec(tmp_path / "run.trec", ["", "q2", "q3"])
    assert list(tmp_path.iterdir()) == []


def test_shapes_are_checked() -> None:
    with pytest.raises(ArgumentError):
        Ranking(np.zeros((2, 3), np.int32), np.zeros((2, 2), np.float32))
    with pytest.raises(ArgumentError):
        RANKING.to_run(["q1", "q2"])


def test_best_breaks_ties_by_id() -> None:
    rows, scores = np.array([[0, 1, 2, -1]]), np.array([[1.0, 1.0, 1.0, 0.0]])
    assert best(rows, scores, 5, ["b", "c", "a"]).rows.tolist() == [[2, 0, 1, -1, -1]]
    assert best(rows, scores, 2, None).rows.tolist() == [[0, 1]]
    assert best(rows, -scores, 2, None).scores.tolist() == [[-1, -1]]
    with pytest.raises(ArgumentError):
        best(rows, scores, -1, None)
