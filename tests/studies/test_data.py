"""Data of the studies, made of local data sets with the layout of those on the Hub."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from studies import data
from studies.data import NANO, main, make
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.dataset import load_dataset


def data_set(folder: Path, splits: dict[str, list[dict[str, Any]]], split: str) -> None:
    """Write a data set with a configuration for each file, as the Hub's pages describe them."""
    folder.mkdir(parents=True)
    configs = []
    for config, lines in splits.items():
        (folder / f"{config}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        configs.append(f"- config_name: {config}\n  data_files:\n  - split: {split}\n    path: {config}.jsonl\n")
    (folder / "README.md").write_text("---\nconfigs:\n" + "".join(configs) + "---\n")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # a folder of a data set's name is read before the Hub
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_nano_beir_becomes_thirteen_collections_that_are_read(here: Path) -> None:
    for number, name in enumerate(NANO):
        corpus = [{"_id": f"d{i}", "text": f"text {i} of {number}"} for i in range(3)]
        queries = [{"_id": "q", "text": f"text {number}"}]
        judged = [{"query-id": "q", "corpus-id": "d1"}]
        splits = {"corpus": corpus, "queries": queries, "qrels": judged}
        data_set(here / "zeta-alpha-ai" / name, splits, "train")
    folders = make("nano-beir", here / "out")
    assert [folder.name for folder in folders] == [*NANO]
    lines = (folders[4] / "corpus.jsonl").read_text().splitlines()
    assert json.loads(lines[2]) == {"_id": "d2", "title": "", "text": "text 2 of 4"}
    assert (folders[4] / "qrels.tsv").read_text() == "query-id\tcorpus-id\tscore\nq\td1\t1\n"
    assert len(load_dataset(f"beir:{folders[4]}").documents) == 3
    written = (folders[4] / "corpus.jsonl").stat().st_mtime_ns
    make("nano-beir", here / "out")
    assert (folders[4] / "corpus.jsonl").stat().st_mtime_ns == written


def test_wikipedia_is_cut_into_paragraphs(here: Path) -> None:
    articles = [{"text": "One.\n\nTwo of it.\n\n\n"}, {"text": "Three."}]
    data_set(here / "wikimedia" / "wikipedia", {"20231101.en": articles}, "train")
    [path] = make("wikipedia", here / "out")
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["One.", "Two of it.", "Three."]


def test_pairs_of_natural_questions_are_examples(here: Path) -> None:
    rows = [{"query": "who", "answer": "somebody"}]
    data_set(here / "sentence-transformers" / "natural-questions", {"default": rows}, "train")
    assert main(["nq-pairs", "-o", str(here / "out")]) == 0
    line = gzip.decompress((here / "out" / "nq-pairs.jsonl.gz").read_bytes())
    assert json.loads(line) == {"query": "who", "positive": "somebody"}


def test_another_column_and_an_unreachable_hub_are_one_line_and_leave_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data_set(here / "sentence-transformers" / "natural-questions", {"default": [{"question": "who"}]}, "train")
    with pytest.raises(DataError):
        make("nq-pairs", here / "out")

    def unreachable(*given: Any, **options: Any) -> None:
        raise ConnectionError("no route\nto the Hub")

    monkeypatch.setattr(data, "load_dataset", unreachable)
    assert main(["chem-texts", "-o", str(here / "out")]) == 2
    error = capsys.readouterr().err
    assert "ConnectionError" in error
    assert error.count("\n") == 1
    assert [*(here / "out").iterdir()] == []
    with pytest.raises(ArgumentError):
        make("nano", here)


def test_the_list_names_what_can_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in data.MADE)
