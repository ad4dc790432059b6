"""The study of tunings: on toys as the verbs measure, resumed, with a collection that fails; the published figures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

import vocable as vo
from studies.tuning.__main__ import main, make_toys, study
from studies.tuning.results import MEASURE, change, mean_of, published
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.dataset import load_dataset
from vocable.evaluation.quality import Evaluation


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A collection and a model, and a collection with too few documents."""
    data, model = make_toys(tmp_path_factory.mktemp("toys"))
    shutil.copytree(data / "toy", data / "few")
    lines = (data / "few/corpus.jsonl").read_text("utf-8").splitlines(keepends=True)
    (data / "few/corpus.jsonl").write_text("".join(lines[:10]), encoding="utf-8")
    return data, model


@pytest.fixture(scope="module")
def output(toys: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of the study of both collections."""
    place = tmp_path_factory.mktemp("study")
    study(toys[0], place, model=toys[1])
    return place


@pytest.mark.slow
def test_models_are_measured_as_the_verbs_do(toys: tuple[Path, str], output: Path, tmp_path: Path) -> None:
    dataset = load_dataset(f"beir:{toys[0] / 'toy'}")
    [row] = json.loads((output / "results.json").read_text("utf-8"))["collections"]
    assert (row["collection"], row["documents"], row["alone"]["queries"]) == ("toy", 320, 20)
    for title, model in (("before", toys[1]), ("after", output / "tuned/toy")):
        [alone, bm25] = vo.evaluate(str(model), f"beir:{toys[0] / 'toy'}", ["nDCG@10", "R@100"], bm25=True).evaluations
        assert row["alone"][title] == pytest.approx(alone.values["nDCG@10"], abs=1e-9)
        assert row["recall"][title] == pytest.approx(alone.values["R@100"], abs=1e-9)
        assert row["bm25"] == pytest.approx(bm25.values["nDCG@10"], abs=1e-9)
        with vo.index(str(model), toys[0] / "toy/corpus.jsonl", tmp_path / title) as index:
            found = index.search([query.text for query in dataset.queries], 10, plain=True)
        places = [[name for name, _ in found.hits(row)].index(f"d{row}") for row in range(20)]
        assert row["hybrid"][title] == pytest.approx(np.mean([1 / np.log2(2 + place) for place in places]), abs=1e-9)


@pytest.mark.slow
def test_a_failing_collection_is_a_row(output: Path) -> None:
    found = json.loads((output / "results.json").read_text("utf-8"))
    assert list(found["failed"]) == ["few"]
    assert "titles and texts are too short" in found["failed"]["few"]


def test_a_failure_is_the_exit_status(
    toys: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(toys[0]), "--only", "few", "-o", str(tmp_path / "out"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failed"].keys() == {"few"}


@pytest.mark.slow
def test_finished_collections_are_read(toys: tuple[Path, str], output: Path) -> None:
    before = json.loads((output / "results.json").read_text("utf-8"))
    shutil.rmtree(output / "tuned/toy")  # not needed any more
    found = study(toys[0], output, model=toys[1], only=["toy"])
    assert not (output / "tuned/toy").exists()
    assert found.failed == {}
    assert found.collections[0].alone.after == before["collections"][0]["alone"]["after"]


def test_mistakes_are_one_line(toys: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(toys[0]), "--toy", "-o", str(tmp_path / "out")]) == 2
    assert main([]) == 2
    assert main([str(toys[0])]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(part in line for part, line in zip(("--toy", "DATA", "--output"), lines, strict=True))
    with pytest.raises(DataError, match=r"corpus\.jsonl"):
        study(tmp_path, tmp_path / "out")
    with pytest.raises(ArgumentError, match=r"'toi'.*few, toy"):
        study(toys[0], tmp_path / "out", only=["toi"])
    assert not (tmp_path / "out").exists()


def test_intervals_of_means_are_of_draws_of_collections() -> None:
    values = np.random.default_rng(1).normal(0.01, 0.02, 40)
    low, high = (float(limit) for limit in mean_of([*values]).split("[")[1].rstrip("]").split(", "))
    half = 1.96 * values.std() / 40**0.5
    assert (low, high) == (pytest.approx(values.mean() - half, abs=1e-3), pytest.approx(values.mean() + half, abs=1e-3))


def test_the_published_differences_are_symmetric_intervals_of_sixteen_collections() -> None:
    collections = published().collections
    assert len(collections) == 16
    for one in collections:
        for difference in (one.alone, one.hybrid, one.recall):
            middle = (difference.low + difference.high) / 2
            assert middle == pytest.approx(difference.difference, abs=2e-6)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=30))
def test_a_change_has_the_interval_of_scipy(rows: list[tuple[float, float]]) -> None:
    start, end = (
        Evaluation(
            *("m", "d", {}, {MEASURE: {str(row): pair[side] for row, pair in enumerate(rows)}}),
            convention="trec_eval",
            ties="search",
        )
        for side in (0, 1)
    )
    found, differences = change(start, end, MEASURE), np.array([pair[1] - pair[0] for pair in rows])
    assert found.difference == pytest.approx(differences.mean(), abs=1e-9)
    if differences.std() > 1e-6:
        interval = ttest_1samp(differences, 0).confidence_interval()
        assert (found.low, found.high) == pytest.approx(tuple(interval), rel=1e-6)
