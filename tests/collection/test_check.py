"""The check of an engine: what it finds at engines that keep what they declare, and at ones that do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.cli.command_line import done, refused
from tests.engines.test_stores import DOCUMENTS, NAMES, lucene, vectors
from vocable.collection.check import compare_with_exact
from vocable.engines.exact import ExactStore
from vocable.engines.opensearch import OpenSearch
from vocable.engines.protocols import About, engine_of
from vocable.engines.seismic import SeismicStore
from vocable.indexes.exact_index import ExactIndex

QUERIES = vectors(6, seed=3)[1:]


def test_exact_search_is_as_declared(tmp_path: Path) -> None:
    [found] = compare_with_exact(ExactStore, str(tmp_path / "sample"), "exact:x", DOCUMENTS, vectors(10), QUERIES, [4])
    assert (found.score_error, found.rank_agreement, found.recall, found.lost_terms) == (
        pytest.approx(0, abs=2e-6),
        1,
        1,
        0,
    )
    assert (found.engine, found.documents, found.queries, found.as_declared) == ("exact", 10, 5, True)


def test_the_embedded_store_is_as_declared(tmp_path: Path) -> None:
    engine, address = engine_of(f"edge:{tmp_path / 'sample'}")
    [found] = compare_with_exact(engine, address, "edge:x", DOCUMENTS, vectors(10), QUERIES, [4])
    assert (found.exact, found.recall, found.lost_terms, found.wrong_filters, found.as_declared) == (
        True,
        1,
        0,
        0,
        True,
    )
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


class Careless(ExactIndex):
    """It loses half of each vector's weight, and its last terms."""

    def __init__(self, vectors: csr_array, *more: Any) -> None:
        lighter = vectors * np.float32(0.5)
        lighter.data[-3:] = 0
        super().__init__(lighter, *more)


class CarelessStore(ExactStore):
    about = About("careless", exact=True, changes=False)
    index = Careless


def test_a_store_that_loses_terms_is_not_as_declared(tmp_path: Path) -> None:
    [found] = compare_with_exact(
        CarelessStore, str(tmp_path / "sample"), "careless:x", DOCUMENTS, vectors(10), QUERIES, [4]
    )
    assert found.score_error == pytest.approx(0.5, abs=0.05)
    assert (found.lost_terms, found.as_declared) == (3, False)
    assert ["as declared", "no"] in found.table().rows


@pytest.mark.slow
def test_the_command_check_engine_prints_its_figures(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], tmp_path: Path, quiet_libraries: None
) -> None:
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl"
    for path in (corpus, queries):
        path.write_text(
            "".join(json.dumps({"_id": name, "text": f"the {name} {row}"}) + "\n" for row, name in enumerate(NAMES))
        )
    options = ["--model", backbones["bert"], "--corpus", corpus, "--topics", queries, "--documents", 8, "--queries", 3]
    found = json.loads(done(capsys, "check-engine", "exact:any", *options, "--json"))
    assert (found["documents"], found["queries"], found["as_declared"]) == (8, 3, True)
    assert "recall@10" in done(capsys, "check-engine", "exact:any", *options)
    assert '"engine": "edge"' in done(capsys, "check-engine", tmp_path / "folder", *options, "--json")
    assert not (tmp_path / "folder").exists()
    for place in (tmp_path / "index", f"exact:{tmp_path / 'exact'}"):
        done(capsys, "index", options[1], corpus, "-o", place, "--bm25")
        counted = json.loads(done(capsys, "check-engine", place, "--json"))
        assert (counted["documents"], counted["wrong"], counted["words"]) == (len(NAMES), 0, None)
    assert "secret" not in refused(capsys, "check-engine", "postgresql://me:secret@localhost:1/x", *options)
