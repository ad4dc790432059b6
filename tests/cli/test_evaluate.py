"""The commands that evaluate, compare and select."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from tests.cli.command_line import done, refused
from tests.cli.test_search import NARROW
from vocable.collection.collection import open_index
from vocable.data import read_corpus
from vocable.encoding.load import load
from vocable.evaluation.plans import evaluate_system
from vocable.evaluation.quality import evaluate_run
from vocable.indexes.exact_index import ExactIndex


def test_a_run_is_evaluated_as_its_model(
    capsys: pytest.CaptureFixture[str], index: str, dataset: str, tmp_path: Path
) -> None:
    run, place = tmp_path / "toy.run", dataset
    assert done(capsys, "search", index, "--queries", place, "--run", run, "-k", 30).startswith("6 queries")
    values = json.loads(done(capsys, "evaluate", run, "--dataset", place, "-m", "RR@10", "--hybrid", "--json"))
    assert [system["name"] for system in values["systems"]] == ["toy", "toy + BM25"]
    assert values["systems"][0]["values"]["RR@10"] == pytest.approx(
        evaluate_run("toy", run, place, ["RR@10"]).values["RR@10"]
    )


@pytest.mark.slow
def test_evaluate_side_by_side(
    capsys: pytest.CaptureFixture[str], model: str, backbones: dict[str, Path], dataset: str, tmp_path: Path
) -> None:
    systems, place = [model, backbones["distilbert"]], dataset
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
    assert len([line for line in table.splitlines() if line.startswith("|")]) == 2 + 5
    assert "\n\nconvention beir; equal scores by id; relevant: judged 1 or more\n\n0 hits with the id" in table
    text = done(capsys, "compare", result)
    assert max(map(len, text.splitlines())) <= NARROW
    for shown in ("nDCG@10", "RR@10", "FLOPS", "BM25"):
        assert shown in text


@pytest.mark.slow
def test_select_models_under_a_budget(
    capsys: pytest.CaptureFixture[str], model: str, backbones: dict[str, Path], dataset: str, tmp_path: Path
) -> None:
    output, name = tmp_path / "chosen", Path(model).name
    command = ["select", model, backbones["distilbert"], "--dataset", dataset, "--grid", "document_max_terms=0,5"]
    command += ["-m", "nDCG@10", "--dtype", "float32", "-o", output]
    values = json.loads(done(capsys, *command, "--json"))
    assert [one["system"] for one in values["settings"]] == [name, name, *[Path(command[2]).name] * 2]
    assert not any(one["recommended"] for one in values["settings"])
    smallest = min(one["cost"]["bytes_per_document"] for one in values["settings"])
    text = done(capsys, *command, "--max-bytes-per-document", f"{smallest + 0.5}")
    assert any(line.endswith(" *") for line in text.splitlines())
    assert text.endswith(f"already there, made with the same settings: {output}\n")
    assert max(len(line) for line in text.splitlines() if str(tmp_path.parent) not in line) <= NARROW
    best = min(values["settings"], key=lambda row: row["cost"]["bytes_per_document"])
    place = values["models"][best["system"]]["place"]
    done(capsys, "index", place, dataset, "--max-terms", 5, "--dtype", "float32", "-o", tmp_path / "my-index")
    with open_index(tmp_path / "my-index") as index:
        ids = [document.id for document in read_corpus(dataset)]
        postings = ExactIndex(index.vectors(ids), ids)
    assert postings.nbytes / len(postings) == pytest.approx(smallest)
    assert "| model | nDCG@10 | 95% | p |" in done(capsys, *command, "--markdown")


@pytest.mark.slow
def test_evaluate_expanders(capsys: pytest.CaptureFixture[str], model: str, dataset: str) -> None:
    options = ["--dataset", dataset, "-m", "nDCG@10", "--dtype", "float32"]
    values = json.loads(done(capsys, "evaluate", model, "bm25+rm3", *options, "--bm25", "--json"))
    assert [system["name"] for system in values["systems"]] == [Path(model).name, "bm25+rm3", "BM25"]
    expanded, plain = (system["cost"]["query_terms"] for system in values["systems"][1:])
    assert plain < expanded <= plain + 10  # as many terms as RM3 adds at most
    only = json.loads(done(capsys, "evaluate", "bm25+rm3", *options, "--json"))
    assert only["systems"][0]["values"] == values["systems"][1]["values"]
    message = "vocable: --grid needs models, and excludes --hybrid and --per-query"
    assert refused(capsys, "evaluate", "bm25+rm3", *options, "--grid", "query_max_terms=5") == message
    line = refused(capsys, "evaluate", "query2doc:/no/such/folder", *options)
    assert line == "vocable: /no/such/folder: no such model folder"


@pytest.mark.slow
def test_a_table_too_wide_is_printed_in_parts(capsys: pytest.CaptureFixture[str], model: str, dataset: str) -> None:
    measures = ["nDCG@10", "R@1000", "RR@10", "P@5", "AP@100"]
    arguments = [word for measure in measures for word in ("-m", measure)]
    text = done(capsys, "evaluate", model, "--bm25", "--dataset", dataset, *arguments)
    assert max(map(len, text.splitlines())) <= NARROW
    assert all(measure in text for measure in [*measures, "FLOPS", "docs/s"])
    assert text.count("BM25") > 1  # each part names the systems


def test_a_file_that_is_no_evaluation_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    for content, message in (("{", "not JSON: "), ('{"name": 1}', "not an evaluation as JSON: "), ("3", "not an")):
        path.write_text(content, encoding="utf-8")
        assert refused(capsys, "compare", path).startswith(f"vocable: {path}: {message}")
    path.write_text("[]", encoding="utf-8")
    assert refused(capsys, "compare", path) == "vocable: there are no evaluations to compare"


@pytest.mark.slow
def test_a_grid_searches_one_encoding_in_many_ways(
    capsys: pytest.CaptureFixture[str], model: str, dataset: str, tmp_path: Path
) -> None:
    grid = ["--grid", "query_max_terms=0,3 document_max_terms=0,5", "--grid", "minimum_match=0.5", "--dtype", "float32"]
    figure, output = tmp_path / "figure.svg", tmp_path / "grid.json"
    options = ["evaluate", model, "--dataset", dataset, *grid, "--bm25"]
    points = json.loads(done(capsys, *options, "--figure", figure, "-o", output, "--json"))
    assert [point["setting"] and point["setting"]["query_max_terms"] for point in points] == [0, 0, 3, 3, 0, None]
    assert points[2]["cost"]["query_terms"] == 3
    assert points[1]["cost"]["flops"] < points[0]["cost"]["flops"] == points[4]["cost"]["flops"]
    plain = json.loads(done(capsys, *options[:4], "--dtype", "float32", "-m", "RR@10", "-m", "R@10", "--json"))
    assert points[0]["values"] == plain["systems"][0]["values"]
    assert all(
        text in figure.read_text(encoding="utf-8") for text in ("FLOPS", "RR@10", "labels: qk/dk", "minimum_match=0.5")
    )
    assert "query_max_terms=3" in done(capsys, "compare", output, "--markdown")
    table = done(capsys, *options)
    assert max(map(len, table.splitlines())) <= 80
    assert "matched" in table
