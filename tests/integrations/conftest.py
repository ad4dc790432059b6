"""Collections that frameworks search."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"  # before the first import: no test may ask for a network

import pytest

from vocable.collection.collection import Collection
from vocable.collection.index import index


@pytest.fixture(scope="session")
def collection(backbones: dict[str, Path], corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """A collection with BM25."""
    folder = tmp_path_factory.mktemp("exact") / "index"
    return index(str(backbones["bert"]), corpus, folder, bm25=True, dtype="float32", device="cpu")
