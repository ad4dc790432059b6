"""The study of tunings: on toys as the verbs measure, resumed, with a collection that fails; the published figures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

import vocable as vo
from studies.tuning.__main__ import main, make_toys, plans, study
from studies.tuning.collections import COLLECTIONS
from studies.tuning.published import CONTRASTS, contrast, published
from studies.tuning.results import Measured, StudyResults, mean_of
from vocable.errors import ArgumentError, DataError
from vocable.tuning.exam import Change

FIGURE = Path(__file__).parents[2] / "docs/experiments/tuning.svg"


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
    assert row["verdict"] == "no difference"
    trained = output / "trained/toy"
    for title, model in (("before", toys[1]), ("after", trained)):
        [alone, bm25] = vo.evaluate(str(model), f"beir:{toys[0] / 'toy'}", ["nDCG@10", "R@100"], bm25=True).evaluations
        assert row["alone"][title] == pytest.approx(alone.values["nDCG@10"], abs=1e-9)
        assert row["recall"][title] == pytest.approx(alone.values["R@100"], abs=1e-9)
        assert row["bm25"] == pytest.approx(bm25.values["nDCG@10"], abs=1e-9)
    kept, new = (vo.load(place) for place in (output / "tuned/toy", trained))
    assert any(
        not np.array_equal(a.detach(), b.detach()) for a, b in zip(kept.parameters(), new.parameters(), strict=True)
    )


@pytest.mark.slow
def test_a_failing_collection_is_a_row(output: Path) -> None:
    found = json.loads((output / "results.json").read_text("utf-8"))
    assert list(found["failed"]) == ["few"]
    assert "300" in found["failed"]["few"]
    page = (output / "index.html").read_text("utf-8")
    assert "failed" in page
    assert "data:image/svg" in page or "<svg" in page


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


def test_a_plan_makes_nothing(toys: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [(name, plan)] = plans(toys[0], ["toy"], 5.0, model=toys[1])
    assert (name, plan.reading.documents, plan.minutes) == ("toy", 320, 5.0)
    assert list(tmp_path.iterdir()) == []


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


def measured(verdict: str, after: float) -> Measured:
    """A collection of two queries with 0.5 before."""
    change = Change(2, 0.5, after, after - 0.6, after - 0.4)
    return Measured("one", 300, verdict, change, change, {}, 0.4, change, change, change, 10, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdict", "after", "right"),
    [("better", 0.6, True), ("better", 0.4, False), ("no difference", 0.6, False), ("no difference", 0.5, True),
     ("worse", 0.4, True), ("worse", 0.6, False)],
)  # fmt: skip
def test_a_verdict_is_right_if_its_sign_is(verdict: str, after: float, right: bool) -> None:
    one = measured(verdict, after)
    assert one.right is right
    given = StudyResults("m", [one], {}).delivered("alone")["one"]
    assert given == pytest.approx(after - 0.5 if verdict == "better" else 0.0)


def test_means_have_the_intervals_of_scipy() -> None:
    values = {one.collection: one.alone.difference for one in published().collections}
    interval = ttest_1samp(list(values.values()), 0).confidence_interval(0.95)
    found = mean_of(values)
    assert (found.n, found.mean) == (16, pytest.approx(np.mean(list(values.values()))))
    assert (found.low, found.high) == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_published_figures_are_of_the_collections() -> None:
    names = {*COLLECTIONS, "cacm", "scifact"}
    assert [one.collection for one in published().collections] == sorted(names)
    for one in published().collections:
        for change in (one.exam_alone, one.exam_hybrid, one.alone, one.hybrid, one.recall):
            assert (change.low + change.high) / 2 == pytest.approx(change.difference, abs=2e-6)  # symmetric
    for variant in published().ablation:
        assert variant.alone.keys() == variant.hybrid.keys() <= names
    assert all(contrast(one, "alone").n >= 4 for one in CONTRASTS)
    drawn = FIGURE.read_text("utf-8")
    assert all(f">{name}<" in drawn for name in (*names, "mean"))
