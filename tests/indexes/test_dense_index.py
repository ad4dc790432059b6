"""Exact search of dense vectors in 8 bits, against a brute force."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vocable.collection.answers import search
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.data import Document
from vocable.encoding import dense_models
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, MissingExtraError, ModelError, VectorsError
from vocable.indexes import dense_index
from vocable.indexes.dense_index import DenseIndex, rounded


def brute_force(vectors: np.ndarray, queries: np.ndarray, k: int, allowed: np.ndarray) -> list[list[tuple[int, float]]]:
    """Score in whole numbers, and sort by score and row."""
    (numbers, units), (given_numbers, scales) = rounded(vectors), rounded(queries)
    products = given_numbers.astype(np.int64) @ numbers.astype(np.int64).T
    found = []
    for row, scale in zip(products, scales, strict=True):
        scores = row.astype(np.float32) * units
        hits = [(place, scores[place] * scale) for place in range(len(numbers)) if scores[place] > 0 and allowed[place]]
        found.append(sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k])
    return found


values = st.integers(-3, 3).map(lambda number: number / 3)


@given(
    arrays(np.float64, st.tuples(st.integers(1, 9), st.just(4)), elements=values),
    arrays(np.float64, st.tuples(st.integers(1, 3), st.just(4)), elements=values),
    st.integers(1, 12),
    st.data(),
)
def test_hits_are_those_of_a_brute_force(vectors: np.ndarray, queries: np.ndarray, k: int, data: st.DataObject) -> None:
    allowed = data.draw(arrays(np.bool_, len(vectors)))
    found = DenseIndex(*rounded(vectors)).search(queries, k, allowed=allowed)
    for number, expected in enumerate(brute_force(vectors, queries, k, allowed)):
        hits = [(int(name), score) for name, score in found.hits(number)]
        assert hits == [(place, pytest.approx(score)) for place, score in expected]


def test_blocks_do_not_change_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    vectors, queries = rng.normal(size=(300, 384)), rng.normal(size=(7, 384))
    whole = DenseIndex(*rounded(vectors)).search(queries, 20)
    monkeypatch.setattr(dense_index, "BLOCK_DOCUMENTS", 37)
    monkeypatch.setattr(dense_index, "BLOCK_SCORES", 700)
    parts = DenseIndex(*rounded(vectors)).search(queries, 20)
    assert np.array_equal(whole.rows, parts.rows)
    assert np.array_equal(whole.scores, parts.scores)
    exact = np.argsort(-(queries @ vectors.T), axis=1)[:, :20]
    shared = [len({*row.tolist()} & {*other.tolist()}) for row, other in zip(whole.rows, exact, strict=True)]
    assert np.mean(shared) > 18


def test_wide_vectors_are_exact_too() -> None:
    vectors = np.random.default_rng(1).normal(size=(5, 2000))
    found = DenseIndex(*rounded(vectors)).search(vectors[:1], 1)
    assert found.scores[0, 0] == pytest.approx((vectors[0] ** 2).sum(), rel=0.01)


def test_stored_vectors_are_checked() -> None:
    numbers, units = rounded(np.eye(3))
    index = DenseIndex.stored({"numbers": numbers, "units": units}, "place")
    assert index.search(np.eye(3), 1).rows.ravel().tolist() == [0, 1, 2]
    with pytest.raises(VectorsError):
        index.search(np.eye(4), 1)
    for wrong in (
        {"numbers": numbers.astype(np.int16)},
        {"numbers": numbers[0]},
        {"units": units[:2]},
        {"units": units.astype(np.float64)},
        {"units": np.array([1, np.nan, 1], np.float32)},
        {"units": np.array([1, np.inf, 1], np.float32)},
        {"units": np.array([1, -1, 1], np.float32)},
    ):
        with pytest.raises(VectorsError):
            DenseIndex.stored({"numbers": numbers, "units": units} | wrong, "place")
    for name in ("numbers", "units"):
        with pytest.raises(VectorsError):
            DenseIndex.stored({name: units}, "place")


def test_a_model_with_a_dense_side_fills_three_spaces(
    m3: str, corpus: Path, documents: list[Document], tmp_path: Path
) -> None:
    place, options = tmp_path / "index", dict[str, Any](dtype="float32", device="cpu")
    with index(m3, corpus, place, bm25=True, **options):
        pass
    with open_index(place, device="cpu") as collection:
        assert collection.spaces == ("sparse", "bm25", "dense")
        encoder = collection.models.documents
        vectors = encoder.encode_both([one.full for one in documents]).dense
        queries = ["the fox", "a dog"]
        asked = collection.models.queries().encode_both(queries).dense
        assert vectors is not None
        assert asked is not None
        best = [documents[row].id for row in (asked @ vectors.T).argmax(axis=1)]
        found = collection.search(queries, 5, weights="dense=1")
        assert [found.hits(number)[0][0] for number in range(2)] == best
        np.testing.assert_allclose(found.scores[:, 0], (asked @ vectors.T).max(axis=1), atol=0.01)
        assert len(collection.search(queries, 5).hits(0)) == 5
        stored = collection.store.vectors([documents[0].id], "dense")
        np.testing.assert_allclose(stored[0], vectors[0], atol=0.01)
    with index(m3, corpus, tmp_path / "other", no_dense=True, **options) as other:
        assert other.spaces == ("sparse", "bm25")
    with pytest.raises(ArgumentError):
        index(m3, corpus, tmp_path / "third", no_dense=True, dense=m3, **options)


@pytest.mark.parametrize("options", [{}, {"weights": "dense=1"}, {"weights": "dense=1,bm25=1"}])
def test_a_search_encodes_its_queries_once(
    m3: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    place = tmp_path / "index"
    index(m3, corpus, place, bm25=True, dtype="float32", device="cpu")
    passes, encode = [], TextEncoder.encode_both
    monkeypatch.setattr(TextEncoder, "encode_both", lambda *given: passes.append(given[1]) or encode(*given))
    with open_index(place, device="cpu") as collection:
        found = search(collection, ["the fox"], 3, explain=True, **options)[0]
        assert passes == [["the fox"]]
        assert [hit.document.id for hit in found.hits] == [
            name for name, _ in collection.search(["the fox"], 3, **options).hits(0)
        ]
        assert "parts: " in found._repr_html_()


@pytest.mark.parametrize("kept", [None, {"sparse": 0.5, "bm25": 0.3, "dense": 0.2}, {"dense": 1.0}], ids=str)
@pytest.mark.parametrize("error", [ModelError, MissingExtraError])
def test_dense_vectors_are_left_out_of_a_search_if_their_model_cannot_be_loaded(
    error: type[Exception],
    kept: dict[str, float] | None,
    dense: str,
    backbones: dict[str, Path],
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, place = str(shutil.copytree(dense, tmp_path / "dense")), tmp_path / "index"
    options: Any = {"bm25": True, "dense": model, "dtype": "float32", "device": "cpu"}
    with index(str(backbones["bert"]), corpus, place, **options) as made:
        made.keep_weights(kept)
    if error is ModelError:
        shutil.rmtree(model)
    else:
        monkeypatch.setattr(dense_models, "require_extra", Mock(side_effect=error("PyTorch is not installed")))
    with open_index(place, device="cpu") as opened:
        for _ in range(2):
            [answer] = search(opened, ["the fox"], 5)
        rest = {"sparse": 0.5, "bm25": 0.3} if kept and "sparse" in kept else {"sparse": 1.0, "bm25": 1.0}
        assert answer.weights == rest
        assert [(hit.document.id, hit.score) for hit in answer.hits] == opened.search(
            ["the fox"], 5, weights=rest
        ).hits(0)
        warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(warned) == 1
        assert warned[0].endswith(": the dense vectors of the documents are left out")
        for weights in ("dense", "sparse=1,dense=1"):
            with pytest.raises(error):
                search(opened, ["the fox"], weights=weights)
        assert set(opened.search([], 5, like="d7").parts or ()) == {"sparse", "dense"}
