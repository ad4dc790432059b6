"""A sweep on the command line: runs, results and figure by one command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vocable.cli import main

KEY = "training.regularizers.document"


@pytest.fixture
def recipe(tmp_path: Path, backbones: dict[str, Path], toy_texts: list[str]) -> Path:
    texts = sorted(set(toy_texts))[:12]
    folder = tmp_path / "toy"
    folder.mkdir()
    rows = {
        "corpus.jsonl": [json.dumps({"_id": f"d{i}", "text": text}) for i, text in enumerate(texts)],
        "queries.jsonl": [json.dumps({"_id": f"q{i}", "text": text}) for i, text in enumerate(texts[:4])],
        "qrels.tsv": ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in range(4))],
    }
    for name, lines in rows.items():
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    pairs = [json.dumps({"query": f"{i} {text}", "positive": text}) for i, text in enumerate(texts)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(pairs), encoding="utf-8")
    values = {
        "model": str(backbones["bert"]),
        "data": {"examples": [str(tmp_path / "pairs.jsonl")]},
        "training": {"steps": 2, "batch_size": 2},
        "evaluation": {"dataset": f"beir:{folder}"},
        "variants": {"slow": {}, "fast": {"set": {"training.learning_rate": 1e-3}}},
    }
    path = tmp_path / "toy.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def test_one_command_trains_measures_and_draws(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, figure = tmp_path / "runs", tmp_path / "figures" / "runs.svg"
    command = ["train", str(recipe), "-o", str(out), "--variants", "all", "--sweep", f"{KEY}=0.001,0.1"]
    assert main([*command, "--figure", str(figure), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["runs"]
    assert [*results] == ["slow-document-0.001", "slow-document-0.1", "fast-document-0.001", "fast-document-0.1"]
    assert results == json.loads((out / "results.json").read_text(encoding="utf-8"))
    drawn = figure.read_text(encoding="utf-8")
    assert all(f">{word}</text>" in drawn for word in ("slow", "fast", "0.001", "0.1", "nDCG@10"))
    # The same again makes nothing anew, and prints the table.
    assert main(command) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if "fast-document-0.1" in line]
    assert f"{results['fast-document-0.1']['measured']['nDCG@10']:.4f}" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--figure", "a.png"], "figure draws a sweep: give sweep"),
        (["--sweep", f"{KEY}=1,2", "--figure", "a.pdf"], "a.pdf: a figure's name ends in .png or .svg"),
        (["--sweep", KEY], f"--sweep {KEY}: expected key=value,value,..."),
        (["--sweep", f"{KEY}=1,2", "--variant", "none"], "no variant 'none': choose from slow, fast"),
    ],
)
def test_mistakes_are_known_before_anything_is_trained(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["train", str(recipe), "-o", str(tmp_path / "runs"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
