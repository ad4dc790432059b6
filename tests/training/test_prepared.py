"""Examples whose negatives are sampled from numbers: the choice, the columns, one reading, a whole training."""

from __future__ import annotations

import copy
import json
import pickle
from collections import Counter, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toys import killed
from vocable.core.arrays import holds_arrays
from vocable.errors import ArgumentError, DataError
from vocable.training import prepared
from vocable.training.data import load_examples, load_training_data
from vocable.training.prepared import IdTexts, PreparedExamples, _draws, joined, prepare, sample_negatives
from vocable.training.recipe import DataSettings, HardNegatives
from vocable.training.recipe_files import make_recipe
from vocable.training.train import train

Systems = list[list[list[int]]]  # of each query: lists of candidates
SYSTEMS = st.lists(st.lists(st.lists(st.integers(0, 9), unique=True, max_size=6), max_size=4), min_size=1, max_size=4)


def arrays_of(queries: Systems, own: float) -> tuple[np.ndarray, ...]:
    """Return the arrays of an example of each query, whose candidates score as much as their number."""
    lists = [some for systems in queries for some in systems]
    candidates = np.array([one for some in lists for one in some], dtype=np.int32)
    return (
        np.arange(len(queries), dtype=np.int32),
        np.cumsum([0, *map(len, queries)], dtype=np.int64),
        np.cumsum([0, *map(len, lists)], dtype=np.int64),
        candidates,
        candidates.astype(np.float32),
        np.full(len(queries), own, dtype=np.float32),
    )


def sampled(queries: Systems, n: int, margin: float | None, own: float, *, random: bool, seed: int = 0) -> Any:
    shape = len(queries), n
    texts, scores = np.full(shape, -1, np.int32), np.zeros(shape, np.float32)
    counts = np.zeros(len(queries), np.int64)
    bound = np.float32(np.nan if margin is None else margin)
    dropped = sample_negatives(arrays_of(queries, own), bound, random, seed, texts, scores, counts)
    return [row[:count].tolist() for row, count in zip(texts, counts, strict=True)], scores, dropped


def by_turns(systems: list[list[int]], n: int, bound: float) -> tuple[list[int], int]:
    """Return the first n candidates that score at most the bound, system by system, and the number that score more."""
    taken, dropped, turns = list[int](), 0, deque(iter(system) for system in systems)
    while turns and len(taken) < n:
        system = turns.popleft()
        for candidate in system:
            dropped += candidate > bound
            if candidate <= bound and candidate not in taken:
                taken.append(candidate)
                turns.append(system)
                break
    return taken, dropped


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 2**31), max_size=20))
def test_numbers_are_drawn_as_numpy_draws_them(seed: int, ends: list[int]) -> None:
    draw, generator = _draws(seed), np.random.RandomState(seed)
    assert [draw(end) for end in ends] == [generator.randint(end, dtype=np.int64) for end in ends]


@pytest.mark.slow
@given(SYSTEMS, st.integers(0, 12), st.none() | st.integers(-2, 12))
def test_systems_give_their_first_negatives_in_turns(queries: Systems, n: int, bound: int | None) -> None:
    margin = None if bound is None else 1.0
    negatives, scores, dropped = sampled(queries, n, margin, (bound or 0) + 1.0, random=False)
    expected = [by_turns(systems, n, np.inf if bound is None else bound) for systems in queries]
    assert negatives == [taken for taken, _ in expected]
    assert dropped == sum(count for _, count in expected)
    assert [row[: len(taken)].tolist() for row, taken in zip(scores, negatives, strict=True)] == negatives


@given(SYSTEMS, st.integers(0, 12), st.none() | st.integers(-2, 12), st.integers(0, 99))
def test_all_that_may_be_taken_at_random_is(queries: Systems, n: int, bound: int | None, seed: int) -> None:
    found, _, dropped = sampled(queries, n, None if bound is None else 1.0, (bound or 0) + 1.0, random=True, seed=seed)
    too_good = 0
    for row, systems in enumerate(queries):
        there = {one for some in systems for one in some}
        allowed = {one for one in there if bound is None or one <= bound}
        assert len(set(found[row])) == len(found[row]) == min(n, len(allowed))
        assert set(found[row]) <= allowed
        too_good += sum(one not in allowed for some in systems for one in some)
    assert dropped <= too_good


def test_random_turns_are_even_and_seeded() -> None:
    systems = [[[*range(5)], [*range(5, 10)], []]]
    taken, pairs = Counter[int](), Counter[tuple[int, int]]()
    for seed in range(1000):
        [chosen], _, _ = sampled(systems, 2, None, 0.0, random=True, seed=seed)
        assert sampled(systems, 2, None, 0.0, random=True, seed=seed)[0] == [chosen]
        assert sorted(one < 5 for one in chosen) == [False, True]
        taken.update(chosen)
        pairs[chosen[0], chosen[1]] += 1
    assert set(taken) == {*range(10)}
    assert 150 < min(taken.values()) <= max(taken.values()) < 250  # 200 of each are expected, ± 13
    assert len(pairs) == 50


@pytest.fixture
def sources(tmp_path: Path, toy_texts: list[str]) -> list[str]:
    """Two sources of 12 examples with five scored negatives, some of them positives elsewhere."""
    texts = [f"{number} {text}" for number, text in enumerate(toy_texts[:100])]
    for file in range(2):
        rows = [
            {
                "query": f"query {file} {i}",
                "positive": texts[i],
                "negatives": [texts[(i + step) % 24] for step in (3, 5, 7, 11, 13)],
                "scores": [9.0, 5.0, 4.0, 3.0, 2.0, 1.0 + file],
            }
            for i in range(12)
        ]
        (tmp_path / f"{file}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return [str(tmp_path / f"{file}.jsonl") for file in range(2)]


def load(sources: list[Any], cache: Path, **data: Any) -> Any:
    settings = DataSettings(examples=sources, **{"held_out": 0, "negatives": 2, "sampling": "random"} | data)
    return load_examples(sources, settings, draws=96, batch_size=4, seed=3, cache=cache, scored=True)


def test_every_pass_has_its_own_negatives_with_their_scores(sources: list[str], tmp_path: Path) -> None:
    read = {row["query"]: row for file in sources for row in map(json.loads, Path(file).read_text().splitlines())}
    examples, held_out = load(sources, tmp_path / "cache", held_out=2)
    assert len(held_out) == 2
    assert sum(map(len, examples.values())) == 96
    different = Counter[str]()
    for source in examples.values():
        for row in source:
            one = read[row["query"]]
            assert row["positive"] == one["positive"]
            scores = dict(zip(one["negatives"], one["scores"][1:], strict=True))
            negatives = [row["negative_1"], row["negative_2"]]
            assert row["label"] == [one["scores"][0], *(scores[text] for text in negatives)]
            different[row["query"], *sorted(negatives)] += 1
        assert {*source["query"]}.isdisjoint(held_out["query"])
    assert max(different.values()) < 5  # of some five passes


def test_a_source_is_read_once_and_shared(sources: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = [str(prepare(source, tmp_path / "shared").folder) for source in sources]
    assert all(map(holds_arrays, shared))
    assert not holds_arrays(sources[0])
    whole = load(sources, tmp_path / "cache")[0]
    monkeypatch.setattr(prepared, "read_examples", None)
    assert [prepare(source, tmp_path / "shared").folder for source in sources] == [*map(Path, shared)]
    for place, cache in ((shared, "none"), (sources, "cache")):  # folders that are named, and those of the first call
        again = load(place, tmp_path / cache)[0]
        assert [one[:] for one in again.values()] == [one[:] for one in whole.values()]
    assert not (tmp_path / "none").exists()
    Path(sources[0]).unlink()  # a run that is continued does not need the file again
    assert [one[:] for one in load(sources, tmp_path / "cache")[0].values()] == [one[:] for one in whole.values()]
    Path(sources[1]).write_text(Path(sources[1]).read_text().replace("query 1 0", "query 1 a"))
    with pytest.raises(ArgumentError):
        prepare(sources[1], tmp_path / "shared")
    assert next(PreparedExamples(Path(shared[1])).queries()) == "query 1 0"
    first = load(shared, tmp_path / "none", sampling="first")[0]  # a prepared folder serves both
    assert next(iter(first.values()))[0]["label"] == [9.0, 5.0, 4.0]


def test_a_killed_preparation_begins_again(sources: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(prepared, "save_arrays", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare(sources[0], tmp_path / "shared")
    one = prepare(sources[0], tmp_path / "shared")
    assert one.text(one.query[0]) == "query 0 0"
    record = f".{one.folder.name}.settings.json"
    assert {path.name for path in (tmp_path / "shared").iterdir()} == {one.folder.name, record}


def test_numbers_become_texts_where_they_are_read(sources: list[str], tmp_path: Path) -> None:
    texts = IdTexts([prepare(source, tmp_path / "shared") for source in sources])
    assert copy.deepcopy(texts) is texts  # a data set copies its transform
    again = pickle.loads(pickle.dumps(texts))  # and its loader's processes take it along: the places, not the texts
    assert len(pickle.dumps(texts)) < 1000
    batch = {"query": [0, (1 << prepared.SOURCE_BITS)], "label": [[1.0], [2.0]]}
    for one in (texts, again):
        found = one(batch)
        assert found["label"] == [[1.0], [2.0]]
        assert found["query"][0] == found["query"][1]  # the first text of both sources
    examples = load(sources, tmp_path / "cache")[0]
    both = joined([*examples.values()])
    assert both[:2] == next(iter(examples.values()))[:2]
    assert both[len(both) - 1]["query"].startswith("query 1")


def test_damage_and_sources_that_do_not_fit_are_refused(sources: list[str], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"0\.jsonl: .*5 .*data\.negatives is 6.*query 0 0"):
        load(sources, tmp_path / "cache", negatives=6)
    with pytest.raises(DataError):
        load(sources, tmp_path / "cache", false_negative_margin=7.5)
    (tmp_path / "bare.jsonl").write_text('{"query": "q", "positive": "p", "negatives": ["n", "o"]}')
    with pytest.raises(DataError, match=r"bare\.jsonl"):
        load([*sources, str(tmp_path / "bare.jsonl")], tmp_path / "cache")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match=r"empty\.jsonl"):
        load([str(tmp_path / "empty.jsonl")], tmp_path / "cache")


def test_a_training_samples_from_numbers_as_from_texts(
    backbones: dict[str, Path], sources: list[str], tmp_path: Path, toy_model: Any
) -> None:
    """Labels of the examples, a teacher of texts, and the trainer with several sources."""
    settings = make_recipe(
        {
            "model": str(backbones["bert"]),
            "data": {"examples": sources, "negatives": 1, "sampling": "random", "held_out": 2},
            "training": {
                "steps": 6,
                "batch_size": 4,
                "losses": [{"name": "margin_mse", "weight": 0.1}, {"name": "alignment"}],
                "sparse_teacher": str(backbones["distilbert"]),
                "log_every": 1,
            },
        }
    )
    data = load_training_data(settings, toy_model, tmp_path / "data")
    assert data.teacher is not None
    for source in data.examples.values():
        assert {type(text) for column in ("query", "positive", "negative_1") for text in source[column]} == {str}
        scores = data.teacher(np.array(source["label"][:4]))
        assert scores[:, 0].tolist() == [9.0] * 4
        assert {*scores[:, 1].tolist()} <= {5.0, 4.0, 3.0, 2.0, 1.0}
    train(settings, tmp_path / "model")
    log = [json.loads(line) for line in (tmp_path / "model" / "log.jsonl").read_text().splitlines()]
    assert len(log) == 6
    assert all(np.isfinite(line["loss"]) for line in log)


def test_ids_and_given_scores(tmp_path: Path) -> None:
    rows = [{"qid": qid, "pos": [1, 2], "neg": {"a": [3, 4, 9], "b": [2, 5]}} for qid in (7, 8, 9)]
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "corpus.tsv").write_text("".join(f"{number}\ttext {number}\n" for number in range(1, 6)))
    (tmp_path / "queries.tsv").write_text("7\tquery 7\n8\tquery 8\n")
    source = HardNegatives(**{key: str(tmp_path / name) for key, name in HARD.items()}, scores=str(tmp_path / "none"))
    scores = {"7": {"1": 4.0, "3": 1.0, "4": 2.0, "5": 3.0, "9": 1.0}, "8": {"1": 5.0, "3": 0.5}}
    one = prepare(source, tmp_path / "shared", lambda query: scores.get(query, {}))
    assert isinstance(one, PreparedExamples)
    assert [(one.text(q), one.text(p)) for q, p in zip(one.query, one.positive, strict=True)] == [
        ("query 7", "text 1"),
        ("query 8", "text 1"),
    ]
    assert one.own.tolist() == [4.0, 5.0]
    assert [one.text(row) for row in one.candidates] == ["text 3", "text 4", "text 5", "text 3"]
    assert one.scores.tolist() == [1.0, 2.0, 3.0, 0.5]
    assert one.left_out == 4  # text 2 has no score, twice; query 9 has no text


HARD = {"file": "ids.jsonl", "corpus": "corpus.tsv", "queries": "queries.tsv"}
