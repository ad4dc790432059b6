"""Pickles of scores: what Python's own pickle reads, for every protocol, and nothing else in one line."""

from __future__ import annotations

import gzip
import os
import pickle
import pickletools
from collections import OrderedDict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from studies import pickled_scores
from studies.pickled_scores import PickledScores, read_pickled_scores
from vocable.errors import DataError

IDS = st.integers(0, 2**31 - 1) | st.integers(0, 300)
SCORES = st.dictionaries(IDS, st.dictionaries(IDS, st.floats(-50, 50, width=32), max_size=20), max_size=8)


def written(folder: Path, content: bytes, name: str = "scores.pkl") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    return path


@given(SCORES, st.integers(0, pickle.HIGHEST_PROTOCOL), st.sampled_from([7, 64, 1 << 20]), st.booleans())
def test_scores_are_those_of_pickle(scores: Any, protocol: int, piece: int, optimized: bool) -> None:
    content = pickle.dumps(scores, protocol)
    content = pickletools.optimize(content) if optimized else content
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pickled_scores, "PIECE", piece)
        path = written(Path(folder), content, "scores.pkl.gz")
        assert dict(read_pickled_scores(path)) == scores
        found = PickledScores(path)
    assert len(found) == len(scores)
    for query, ones in scores.items():
        assert found(str(query)) == {str(document): score for document, score in ones.items()}
    assert found("no number") == found("2147483648") == {}


def test_many_scores_come_query_by_query(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = rng.choice(8_841_823, 300_000)  # some below 65,536, which are written in fewer bytes
    scores = {
        query: dict(zip(ids[query * 200 :][:200].tolist(), rng.normal(size=200).tolist(), strict=True))
        for query in range(1500)
    }
    path = written(tmp_path, pickle.dumps(scores, 4), "scores.pkl.gz")
    stream = read_pickled_scores(path)
    assert dict(stream) == scores


def test_ids_may_be_texts_of_numbers(tmp_path: Path) -> None:
    shared = "12"
    scores = {"7": {shared: 1.0, "13": 2}, "8": {shared: 3.0}}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        found = PickledScores(written(tmp_path, pickle.dumps(scores, protocol)))
        assert (found("7"), found("8")) == ({"12": 1.0, "13": 2.0}, {"12": 3.0})


def outcome(path: Path) -> tuple[dict[Any, Any], str | None]:
    """Return the scores of a file, or the message that refuses it."""
    try:
        return dict(read_pickled_scores(path)), None
    except DataError as error:
        return {}, str(error)


def by_pickle(content: bytes, otherwise: Any) -> Any:
    """Return what pickle reads of bytes that have no other instructions; it refuses some, such as a large memo."""
    try:
        return pickle.loads(content)
    except (MemoryError, ValueError, pickle.UnpicklingError, EOFError):
        return otherwise


class Hostile:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


loop: dict[int, Any] = {}
loop[1] = loop
one = {1: 2.0}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value",
    [
        {1: {2: Hostile(os.system, "touch ran")}},
        Hostile(os.system, "touch ran"),
        {Hostile(os.mkdir, "ran"): {2: 1.0}},
        OrderedDict({1: {2: 3.0}}),
        {1: [2.0]},
        {1: 2.0},
        {1: {2: {3: 4.0}}},
        {1: {2: "3"}},
        {1: {2: True}},
        {1: {2: None}},
        {1: {2: float("nan")}},
        {1: {2: 2**70}},
        {(1, 2): {3: 4.0}},
        {b"1": {2: 3.0}},
        {1.5: {2: 3.0}},
        {1: {2: np.float32(3)}},
        {"x" * 200: {2: 3.0}},
        {1: one, 2: one},
        [],
        3,
        loop,
    ],
    ids=lambda value: repr(value)[:30],
)
def test_everything_else_is_refused_in_one_line(
    value: Any, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, pickle.dumps(value, protocol))
    with pytest.raises(DataError, match=r"scores\.pkl.*byte ") as error:
        list(read_pickled_scores(path))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ran").exists()


@given(st.binary(max_size=60) | st.lists(st.sampled_from(sorted(pickled_scores.HANDLERS)), max_size=40).map(b"".join))
@example(b"(")
@example(b"}(}u.")
@example(b"}s.")
@example(b"((d")
@example(b"}q\x00}q\x01h\x00s.")
@example(b"K\x01(K\x02d.")
@example(b"}(K\x01}(K\x01G" + b"\x00" * 8 + b"uu")
def test_no_bytes_do_anything_but_scores_or_one_line(content: bytes) -> None:
    """Whatever is not refused is what pickle itself reads."""
    with TemporaryDirectory() as folder:
        found, said = outcome(written(Path(folder), content))
    assert said is None or "\n" not in said
    assert said is not None or found == by_pickle(content, otherwise=found)


@given(SCORES, st.integers(0, pickle.HIGHEST_PROTOCOL), st.data())
def test_damaged_pickles_end_in_one_line_or_in_other_numbers(scores: Any, protocol: int, data: st.DataObject) -> None:
    content = bytearray(pickle.dumps(scores, protocol))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(1, len(content))) :]
    with TemporaryDirectory() as folder:
        found, said = outcome(written(Path(folder), bytes(content)))
    assert said is None or "\n" not in said
    assert all(type(score) in (int, float) for ones in found.values() for score in ones.values())


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    content = pickle.dumps({1: {2: 3.0}})
    cut = tmp_path / "cut.pkl.gz"
    cut.write_bytes(gzip.compress(content)[:-9])
    for path, facts in (
        (tmp_path / "none.pkl", "none"),
        (written(tmp_path, content, "plain.pkl"), ""),
        (cut, "cut"),
    ):
        if facts:
            with pytest.raises(DataError, match=facts):
                list(read_pickled_scores(path))
    (tmp_path / "text.pkl.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"text\.pkl\.gz"):
        list(read_pickled_scores(tmp_path / "text.pkl.gz"))
    with pytest.raises(DataError):
        PickledScores(written(tmp_path, pickle.dumps({1: {2**31: 3.0}})))
    with pytest.raises(DataError, match=r"2\^31.*'a'"):
        PickledScores(written(tmp_path, pickle.dumps({1: {"a": 3.0}})))
