"""Variants of a recipe: how they are read, and how they are trained, measured and gone on with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

import vocable as vo
from vocable.core.figures import check_figure, save_figure
from vocable.encoding.load import load
from vocable.errors import ArgumentError, MissingExtraError, RecipeError, VectorsError
from vocable.evaluation.plans import evaluate_system
from vocable.training import run as training
from vocable.training.recipe_files import override, read_recipe
from vocable.training.train import train
from vocable.training.variants import RunResult, TrainingResults, effectiveness_against_flops, label, read_sweep

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, backbones: dict[str, Path], toy_texts: list[str]) -> Write:
    """Writes a recipe over two toy collections of 20 documents with two variants, `plain` and `far`."""
    texts = sorted(set(toy_texts))[:20]
    for name, queries in (("one", texts[:4]), ("two", texts[4:8])):
        folder = tmp_path / name
        folder.mkdir()
        corpus = [json.dumps({"_id": f"d{i}", "text": text}) for i, text in enumerate(texts)]
        asked = [json.dumps({"_id": f"q{i}", "text": text.split()[0]}) for i, text in enumerate(queries)]
        judged = ["query-id\tcorpus-id\tscore", *(f"q{i}\td{texts.index(text)}\t1" for i, text in enumerate(queries))]
        for file, lines in (("corpus.jsonl", corpus), ("queries.jsonl", asked), ("qrels.tsv", judged)):
            (folder / file).write_text("\n".join(lines), encoding="utf-8")
    pairs = [json.dumps({"query": f"{i} {text}", "positive": text}) for i, text in enumerate(texts)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(pairs), encoding="utf-8")

    def write_recipe(**changes: Any) -> Path:
        values = {
            "model": str(backbones["bert"]),
            "data_folder": str(tmp_path),
            "data": {"examples": ["pairs.jsonl"]},
            "training": {"steps": 1, "batch_size": 2, "learning_rate": 1e-4},
            "evaluation": {"datasets": ["beir:one", "beir:two"], "measures": ["nDCG@10"]},
            "variants": {
                "plain": {"published": {"BEIR": 50.6, "FLOPs": 13.0}, "source": "a paper, table 2"},
                "far": {"set": {"training.learning_rate": 1e-2, "training.steps": 2}},
            },
        }
        path = tmp_path / "recipe.yaml"
        path.write_text(json.dumps(values | changes), encoding="utf-8")
        return path

    return write_recipe


def test_a_variant_changes_keys_and_overrides_come_last(write: Write) -> None:
    path = write(pretrain={"texts": ["a"], "steps": 1}, variants={"v": {"set": {"seed": 3, "pretrain": None}}})
    assert (read_recipe(path).seed, read_recipe(path).pretrain is None) == (0, False)
    found = read_recipe(path, [], "v")
    assert (found.seed, found.pretrain, found.variants) == (3, None, {})
    assert read_recipe(path, ["seed=4"], "v").seed == 4


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ({}, "recipe.yaml: no variant 'v': it has none"),
        ({"a": {}, "b": {}}, "recipe.yaml: no variant 'v': choose from a, b"),
        ({"v": {"set": {"sed": 1}}}, "recipe.yaml, variant v: sed: unknown key"),
        ({"v": {"set": {"seed": "x"}}}, "recipe.yaml, variant v: seed must be a whole number"),
        ({"v": {"set": {"seed.x": 1}}}, "recipe.yaml, variant v: seed.x: seed has no keys"),
        ({"v": {"sets": {}}}, "recipe.yaml:1: variants.v.sets: unknown key"),
        ({"../v": {}}, "recipe.yaml:1: variants.../v: String should match pattern"),
        ({"v": {"published": {"BEIR": "high"}}}, "recipe.yaml:1: variants.v.published.BEIR must be"),
    ],
)
def test_a_variant_that_cannot_be_read_is_named(write: Write, variants: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        read_recipe(write(seed=0, variants=variants), [], "v")


def test_variants_are_trained_measured_and_passed_over(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, output = write(), tmp_path / "out"
    trained: list[str] = []
    prepare = training.load_training_data

    def counted(recipe: Any, model: Any, folder: Path) -> Any:
        trained.append(folder.parent.name.removesuffix(".partial"))
        return prepare(recipe, model, folder)

    monkeypatch.setattr(training, "load_training_data", counted)
    first = train(path, output, variants=["far"])
    results = train(path, output, variants="all")
    assert trained == ["far", "plain"]
    assert list(results) == ["plain", "far"]
    assert results["far"] == first["far"]
    assert sorted(results["plain"].measured) == ["one FLOPS", "one nDCG@10", "two FLOPS", "two nDCG@10"]
    assert (results["plain"].published, results["plain"].source) == ({"BEIR": 50.6, "FLOPs": 13.0}, "a paper, table 2")
    for name, steps in (("plain", 1), ("far", 2)):
        assert json.loads((output / name / "recipe.json").read_text(encoding="utf-8"))["training"]["steps"] == steps
        for dataset in ("one", "two"):
            found = evaluate_system(load(output / name), f"beir:{tmp_path / dataset}", ["nDCG@10"])
            assert found.cost is not None
            expected = [found.values["nDCG@10"], found.cost.flops]
            measured = results[name].measured
            assert [measured[f"{dataset} nDCG@10"], measured[f"{dataset} FLOPS"]] == pytest.approx(expected)
    # A kill between training and measuring: the model is there, its figures are not.
    stored = json.loads((output / "results.json").read_text(encoding="utf-8"))
    assert stored == TrainingResults({name: results[name] for name in stored}).to_json()["runs"]
    del stored["far"]
    (output / "results.json").write_text(json.dumps(stored), encoding="utf-8")
    again = train(path, output, variants="all")
    assert trained == ["far", "plain"]
    assert again["far"].measured == pytest.approx(results["far"].measured)
    with pytest.raises(ArgumentError, match=r"out/plain .*\(seed\)"):
        train(path, output, variants="all", overrides=["seed=1"])


@pytest.mark.slow
def test_the_wackiness_of_a_variant_is_what_the_verb_measures(write: Write, tmp_path: Path) -> None:
    evaluation = {"datasets": ["beir:one", "beir:two"], "measures": ["nDCG@10"], "wackiness": True}
    measured = train(write(evaluation=evaluation), tmp_path / "out", variants=["plain"])["plain"].measured
    for name in ("one", "two"):
        place, model = f"beir:{tmp_path / name}", load(tmp_path / "out" / "plain")
        report = vo.measure_wackiness(model, place, tmp_path / name / "w", queries=place, bootstrap=0)
        assert measured[f"{name} W-AUC"] == pytest.approx(report.models[0]["w_auc"])


@pytest.mark.parametrize(
    ("changes", "names", "message"),
    [
        ({"variants": {}}, "all", "recipe.yaml: the recipe has no variants"),
        ({}, ["plain", "none"], "no variant 'none': choose from plain, far"),
        ({"needs": ["a GPU", "a corpus"]}, "all", r"needs a GPU; a corpus.*needs=\[\]"),
        (
            {"variants": {"a": {}, "b": {"set": {"needs": ["a GPU"]}}}},
            "all",
            r"needs a GPU.*needs=\[\]",
        ),
    ],
)
def test_what_is_wrong_is_known_before_anything_is_trained(
    write: Write, tmp_path: Path, changes: dict[str, Any], names: list[str] | str, message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        train(write(**changes), tmp_path / "out", variants=names)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "folders", "curves"),
    [
        (["far", "plain"], ["far-query-0.001", "far-query-2", "plain-query-0.001", "plain-query-2"], ["far", "plain"]),
        ([], ["query-0.001", "query-2"], ["recipe"]),
    ],
)
def test_a_sweep_trains_each_variant_with_each_value(
    write: Write, tmp_path: Path, names: list[str], folders: list[str], curves: list[str]
) -> None:
    output, key = tmp_path / "out", "training.regularizers.query"
    results = train(write(), output, variants=names, overrides=["training.steps=1"], sweep=f"{key}=1e-3,2")
    assert [*results] == folders
    assert [(result.curve, result.swept) for result in results.values()] == [
        (curve, {key: value}) for curve in curves for value in (0.001, 2)
    ]
    assert all(result.published == {} for result in results.values())
    for name, result in results.items():
        made = json.loads((output / name / "recipe.json").read_text(encoding="utf-8"))["training"]
        assert (made["steps"], made["regularizers"]["query"]["weight"]) == (1, result.swept[key])
    found = evaluate_system(load(output / folders[1]), f"beir:{tmp_path / 'two'}", ["nDCG@10"])
    assert results[folders[1]].measured["two nDCG@10"] == pytest.approx(found.values["nDCG@10"])
    # Another value is added to what is there; everything stays in results.json.
    written = (output / folders[0] / "model.safetensors").stat().st_mtime_ns
    train(write(), output, variants=names[:1], overrides=["training.steps=1"], sweep=f"{key}=0.001,3")
    assert (output / folders[0] / "model.safetensors").stat().st_mtime_ns == written
    stored = json.loads((output / "results.json").read_text(encoding="utf-8"))
    assert [*stored] == [*folders, folders[0].replace("0.001", "3")]
    with pytest.raises(ArgumentError, match=f"out/{folders[0]} "):
        train(write(), output, variants=names, sweep=f"{key}=1e-3,4", overrides=["training.steps=2"])


@pytest.mark.parametrize(
    ("changes", "sweep", "message"),
    [
        ({"evaluation": None}, "seed=1,2", r"recipe.yaml: .*evaluation\.datasets"),
        ({}, "seed=1,1", "sweep seed: two values have the name 1"),
        ({}, "sed=1,2", "recipe.yaml, variant plain: sed: unknown key"),
        ({}, "training.steps=1,x", "training.steps must be a whole number"),
    ],
)
def test_a_sweep_of_unknown_keys_or_values_is_refused(
    write: Write, tmp_path: Path, changes: dict[str, Any], sweep: str, message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        train(write(**changes), tmp_path / "out", variants=["plain"], sweep=sweep)
    assert not (tmp_path / "out").exists()


def test_results_of_another_program_are_refused(write: Write, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"plain": {"nDCG": 1}}', encoding="utf-8")
    with pytest.raises(VectorsError, match=r"results\.json: .*plain"):
        train(write(), tmp_path, variants=["plain"])


def test_ours_stands_beside_the_papers() -> None:
    results = {
        "a": RunResult({"nDCG@10": 0.41237, "FLOPS": 12.345}, {"BEIR": 52.4}, "table 2"),
        "b": RunResult({"nDCG@10": 0.5}, {"MRR": 0.37}),
    }
    grid = TrainingResults(results).table("title")
    assert grid.header == ["variant", "nDCG@10", "FLOPS", "paper: BEIR", "paper: MRR"]
    assert grid.rows == [["a", "0.4124", "12.3", "52.4", "–"], ["b", "0.5000", "–", "–", "0.37"]]


@given(st.lists(st.floats(1e-9, 1e9) | st.integers(-5, 5) | st.booleans() | st.none(), min_size=1, max_size=5))
def test_values_are_read_as_they_are_written(values: list[Any]) -> None:
    key, swept = read_sweep(f"a.b={','.join(map(json.dumps, values))}")
    assert (key, swept) == ("a.b", values)
    overridden: list[dict[str, Any]] = [{} for _ in values]
    for target, value in zip(overridden, swept, strict=True):
        override(target, f"{key}={json.dumps(value)}")
    assert overridden == [{"a": {"b": value}} for value in values]


def test_values_may_be_parts_with_keys_of_their_own() -> None:
    _, values = read_sweep(
        "training.regularizers={query: 1e-3, document: 2e-3},{query: 0, document: {name: l1, weight: 3}}"
    )
    assert [label(value) for value in values] == ["1e-3/2e-3", "0/l1/3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed", "sweep seed: expected KEY=VALUE,VALUE,..."),
        ("seed=", "sweep seed=: expected KEY=VALUE,VALUE,..."),
        ("seed={1,2", "sweep seed={1,2: not YAML: .*"),
    ],
)
def test_values_that_are_no_sweep_are_refused(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=f"^{message.replace('{', '[{]')}$"):
        read_sweep(text)


def test_an_override_is_what_read_recipe_takes(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("{model: m, data: {examples: [a]}, training: {steps: 1}}", encoding="utf-8")
    key, values = read_sweep("training.regularizers={query: 1e-5, document: 2e-5},{query: 0.1, document: 0.2}")
    overrides = [f"{key}={json.dumps(value)}" for value in values]
    found = [read_recipe(path, [one]).training.regularizers for one in overrides]
    assert [(part.query.weight, part.document.weight) for part in found] == [(1e-5, 2e-5), (0.1, 0.2)]


KEY = "training.regularizers.document"


def run(curve: str, value: Any, **measured: float) -> RunResult:
    return RunResult(
        {key.replace("_", " "): figure for key, figure in measured.items()}, curve=curve, swept={KEY: value}
    )


@pytest.fixture
def results() -> dict[str, RunResult]:
    return {
        "k1-1": run("k1", 1, one_FLOPS=40.0, **{"one nDCG@10": 0.3, "two FLOPS": 20.0, "two nDCG@10": 0.5}),
        "k1-2": run("k1", 2, one_FLOPS=10.0, **{"one nDCG@10": 0.2, "two FLOPS": 30.0, "two nDCG@10": 0.1}),
        "k8-1": run("k8", 1, one_FLOPS=4.0, **{"one nDCG@10": 0.6, "two FLOPS": 8.0, "two nDCG@10": 0.7}),
        "plain": RunResult({"one nDCG@10": 0.9, "one FLOPS": 1.0}),
    }


def drawn(figure: Figure) -> dict[str, dict[str, Any]]:
    """Title -> curve -> its points [runs, 2]."""
    return {
        axes.get_title(): {str(line.get_label()): np.array(line.get_xydata()) for line in axes.get_lines()}
        for axes in figure.axes
    }


def test_the_points_are_the_results(results: dict[str, RunResult]) -> None:
    figure = effectiveness_against_flops(results)
    panels = drawn(figure)
    assert [*panels] == ["mean of 2 datasets", "one", "two"]
    expected = {
        "mean of 2 datasets": {"k1": [[30, 0.4], [20, 0.15]], "k8": [[6, 0.65]]},
        "one": {"k1": [[40, 0.3], [10, 0.2]], "k8": [[4, 0.6]]},
        "two": {"k1": [[20, 0.5], [30, 0.1]], "k8": [[8, 0.7]]},
    }
    for title, curves in expected.items():
        assert [*panels[title]] == [*curves]
        for curve, points in curves.items():
            np.testing.assert_allclose(panels[title][curve], points)
    for axes in figure.axes:
        assert (axes.get_xscale(), axes.get_ylabel()) == ("log", "nDCG@10")
        assert axes.get_xlabel().startswith("FLOPS")
        assert [text.get_text() for text in axes.texts] == ["1", "2", "1"]
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["k1", "k8"]
    assert legend.get_title().get_text() == f"labels: {KEY}"


def test_one_dataset_has_no_mean_and_each_measure_a_panel() -> None:
    results = {str(i): run("a", i, FLOPS=float(i), **{"nDCG@10": i / 10, "R@5": i / 5}) for i in (1, 2)}
    axes = effectiveness_against_flops(results).axes
    assert [panel.get_ylabel() for panel in axes] == ["nDCG@10", "R@5"]
    np.testing.assert_allclose(np.array(axes[1].get_lines()[0].get_xydata()), [[1, 0.2], [2, 0.4]])


def test_a_run_without_shared_terms_is_left_out() -> None:
    results = {str(i): run("a", i, FLOPS=float(i), **{"nDCG@10": i / 10}) for i in (0, 1)}
    [axes] = effectiveness_against_flops(results).axes
    np.testing.assert_allclose(np.array(axes.get_lines()[0].get_xydata()), [[1, 0.1]])


@pytest.mark.parametrize("results", [{}, {"plain": RunResult({"nDCG@10": 0.9, "FLOPS": 1.0})}, {"a": run("a", 1)}])
def test_a_figure_without_points_is_refused(results: dict[str, RunResult]) -> None:
    with pytest.raises(ArgumentError):
        effectiveness_against_flops(results)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "begins"), [("figure.png", b"\x89PNG"), ("a/figure.SVG", b"<?xml")])
def test_the_same_figure_is_the_same_file(
    results: dict[str, RunResult], tmp_path: Path, name: str, begins: bytes
) -> None:
    files = []
    for folder in ("first", "second"):
        check_figure(tmp_path / folder / name)
        save_figure(effectiveness_against_flops(results), tmp_path / folder / name)
        files.append((tmp_path / folder / name).read_bytes())
    assert files[0] == files[1]
    assert files[0].startswith(begins)
    if begins == b"<?xml":
        assert b"<dc:date>" not in files[0]
        assert {"k1", "k8", "nDCG@10", "mean of 2 datasets"} <= set(re.findall(r">([^<>]+)</text>", files[0].decode()))


def test_a_figure_of_an_unknown_format_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"out\.jpg: .*\.png or \.svg"):
        check_figure("out.jpg")


def test_a_figure_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: str) -> Any:
        raise ImportError(module)

    monkeypatch.setattr("vocable.errors.import_module", refuse)
    with pytest.raises(MissingExtraError, match=r"matplotlib .*pip install 'vocable\[figures\]'"):
        check_figure("out.png")
