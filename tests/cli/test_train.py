"""The commands that train and make data for it: train with variants and sweeps, mine, teacher-scores, demo."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import vocable
from tests.cli.command_line import done, refused
from vocable.cli import main
from vocable.encoding.encode import encode
from vocable.encoding.load import load


def test_train_writes_a_model_and_prints_its_figures(
    capsys: pytest.CaptureFixture[str], model: str, toy_texts: list[str], tmp_path: Path
) -> None:
    texts = sorted(set(toy_texts))[:24]
    pairs = [{"query": text.split()[0] + f" {i}", "positive": f"{i} {text}"} for i, text in enumerate(texts)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    recipe = {"model": model, "data": {"examples": ["pairs.jsonl"]}, "training": {"steps": 2, "batch_size": 8}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    command = ["train", tmp_path / "recipe.yaml", "-o", tmp_path / "out", "--override", f"data_folder={tmp_path}"]
    bad = refused(capsys, *command, "--override", "training.stepps=3")
    assert bad == f"vocable: {tmp_path}/recipe.yaml: training.stepps: unknown key; did you mean steps?"
    assert not (tmp_path / "out.partial").exists()
    assert refused(capsys, *command, "--override", "data.examples=[none.jsonl]").startswith(
        f"vocable: {tmp_path}/none.jsonl: no such file"
    )
    shutil.rmtree(tmp_path / "out.partial", ignore_errors=True)
    assert json.loads(done(capsys, *command, "--json")) == {"output": str(tmp_path / "out")}
    assert len((tmp_path / "out" / "log.jsonl").read_text(encoding="utf-8").splitlines()) >= 1
    assert encode(load(tmp_path / "out"), ["the old fox"]).nnz > 0
    assert json.loads(done(capsys, *command, "--json")) == {"output": str(tmp_path / "out")}  # nothing left to do
    assert "out was made with other settings (seed)" in refused(capsys, *command, "--override", "seed=1")


def test_train_variants_trains_each_variant(
    capsys: pytest.CaptureFixture[str], model: str, dataset: str, tmp_path: Path
) -> None:
    pairs = [json.dumps({"query": f"the fox {i}", "positive": f"a fox reads {i}"}) for i in range(4)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(pairs), encoding="utf-8")
    recipe = {
        "model": model,
        "data": {"examples": [str(tmp_path / "pairs.jsonl")]},
        "training": {"steps": 1, "batch_size": 2},
        "evaluation": {"dataset": dataset, "measures": ["nDCG@10"]},
        "variants": {"a": {"published": {"BEIR": 47.7}}, "b": {"set": {"seed": 1}}, "c": {"set": {"seed": "none"}}},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    command = ["train", tmp_path / "recipe.yaml", "-o", tmp_path / "out"]
    assert refused(capsys, *command, "--variants", "all").startswith(
        f"vocable: {tmp_path}/recipe.yaml, variant c: seed"
    )
    assert refused(capsys, *command, "--variant", "d").endswith("no variant 'd': choose from a, b, c")
    assert not (tmp_path / "out").exists()
    table = done(capsys, *command, "--variants", "a, b")
    assert all(len(line) <= 80 for line in table.partition("written: ")[0].splitlines())
    found = json.loads(done(capsys, *command, "--variants", "a,b", "--json"))["runs"]
    assert list(found) == ["a", "b"]
    assert set(found["a"]["measured"]) == {"nDCG@10", "FLOPS"}
    assert f"{found['b']['measured']['nDCG@10']:.4f}" in table
    assert "47.7" in table
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a", "b", "results.json"]


KEY = "training.regularizers.document"


@pytest.fixture
def recipe(tmp_path: Path, model: str, dataset: str, toy_texts: list[str]) -> Path:
    texts = sorted(set(toy_texts))[:12]
    pairs = [json.dumps({"query": f"{i} {text}", "positive": text}) for i, text in enumerate(texts)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(pairs), encoding="utf-8")
    values = {
        "model": model,
        "data": {"examples": [str(tmp_path / "pairs.jsonl")]},
        "training": {"steps": 2, "batch_size": 2},
        "evaluation": {"dataset": dataset},
        "variants": {"slow": {}, "fast": {"set": {"training.learning_rate": 1e-3}}},
    }
    path = tmp_path / "toy.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


@pytest.mark.slow
def test_one_command_trains_measures_and_draws(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, figure = tmp_path / "runs", tmp_path / "figures" / "runs.svg"
    command = ["train", str(recipe), "-o", str(out), "--variants", "fast", "--sweep", f"{KEY}=0.001,0.1"]
    assert main([*command, "--figure", str(figure), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["runs"]
    assert [*results] == ["fast-document-0.001", "fast-document-0.1"]
    assert results == json.loads((out / "results.json").read_text(encoding="utf-8"))
    drawn = figure.read_text(encoding="utf-8")
    assert all(f">{word}</text>" in drawn for word in ("fast", "0.001", "0.1", "nDCG@10"))
    # The same again makes nothing anew, and prints the table.
    assert main(command) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if "fast-document-0.1" in line]
    assert f"{results['fast-document-0.1']['measured']['nDCG@10']:.4f}" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--figure", "a.png"], "figure draws a sweep: give sweep"),
        (["--sweep", f"{KEY}=1,2", "--figure", "a.pdf"], "a.pdf: the name of a figure must end in .png or .svg"),
        (["--sweep", KEY], f"sweep {KEY}: "),
        (["--sweep", f"{KEY}=1,2", "--variant", "none"], "no variant 'none': choose from slow, fast"),
    ],
)
def test_mistakes_are_known_before_anything_is_trained(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["train", str(recipe), "-o", str(tmp_path / "runs"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def pairs(tmp_path: Path, toy_texts: list[str]) -> Path:
    texts = sorted(set(toy_texts))[:12]
    path = tmp_path / "pairs.jsonl"
    lines = [json.dumps({"query": text[:15], "positive": text}) + "\n" for text in texts]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_mine_then_score(
    backbones: dict[str, Path], pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, hard, scored = str(backbones["bert"]), str(tmp_path / "hard.jsonl"), str(tmp_path / "scored.jsonl")
    assert main(["mine", model, str(pairs), "-o", hard, "--negatives", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"output": hard, "examples": 12, "negatives": 36, "left_out": 0}
    assert main(["teacher-scores", model, hard, "-o", scored, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"output": scored, "examples": 12, "negatives": 36, "left_out": 0}
    rows = [json.loads(line) for line in Path(scored).read_text(encoding="utf-8").splitlines()]
    assert all(len(row["negatives"]) == 3 and len(row["scores"]) == 4 for row in rows)


def test_mine_and_teacher_scores_print_their_counts(
    backbones: dict[str, Path], pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, hard = str(backbones["bert"]), str(tmp_path / "hard.jsonl")
    assert main(["mine", model, str(pairs), "-o", hard, "--negatives", "11", "--to-rank", "11", "--with-scores"]) == 0
    few = capsys.readouterr().out
    assert "left out" in few  # the positive itself has one of the eleven ranks
    assert f"written: {hard}" in few
    assert main(["teacher-scores", model, str(pairs), "-o", str(tmp_path / "scored.jsonl")]) == 0
    assert capsys.readouterr().out.startswith("12 examples, ")


def test_mistakes_of_mine_and_teacher_scores_are_one_line(
    backbones: dict[str, Path], pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["mine", str(backbones["bert"]), str(pairs), "-o", str(tmp_path / "out.jsonl")]
    line = "vocable: --negatives must be at least 1, not 0"
    assert main([*command, "--negatives", "0"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert main(["teacher-scores", str(tmp_path / "none"), str(pairs), "-o", str(tmp_path / "out.jsonl")]) == 2
    assert "none: no such model folder" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs.jsonl"]


def test_demo_is_told_where_to_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[dict[str, object]] = []
    monkeypatch.setattr(vocable, "demo", lambda **given: told.append(given))
    assert done(capsys, "demo", "-o", tmp_path) + done(capsys, "demo", "--serve") == ""
    assert told == [{"output": str(tmp_path)}, {"serve": True}]
