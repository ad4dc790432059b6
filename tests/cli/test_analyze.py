"""logits, postings, prune and evaluate --grid on toy models: what they print, and what they leave behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.by_parts import load_checkpoint
from tests.cli.command_line import done, refused, write_beir
from vocable.analysis.distributions import logit_statistics, postings, term_weights
from vocable.data import Document
from vocable.encoder.encode import TextEncoder
from vocable.encoder.load import load
from vocable.encoder.stream import encode_stream
from vocable.vectors import prune, read_vectors

pytestmark = pytest.mark.usefixtures("quiet_libraries")


@pytest.fixture(scope="module")
def model(backbones: dict[str, Path]) -> str:
    return str(backbones["bert"])


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory, toy_texts: list[str]) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in sorted(set(toy_texts))[:30]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def vectors(model: str, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoded") / "vectors"
    documents = [Document(str(i), text) for i, text in enumerate(texts.read_text(encoding="utf-8").splitlines())]
    encode_stream(TextEncoder(load(model, device="cpu"), dtype="float32"), documents, folder, model=model)
    return folder


@pytest.fixture(scope="module")
def dataset(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("beir")
    write_beir(folder, texts.read_text(encoding="utf-8").splitlines(), 6)
    return f"beir:{folder}"


def test_logits_of_a_model(capsys: pytest.CaptureFixture[str], model: str, texts: Path) -> None:
    printed = json.loads(
        done(capsys, "logits", model, texts, "--top-k", "2,5", "--limit", 20, "--clusters", 3, "--json")
    )
    clusters = printed.pop("clusters")
    lines = texts.read_text(encoding="utf-8").splitlines()[:20]
    assert printed == logit_statistics(*load_checkpoint(model), lines, top_k=[2, 5]).to_json()
    assert (clusters["texts"], clusters["clusters"]) == (20, 3)
    table = done(capsys, "logits", model, texts, "--top-k", "2")
    for name in ("30 texts", "logit-score-std", "doc-score-avg@2", "doc-score-std@all", "non-neg-terms-avg"):
        assert name in table


def test_weights_of_vectors(capsys: pytest.CaptureFixture[str], vectors: Path) -> None:
    options = [vectors, "--min-count", "2,10", "--top-k", "all,4"]
    expected = term_weights(read_vectors(vectors).matrix, min_count=[2, 10], top_k=[None, 4]).to_json()
    assert json.loads(done(capsys, "term-weights", *options, "--json")) == [pytest.approx(one) for one in expected]
    assert "logit-cnt" in done(capsys, "term-weights", *options)


def test_postings_of_vectors(capsys: pytest.CaptureFixture[str], model: str, vectors: Path, tmp_path: Path) -> None:
    expected = postings(read_vectors(vectors).matrix, top_k=[None, 4], model=model)
    printed = json.loads(done(capsys, "postings", vectors, "--top-k", "all,4", "--json"))
    assert printed == json.loads(json.dumps(expected.to_json()))
    table = done(capsys, "postings", vectors, "--longest", 1)
    longest, length = expected[0].longest[0]
    assert f"longest lists: {longest} {length}" in table
    assert max(map(len, table.splitlines())) <= 80


def test_prune_writes_smaller_vectors(capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "small", read_vectors(vectors)
    said = done(capsys, "prune", vectors, "-o", out, "--top-k", 5, "--mass", 0.5)
    small = read_vectors(out)
    assert abs(small.matrix - prune(whole.matrix, 5, mass=0.5)).max() == 0
    assert (small.ids, small.meta) == (whole.ids, whole.meta)
    assert said == f"{small.matrix.nnz:,} of {whole.matrix.nnz:,} postings kept\nwritten: {out}\n"


def test_encode_and_search_take_a_share_of_the_weight(
    capsys: pytest.CaptureFixture[str], model: str, dataset: str, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    done(capsys, "index", model, dataset, "-o", index, "--mass", 0.4, "--dtype", "float32")
    measured = json.loads(done(capsys, "postings", index, "--json"))[0]
    done(capsys, "encode", model, dataset, "-o", tmp_path / "encoded", "--mass", 0.4, "--dtype", "float32")
    assert json.loads(done(capsys, "postings", tmp_path / "encoded", "--json"))[0] == measured
    whole = json.loads(done(capsys, "search", index, "the old fox", "-k", 30, "--json"))
    one = json.loads(done(capsys, "search", index, "the old fox", "-k", 30, "--top-k", 1, "--explain", "--json"))
    assert len(one["hits"]) <= len(whole["hits"])
    assert all(len(hit["explanation"]["matches"]) == 1 for hit in one["hits"])


def test_a_grid_searches_one_encoding_in_many_ways(
    capsys: pytest.CaptureFixture[str], model: str, dataset: str, tmp_path: Path
) -> None:
    grid = ["--grid", "query_top_k=0,3 document_top_k=0,5", "--grid", "minimum_match=0.5", "--dtype", "float32"]
    figure, output = tmp_path / "figure.svg", tmp_path / "grid.json"
    options = ["evaluate", model, "--dataset", dataset, *grid, "--bm25"]
    points = json.loads(done(capsys, *options, "--figure", figure, "-o", output, "--json"))
    assert [point["setting"] and point["setting"]["query_top_k"] for point in points] == [0, 0, 3, 3, 0, None]
    assert points[2]["cost"]["query_terms"] == 3
    assert points[1]["cost"]["flops"] < points[0]["cost"]["flops"] == points[4]["cost"]["flops"]
    plain = json.loads(done(capsys, *options[:4], "--dtype", "float32", "-m", "RR@10", "-m", "R@10", "--json"))
    assert points[0]["values"] == plain["systems"][0]["values"]
    assert all(
        text in figure.read_text(encoding="utf-8") for text in ("FLOPS", "RR@10", "labels: qk/dk", "minimum_match=0.5")
    )
    assert "query_top_k=3" in done(capsys, "compare", output, "--markdown")
    table = done(capsys, *options)
    assert max(map(len, table.splitlines())) <= 80
    assert "matched" in table


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["term-weights", "v", "--top-k", "x"], "Invalid value for '--top-k': numbers with commas between, as 10,100"),
        (["postings", "none"], "none: no such file"),
        (["prune", "v", "-o", "o"], "give --top-k, --min-weight, --mass or --wacky"),
        (
            ["prune", "v", "-o", "o", "--top-k", "3", "--wackiest", "3"],
            "--wackiest, --texts and --model go with --wacky",
        ),
        (["prune", "v", "-o", "o", "--wacky", "s"], "--wacky needs --wackiest N and --texts SOURCE"),
        (["prune", "v", "-o", "o", "--mass", "2"], "Invalid value for '--mass'"),
        (["evaluate", "m", "--dataset", "d", "--figure", "f.svg"], "--figure goes with --grid"),
        (
            ["evaluate", "m", "--dataset", "d", "--grid", "rescore=99", "--hybrid"],
            "--grid goes with models, and without",
        ),
        (["evaluate", "m", "--dataset", "d", "--grid", "k=1"], "--grid: unknown name in 'k=1'"),
        (
            ["evaluate", "m", "--dataset", "d", "--grid", "rescore=99", "--figure", "f.gif"],
            "a figure's name ends in",
        ),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert line in refused(capsys, *arguments)
    assert not list(tmp_path.iterdir())
