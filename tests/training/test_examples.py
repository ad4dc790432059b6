"""Training examples: shares of the sources, columns of the negatives, and what is refused."""

import json

import pytest
import torch
from sentence_transformers.base.sampler import DefaultBatchSampler, ProportionalBatchSampler
from torch.utils.data import ConcatDataset, SequentialSampler

from vocable.errors import DataError, RecipeError
from vocable.training.data import load_examples
from vocable.training.recipe import make_recipe
from vocable.training.settings import DataSettings

HARD = {"file": "ids.jsonl", "corpus": "corpus.tsv", "queries": "queries.tsv"}


@pytest.fixture
def places(tmp_path):
    def write(name, size, negatives=0, scores=False):
        rows = [
            {
                "query": f"{name} {i}",
                "positive": f"answer {i}",
                "negatives": [f"wrong {i} {j}" for j in range(negatives)],
                "scores": [10.0, *(float(j + i) for j in range(negatives))] if scores else [],
            }
            for i in range(size)
        ]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        return str(path)

    return write


def load(sources, tmp_path, *, draws=120, batch_size=4, seed=0, scored=False, **data):
    settings = DataSettings(examples=sources, **{"held_out": 0} | data)
    options = {"draws": draws, "batch_size": batch_size, "seed": seed, "cache": tmp_path / "cache", "scored": scored}
    return load_examples(sources, settings, **options).drawn


@pytest.mark.parametrize("sampling", ["first", "random"])
def test_examples_are_held_out_of_every_source_and_their_queries_are_not_learned(places, tmp_path, sampling):
    sources = [places("large", 80, 3), places("small", 20, 3)]
    settings = DataSettings(examples=sources, negatives=2, sampling=sampling, held_out=9)
    options = {"draws": 300, "batch_size": 4, "seed": 0}
    drawn, held_out = load_examples(sources, settings, cache=tmp_path / "cache", **options)
    queries = set(held_out["query"])
    assert held_out.column_names == ["query", "positive"]
    assert len(queries) == len(held_out) == 8 + 2  # in proportion, rounded up
    learned = {query for examples in drawn.values() for query in examples["query"]}
    assert not learned & queries
    assert len(learned | queries) == 100
    again = load_examples(sources, settings, cache=tmp_path / "cache", **options)
    assert again.held_out["query"][:] == held_out["query"][:]


def test_a_query_that_is_there_often_is_held_out_whole_or_not_at_all(tmp_path):
    rows = [{"query": f"asks {i % 15}", "positive": f"answers {i}"} for i in range(60)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    settings = DataSettings(examples=[str(path)])
    options = {"draws": 300, "batch_size": 4, "seed": 0}
    drawn, held_out = load_examples([str(path)], settings, cache=tmp_path / "cache", **options)
    [query] = held_out["query"]  # of four rows; a tenth are six
    assert query not in {one for examples in drawn.values() for one in examples["query"]}


def test_a_batch_beyond_the_examples_is_refused(places, tmp_path):
    with pytest.raises(RecipeError, match=r"training\.batch_size: a batch takes 9 different examples"):
        load([places("few", 8)], tmp_path, batch_size=9)


@pytest.mark.parametrize(("exponent", "shares"), [(1.0, [96, 24]), (0.0, [60, 60]), (0.5, [80, 40])])
def test_sources_are_drawn_by_a_power_of_their_size(places, tmp_path, exponent, shares):
    examples = load([places("large", 80), places("small", 20)], tmp_path, size_exponent=exponent)
    assert [len(source) for source in examples.values()] == shares


def test_a_source_is_repeated_in_whole_passes(places, tmp_path):
    [source] = load([places("few", 8)], tmp_path, draws=20).values()
    queries = source["query"][:]
    assert sorted(queries[:8]) == sorted(queries[8:16]) == sorted(f"few {i}" for i in range(8))
    assert queries[:8] != queries[8:16]


def test_the_seed_decides_the_order(places, tmp_path):
    place = places("some", 30)
    orders = [next(iter(load([place], tmp_path, seed=seed).values()))["query"][:] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def test_negatives_become_columns(places, tmp_path):
    [source] = load([places("hard", 8, negatives=3)], tmp_path, negatives=2, draws=8).values()
    assert source.column_names == ["query", "positive", "negative_1", "negative_2"]
    row = source[0]
    number = row["query"].split()[1]
    assert (row["negative_1"], row["negative_2"]) == (f"wrong {number} 0", f"wrong {number} 1")


def test_too_few_negatives_are_refused(places, tmp_path):
    with pytest.raises(DataError, match="an example has 1 negatives where 2 are asked for: 'hard 0'"):
        load([places("hard", 8, negatives=1)], tmp_path, negatives=2)


def test_an_empty_source_is_refused(places, tmp_path):
    with pytest.raises(DataError, match="no example"):
        load([places("none", 0)], tmp_path)


def test_scores_become_labels(places, tmp_path):
    [source] = load(
        [places("scored", 8, negatives=3, scores=True)], tmp_path, negatives=2, draws=8, scored=True
    ).values()
    for row in source:
        number = int(row["query"].split()[1])
        assert row["label"] == [10.0, number, number + 1]
    [source] = load([places("scored", 8, negatives=3, scores=True)], tmp_path, negatives=2, draws=8).values()
    assert "label" not in source.column_names


def test_scores_that_are_missing(places, tmp_path):
    place = places("plain", 8, negatives=2)
    with pytest.raises(
        DataError, match=r"plain\.jsonl: its examples carry no scores to learn from: name training\.tea"
    ):
        load([place], tmp_path, negatives=2, scored=True)
    with pytest.raises(DataError, match=r"plain\.jsonl: an example has no scores to compare: 'plain 0'"):
        load([place], tmp_path, negatives=2, false_negative_margin=1.0)


def test_false_negatives_are_left_out(places, tmp_path):
    place = places("scored", 8, negatives=4, scores=True)  # example i has negatives that score i, i + 1, i + 2, i + 3
    data = {"negatives": 2, "false_negative_margin": 4.0, "draws": 8}
    [source] = load([place], tmp_path, scored=True, **data).values()
    assert {int(query.split()[1]) for query in source["query"]} == set(range(6))  # of 6 and 7 too few are left
    assert all(max(row["label"][1:]) <= 6.0 for row in source)
    with pytest.raises(DataError, match="no example has 4 usable negatives"):
        load([place], tmp_path, negatives=4, false_negative_margin=8.0)


def test_random_negatives(places, tmp_path):
    place = places("many", 8, negatives=6)
    [source] = load([place], tmp_path, negatives=2, sampling="random", draws=80).values()
    queries = source["query"][:]
    assert all(len(set(queries[start : start + 8])) == 8 for start in range(0, 80, 8))
    chosen = {(row["negative_1"], row["negative_2"]) for row in source if row["query"] == "many 0"}
    assert len(chosen) > 5
    assert {text for pair in chosen for text in pair} == {f"wrong 0 {j}" for j in range(6)}


def test_a_batch_comes_from_one_source(places, tmp_path):
    """The host trainer's own batches over what `load_examples` gives."""
    examples = load([places("large", 40), places("small", 12)], tmp_path, draws=48)
    samplers = [
        DefaultBatchSampler(SequentialSampler(source), batch_size=4, drop_last=True) for source in examples.values()
    ]
    mixed = ConcatDataset(list(examples.values()))
    batches = list(
        ProportionalBatchSampler(mixed, samplers, generator=torch.Generator(), seed=0),
    )
    names = [{mixed[row]["query"].split()[0] for row in batch} for batch in batches]
    assert sorted(map(sorted, names)) == [["large"]] * 9 + [["small"]] * 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"sampling": "random"}, "data: .*say how many with negatives"),
        ({"false_negative_margin": 1.0}, "data: .*say how many with negatives"),
        ({"examples": [{"file": "a"}]}, r"data\.examples\.0\.corpus: this key is missing"),
        ({"examples": [HARD | {"system": []}]}, r"data\.examples\.0\.system: unknown key"),
        ({"examples": [HARD], "negatives": 2, "false_negative_margin": 1.0}, "needs the scores of every source"),
    ],
)
def test_impossible_settings(data, message):
    with pytest.raises(RecipeError, match=message):
        make_recipe({"model": "m", "data": {"examples": ["a"]} | data, "training": {"steps": 1}})
