"""wackiness on toy models: what it writes and prints, how it goes on, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vocable.analysis.expanders import open_expander
from vocable.analysis.expansion_data import expansion_data
from vocable.analysis.wackiness import Choices, find, read_scores
from vocable.cli import main
from vocable.encoder.load import load
from vocable.encoder.terms import Words, fingerprint, terms

pytestmark = pytest.mark.usefixtures("quiet_libraries")

FILES = ["curves.png", "curves.svg", "index.html", "results.json", "settings.json"]


@pytest.fixture(scope="module")
def documents(toy_texts: list[str]) -> list[str]:
    return sorted(set(toy_texts))[:40]


@pytest.fixture(scope="module")
def queries(documents: list[str]) -> list[str]:
    return [" ".join(text.split()[:4]) for text in documents[::5]]


@pytest.fixture(scope="module")
def places(documents: list[str], queries: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options that name the texts; ids are in the order of the rows."""
    folder = tmp_path_factory.mktemp("texts")
    for name, texts in (("corpus", documents), ("queries", queries)):
        rows = ({"_id": f"{name}{i:02d}", "text": text} for i, text in enumerate(texts))
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return ["--queries", str(folder / "queries.jsonl"), "--corpus", str(folder / "corpus.jsonl")]


def call(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def done(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert call("wackiness", *arguments, "--dtype", "float32") == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert call("wackiness", *arguments, "--dtype", "float32") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def flat(values: Any, path: str = "") -> dict[str, Any]:
    """Nested JSON values by their paths, which is what `pytest.approx` can compare."""
    if isinstance(values, (dict, list)):
        pairs = values.items() if isinstance(values, dict) else enumerate(values)
        return {key: leaf for name, value in pairs for key, leaf in flat(value, f"{path}/{name}").items()}
    return {path: values}


def test_a_report_of_two_models_and_rm3(
    capsys: pytest.CaptureFixture[str],
    backbones: dict[str, Path],
    documents: list[str],
    queries: list[str],
    places: list[str],
    tmp_path: Path,
) -> None:
    paths, output = [backbones["bert"], backbones["roberta"]], tmp_path / "report"
    options = ["-k", 4, "--bins", 10, "--bootstrap", 5, "--seed", 3, "--sensitivity"]
    printed = json.loads(done(capsys, *paths, "bm25+rm3", *places, "-o", output, *options, "--json"))
    assert [*tmp_path.iterdir()] == [output]
    names = [path.name for path in paths]
    scores = [f"scores-{name}.parquet" for name in [*names, "bm25+rm3"]]
    assert sorted(path.name for path in output.iterdir()) == sorted(FILES + scores)
    choices = Choices(k=4, bins=10)
    models = [load(path, device="cpu") for path in paths]
    measured = [
        expansion_data(model, queries, documents, 40, name=name, dtype="float32")
        for name, model in zip(names, models, strict=True)
    ]
    measured.append(expansion_data(open_expander("bm25+rm3", documents), queries, documents, 40, name="bm25+rm3"))
    findings = [find(one, choices, draws=5, seed=3, sensitivity=True) for one in measured]
    for found, finding in zip(printed["models"], findings, strict=True):
        assert flat(found) == pytest.approx(flat(json.loads(json.dumps(finding.to_json()))), abs=1e-6)
    values, _, meta = read_scores(output / scores[1], fingerprint(terms(models[1])))
    np.testing.assert_allclose(values, findings[1].wackiness.scores, atol=1e-6)
    assert (meta.model, meta.k, meta.role) == (str(paths[1]), 4, "query")


def test_documents_expand_and_do_not_find_themselves(
    capsys: pytest.CaptureFixture[str],
    backbones: dict[str, Path],
    documents: list[str],
    places: list[str],
    tmp_path: Path,
) -> None:
    output = tmp_path / "report"
    options = ["--role", "document", "--limit", 15, "-k", 3, "--bootstrap", 0, "--seed", 1]
    printed = json.loads(done(capsys, backbones["bert"], *places[2:], "-o", output, *options, "--json"))
    assert sorted(path.name for path in output.iterdir()) == sorted([*FILES, "scores.parquet"])
    model = load(backbones["bert"], device="cpu")
    chosen = np.sort(np.random.default_rng(1).choice(40, 15, replace=False))
    texts = [documents[row] for row in chosen]
    measured = expansion_data(model, texts, documents, 3, itself=chosen, dtype="float32")
    assert not (measured.rows == chosen[:, None]).any()
    [found] = printed["models"]
    assert found["w_auc"] == pytest.approx(find(measured, Choices(k=3), draws=0).w_auc, abs=1e-6)
    assert found["std"] is None


def test_a_repeated_call_prints_what_is_there(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], places: list[str], tmp_path: Path
) -> None:
    arguments = [backbones["bert"], *places, "-o", tmp_path / "report", "-k", 3, "--bootstrap", 0]
    first = done(capsys, *arguments)
    assert "W-AUC" in first
    assert "index.html" in first
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "report").iterdir()}
    again = done(capsys, *arguments)
    assert "already there, made with the same settings" in again
    assert again.splitlines()[:-1] == first.splitlines()[:-1]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "report").iterdir()} == times
    assert "was made with other settings (idf)" in refused(capsys, *arguments, "--idf", "bm25")


def test_a_killed_call_goes_on_and_does_not_encode_again(
    capsys: pytest.CaptureFixture[str],
    backbones: dict[str, Path],
    places: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = [backbones["bert"], *places, "-k", 3, "--bootstrap", 0]
    arguments = [*options, "-o", tmp_path / "report"]
    expected = done(capsys, *options, "-o", tmp_path / "whole", "--json")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("vocable.analysis.wackiness_report.write_report", killed)
        capsys.readouterr()
        assert call("wackiness", *arguments, "--dtype", "float32") == 130
        assert "the same command goes on from here" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
    assert (tmp_path / "report.partial" / "00" / "document" / "part-00000.parquet").is_file()
    assert "was made with other settings (k)" in refused(capsys, *arguments, "-k", 2)
    monkeypatch.setattr("vocable.encoder.encode.TextEncoder.encode", killed)  # nothing is left to encode
    found = json.loads(done(capsys, *arguments, "--json"))
    assert found == json.loads(expected) | {"output": str(tmp_path / "report")}
    assert not (tmp_path / "report.partial").exists()


def test_a_model_without_expansions_has_nothing_to_draw(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], places: list[str], tmp_path: Path
) -> None:
    model, output = tmp_path / "inference-free", tmp_path / "report"
    assert call("inference-free", backbones["bert"], "--texts", places[3], "-o", model) == 0
    assert "no term is an expansion" in refused(capsys, model, *places, "-o", output)
    assert not output.exists()
    printed = json.loads(done(capsys, model, "bm25+rm3", *places, "-o", tmp_path / "both", "--json"))
    free, rm3 = printed["models"]
    assert (free["w_auc"], free["std"], free["curve"], free["scored_terms"]) == (None, None, None, 0)
    assert rm3["w_auc"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-k", 0], "--k must be at least 1, not 0"),
        (["--bins", 0], "--bins must be at least 1, not 0"),
        (["--bootstrap", 1], "bootstrap needs 2 draws"),
        (["--bootstrap", -1], "--bootstrap must be at least 0, not -1"),
        (["--limit", 0], "--limit must be at least 1, not 0"),
        (["--role", "document"], "--role document takes its inputs from --corpus"),
        (["--queries", "none.jsonl"], "none.jsonl"),
        (["--corpus", "none.jsonl"], "none.jsonl"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_encoded(
    capsys: pytest.CaptureFixture[str],
    backbones: dict[str, Path],
    places: list[str],
    tmp_path: Path,
    options: list[object],
    message: str,
) -> None:
    assert message in refused(capsys, backbones["bert"], *places, "-o", tmp_path / "report", *options)
    assert not any(tmp_path.iterdir())


def test_texts_that_are_missing_are_refused(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], places: list[str], tmp_path: Path
) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    output = ["-o", tmp_path / "report"]
    model = backbones["bert"]
    assert "--role query needs --queries" in refused(capsys, model, *places[2:], *output)
    assert "empty.jsonl: there are no queries" in refused(capsys, model, "--queries", empty, *places[2:], *output)
    assert "empty.jsonl: there are no documents" in refused(capsys, model, *places[:2], "--corpus", empty, *output)
    assert "the same model twice" in refused(capsys, model, model, *places, *output)
    assert [*tmp_path.iterdir()] == [empty]


def test_words_of_a_model_are_found_as_the_option_says(
    capsys: pytest.CaptureFixture[str],
    backbones: dict[str, Path],
    documents: list[str],
    queries: list[str],
    places: list[str],
    tmp_path: Path,
) -> None:
    texts, words = tmp_path / "texts.txt", tmp_path / "words"
    texts.write_text("\n".join(documents), encoding="utf-8")
    assert call("expand", backbones["bert"], "--texts", texts, "--size", 30, "-o", words) == 0
    assert call("calibrate", words, texts, "-o", tmp_path / "model", "--activation-rate", 0.3) == 0
    model = load(tmp_path / "model", device="cpu")
    ways: tuple[Words, ...] = ("any", "whitespace")
    found = {}
    for way in ways:
        options = ["--splitter", way, "-k", 5, "--bootstrap", 0, "--json"]
        printed = json.loads(done(capsys, tmp_path / "model", *places, "-o", tmp_path / way, *options))
        measured = expansion_data(model, queries, documents, 5, splitter=way, dtype="float32")
        found[way] = printed["models"][0]["w_auc"]
        assert found[way] == pytest.approx(find(measured, Choices(k=5), draws=0).w_auc, abs=1e-6)
    assert found["any"] != found["whitespace"]


def test_names_are_those_of_the_texts_that_are_given(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], places: list[str], tmp_path: Path
) -> None:
    arguments = [backbones["bert"], *places, "-k", 3, "--bootstrap", 0, "--json"]
    before = json.loads(done(capsys, *arguments, "-o", tmp_path / "before"))["models"][0]["wackiest"]
    [word, *_] = [entry["term"] for entry in before if entry["kind"] == "other word"]
    texts = tmp_path / "names.txt"
    texts.write_text(f"There we met {word.title()} and went home.\n" * 100, encoding="utf-8")
    options = ["--names", texts, "-o", tmp_path / "after"]
    after = json.loads(done(capsys, *arguments, *options))["models"][0]["wackiest"]
    changed = [entry | {"kind": "proper name"} if entry["term"] == word else entry for entry in before]
    assert after == changed
    assert "none.txt" in refused(capsys, *arguments, "--names", "none.txt", "-o", tmp_path / "none")
    assert not [*tmp_path.glob("none*")]
