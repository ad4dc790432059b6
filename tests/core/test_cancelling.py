"""Cancelled work stops at its next step, in the encoder, a search, a reranking, an explanation and a suggestion."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from vocable.collection import suggestion
from vocable.collection.index import index
from vocable.collection.rerank import pair_scores
from vocable.core.cancelling import cancelled_if, stop_if_cancelled
from vocable.encoding.text_encoder import TextEncoder
from vocable.explanation.explain import explain_hits


def test_work_stops_in_the_context_alone() -> None:
    stop_if_cancelled()
    with cancelled_if(lambda: False):
        stop_if_cancelled()
        with cancelled_if(lambda: True), pytest.raises(CancelledError):
            stop_if_cancelled()
        stop_if_cancelled()


class CountedPairs:
    """A cross encoder that counts its batches."""

    def __init__(self) -> None:
        self.batches = 0

    def predict(self, pairs: list[tuple[str, str]], **_: object) -> np.ndarray:
        self.batches += 1
        return np.zeros(len(pairs), dtype=np.float32)


def test_each_stage_asks_whether_it_is_cancelled(backbones: dict[str, Path], corpus: Path) -> None:
    collection = index(str(backbones["bert"]), corpus, bm25=True, dtype="float32", device="cpu")
    encoder, pairs = TextEncoder(collection.models.loaded, "query"), CountedPairs()
    row = csr_array(np.array([[1.0, 2.0]]))
    stages: dict[str, Callable[[], object]] = {
        "encode": lambda: encoder.encode(["a fox"]),
        "search": lambda: collection.search(["a fox"], 3),
        "answer": lambda: collection.search(["a fox"], 3),
        "rerank": lambda: pair_scores(pairs, "a fox", ["a", "b", "c"], 1, limit=1e6),
        "explain": lambda: explain_hits(row, row, ["a", "b"], ["a"], [["a"]]),
        "suggest": lambda: suggestion.suggestion(collection, "foxs sleepng"),
    }
    for stage in stages.values():
        stage()
        with cancelled_if(lambda: True), pytest.raises(CancelledError):
            stage()
    assert pairs.batches == 3  # none of them after the cancellation
