"""What is done with measured wackiness: explanations mark wacky terms, and the model's card says how wacky it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from tests.cli.command_line import done, refused
from vocable.analysis.wackiness import read_scores
from vocable.cli import main
from vocable.encoder.load import load
from vocable.encoder.terms import input_terms, terms
from vocable.evaluation.wackiness import ranked

pytestmark = pytest.mark.usefixtures("quiet_libraries")

QUERY, DOCUMENT = "the old fox", "a librarian reads books"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, toy_texts: list[str]) -> Path:
    path = tmp_path_factory.mktemp("texts") / "corpus.jsonl"
    rows = [{"_id": f"d{i}", "text": text} for i, text in enumerate(list(dict.fromkeys(toy_texts))[:30])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model(backbones: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder of our own, which may get a card."""
    folder = tmp_path_factory.mktemp("models") / "toy"
    shutil.copytree(backbones["bert"], folder)
    return folder


@pytest.fixture(scope="module")
def report(model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("reports") / "report"
    places = ["--role", "document", "--corpus", str(corpus)]
    assert main(["wackiness", str(model), *places, "-o", str(output), "-k", "5", "--bootstrap", "3"]) == 0
    return output


def wackiest(model: Path, report: Path, share: float) -> set[str]:
    names = terms(load(model))
    columns = ranked(*read_scores(report / "scores.parquet")[:2])
    return {names[column] for column in columns[: -int(-share * len(columns) // 1)]}


def standing(model: Path, text: str) -> set[str]:
    encoder = load(model)
    return {terms(encoder)[column] for column in input_terms(encoder, [text]).indices}


def test_explain_marks_wacky_terms(capsys: pytest.CaptureFixture[str], model: Path, report: Path) -> None:
    command = ["explain", model, QUERY, DOCUMENT]
    options = ["--wacky", report / "scores.parquet", "--wacky-share", 0.5]
    plain = json.loads(done(capsys, *command, "--json"))
    assert all("wacky" not in match for match in plain["matches"])
    marked = json.loads(done(capsys, *command, *options, "--json"))
    wacky, in_both = wackiest(model, report, 0.5), standing(model, QUERY) & standing(model, DOCUMENT)
    found = {match["term"]: match["wacky"] for match in marked["matches"]}
    assert found == {match["term"]: match["term"] in wacky - in_both for match in plain["matches"]}
    assert set(found.values()) == {True, False}
    assert " wacky" in done(capsys, *command, *options)
    assert " wacky" not in done(capsys, *command)
    alone = json.loads(done(capsys, "explain", model, QUERY, "--wacky", report / "scores.parquet", "--json"))
    expected = wackiest(model, report, 0.1) - standing(model, QUERY)
    assert [term["wacky"] for term in alone["terms"]] == [term["term"] in expected for term in alone["terms"]]


def test_search_marks_wacky_terms(
    capsys: pytest.CaptureFixture[str], model: Path, report: Path, corpus: Path, tmp_path: Path
) -> None:
    done(capsys, "index", model, corpus, "-o", tmp_path / "index")
    command = ["search", tmp_path / "index", QUERY, "-k", 3, "--explain"]
    options = ["--wacky", report / "scores.parquet", "--wacky-share", 0.6]
    answer = json.loads(done(capsys, *command, *options, "--json"))
    wacky, asked = wackiest(model, report, 0.6), standing(model, QUERY)
    for hit in answer["hits"]:
        in_both = asked & standing(model, hit["text"])
        for match in hit["explanation"]["matches"]:
            assert match["wacky"] == (match["term"] in wacky - in_both)
    assert "wacky: " in done(capsys, *command, *options)
    assert "wacky: " not in done(capsys, *command)


def test_what_does_not_go_together_is_refused(
    capsys: pytest.CaptureFixture[str], model: Path, report: Path, backbones: dict[str, Path]
) -> None:
    scores = report / "scores.parquet"
    line = refused(capsys, "search", "index", QUERY, "--wacky", scores)
    assert line == "vocable: --wacky marks the terms that --explain shows: give both"
    line = refused(capsys, "explain", model, QUERY, "--wacky-share", 0.5)
    assert line == "vocable: --wacky-share is of the scores in --wacky FILE: give both"
    line = refused(capsys, "explain", backbones["roberta"], QUERY, "--wacky", scores)
    assert line == f"vocable: {scores}: the scores are of {model}, which has another vocabulary"
    line = refused(capsys, "explain", model, QUERY, "--wacky", report / "results.json")
    assert line.startswith(f"vocable: {report / 'results.json'}: not a whole file of scores")


def test_the_card_says_how_wacky_the_model_is(
    capsys: pytest.CaptureFixture[str], model: Path, report: Path, corpus: Path
) -> None:
    (model / "README.md").write_text("# Toy\n", encoding="utf-8")
    places = ["--role", "document", "--corpus", corpus, "-k", 5, "--bootstrap", 3]
    command = ["wackiness", model, *places, "-o", report, "--card"]
    line = refused(capsys, "wackiness", model, "bm25+rm3", *command[2:])
    assert line == "vocable: --card: it is written into the folder of a model, and bm25+rm3 is none"
    for _ in range(2):  # the report is there already, and the second time the row is, too
        done(capsys, *command)
    text = (model / "README.md").read_text(encoding="utf-8")
    [found] = json.loads((report / "results.json").read_text(encoding="utf-8"))["models"]
    assert text.endswith("# Toy\n")
    data: Any = ModelCard(text).data
    metrics = {one.metric_type: (one.dataset_name, one.dataset_config, one.metric_value) for one in data.eval_results}
    assert metrics["w_auc"] == ("corpus.jsonl", "documents", found["w_auc"])
    assert len(data.eval_results) == 3
