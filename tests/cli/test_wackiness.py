"""wackiness: what it writes, prints and refuses, how it goes on, and what explain, search and cards make of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard

from tests.cli.command_line import done, refused
from tests.toys import killed
from vocable.cli import main
from vocable.encoding.load import load
from vocable.encoding.term_scores import ranked, read_scores
from vocable.encoding.terms import WordKind, input_terms, terms
from vocable.encoding.vectors import vocabulary_fingerprint
from vocable.evaluation.expanders import open_expander
from vocable.options import check
from vocable.training_options import WackinessOptions
from vocable.wackiness.expansions import expansion_data
from vocable.wackiness.measure import area_difference, wackiness_of

QUERY, DOCUMENT = "the old fox", "a librarian reads books"
CARD = ["documents", "weight", "examples", "nearest"]
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


def measured(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    return done(capsys, "measure-wackiness", *arguments, "--dtype", "float32")


def unmeasured(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    return refused(capsys, "measure-wackiness", *arguments, "--dtype", "float32")


def flat(values: Any, path: str = "") -> dict[str, Any]:
    """Nested JSON values by their paths, which is what `pytest.approx` can compare."""
    if isinstance(values, (dict, list)):
        pairs = values.items() if isinstance(values, dict) else enumerate(values)
        return {key: leaf for name, value in pairs for key, leaf in flat(value, f"{path}/{name}").items()}
    return {path: values}


def card_of(term: str, data: Any, queries: list[str], model: Any) -> dict[str, Any]:
    """Return the card of a term, by brute force over all inputs, documents and rows."""
    column = list(data.terms).index(term)
    vectors, own, counts = (matrix.toarray() for matrix in (data.vectors, data.input_counts, data.counts))
    added = [(-vectors[i, column], i) for i in range(len(queries)) if vectors[i, column] > 0 and own[i, column] == 0]
    nearest = []
    if model is not None:
        rows = model[0].auto_model.get_output_embeddings().weight.detach().numpy()
        lengths = [float(np.linalg.norm(row)) or 1.0 for row in rows]  # that of [PAD] is 0
        cosines = [
            float(row @ rows[column]) / length / lengths[column] for row, length in zip(rows, lengths, strict=True)
        ]
        nearest = sorted((i for i in range(len(rows)) if i != column), key=lambda i: -cosines[i])[:5]
    return {
        "documents": int((counts[:, column] > 0).sum()),
        "weight": -float(np.mean([weight for weight, _ in added])),
        "examples": [queries[i] for _, i in sorted(added)[:3]],
        "nearest": [data.terms[i] for i in nearest],
    }


def test_a_report_of_two_models_and_rm3(
    capsys: pytest.CaptureFixture[str],
    backbones: dict[str, Path],
    documents: list[str],
    queries: list[str],
    places: list[str],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    other = tmp_path_factory.mktemp("models") / "my: model"
    shutil.copytree(backbones["roberta"], other)
    paths, output = [backbones["bert"], other], tmp_path / "report"
    options = ["-k", 4, "--bins", 10, "--bootstrap", 5, "--seed", 3, "--sensitivity"]
    printed = json.loads(measured(capsys, *paths, "bm25+rm3", *places, "-o", output, *options, "--json"))
    assert [*tmp_path.iterdir()] == [output]
    names = [path.name for path in paths]
    scores = [f"scores-{name}.parquet" for name in (names[0], "my__model", "bm25+rm3")]
    assert sorted(path.name for path in output.iterdir()) == sorted(FILES + scores)
    settings = check(WackinessOptions, {"k": 4, "bins": 10, "bootstrap": 5, "seed": 3})
    models = [load(path, device="cpu") for path in paths]
    data = [expansion_data(model, queries, documents, 40, name=name) for name, model in zip(names, models, strict=True)]
    data.append(expansion_data(open_expander("bm25+rm3", documents), queries, documents, 40, name="bm25+rm3"))
    findings = [wackiness_of(one, settings, sensitivity=True) for one in data]
    for found, one, model in zip(printed["models"], data, [*models, None], strict=True):
        for card in found["wackiest"]:
            said, counted = {name: card.pop(name) for name in CARD}, card_of(card["term"], one, queries, model)
            assert said.pop("weight") == pytest.approx(counted.pop("weight"))
            assert said == counted
    page = (output / "index.html").read_text(encoding="utf-8")
    assert all(f"Expansions by {name}" in page for name in [*names, "bm25+rm3"])
    for found, finding in zip(printed["models"], findings, strict=True):
        difference = {} if finding is findings[0] else {"difference": area_difference(finding, findings[0])}
        expected = finding.record | difference
        assert flat(found) == pytest.approx(flat(json.loads(json.dumps(expected))), abs=1e-6)
    values, _, meta = read_scores(output / scores[1], vocabulary_fingerprint(terms(models[1])))
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
    printed = json.loads(measured(capsys, backbones["bert"], *places[2:], "-o", output, *options, "--json"))
    assert sorted(path.name for path in output.iterdir()) == sorted([*FILES, "scores.parquet"])
    model = load(backbones["bert"], device="cpu")
    chosen = np.sort(np.random.default_rng(1).choice(40, 15, replace=False))
    texts = [documents[row] for row in chosen]
    data = expansion_data(model, texts, documents, 3, itself=chosen)
    assert not (data.rows == chosen[:, None]).any()
    [found] = printed["models"]
    assert found["w_auc"] == pytest.approx(
        wackiness_of(data, check(WackinessOptions, {"k": 3, "bootstrap": 0})).record["w_auc"], abs=1e-6
    )
    assert found["std"] is None


def test_a_repeated_call_prints_what_is_there(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], places: list[str], tmp_path: Path
) -> None:
    arguments = [backbones["bert"], *places, "-o", tmp_path / "report", "-k", 3, "--bootstrap", 0]
    first = measured(capsys, *arguments)
    assert "W-AUC" in first
    assert "index.html" in first
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "report").iterdir()}
    again = measured(capsys, *arguments)
    assert "already there, made with the same settings" in again
    assert again.splitlines()[:-1] == first.splitlines()[:-1]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "report").iterdir()} == times
    assert "was made with other settings (idf)" in unmeasured(capsys, *arguments, "--idf", "bm25")


@pytest.mark.slow
def test_a_killed_call_goes_on_and_does_not_encode_again(
    capsys: pytest.CaptureFixture[str],
    backbones: dict[str, Path],
    places: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = [backbones["bert"], *places, "-k", 3, "--bootstrap", 0]
    arguments = [*options, "-o", tmp_path / "report"]
    expected = measured(capsys, *options, "-o", tmp_path / "whole", "--json")

    with monkeypatch.context() as patch:
        patch.setattr("vocable.wackiness.study.write_report", killed)
        capsys.readouterr()
        assert main([*map(str, ["measure-wackiness", *arguments]), "--dtype", "float32"]) == 130
        assert "the same command resumes" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
    assert (tmp_path / "report.partial" / "00" / "document" / "part-00000.parquet").is_file()
    assert "was made with other settings (k)" in unmeasured(capsys, *arguments, "-k", 2)
    monkeypatch.setattr("vocable.encoding.text_encoder.TextEncoder.encode_both", killed)  # nothing is left to encode
    found = json.loads(measured(capsys, *arguments, "--json"))
    assert found == json.loads(expected) | {"output": str(tmp_path / "report")}
    assert not (tmp_path / "report.partial").exists()


def test_a_model_without_expansions_has_nothing_to_draw(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], places: list[str], tmp_path: Path
) -> None:
    model, output = tmp_path / "inference-free", tmp_path / "report"
    done(capsys, "make-inference-free", backbones["bert"], "--texts", places[3], "-o", model)
    assert "no term is an expansion" in unmeasured(capsys, model, *places, "-o", output)
    assert not output.exists()
    printed = json.loads(measured(capsys, model, "bm25+rm3", *places, "-o", tmp_path / "both", "--json"))
    free, rm3 = printed["models"]
    assert (free["w_auc"], free["std"], free["curve"], free["scored_terms"]) == (None, None, None, 0)
    assert rm3["w_auc"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-k", 0], "--k must be at least 1, not 0"),
        (["--bins", 0], "--bins must be at least 1, not 0"),
        (["--bootstrap", 1], "bootstrap needs at least 2 draws"),
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
    assert message in unmeasured(capsys, backbones["bert"], *places, "-o", tmp_path / "report", *options)
    assert not any(tmp_path.iterdir())


def test_texts_that_are_missing_are_refused(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], places: list[str], tmp_path: Path
) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    output = ["-o", tmp_path / "report"]
    model = backbones["bert"]
    assert "--role query needs --queries" in unmeasured(capsys, model, *places[2:], *output)
    assert "empty.jsonl: there are no queries" in unmeasured(capsys, model, "--queries", empty, *places[2:], *output)
    assert "empty.jsonl: there are no documents" in unmeasured(capsys, model, *places[:2], "--corpus", empty, *output)
    assert "the same model twice" in unmeasured(capsys, model, model, *places, *output)
    assert [*tmp_path.iterdir()] == [empty]


@pytest.mark.slow
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
    done(capsys, "expand-vocabulary", backbones["bert"], "--texts", texts, "--size", 30, "-o", words)
    done(capsys, "calibrate", words, texts, "-o", tmp_path / "model", "--activation-rate", 0.3)
    model = load(tmp_path / "model", device="cpu")
    ways: tuple[WordKind, ...] = ("any", "whitespace")
    found = {}
    for way in ways:
        options = ["--splitter", way, "-k", 5, "--bootstrap", 0, "--json"]
        printed = json.loads(measured(capsys, tmp_path / "model", *places, "-o", tmp_path / way, *options))
        data = expansion_data(model, queries, documents, 5, splitter=way)
        found[way] = printed["models"][0]["w_auc"]
        assert found[way] == pytest.approx(
            wackiness_of(data, check(WackinessOptions, {"k": 5, "bootstrap": 0})).record["w_auc"], abs=1e-6
        )
    assert found["any"] != found["whitespace"]


def test_names_are_those_of_the_texts_that_are_given(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], places: list[str], tmp_path: Path
) -> None:
    arguments = [backbones["bert"], *places, "-k", 3, "--bootstrap", 0, "--json"]
    before = json.loads(measured(capsys, *arguments, "-o", tmp_path / "before"))["models"][0]["wackiest"]
    [word, *_] = [entry["term"] for entry in before if entry["kind"] == "other word"]
    texts = tmp_path / "names.txt"
    texts.write_text(f"There we met {word.title()} and went home.\n" * 100, encoding="utf-8")
    options = ["--names", texts, "-o", tmp_path / "after"]
    after = json.loads(measured(capsys, *arguments, *options))["models"][0]["wackiest"]
    changed = [entry | {"kind": "proper name"} if entry["term"] == word else entry for entry in before]
    assert after == changed
    assert "none.txt" in unmeasured(capsys, *arguments, "--names", "none.txt", "-o", tmp_path / "none")
    assert not [*tmp_path.glob("none*")]


@pytest.fixture(scope="module")
def own_model(backbones: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder of our own, which may get a card."""
    folder = tmp_path_factory.mktemp("models") / "toy"
    shutil.copytree(backbones["bert"], folder)
    return folder


@pytest.fixture(scope="module")
def report(own_model: Path, places: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("reports") / "report"
    command = [
        "measure-wackiness",
        own_model,
        "--role",
        "document",
        *places[2:],
        "-o",
        output,
        "-k",
        5,
        "--bootstrap",
        3,
    ]
    assert main([str(word) for word in command]) == 0
    return output


def wackiest(model: Path, report: Path, share: float) -> set[str]:
    names = terms(load(model))
    columns = ranked(*read_scores(report / "scores.parquet")[:2])
    return {names[column] for column in columns[: -int(-share * len(columns) // 1)]}


def standing(model: Path, text: str) -> set[str]:
    encoder = load(model)
    return {terms(encoder)[column] for column in input_terms(encoder, [text]).indices}


@pytest.mark.slow
def test_explain_marks_wacky_terms(capsys: pytest.CaptureFixture[str], own_model: Path, report: Path) -> None:
    command = ["explain", own_model, QUERY, DOCUMENT]
    options = ["--wacky", report / "scores.parquet", "--wacky-share", 0.5]
    plain = json.loads(done(capsys, *command, "--json"))
    assert all("wacky" not in match for match in plain["matches"])
    marked = json.loads(done(capsys, *command, *options, "--json"))
    wacky, in_both = wackiest(own_model, report, 0.5), standing(own_model, QUERY) & standing(own_model, DOCUMENT)
    found = {match["term"]: match["wacky"] for match in marked["matches"]}
    assert found == {match["term"]: match["term"] in wacky - in_both for match in plain["matches"]}
    assert set(found.values()) == {True, False}
    assert " wacky" in done(capsys, *command, *options)
    assert " wacky" not in done(capsys, *command)
    alone = json.loads(done(capsys, "explain", own_model, QUERY, "--wacky", report / "scores.parquet", "--json"))
    expected = wackiest(own_model, report, 0.1) - standing(own_model, QUERY)
    assert [term["wacky"] for term in alone["terms"]] == [term["term"] in expected for term in alone["terms"]]


@pytest.mark.slow
def test_search_marks_wacky_terms(
    capsys: pytest.CaptureFixture[str], own_model: Path, report: Path, places: list[str], tmp_path: Path
) -> None:
    done(capsys, "index", own_model, places[3], "-o", tmp_path / "index")
    command = ["search", tmp_path / "index", QUERY, "-k", 3, "--explain"]
    options = ["--wacky", report / "scores.parquet", "--wacky-share", 0.6]
    answer = json.loads(done(capsys, *command, *options, "--json"))
    wacky, asked = wackiest(own_model, report, 0.6), standing(own_model, QUERY)
    for hit in answer["hits"]:
        in_both = asked & standing(own_model, hit["text"])
        for match in hit["explanation"]["matches"]:
            assert match["wacky"] == (match["term"] in wacky - in_both)
    assert "wacky: " in done(capsys, *command, *options)
    assert "wacky: " not in done(capsys, *command)


def test_what_does_not_go_together_is_refused(
    capsys: pytest.CaptureFixture[str], own_model: Path, report: Path, backbones: dict[str, Path]
) -> None:
    scores = report / "scores.parquet"
    line = refused(capsys, "search", "index", QUERY, "--wacky", scores)
    assert line == "vocable: --wacky marks the terms that --explain shows: give both"
    line = refused(capsys, "explain", own_model, QUERY, "--wacky-share", 0.5)
    assert line == "vocable: --wacky-share goes with --wacky SCORES"
    line = refused(capsys, "explain", backbones["roberta"], QUERY, "--wacky", scores)
    assert line == f"vocable: {scores}: the scores are of {own_model}, which has another vocabulary"
    line = refused(capsys, "explain", own_model, QUERY, "--wacky", report / "results.json")
    assert line.startswith(f"vocable: {report / 'results.json'}: truncated or damaged file of scores")


def test_the_card_says_how_wacky_the_model_is(
    capsys: pytest.CaptureFixture[str], own_model: Path, report: Path, places: list[str]
) -> None:
    (own_model / "README.md").write_text("# Toy\n", encoding="utf-8")
    texts = ["--role", "document", *places[2:], "-k", 5, "--bootstrap", 3]
    command = ["measure-wackiness", own_model, *texts, "-o", report, "--card"]
    line = refused(capsys, "measure-wackiness", own_model, "bm25+rm3", *command[2:])
    assert line == "vocable: --card: the card is written into a model's folder, and bm25+rm3 is not a folder"
    for _ in range(2):  # the report is there already, and the second time the row is, too
        done(capsys, *command)
    text = (own_model / "README.md").read_text(encoding="utf-8")
    [found] = json.loads((report / "results.json").read_text(encoding="utf-8"))["models"]
    assert text.endswith("# Toy\n")
    data: Any = ModelCard(text).data
    metrics = {one.metric_type: (one.dataset_name, one.dataset_config, one.metric_value) for one in data.eval_results}
    assert metrics["w_auc"] == ("corpus.jsonl", "documents", found["w_auc"])
    assert len(data.eval_results) == 3
