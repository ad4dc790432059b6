"""The training of the table of dense queries: a known table is learned back, and a kept part is read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from studies.small.query_vectors import encoded, first_rows, fit, loss

N, V, D = 3000, 40, 8


@pytest.mark.parametrize("seed", [0, 1])
def test_a_table_is_learned_back_from_the_vectors_of_queries(seed: int) -> None:
    generator = np.random.default_rng(seed)
    truth = torch.from_numpy(generator.normal(size=(V, D))).float()
    queries = [generator.integers(1, V, size=generator.integers(1, 7)).tolist() for _ in range(N)]
    vectors = normalize(torch.stack([truth[query].sum(dim=0) for query in queries]), dim=1)
    first = 0.1 * torch.from_numpy(generator.normal(size=(V, D))).float()
    first[0] = 0  # a special token
    rows = fit(first, queries, vectors, 60, seed)
    cosines = [
        float(normalize(rows[query].sum(dim=0), dim=0) @ vector) for query, vector in zip(queries, vectors, strict=True)
    ]
    assert np.mean(cosines) > 0.97
    assert not rows[0].any()


def test_the_loss_is_zero_for_the_vectors_themselves() -> None:
    vectors = normalize(torch.randn(5, D), dim=1)
    assert float(loss(vectors, vectors)) == pytest.approx(0, abs=1e-5)
    assert float(loss(vectors.flip(0), vectors)) > 0.1


def test_a_frequent_token_starts_shorter_and_a_special_one_at_zero() -> None:
    vectors = normalize(torch.randn(4, D), dim=1)
    vectors[3] = 0
    lengths = first_rows(vectors, torch.tensor([98.0, 1.0, 1.0, 0.0])).norm(dim=1)
    assert lengths[0] < lengths[1]
    assert lengths[3] == 0


def test_encoded_queries_are_kept(tmp_path: Path) -> None:
    calls = list[list[str]]()

    class Model:
        def encode_query(self, texts: list[str], *, show_progress_bar: bool) -> np.ndarray:
            calls.append(texts)
            return np.array([[len(text), 1.0] for text in texts])

    made = [encoded(cast(Any, Model()), ["a", "bcd"], tmp_path) for _ in range(2)]
    assert calls == [["a", "bcd"]]
    torch.testing.assert_close(made[0], made[1])
    torch.testing.assert_close(made[0].norm(dim=1), torch.ones(2))
