"""Collections that frameworks search."""

from __future__ import annotations

import json
import os
from pathlib import Path

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"  # before the first import: no test may ask for a network

import pytest

from vocable.data import Document
from vocable.search.collection import Collection
from vocable.search.indexing import index

N = 40


@pytest.fixture(scope="session")
def documents(toy_texts: list[str]) -> list[Document]:
    texts, languages = sorted(set(toy_texts))[:N], ["de", "en", "fr"]
    return [Document(f"d{i}", text, f"chapter {i}", {"lang": languages[i % 3], "n": i}) for i, text in enumerate(texts)]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, documents: list[Document]) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    rows = [{"_id": one.id, "title": one.title, "text": one.text, **one.fields} for one in documents]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def collection(backbones: dict[str, Path], corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """A collection with BM25."""
    folder = tmp_path_factory.mktemp("exact") / "index"
    return index(str(backbones["bert"]), corpus, f"exact:{folder}", bm25=True, dtype="float32", device="cpu")
