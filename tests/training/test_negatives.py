"""Hard negatives: ids by system become texts with scores."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from vocable.errors import DataError
from vocable.training.data import load_examples
from vocable.training.recipe import DataSettings, HardNegatives

SYSTEMS = {"bm25": [11, 12, 13, 14], "dense": [21, 22, 11, 23]}


SCORES = {1: 9.0, 2: 7.0, 11: 1.0, 12: 8.5, 13: 2.0, 14: 3.0, 21: 8.9, 22: 4.0, 23: 5.0}


@pytest.fixture
def source(tmp_path: Path) -> dict[str, str]:
    """Queries 100 to 107, each with two positives and eight negatives of two systems; of query 108 is no text."""
    rows = [{"qid": qid, "pos": [1, 2], "neg": SYSTEMS} for qid in range(100, 109)]
    files = {
        "ids.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "corpus.tsv": "".join(f"{number}\ttext {number}\n" for number in SCORES),
        "queries.tsv": "".join(f"{qid}\tquery {qid}\n" for qid in range(100, 108)),
        "scores.tsv": "".join(f"{qid}\t{pid}\t{s}\n" for qid in range(100, 109) for pid, s in SCORES.items()),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    names = {"file": "ids.jsonl", "corpus": "corpus.tsv", "queries": "queries.tsv"}
    return {key: str(tmp_path / name) for key, name in names.items()}


def numbers(row: dict[str, Any]) -> list[int]:
    return [int(text.split()[1]) for name, text in sorted(row.items()) if name.startswith("negative_")]


def rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def load_hard_negatives(
    source: dict[str, Any], tmp_path: Path, *, draws: int = 16, seed: int = 0, scored: bool = False, **data: Any
):
    settings = DataSettings(examples=[HardNegatives(**source)], held_out=0, **data)
    options = {"draws": draws, "batch_size": 4, "seed": seed, "cache": tmp_path / "cache", "scored": scored}
    [examples] = load_examples(settings.examples, settings, **options)[0].values()
    return examples


def test_ids_of_hard_negatives_become_texts(
    source: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "vocable"):
        examples = load_hard_negatives(source, tmp_path, negatives=3)
    assert sorted(zip(examples["query"], examples["positive"], strict=True)) == [
        (f"query {qid}", f"text {pid}") for qid in range(100, 108) for pid in (1, 2)
    ]
    assert [numbers(row) for row in examples] == [[11, 21, 12]] * 16
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "0 negatives left out for their scores, 2 of 18 examples passed over"
    ]


def test_negatives_come_from_the_systems_that_are_asked_for(source: dict[str, Any], tmp_path: Path) -> None:
    examples = load_hard_negatives(source | {"systems": ["dense"]}, tmp_path, negatives=3)
    assert [numbers(row) for row in examples] == [[21, 22, 11]] * 16
    with pytest.raises(DataError, match=r"ids\.jsonl: .*splade"):
        load_hard_negatives(source | {"systems": ["dense", "splade"]}, tmp_path, negatives=1)


def test_false_negatives_are_left_out_hard_negatives(
    source: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source |= {"scores": str(tmp_path / "scores.tsv")}
    with caplog.at_level(logging.WARNING, "vocable"):
        examples = load_hard_negatives(source, tmp_path, negatives=5, false_negative_margin=3.0, scored=True)
    for row in examples:
        own = SCORES[int(row["positive"].split()[1])]
        chosen = numbers(row)
        assert sorted(chosen) == [n for n in SCORES if n > 2 and SCORES[n] <= own - 3.0][:5]
        assert row["label"] == [own, *(SCORES[number] for number in chosen)]
    # 12 and 21 are too good for both positives, 23 for the second, which then has 11, 13, 14 and 22 alone.
    assert set(examples["positive"]) == {"text 1"}
    assert caplog.records[-1].getMessage().endswith("left out for their scores, 10 of 18 examples passed over")


def test_what_has_no_score_or_no_text_is_left_out(source: dict[str, Any], tmp_path: Path) -> None:
    kept = {pid: score for pid, score in SCORES.items() if pid not in (2, 11)}
    lines = [f"{qid}\t{pid}\t{score}\n" for qid in range(100, 109) for pid, score in kept.items()]
    (tmp_path / "scores.tsv").write_text("".join(lines), encoding="utf-8")
    corpus = [f"{number}\ttext {number}\n" for number in SCORES if number != 21]
    (tmp_path / "corpus.tsv").write_text("".join(corpus), encoding="utf-8")
    examples = load_hard_negatives(source | {"scores": str(tmp_path / "scores.tsv")}, tmp_path, negatives=2, draws=8)
    assert [(row["positive"], numbers(row)) for row in examples] == [("text 1", [12, 22])] * 8


def test_random_negatives_change_from_pass_to_pass(source: dict[str, str], tmp_path: Path) -> None:
    options = {"negatives": 2, "sampling": "random", "draws": 64}
    examples = load_hard_negatives(source, tmp_path, **options)
    again, other = (
        load_hard_negatives(source, tmp_path, **options),
        load_hard_negatives(source, tmp_path, seed=1, **options),
    )
    assert examples[:] == again[:] != other[:]
    drawn = [tuple(numbers(row)) for row in examples]
    assert all({*pair} & {*ids} for pair in drawn for ids in SYSTEMS.values())  # one of each system
    passes = [
        dict(zip(zip(p["query"], p["positive"], strict=True), map(numbers, rows(p)), strict=True))
        for p in (examples[start : start + 16] for start in range(0, 64, 16))
    ]
    assert all(len(one) == 16 for one in passes)  # every example once a pass
    assert len({json.dumps(one[("query 100", "text 1")]) for one in passes}) > 1
    assert {number for pair in drawn for number in pair} == {n for ids in SYSTEMS.values() for n in ids}


def test_scores_of_a_query_must_stand_together(source: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "scores.tsv").write_text("100\t1\t1\n101\t1\t1\n100\t2\t1\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"scores\.tsv: .*'100'"):
        load_hard_negatives(source | {"scores": str(tmp_path / "scores.tsv")}, tmp_path, negatives=1)
