"""Every verb of the command line on toy models: what it prints, and what it leaves behind."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.stats import ttest_rel
from transformers import AutoModelForMaskedLM

from tests.cli.command_line import done, refused, write_beir
from vocable.cli import main
from vocable.encoder.load import load
from vocable.encoder.stream import encode
from vocable.evaluation import evaluate_run, evaluate_system
from vocable.search.explain import Explanation, MatchedTerm, explain_texts
from vocable.vectors import read_vectors

pytestmark = pytest.mark.usefixtures("quiet_libraries")

NARROW = 80  # columns


@pytest.fixture(scope="module")
def model(backbones: dict[str, Path]) -> str:
    return str(backbones["bert"])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, toy_texts: list[str]) -> Path:
    """A BEIR folder: 30 documents, 6 queries that are beginnings of documents."""
    folder = tmp_path_factory.mktemp("beir")
    write_beir(folder, sorted(set(toy_texts))[:30], 6, titles=True)
    return folder


@pytest.fixture(scope="module")
def index(model: str, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    output = tmp_path_factory.mktemp("indexes") / "toy"
    arguments = ["index", model, f"beir:{dataset}", "-o", str(output), "--bm25", "--dtype", "float32"]
    assert main(arguments) == 0
    return str(output)


def test_encode(capsys: pytest.CaptureFixture[str], model: str, dataset: Path, tmp_path: Path) -> None:
    place, output = dataset / "corpus.jsonl", tmp_path / "vectors"
    options = ["--dtype", "float32", "--top-k", 7, "--max-length", 6]
    text = done(capsys, "encode", model, place, "-o", output, *options)
    assert text.startswith("30 texts, ")
    assert "\n30 texts cut at 6 tokens\n" in text
    rows = [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()]
    texts = [f"{row['title']} {row['text']}" for row in rows]
    found = read_vectors(output)
    expected = encode(load(model), texts, top_k=7, max_length=6, dtype="float32")
    np.testing.assert_allclose(found.matrix.toarray(), expected.toarray(), atol=1e-5)
    assert list(found.ids) == [row["_id"] for row in rows]
    assert (found.meta.model, found.meta.role) == (model, "document")


def test_values_that_cannot_be_written_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: str, dataset: Path, tmp_path: Path
) -> None:
    command = ["evaluate", model, "--dataset", f"beir:{dataset}", "-m", "RR@10", "-o"]
    for output in (".", tmp_path, tmp_path / "no" / "values.json"):
        refused(capsys, *command, output)  # before the work: nothing is shown
    capsys.readouterr()
    monkeypatch.setattr("vocable.analysis.evaluate.replacing", Mock(side_effect=OSError(28, "No space left", "values")))
    assert main([*command, str(tmp_path / "values.json")]) == 2
    shown, said = capsys.readouterr()
    assert "RR@10" in shown
    assert "written" not in shown
    assert said == "vocable: values: No space left\n"
    assert list(tmp_path.iterdir()) == []


def test_encode_queries_in_shards_with_bad_lines(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path
) -> None:
    place, output = tmp_path / "queries.tsv", tmp_path / "vectors"
    place.write_text("q1\tthe old fox\nq2\nq3\tposting lists\nq4\tbooks\n", encoding="utf-8")
    arguments = ["encode", model, place, "-o", output, "--role", "query", "--shard", "2/2"]
    assert refused(capsys, *arguments).startswith(f"vocable: {place}:2: ")
    values = json.loads(done(capsys, *arguments, "--skip-bad", 1, "--json"))
    del values["seconds"], values["texts_per_second"]
    assert values == {"output": str(output), "texts": 1, "truncated": 0, "empty": 0, "bad_lines": 1}
    found = read_vectors(output)
    assert (list(found.ids), found.meta.role) == (["q3"], "query")


def test_bad_lines_are_reported(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    place = tmp_path / "corpus.jsonl"
    place.write_text('{"_id": "a", "text": "books"}\n{\n', encoding="utf-8")
    text = done(capsys, "encode", model, place, "-o", tmp_path / "out", "--skip-bad", 2)
    assert f"1 bad line left out, the first: {place}:2: " in text


def test_the_same_command_again_changes_nothing(
    capsys: pytest.CaptureFixture[str], model: str, dataset: Path, index: str
) -> None:
    again = ["index", model, f"beir:{dataset}", "-o", index, "--dtype", "float32"]
    assert done(capsys, *again, "--bm25").startswith(f"{index}: 30 texts, ")
    line = f"vocable: {index} was made with other settings (bm25): name another output, or remove it"
    assert refused(capsys, *again) == line


def test_search(capsys: pytest.CaptureFixture[str], index: str, model: str, dataset: Path) -> None:
    rows = [json.loads(line) for line in (dataset / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    query = "the old fox reads"
    encoder = load(model)
    documents = encode(encoder, [f"{row['title']} {row['text']}" for row in rows], dtype="float32")
    scores = (encode(encoder, [query], "query", dtype="float32") @ documents.T).toarray()[0]
    best = rows[int(scores.argmax())]
    text = done(capsys, "search", index, query, "-k", 3)
    lines = text.splitlines()
    assert len(lines) == 6  # two a hit, and the only query is not repeated
    assert lines[0].split()[0] == "1"
    assert float(lines[0].split()[1]) == pytest.approx(scores.max(), rel=0.02)  # dtype auto may be bfloat16
    assert lines[0].split()[2:] == [best["_id"], *best["title"].split()]
    assert lines[1].strip() == best["text"]


def test_search_explains(capsys: pytest.CaptureFixture[str], index: str) -> None:
    text = done(capsys, "search", index, "the old fox reads", "-k", 2, "--explain")
    assert max(map(len, text.splitlines())) <= NARROW
    assert text.count("expansion: ") == 2
    [answer] = [json.loads(line) for line in done(capsys, "search", index, "fox", "--explain", "--json").splitlines()]
    for hit in answer["hits"]:
        matches = hit["explanation"]["matches"]
        assert sum(match["contribution"] for match in matches) == pytest.approx(hit["score"], rel=1e-4)
        assert sum(match["share"] for match in matches) == pytest.approx(1)


def test_terms_of_the_text_stand_apart_from_expansions() -> None:
    rows = [("fox", 0.6, True, True), ("hound", 0.3, True, False), ("books", 0.1, True, True)]
    matches = tuple(MatchedTerm(term, 1, share, share, share, *where) for term, share, *where in rows)
    assert Explanation(1.0, matches).reasons() == ["text: fox 60%, books 10%", "expansion: hound 30%"]
    assert Explanation(0.0, ()).reasons() == ["no shared term"]
    wacky = tuple(replace(match, wacky=match.term != "fox") for match in matches[:2])
    assert Explanation(1.0, wacky).reasons() == ["text: fox 60%", "wacky: hound 30%"]


def test_search_many_queries(
    capsys: pytest.CaptureFixture[str], index: str, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(*arguments: object) -> list[Any]:
        lines = done(capsys, "search", index, *arguments, "--json", "-k", 2).splitlines()
        return [json.loads(line) for line in lines]

    from_arguments = answers("old fox", "posting lists")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"old fox\n\nposting lists\n")))
    from_stdin = answers("-")
    assert [answer["query"] for answer in from_stdin] == ["old fox", "posting lists"]
    for one, other in zip(from_arguments, from_stdin, strict=True):
        assert [hit["id"] for hit in one["hits"]] == [hit["id"] for hit in other["hits"]]
    assert [answer["id"] for answer in answers("--queries", f"beir:{dataset}")] == [f"q{i}" for i in range(6)]
    text = done(capsys, "search", index, "old fox", "posting lists", "-k", 1)
    assert [line for line in text.splitlines() if not line.startswith(" ")] == ["old fox", "", "posting lists"]


def test_hybrid_search_and_no_hits(capsys: pytest.CaptureFixture[str], index: str) -> None:
    values = json.loads(done(capsys, "search", index, "fox", "--hybrid", "--json", "-k", 1))
    # The best of two scores from 0 to 1: whatever is first in one of the rankings has 1 from it, and up to 1 more.
    assert 1 <= values["hits"][0]["score"] <= 2
    explained = done(capsys, "search", index, "fox", "--hybrid", "--explain", "-k", 1)
    alone = done(capsys, "search", index, "fox", "-k", 30)
    found, own = explained.split()[2], explained.partition("the model's own score, ")[2].partition(":")[0]
    assert any(line.split()[1:3] == [own, found] for line in alone.splitlines() if line[:3].strip())
    assert done(capsys, "search", index, "the old fox reads books", "--minimum-match", 1) == "no hits\n"
    assert refused(capsys, "search", index, "fox", "-k", 0).startswith("vocable: Invalid value for '-k'")


def test_a_run_is_evaluated_as_its_model(
    capsys: pytest.CaptureFixture[str], index: str, dataset: Path, tmp_path: Path
) -> None:
    run, place = tmp_path / "toy.run", f"beir:{dataset}"
    assert done(capsys, "search", index, "--queries", place, "--run", run, "-k", 30).startswith("6 queries")
    values = json.loads(done(capsys, "evaluate", run, "--dataset", place, "-m", "RR@10", "--hybrid", "--json"))
    assert [system["name"] for system in values["systems"]] == ["toy", "toy + BM25"]
    assert values["systems"][0]["values"]["RR@10"] == pytest.approx(
        evaluate_run("toy", run, place, ["RR@10"]).values["RR@10"]
    )


def test_explain(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    (tmp_path / "document.txt").write_text("a librarian reads books", encoding="utf-8")
    arguments = ["explain", model, "old books", f"@{tmp_path}/document.txt"]
    expected = explain_texts(load(model), "old books", "a librarian reads books")
    assert json.loads(done(capsys, *arguments, "--json")) == json.loads(json.dumps(expected.to_json()))
    text = done(capsys, *arguments)
    assert expected.matches[0].term in text
    assert max(map(len, text.splitlines())) <= NARROW
    expansion = json.loads(done(capsys, "explain", model, "old books", "--json"))
    vector = encode(load(model), ["old books"], "query").toarray()[0]
    assert expansion["active"] == np.count_nonzero(vector)
    assert expansion["terms"][0]["weight"] == pytest.approx(vector.max())
    missing = refused(capsys, "explain", model, f"@{tmp_path}/none.txt")
    assert missing == f"vocable: {tmp_path}/none.txt: no such file (a text that begins with @ names one)"


def test_explain_of_texts_that_share_nothing(
    capsys: pytest.CaptureFixture[str], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vocable.search.explain.explain_texts", lambda *texts, wacky: Explanation(0.0, ()))
    assert done(capsys, "explain", model, "old books", "a fox") == "score 0: no shared term\n"


def test_evaluate_side_by_side(
    capsys: pytest.CaptureFixture[str], model: str, backbones: dict[str, Path], dataset: Path, tmp_path: Path
) -> None:
    systems, place = [model, backbones["distilbert"]], f"beir:{dataset}"
    result, per_query = tmp_path / "result.json", tmp_path / "queries.tsv"
    common = ["--dataset", place, "-m", "nDCG@10", "-m", "RR@10", "--dtype", "float32"]
    options = ["--bm25", "--hybrid", "-o", result, "--per-query", per_query, "--json"]
    values = json.loads(done(capsys, "evaluate", *systems, *common, *options))
    names = [Path(system).name for system in systems]
    expected = [names[0], f"{names[0]} + BM25", names[1], f"{names[1]} + BM25", "BM25"]
    assert [system["name"] for system in values["systems"]] == expected
    alone = evaluate_system(load(model), place, ["nDCG@10", "RR@10"], dtype="float32")
    assert values["systems"][0]["values"] == pytest.approx(alone.values)
    assert alone.cost is not None
    assert values["systems"][0]["cost"]["query_terms"] == alone.cost.query_terms
    stored = json.loads(result.read_text(encoding="utf-8"))
    one, other = (list(stored[i]["per_query"]["nDCG@10"].values()) for i in (0, 2))
    assert values["systems"][2]["p"]["nDCG@10"] == pytest.approx(ttest_rel(one, other).pvalue)
    lines = per_query.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "system\tmeasure\tquery\tvalue"
    assert len(lines) == 1 + 5 * 2 * 6
    assert lines[1] == f"{names[0]}\tnDCG@10\tq0\t{stored[0]['per_query']['nDCG@10']['q0']:.6g}"
    # The stored evaluations, compared again, say the same.
    assert json.loads(done(capsys, "compare", result, "--json")) | {"output": str(result)} == values
    table = done(capsys, "compare", result, "--markdown")
    assert len(table.splitlines()) == 2 + 5
    text = done(capsys, "compare", result)
    assert max(map(len, text.splitlines())) <= NARROW
    for shown in ("nDCG@10", "RR@10", "FLOPS", "BM25"):
        assert shown in text


def test_evaluate_with_feedback(capsys: pytest.CaptureFixture[str], model: str, dataset: Path) -> None:
    common = [model, "--dataset", f"beir:{dataset}", "-m", "nDCG@10", "--dtype", "float32"]
    values = json.loads(done(capsys, "evaluate", *common, "--bm25", "--rm3", "--json"))
    assert [system["name"] for system in values["systems"]] == [Path(model).name, "BM25", "BM25 + RM3"]
    plain, expanded = (system["cost"]["query_terms"] for system in values["systems"][1:])
    assert plain < expanded <= plain + 10  # as many terms as RM3 adds at most
    only = json.loads(done(capsys, "evaluate", *common, "--rm3", "--json"))
    assert only["systems"][1]["values"] == values["systems"][2]["values"]
    message = "vocable: --grid goes with models, and without --rm3, --hybrid and --per-query"
    assert refused(capsys, "evaluate", *common, "--rm3", "--grid", "query_top_k=5") == message


def test_a_table_too_wide_is_printed_in_parts(capsys: pytest.CaptureFixture[str], model: str, dataset: Path) -> None:
    measures = ["nDCG@10", "R@1000", "RR@10", "P@5", "AP@100"]
    arguments = [word for measure in measures for word in ("-m", measure)]
    text = done(capsys, "evaluate", model, "--bm25", "--dataset", f"beir:{dataset}", *arguments)
    assert max(map(len, text.splitlines())) <= NARROW
    assert all(measure in text for measure in [*measures, "FLOPS", "docs/s"])
    assert text.count("BM25") > 1  # each part names the systems


def test_what_is_no_evaluation_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    for content, message in (("{", "not JSON: "), ('{"name": 1}', "not an evaluation as JSON: "), ("3", "not an")):
        path.write_text(content, encoding="utf-8")
        assert refused(capsys, "compare", path).startswith(f"vocable: {path}: {message}")
    path.write_text("[]", encoding="utf-8")
    assert refused(capsys, "compare", path) == "vocable: there are no evaluations to compare"


def test_train(capsys: pytest.CaptureFixture[str], model: str, toy_texts: list[str], tmp_path: Path) -> None:
    texts = sorted(set(toy_texts))[:24]
    pairs = [{"query": text.split()[0] + f" {i}", "positive": f"{i} {text}"} for i, text in enumerate(texts)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    recipe = {"model": model, "data": {"examples": ["pairs.jsonl"]}, "training": {"steps": 2, "batch_size": 8}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    command = ["train", tmp_path / "recipe.yaml", "-o", tmp_path / "out", "--set", f"data_folder={tmp_path}"]
    bad = refused(capsys, *command, "--set", "training.stepps=3")
    assert bad == f"vocable: {tmp_path}/recipe.yaml: training.stepps: unknown key; did you mean steps?"
    assert not (tmp_path / "out.partial").exists()
    assert refused(capsys, *command, "--set", "data.examples=[none.jsonl]").startswith(
        f"vocable: {tmp_path}/none.jsonl: no such file"
    )
    shutil.rmtree(tmp_path / "out.partial", ignore_errors=True)
    assert json.loads(done(capsys, *command, "--json")) == {"output": str(tmp_path / "out")}
    assert len((tmp_path / "out" / "log.jsonl").read_text(encoding="utf-8").splitlines()) >= 1
    assert encode(load(tmp_path / "out"), ["the old fox"]).nnz > 0
    assert json.loads(done(capsys, *command, "--json")) == {"output": str(tmp_path / "out")}  # nothing left to do
    assert "out was made with other settings (seed)" in refused(capsys, *command, "--set", "seed=1")


def test_train_variants(capsys: pytest.CaptureFixture[str], model: str, dataset: Path, tmp_path: Path) -> None:
    pairs = [json.dumps({"query": f"the fox {i}", "positive": f"a fox reads {i}"}) for i in range(4)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(pairs), encoding="utf-8")
    recipe = {
        "model": model,
        "data": {"examples": [str(tmp_path / "pairs.jsonl")]},
        "training": {"steps": 1, "batch_size": 2},
        "evaluation": {"dataset": f"beir:{dataset}", "measures": ["nDCG@10"]},
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
    assert all(len(line) <= NARROW for line in table.partition("written: ")[0].splitlines())
    found = json.loads(done(capsys, *command, "--variants", "a,b", "--json"))["runs"]
    assert list(found) == ["a", "b"]
    assert set(found["a"]["measured"]) == {"nDCG@10", "FLOPS"}
    assert f"{found['b']['measured']['nDCG@10']:.4f}" in table
    assert "47.7" in table
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a", "b", "results.json"]


def test_pretrain_and_calibrate(capsys: pytest.CaptureFixture[str], model: str, dataset: Path, tmp_path: Path) -> None:
    corpus, adapted, calibrated = dataset / "corpus.jsonl", tmp_path / "adapted", tmp_path / "calibrated"
    command = ["pretrain", model, corpus, corpus, "-o", adapted, "--batch-size", 4, "--max-length", 16]
    assert done(capsys, *command, "--steps", 2, "--learning-rate", 0.01).startswith("pre-trained for 2 steps")
    before, after = (AutoModelForMaskedLM.from_pretrained(place).state_dict() for place in (model, adapted))
    assert before.keys() == after.keys()
    assert any((before[name] != after[name]).any() for name in before)
    text = done(capsys, "calibrate", adapted, corpus, "-o", calibrated, "--activation-rate", 0.05, "--json")
    values = json.loads(text)
    assert values["rate_after"] == pytest.approx(0.05, abs=0.002)
    one, other = (
        AutoModelForMaskedLM.from_pretrained(place).get_output_embeddings() for place in (adapted, calibrated)
    )
    np.testing.assert_allclose(
        (one.bias - other.bias).detach().numpy(), np.full(len(one.bias), values["shift"]), rtol=1e-5, atol=1e-6
    )
    again = refused(capsys, "calibrate", adapted, corpus, "-o", calibrated, "--shift", 1)
    others = f"{calibrated} was made with other settings (activation_rate, shift)"
    assert again == f"vocable: {others}: name another output, or remove it"
    assert "\nalready there, made with the same settings: " in done(
        capsys, "calibrate", adapted, corpus, "-o", calibrated, "--activation-rate", 0.05
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapted", "calibrated"]


def test_pretraining_goes_on_only_with_its_own_settings(
    capsys: pytest.CaptureFixture[str], model: str, dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "settings.json").write_text('{"steps": 9}', encoding="utf-8")
    line = refused(capsys, "pretrain", model, dataset / "corpus.jsonl", "-o", tmp_path / "out", "--steps", 2)
    assert line.startswith(f"vocable: {tmp_path}/out.partial was made with other settings (batch_size, ")


def test_demo_is_told_where_to_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[Path] = []
    monkeypatch.setattr("vocable.demo.demo", lambda output: told.append(output))
    done(capsys, "demo", "-o", tmp_path)
    done(capsys, "demo")
    assert told == [tmp_path, Path("vocable-demo")]
