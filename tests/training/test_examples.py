"""Training examples: shares of the sources, columns of the negatives, and what is refused."""

import json

import pytest

from vocable.errors import DataError
from vocable.training.examples import load_examples
from vocable.training.recipe import Data


@pytest.fixture
def places(tmp_path):
    def write(name, size, negatives=0):
        rows = [
            {
                "query": f"{name} {i}",
                "positive": f"answer {i}",
                "negatives": [f"wrong {i} {j}" for j in range(negatives)],
            }
            for i in range(size)
        ]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        return str(path)

    return write


def load(sources, tmp_path, *, negatives=0, draws=120, batch_size=4, size_exponent=1.0, seed=0):
    settings = Data(examples=sources, negatives=negatives, size_exponent=size_exponent)
    return load_examples(sources, settings, draws=draws, batch_size=batch_size, seed=seed, cache=tmp_path / "cache")


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
