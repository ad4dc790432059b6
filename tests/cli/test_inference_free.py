"""inference-free on the command line, and the verbs that take what it makes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

from vocable.cli import main


@pytest.fixture
def corpus(tmp_path: Path, toy_texts: list[str]) -> Path:
    """A BEIR folder in which every document is asked for by its own words."""
    folder, texts = tmp_path / "corpus", sorted(set(toy_texts))[:40]
    (folder / "qrels").mkdir(parents=True)
    documents = [json.dumps({"_id": f"d{i}", "text": text}) for i, text in enumerate(texts)]
    queries = [json.dumps({"_id": f"q{i}", "text": text}) for i, text in enumerate(texts)]
    judgments = ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in range(len(texts)))]
    (folder / "corpus.jsonl").write_text("\n".join(documents), encoding="utf-8")
    (folder / "queries.jsonl").write_text("\n".join(queries), encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text("\n".join(judgments), encoding="utf-8")
    return folder


def run(capsys: pytest.CaptureFixture[str], *command: object, status: int = 0) -> str:
    assert main([str(word) for word in command]) == status
    printed = capsys.readouterr()
    return printed.err.splitlines()[-1] if status else printed.out.strip()


def test_one_command_makes_it_and_every_verb_takes_it(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    place, made, index = f"beir:{corpus}", tmp_path / "made", tmp_path / "index"
    text = run(capsys, "inference-free", backbones["modernbert"], "--texts", place, "-o", made)
    assert "tokens have a weight, and no encoder reads a query\nwritten: " in text
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "made"}
    query = "the old fox reads books"
    stock = SparseEncoder(str(made), device="cpu")
    tokens = set(stock.tokenizer.tokenize(query))
    found = json.loads(run(capsys, "explain", made, query, "--json"))
    weights = {term["term"]: term["weight"] for term in found["terms"]}
    assert weights.keys() == tokens
    decoded = dict(stock.decode(stock.encode_query(query)))
    assert weights == pytest.approx(decoded)
    pair = json.loads(run(capsys, "explain", made, query, query, "--json"))
    score = float(stock.similarity(stock.encode_query([query]), stock.encode_document([query])))
    assert pair["score"] == pytest.approx(score, rel=1e-2)  # documents may be encoded in bfloat16
    run(capsys, "index", made, place, "-o", index)
    hits = json.loads(run(capsys, "search", index, query, "-k", 3, "--json"))
    assert len(hits["hits"]) == 3
    [measured] = json.loads(run(capsys, "evaluate", made, "--dataset", place, "-m", "nDCG@10", "--json"))["systems"]
    assert measured["name"] == "made"
    assert 4 < measured["cost"]["query_terms"] < 40


def test_binary_queries_learnable_if_asked(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], tmp_path: Path
) -> None:
    command = ["inference-free", backbones["bert"], "--weights", "ones", "--trainable", "-o", tmp_path / "made"]
    found = json.loads(run(capsys, *command, "--json"))
    table = SparseEncoder(str(tmp_path / "made"), device="cpu")[0].sub_modules["query"][0]
    assert (found["trainable"], found["texts"], found["formula"]) == (True, [], None)
    assert found["tokens"] == len(table.tokenizer) - len(table.tokenizer.all_special_ids)
    assert set(np.unique(table.weight.detach().numpy())) == {0, 1}
    assert table.weight.requires_grad


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "--weights are idf, which needs texts to count, or ones, which has none"),
        (["--weights", "ones", "--texts", "pydocs:"], "--weights are idf, which needs texts to count, or ones"),
        (["--texts", "none.jsonl"], "none.jsonl: no such file"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], tmp_path: Path, options: list[str], line: str
) -> None:
    command = ["inference-free", backbones["bert"], "-o", tmp_path / "out", *options]
    assert run(capsys, *command, status=2).startswith(f"vocable: {line}")
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_left_alone(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").touch()
    command = ["inference-free", backbones["bert"], "--weights", "ones", "-o", tmp_path]
    assert run(capsys, *command, status=2).startswith(f"vocable: {tmp_path} is already there and something else: ")
