"""The commands that analyze: logits, term-weights, postings, removal, and prune by the scores of a removal."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tests.by_parts import load_checkpoint
from tests.cli.command_line import done, refused
from vocable.analysis.logits import logit_statistics
from vocable.analysis.stored_vectors import analyze_postings, analyze_weights
from vocable.cli import main
from vocable.encoding.load import load
from vocable.encoding.protocol import Role
from vocable.encoding.pruning import prune
from vocable.encoding.term_scores import ranked, read_scores
from vocable.encoding.terms import input_terms, remove_expansions
from vocable.encoding.vectors import read_vectors
from vocable.evaluation.dataset import load_dataset
from vocable.evaluation.encoded import encode_dataset
from vocable.wackiness.ablate import Ablation, remove_wackiest


def test_logits_of_a_model(capsys: pytest.CaptureFixture[str], model: str, corpus: Path) -> None:
    printed = json.loads(
        done(capsys, "analyze-logits", model, corpus, "--top-k", "2,5", "--limit", 20, "--clusters", 3, "--json")
    )
    clusters = printed.pop("clusters")
    lines = corpus.read_text(encoding="utf-8").splitlines()[:20]
    assert printed == logit_statistics(*load_checkpoint(model), lines, top_k=[2, 5]).to_json()
    assert (clusters["texts"], clusters["clusters"]) == (20, 3)
    table = done(capsys, "analyze-logits", model, corpus, "--top-k", "2")
    for name in ("logit-score-std", "doc-score-avg@2", "doc-score-std@all", "non-neg-terms-avg"):
        assert name in table


def test_weights_of_vectors(capsys: pytest.CaptureFixture[str], vectors: Path) -> None:
    options = [vectors, "--min-count", "2,10", "--max-terms", "all,4"]
    expected = analyze_weights(read_vectors(vectors).matrix, min_count=[2, 10], max_terms=[None, 4]).to_json()
    assert json.loads(done(capsys, "analyze-weights", *options, "--json")) == [pytest.approx(one) for one in expected]
    assert "logit-cnt" in done(capsys, "analyze-weights", *options)


def test_postings_of_vectors(capsys: pytest.CaptureFixture[str], model: str, vectors: Path, tmp_path: Path) -> None:
    expected = analyze_postings(read_vectors(vectors).matrix, max_terms=[None, 4], model=model)
    printed = json.loads(done(capsys, "analyze-postings", vectors, "--max-terms", "all,4", "--json"))
    assert printed == json.loads(json.dumps(expected.to_json()))
    table = done(capsys, "analyze-postings", vectors, "--longest", 1)
    longest, length = expected[0].longest[0]
    assert f"longest lists: {longest} {length}" in table
    assert max(map(len, table.splitlines())) <= 80


OPTIONS = ["--thresholds", "5,2", "--draws", 3, "-m", "RR@10", "-m", "R@5", "--dtype", "float32"]


@pytest.fixture(scope="module")
def report(model: str, dataset: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A removal from queries with scores of its own."""
    output = tmp_path_factory.mktemp("report") / "removed"
    arguments = ["ablate", model, dataset, dataset, "-o", output, *OPTIONS, "--json"]
    assert main([str(argument) for argument in arguments]) == 0
    return output


@pytest.mark.slow
@pytest.mark.parametrize("role", ["query", "document"])
def test_figures_are_those_of_the_functions(
    capsys: pytest.CaptureFixture[str], model: str, dataset: str, report: Path, tmp_path: Path, role: Role
) -> None:
    scores, output = report / "scores.parquet", tmp_path / role
    printed = done(
        capsys, "ablate", model, dataset, "--scores", scores, "-o", output, *OPTIONS, "--role", role, "--json"
    )
    found = json.loads(printed)
    encoder = load(model)
    encoded = encode_dataset(encoder, load_dataset(dataset), dtype="float32")
    judged = encoded.dataset
    texts = [q.text for q in judged.queries] if role == "query" else [d.full for d in judged.documents]
    ablation = Ablation(encoded, input_terms(encoder, texts), ["RR@10", "R@5"], role=role)
    expected = remove_wackiest(ablation, ranked(*read_scores(scores)[:2]), [2, 5], draws=3)
    assert found["datasets"] == json.loads(json.dumps([asdict(expected)]))
    assert [point["threshold"] for point in found["datasets"][0]["points"]] == [2, 5]
    assert role == "document" or expected.points[1].wacky.terms == 5
    assert found["settings"]["role"] == role


def test_a_removal_is_whole(capsys: pytest.CaptureFixture[str], model: str, dataset: str, report: Path) -> None:
    names = {path.name for path in report.iterdir()}
    files = {"ablation.md", "ablation.png", "ablation.svg"}
    assert names == files | {"index.html", "results.json", "scores.parquet", "settings.json"}
    assert not report.with_name("removed.partial").exists()
    page = (report / "index.html").read_text(encoding="utf-8")
    assert page.count("<table") == 5
    assert "data:image/svg+xml;base64," in page
    table = done(capsys, "ablate", model, dataset, dataset, "-o", report, *OPTIONS)
    assert max(len(line) for line in table.splitlines() if str(report) not in line) <= 80
    results = json.loads((report / "results.json").read_bytes())["datasets"]
    assert results[0] == results[1]
    whole = results[0]["full"]["RR@10"]
    assert f"| 0 | 0 | 0.0% | 0.0% | {whole:.4f} |" in (report / "ablation.md").read_text(encoding="utf-8")
    assert f"{whole:.4f}" in table


@pytest.mark.slow
def test_a_repeated_command_goes_on(
    capsys: pytest.CaptureFixture[str],
    model: str,
    dataset: str,
    report: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output, searches = tmp_path / "removed", 0
    search = Ablation.without

    def stopped(ablation: Ablation, terms: np.ndarray) -> object:
        nonlocal searches
        searches += 1
        if searches == 6:
            raise KeyboardInterrupt
        return search(ablation, terms)

    monkeypatch.setattr(Ablation, "without", stopped)
    arguments = ["ablate", model, dataset, dataset, "-o", str(output), *map(str, OPTIONS)]
    assert main(arguments) == 130
    assert not output.exists()
    line = refused(capsys, *arguments, "--seed", 1)
    assert "was made with other settings (seed)" in line
    searches = 100
    done(capsys, *arguments)
    assert searches == 111  # two datasets, two thresholds, four searches, five done before
    both = [json.loads((folder / "results.json").read_bytes()) for folder in (report, output)]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--thresholds", "0"], "--thresholds must be at least 1"),
        (["--thresholds", "ten"], "--thresholds must be a whole number, not 'ten'"),
        (["--draws", "1"], "draws must be at least 2"),
        (["-m", "nDGC@10"], "unknown measure 'nDGC@10'"),
        (["--scores", "none.parquet"], "none.parquet: no such file"),
        (["beir:nowhere"], "nowhere"),
    ],
)
def test_impossible_removals_are_one_line(
    capsys: pytest.CaptureFixture[str],
    model: str,
    dataset: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert line in refused(capsys, "ablate", model, dataset, "-o", "out", *options)
    assert not list(tmp_path.iterdir())


def test_scores_of_another_vocabulary_are_refused(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], dataset: str, report: Path, tmp_path: Path
) -> None:
    arguments = [
        "ablate",
        backbones["roberta"],
        dataset,
        "-o",
        tmp_path / "out",
        "--scores",
        report / "scores.parquet",
    ]
    assert "another vocabulary" in refused(capsys, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("role", ["query", "document"])
def test_prune_removes_wacky_expansions(
    capsys: pytest.CaptureFixture[str], model: str, dataset: str, report: Path, tmp_path: Path, role: str
) -> None:
    vectors, out, scores = tmp_path / "vectors", tmp_path / "small", report / "scores.parquet"
    done(capsys, "encode", model, dataset, "-o", vectors, "--role", role, "--dtype", "float32")
    wacky = ["--wacky", scores, "--wackiest", 9, "--texts", dataset]
    said = done(capsys, "prune", vectors, "-o", out, *wacky, "--mass", 0.9)
    judged, whole, small = load_dataset(dataset), read_vectors(vectors), read_vectors(out)
    texts = {query.id: query.text for query in judged.queries} | {one.id: one.full for one in judged.documents}
    own = input_terms(load(model), [texts[name] for name in whole.ids])
    expected = remove_expansions(prune(whole.matrix, mass=0.9), own, ranked(*read_scores(scores)[:2])[:9])
    np.testing.assert_array_equal(small.matrix.toarray(), expected.toarray())
    assert 0 < small.matrix.nnz < prune(whole.matrix, mass=0.9).nnz
    assert (small.ids, small.meta) == (whole.ids, whole.meta)
    assert said == f"{small.matrix.nnz:,} of {whole.matrix.nnz:,} postings kept\nwritten: {out}\n"


def test_prune_by_wackiness_refuses_what_does_not_fit(
    capsys: pytest.CaptureFixture[str],
    backbones: dict[str, Path],
    model: str,
    dataset: str,
    report: Path,
    tmp_path: Path,
) -> None:
    vectors, others = tmp_path / "vectors", tmp_path / "others.txt"
    done(capsys, "encode", model, dataset, "-o", vectors)
    others.write_text("The old fox\n", encoding="utf-8")
    command = ["prune", vectors, "-o", tmp_path / "small", "--wacky", report / "scores.parquet", "--wackiest", 9]
    line = refused(capsys, *command, "--texts", others)
    assert "others.txt: no text 'd0', or not in the order of the vectors" in line
    line = refused(capsys, *command, "--texts", dataset, "--model", backbones["roberta"])
    assert "another vocabulary" in line
    foreign = tmp_path / "foreign"
    done(capsys, "encode", backbones["roberta"], dataset, "-o", foreign)
    command[1] = foreign
    assert "another vocabulary" in refused(capsys, *command, "--texts", dataset)
    assert not list(tmp_path.glob("small*"))
