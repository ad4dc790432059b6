"""Arguments of several commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vocable.cli import main
from vocable.encoding.load import load
from vocable.encoding.stream import encode_stream
from vocable.encoding.text_encoder import TextEncoder
from vocable.evaluation.dataset import load_dataset


@pytest.fixture(autouse=True)
def _quiet(quiet_libraries: None) -> None:
    """As the command line starts."""


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, toy_texts: list[str]) -> Path:
    """A file of the different toy texts, one a line."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n".join(dict.fromkeys(toy_texts)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def beir(tmp_path_factory: pytest.TempPathFactory, toy_texts: list[str]) -> Path:
    """A BEIR folder: 30 documents with titles; query i is the beginning of document 5 i, which alone is relevant."""
    folder, texts = tmp_path_factory.mktemp("beir"), sorted(set(toy_texts))[:30]
    corpus = [{"_id": f"d{i}", "title": f"chapter {i}", "text": text} for i, text in enumerate(texts)]
    queries = [{"_id": f"q{i}", "text": " ".join(text.split()[:4])} for i, text in enumerate(texts[::5])]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    judged = "".join(f"q{i}\td{5 * i}\t1\n" for i in range(len(queries)))
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def dataset(beir: Path) -> str:
    """The same as a source."""
    return f"beir:{beir}"


@pytest.fixture(scope="session")
def vectors(model: str, dataset: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of the dataset's documents."""
    folder = tmp_path_factory.mktemp("encoded") / "vectors"
    encoder = TextEncoder(load(model, device="cpu"), dtype="float32")
    encode_stream(encoder, load_dataset(dataset).documents, folder, model=model)
    return folder


@pytest.fixture(scope="session")
def index(model: str, dataset: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An index of the dataset with BM25, that no test changes."""
    output = tmp_path_factory.mktemp("indexes") / "toy"
    arguments = ["index", model, dataset, "-o", str(output), "--bm25", "--dtype", "float32"]
    assert main(arguments) == 0
    return str(output)
