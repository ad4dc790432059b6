"""The study of tunings: on toys as the verbs measure, resumed, with a collection that fails; the published figures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import vocable as vo
from studies.tuning.__main__ import main, make_toys, study
from studies.tuning.results import RULES, Measured, harmed, mean_of, published, rules_table
from vocable.errors import ArgumentError, DataError
from vocable.tuning.exam import Change


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A collection and a model, and a collection with too few documents."""
    data, model = make_toys(tmp_path_factory.mktemp("toys"))
    shutil.copytree(data / "toy", data / "few")
    lines = (data / "few/corpus.jsonl").read_text("utf-8").splitlines(keepends=True)
    (data / "few/corpus.jsonl").write_text("".join(lines[:50]), encoding="utf-8")
    return data, model


@pytest.fixture(scope="module")
def output(toys: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of the study of both collections."""
    place = tmp_path_factory.mktemp("study")
    study(toys[0], place, model=toys[1])
    return place


@pytest.mark.slow
def test_the_trained_model_is_measured_whatever_the_verdict(toys: tuple[Path, str], output: Path) -> None:
    [row] = json.loads((output / "results.json").read_text("utf-8"))["collections"]
    assert (row["collection"], row["documents"], row["alone"]["queries"]) == ("toy", 320, 20)
    trained = output / "tuned/toy" / ("trained" if row["verdict"] == "worse" else "")
    for title, model in (("before", toys[1]), ("after", trained)):
        [alone, bm25] = vo.evaluate(str(model), f"beir:{toys[0] / 'toy'}", ["nDCG@10", "R@100"], bm25=True).evaluations
        assert row["alone"][title] == pytest.approx(alone.values["nDCG@10"], abs=1e-9)
        assert row["recall"][title] == pytest.approx(alone.values["R@100"], abs=1e-9)
        assert row["bm25"] == pytest.approx(bm25.values["nDCG@10"], abs=1e-9)


@pytest.mark.slow
def test_a_failing_collection_is_a_row(output: Path) -> None:
    found = json.loads((output / "results.json").read_text("utf-8"))
    assert list(found["failed"]) == ["few"]
    assert "300" in found["failed"]["few"]


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


def measured(kinds: dict[str, float], half: float, hybrid: float) -> Measured:
    """A tuning with these differences by kind of question, alone, and this difference of the hybrid."""
    alone = Change(90, 0.5, 0.5, -half, half)
    both = Change(90, 0.5, 0.5 + hybrid, hybrid - 0.01, hybrid + 0.01)
    return Measured("c", 300, "worse", alone, both, kinds, 0.4, alone, both, both, 10, 1.0)


@pytest.mark.parametrize(
    ("kinds", "hybrid", "harm"),
    [
        ({"title": 0.0, "sentence": -0.02, "keywords": -0.9, "passage": 0.0}, 0.0, False),  # -0.01 + 0.01 * 2 ** 0.5
        ({"title": -0.01, "sentence": -0.02, "keywords": 0.9, "passage": 0.0}, 0.0, True),
        ({"sentence": -0.015, "keywords": -0.9, "passage": 0.0}, 0.0, False),  # 0.01 * 3 ** 0.5
        ({"sentence": -0.015, "passage": 0.0}, 0.0, True),
        ({"title": 0.5}, -0.011, True),
        ({"title": 0.5}, -0.009, False),
    ],
)
def test_harm_is_an_interval_below_zero_without_keywords(kinds: dict[str, float], hybrid: float, harm: bool) -> None:
    assert harmed(measured(kinds, 0.01, hybrid)) is harm


def test_intervals_of_means_are_of_draws_of_collections() -> None:
    values = np.random.default_rng(1).normal(0.01, 0.02, 40)
    low, high = (float(limit) for limit in mean_of([*values]).split("[")[1].rstrip("]").split(", "))
    half = 1.96 * values.std() / 40**0.5
    assert (low, high) == (pytest.approx(values.mean() - half, abs=1e-3), pytest.approx(values.mean() + half, abs=1e-3))


def test_rules_hand_out_what_their_names_say() -> None:
    collections = published().collections
    assert len(collections) == 16
    gains = {name: sum(one.hybrid.difference for one in collections if rule(one)) for name, rule in RULES.items()}
    always, old, new = gains.values()
    assert new >= 0.9 * always > old
    assert min(one.hybrid.difference for one in collections) > -0.01
    assert [row[0] for row in rules_table().rows] == [*RULES]
    for one in collections:
        for change in (one.exam_alone, one.exam_hybrid, one.alone, one.hybrid, one.recall):
            assert (change.low + change.high) / 2 == pytest.approx(change.difference, abs=2e-6)  # symmetric
