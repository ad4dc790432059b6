"""Reranking by a toy cross encoder: the scores of `CrossEncoder.predict`, pages, limits of time, and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder
from transformers import PreTrainedTokenizerFast

from studies.toy_models import make_cross_encoder
from tests.cli.command_line import done, refused
from vocable.collection import rerank as module
from vocable.collection.answers import search
from vocable.collection.collection import Collection
from vocable.collection.index import index
from vocable.collection.rerank import load_reranker, pair_scores, reranked
from vocable.data import Document
from vocable.errors import ArgumentError, MissingExtraError, ModelError
from vocable.indexes.ranking import ranking_of

QUERIES = ["the old fox reads", "posting lists at night"]


@pytest.fixture(scope="module", params=["folder", "memory"])
def opened(
    request: pytest.FixtureRequest, backbones: dict[str, Path], corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collection]:
    """An index with BM25, in a folder and in memory."""
    place = tmp_path_factory.mktemp("rerank") / "index" if request.param == "folder" else None
    made = index(str(backbones["bert"]), corpus, place, bm25=True, dtype="float32", device="cpu")
    yield made
    made.close()


@pytest.fixture(scope="module")
def predicted(cross: str, documents: list[Document]) -> list[dict[str, float]]:
    """The scores of the queries with all documents, by `predict` itself."""
    model = CrossEncoder(cross, device="cpu")
    scores = [model.predict([(query, document.full) for document in documents]) for query in QUERIES]
    names = [document.id for document in documents]
    return [dict(zip(names, one.tolist(), strict=True)) for one in scores]


@pytest.mark.parametrize("options", [{}, {"weights": "sparse"}, {"filter": "lang=de"}, {"weights": "bm25=1"}])
def test_the_first_hits_are_ordered_by_predict(
    opened: Collection, cross: str, predicted: list[dict[str, float]], options: dict[str, Any]
) -> None:
    before = opened.search(QUERIES, 20, **options)
    found = opened.search(QUERIES, 20, rerank=cross, rerank_depth=7, rerank_batch_size=3, **options)
    for number, scores in enumerate(predicted):
        first, hits = dict(before.hits(number)), found.hits(number)
        names = list(first)
        best = sorted(names[:7], key=lambda name: (-scores[name], name))
        assert [name for name, _ in hits] == best + names[7:]
        np.testing.assert_allclose([score for _, score in hits[:7]], [scores[name] for name in best], rtol=1e-4)
        values = [score for _, score in hits]
        assert values == sorted(values, reverse=True)
        assert len(set(values[6:])) == len(values[6:])  # so that programs that sort by score keep the order
        assert found.first_scores is not None
        expected = [first[name] for name, _ in hits]
        np.testing.assert_allclose(found.first_scores[number, : len(hits)], expected, rtol=1e-5)


def test_pages_continue_each_other(opened: Collection, cross: str) -> None:
    whole = opened.search(QUERIES, 30, rerank=cross, rerank_depth=12)
    for offset, k in ((0, 1), (0, 5), (0, 12), (0, 13), (5, 5), (10, 5), (15, 15)):
        found = opened.search(QUERIES, k, rerank=cross, rerank_depth=12, offset=offset)
        for number in range(len(QUERIES)):
            assert [name for name, _ in found.hits(number)] == [name for name, _ in whole.hits(number)][offset:][:k]


def test_a_hit_has_both_scores_and_the_terms_of_the_first(opened: Collection, cross: str) -> None:
    [plain] = search(opened, QUERIES[:1], 40, weights="sparse")
    [answer] = search(opened, QUERIES[:1], 5, explain=True, rerank=cross, weights="sparse")
    first = {hit.document.id: hit.score for hit in plain.hits}
    for hit in answer.hits:
        assert hit.first_score == pytest.approx(first[hit.document.id], rel=1e-5)
        assert hit.explanation is not None
        assert hit.explanation.score == pytest.approx(first[hit.document.id], rel=1e-3)
        assert hit.to_json()["first_score"] == hit.first_score
        assert f"before reranking: {hit.first_score:.4g}" in str(hit)
        assert "the model's own score" not in str(hit)  # it is the one before reranking
    assert all(hit.first_score is None and "first_score" not in hit.to_json() for hit in plain.hits)


def test_passages_are_what_is_scored(
    backbones: dict[str, Path], cross: str, toy_texts: list[str], tmp_path: Path
) -> None:
    documents = [{"_id": f"d{i}", "title": "A title", "text": " ".join(toy_texts[8 * i : 8 * i + 8])} for i in range(9)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents), encoding="utf-8")
    options: dict[str, Any] = {"bm25": True, "max_length": 24, "long_documents": "passages", "device": "cpu"}
    opened = index(str(backbones["bert"]), tmp_path / "corpus.jsonl", tmp_path / "index", **options)
    model = CrossEncoder(cross, device="cpu")
    for weights in ("sparse=1", "bm25=1"):
        [answer] = search(opened, QUERIES[:1], 9, rerank=cross, weights=weights)
        pairs = [(QUERIES[0], f"A title {hit.passage.text}") for hit in answer.hits if hit.passage is not None]
        assert len(pairs) == len(answer.hits) > 1
        np.testing.assert_allclose([hit.score for hit in answer.hits], model.predict(pairs), rtol=1e-4)
    opened.close()


def test_without_time_the_first_batch_is_scored(opened: Collection, cross: str) -> None:
    before = opened.search(QUERIES, 20)
    found = opened.search(QUERIES, 20, rerank=cross, rerank_ms=1e-6, rerank_batch_size=4)
    same = opened.search(QUERIES, 20, rerank=cross, rerank_depth=4, rerank_batch_size=4)
    for number in range(len(QUERIES)):
        assert [name for name, _ in found.hits(number)] == [name for name, _ in same.hits(number)]
        assert [name for name, _ in found.hits(number)][4:] == [name for name, _ in before.hits(number)][4:]


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        (1500, [4]),  # half a second is left, and two hits fit: fewer than are worth a batch
        (2500, [4, 6]),
        (3000, [4, 8]),
        (1e6, [4, 8, 8]),
        (1, [4]),
    ],
)
def test_the_depth_is_what_the_first_batch_leaves_time_for(
    monkeypatch: pytest.MonkeyPatch, limit: float, sizes: list[int]
) -> None:
    now, batches = [0.0], list[int]()

    class Slow:
        def predict(self, pairs: list[tuple[str, str]], **_: object) -> np.ndarray:
            now[0] += 0.25 * len(pairs)  # seconds
            batches.append(len(pairs))
            return np.arange(len(pairs), dtype=np.float32)

    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    scores = pair_scores(Slow(), "a fox", ["one text"] * 20, 8, limit)  # type: ignore[arg-type]
    assert batches == sizes
    assert len(scores) == sum(sizes)


def test_an_answer_says_how_many_hits_were_reranked(
    opened: Collection, cross: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RERANK_BUDGET", 1e-6)
    [limited] = search(opened, QUERIES[:1], 10, rerank=cross)
    [asked] = search(opened, QUERIES[:1], 10, rerank=cross, rerank_depth=7)
    [plain] = search(opened, QUERIES[:1], 10)
    assert (limited.reranked, asked.reranked, plain.reranked) == (4, 7, None)  # without a depth, a budget
    assert limited.rerank_ms is not None
    assert limited.to_json()["reranked"] == 4
    assert f"reranked 4 hits in {limited.rerank_ms:.0f} ms" in str(limited)
    evaluated = opened.search(QUERIES, 10, rerank=cross)  # a ranking has no budget: it is the same on any machine
    assert evaluated.reranked is not None
    assert evaluated.reranked.min() > 7


def test_enough_time_scores_all(opened: Collection, cross: str) -> None:
    free, timed = (opened.search(QUERIES, 20, rerank=cross, rerank_ms=limit) for limit in (None, 1e9))
    np.testing.assert_array_equal(free.rows, timed.rows)
    np.testing.assert_allclose(free.scores, timed.scores, rtol=1e-5)


def test_equal_scores_are_ordered_by_id_and_no_hits_stay_no_hits(cross: str) -> None:
    first = ranking_of([[("b", 3.0), ("c", 2.0), ("a", 1.0)], []], k=3)
    found = reranked(first, ["fox", "owl"], lambda number, ids: ["the same"] * len(ids), rerank=cross, device="cpu")
    assert [name for name, _ in found.hits(0)] == ["a", "b", "c"]
    assert found.hits(1) == []
    assert found.rerank_ms is not None
    assert found.rerank_ms.shape == (2,)
    assert (found.rerank_ms >= 0).all()


def test_rerankings_that_cannot_be_are_refused(
    opened: Collection, backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path: Path
) -> None:
    def refuse(name: str, error: type[Exception], match: str) -> None:
        with pytest.raises(error, match=match) as caught:
            opened.search(QUERIES, rerank=name)
        assert "\n" not in str(caught.value)

    refuse(str(backbones["bert"]), ModelError, "not a cross encoder: its configuration says sparse")
    several = make_cross_encoder(tokenizers["wordpiece"], tmp_path / "several", labels=3)
    refuse(str(several), ModelError, "3 labels")
    for place, text in (("nonsense.json", "text"), ("nonsense/config.json", "{}")):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(text)
        refuse(str(tmp_path / place.removesuffix("/config.json")), ModelError, r"nonsense\S* is not a cross encoder: ")
    refuse(str(tmp_path / "nowhere"), ModelError, "nowhere: no such model folder")
    pickled = make_cross_encoder(tokenizers["wordpiece"], tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    refuse(str(pickled), ModelError, "safetensors only")
    with pytest.raises(ArgumentError):
        opened.search(["fox"], rerank_ms=5.0)
    with pytest.raises(ArgumentError):
        opened.search(QUERIES, rerank=str(several), rerank_depth=0)


def test_a_reranking_without_pytorch_names_the_extra(
    opened: Collection, cross: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str, extra: str) -> None:
        raise MissingExtraError(f"{module} is not installed: pip install 'vocable[{extra}]'")

    load_reranker.cache_clear()
    monkeypatch.setattr(module, "require_extra", missing)
    with pytest.raises(MissingExtraError, match=r"sentence_transformers.*vocable\[train\]"):
        opened.search(QUERIES, rerank=cross)


def test_scores_that_are_not_finite(cross: str) -> None:
    class Broken:
        def predict(self, pairs: list[tuple[str, str]], **_: object) -> np.ndarray:
            return np.full(len(pairs), np.nan, dtype=np.float32)

    with pytest.raises(ModelError):
        pair_scores(Broken(), "fox", ["a text"], 8)  # type: ignore[arg-type]


def test_the_command_search_reranks(
    backbones: dict[str, Path], corpus: Path, cross: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "index"
    index(str(backbones["bert"]), corpus, place, dtype="float32", device="cpu")
    out = done(capsys, "search", place, QUERIES[0], "--rerank", cross, "--rerank-depth", "5", "-k", "3", "--json")
    [hits] = [json.loads(line)["hits"] for line in out.splitlines()]
    assert all(hit["first_score"] > 0 for hit in hits)
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert "not a cross encoder" in refused(capsys, "search", place, QUERIES[0], "--rerank", str(backbones["bert"]))
