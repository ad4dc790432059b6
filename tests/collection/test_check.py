"""Checks: of engines that keep what they declare and of others, and of whole and damaged indexes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vocable as vo
from tests.cli.command_line import done, refused
from tests.engines.test_stores import DOCUMENTS, NAMES, lucene, vectors
from vocable.collection.check import compare_with_exact
from vocable.data import Document
from vocable.engines.base import Store
from vocable.engines.folder import FolderStore
from vocable.engines.memory import MemoryStore
from vocable.engines.opensearch import OpenSearch
from vocable.engines.protocols import engine_of
from vocable.engines.seismic import SeismicStore

QUERIES = vectors(6, seed=3)[1:]


@pytest.mark.parametrize("engine", [FolderStore, MemoryStore])
def test_exact_search_is_as_declared(tmp_path: Path, engine: type[Store]) -> None:
    address = str(tmp_path / "sample") if engine is FolderStore else ""
    [check] = compare_with_exact(engine, address, "x", DOCUMENTS, vectors(10), QUERIES, [4])
    assert check.score_error == pytest.approx(0, abs=2e-6)
    assert (check.exact, check.rank_agreement, check.recall) == (True, 1, 1)
    assert (check.lost_terms, check.wrong_filters, check.as_declared) == (0, 0, True)
    assert (check.engine, check.documents, check.queries) == (engine.about.engine, 10, 5)
    assert not (tmp_path / "sample").exists()


def test_nine_bits_are_as_declared_and_the_sample_is_removed() -> None:
    pytest.importorskip("opensearchpy")
    with lucene("opensearch", "VOCABLE_OPENSEARCH") as place:
        engine, address = engine_of(place(77))
        [found] = compare_with_exact(engine, address, place(77), DOCUMENTS, vectors(10), QUERIES, [4])
        assert 1e-4 < found.score_error < 2**-8
        assert (found.precision, found.as_declared, found.wrong_filters) == ("9 bits", True, 0)
        compare_with_exact(OpenSearch, address, place(77), DOCUMENTS, vectors(10), QUERIES, [4])  # nothing is left


def test_scores_of_an_approximate_search_are_exact(tmp_path: Path) -> None:
    pytest.importorskip("seismic")
    [found] = compare_with_exact(
        SeismicStore, str(tmp_path / "sample"), "seismic:x", DOCUMENTS, vectors(10), QUERIES, [4]
    )
    assert (found.precision, found.score_error) == ("float32", pytest.approx(0, abs=2e-6))
    assert (found.exact, found.lost_terms, found.wrong_filters, found.as_declared) == (False, 0, 0, True)


class CarelessStore(MemoryStore):
    """It loses half of each vector's weight, and its last terms."""

    about = replace(MemoryStore.about, engine="careless")

    def upsert(self, documents: Sequence[Document], vectors: Mapping[str, Any]) -> None:
        lighter = vectors["sparse"] * np.float32(0.5)
        lighter.data[-3:] = 0
        lighter.eliminate_zeros()
        super().upsert(documents, {"sparse": lighter})


def test_a_store_that_loses_terms_is_not_as_declared() -> None:
    [check] = compare_with_exact(CarelessStore, "", "careless:x", DOCUMENTS, vectors(10), QUERIES, [4])
    assert check.score_error == pytest.approx(0.5, abs=0.05)
    assert (check.lost_terms, check.as_declared) == (3, False)
    assert ["as declared", "no"] in check.table().rows


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [{"_id": name, "text": f"the {name} {row}"} for row, name in enumerate(NAMES)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "corpus.jsonl"


@pytest.mark.slow
def test_the_command_check_engine_prints_its_figures(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path, quiet_libraries: None
) -> None:
    options = ["--model", backbones["bert"], "--corpus", corpus, "--topics", corpus, "--documents", 8, "--queries", 3]
    place = tmp_path / "folder"
    figures = json.loads(done(capsys, "check-engine", place, *options, "--json"))
    assert (figures["engine"], figures["documents"], figures["queries"]) == ("folder", 8, 3)
    assert figures["as_declared"]
    assert "recall@10" in done(capsys, "check-engine", place, *options)
    assert not place.exists()
    done(capsys, "index", backbones["bert"], corpus, "-o", place)
    assert str(place) in refused(capsys, "check-engine", place, *options)
    assert "secret" not in refused(capsys, "check-engine", "postgresql://me:secret@localhost:1/x", *options)


@pytest.mark.usefixtures("quiet_libraries")
def test_the_command_check_counts_an_index_and_names_a_damaged_file(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    place = tmp_path / "index"
    done(capsys, "index", backbones["bert"], corpus, "-o", place)
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"_id": "new", "text": "a new text"}) + "\n")
    done(capsys, "add", place, more)
    done(capsys, "delete", place, NAMES[0])
    counts = json.loads(done(capsys, "check", place, "--json"))
    assert (counts["documents"], counts["wrong"], counts["engine"]) == (len(NAMES), 0, "folder")
    assert "wrong frequencies" in done(capsys, "check", place)
    for path in [*place.glob("*.segment"), *place.glob("*.gone-*")]:
        content, state, place_of_bit = path.read_bytes(), path.stat(), path.stat().st_size // 2
        path.write_bytes(content[:place_of_bit] + bytes([content[place_of_bit] ^ 1]) + content[place_of_bit + 1 :])
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert path.name in refused(capsys, "check", place)
        path.write_bytes(content)
    assert json.loads(done(capsys, "check", place, "--json"))["wrong"] == 0
    assert str(tmp_path / "nothing") in refused(capsys, "check", tmp_path / "nothing")


def test_wrong_frequencies_are_counted(backbones: dict[str, Path], corpus: Path, monkeypatch: Any) -> None:
    collection = vo.index(str(backbones["bert"]), corpus, dtype="float32", device="cpu")
    assert vo.check(collection).wrong == 0
    frequencies, documents = collection.store.count_terms(np.arange(collection.settings.meta.size))
    frequencies[np.flatnonzero(frequencies)[:2]] += 1
    monkeypatch.setattr(
        type(collection.store), "count_terms", lambda _, terms, *_space: (frequencies[terms], documents)
    )
    assert vo.check(collection).wrong == 2
