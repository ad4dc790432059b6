"""Servers of engines with places by name, models that are read once, and small corpora: no test of its own."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import vocable as vo
from tests.engines import test_stores as stores
from tests.engines.cluster import serving_http
from tests.engines.lucene_server import serving
from vocable.collection import models
from vocable.encoding.dense_models import load_dense
from vocable.encoding.load import load_encoder
from vocable.encoding.vectors import VectorsMeta, write_vectors
from vocable.engines import qdrant
from vocable.engines.protocols import engine_of, engines
from vocable.engines.server import ServerStore

MODEL, DENSE = cache(load_encoder), cache(load_dense)
V = 20
SERVERS = [name for name, engine in engines().items() if issubclass(engine, ServerStore)]


@contextmanager
def served(engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Places on a server by the name of a collection."""
    if engine == "postgresql":
        with stores.postgresql(folder, monkeypatch) as address:
            yield lambda name: f"{address(0).partition('&table=')[0]}&table={name}"
    elif engine == "milvus":
        pytest.importorskip("milvus_lite")
        from milvus_lite.server_manager import server_manager_instance

        url = server_manager_instance.start_and_get_uri(str(folder / "lite.db"))
        yield lambda name: f"milvus+{url}/{name}"
        server_manager_instance.release_server(str(folder / "lite.db"))
    elif engine == "qdrant":
        pytest.importorskip("qdrant_client")
        from tests.engines.qdrant_server import QdrantEngine

        monkeypatch.setattr(qdrant, "SEPARATE_COUNTS", 8)  # terms of a query; requests take the time of these tests
        with serving_http(QdrantEngine().answer, {"Content-Type": "application/json"}) as url:
            yield lambda name: f"qdrant+{url}/{name}"
    else:
        pytest.importorskip({"opensearch": "opensearchpy"}.get(engine, engine))
        if (variable := f"VOCABLE_{engine.upper()}") in os.environ:
            begin = f"{os.environ[variable]}/test{secrets.token_hex(4)}"
            yield lambda name: f"{engine}+{begin}{name}"
            return
        with serving(engine) as url:
            yield lambda name: f"{engine}+{url}/{name}"


def models_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of collections are read from the disk once."""
    monkeypatch.setattr(models, "load_encoder", MODEL)
    monkeypatch.setattr(models, "load_dense", DENSE)


def small_parts(monkeypatch: pytest.MonkeyPatch, part: int = 8) -> None:
    """A corpus has several parts on every server."""
    for name in SERVERS:
        engine, _ = engine_of(f"{name}+http://localhost/x" if name != "postgresql" else "postgresql://x/y")
        monkeypatch.setattr(engine, "about", replace(engine.about, part=part))


def precision(place: str) -> float:
    """The relative error of a weight that the engine of a place stores."""
    return {"float32": 1e-5, "9 bits": 2.0**-7}[engine_of(place)[0].about.precision]


class Corpus:
    """Documents of one word that all have, in files."""

    def __init__(self, folder: Path, name: str, documents: int, model: str = "m") -> None:
        self.ids = [f"{name}{row}" for row in range(documents)]
        self.file, self.vectors = str(folder / f"{name}.jsonl"), str(folder / f"{name}.parquet")
        Path(self.file).write_text("\n".join(json.dumps({"_id": one, "text": f"text {one}"}) for one in self.ids))
        matrix = csr_array(np.ones((documents, 1), np.float32) * (np.arange(V) < 2))
        write_vectors(
            self.vectors, self.ids, matrix.astype(np.float32), VectorsMeta("v", model, "max", "document", 8, V)
        )

    def index(self, place: str, **options: Any) -> None:
        vo.index(self.vectors, self.file, place, **options).close()


def found(place: str) -> list[str]:
    engine, address = engine_of(place)
    store = engine.open(address)
    hits = store.search(csr_array(np.ones((1, V), np.float32)), 100).hits(0)
    store.close()
    return sorted(name for name, _ in hits)


class Killed(BaseException):
    pass
