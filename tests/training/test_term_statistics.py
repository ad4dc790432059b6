"""Statistics of terms, and the regularizers that they weigh."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vocable.objectives.settings import Regularizers
from vocable.training.term_statistics import (
    REFRESH,
    DocumentFrequencies,
    FixedStatistic,
    WeightedRegularizers,
)


def test_until_the_first_estimate_all_documents_count():
    frequencies = DocumentFrequencies(3)
    assert frequencies.values().tolist() == [0, 0, 0]
    frequencies.observe(torch.tensor([[1.0, 0.0, 0.0], [2.0, 0.5, 0.0]]), 0)
    assert frequencies.values().tolist() == [1, 0.5, 0]
    frequencies.observe(torch.tensor([[0.0, 0.0, 9.0], [0.0, 0.5, 0.0]]), 1)
    assert frequencies.values().tolist() == [0.5, 0.5, 0.25]


def test_an_estimate_holds_for_a_hundred_steps():
    rng = np.random.default_rng(0)
    frequencies = DocumentFrequencies(5)
    active = rng.random((2 * REFRESH + 2, 4, 5)) < 0.3
    for step, documents in enumerate(active):
        frequencies.observe(torch.tensor(documents).float(), step)
        interval = step // REFRESH
        seen = active[: step + 1] if interval == 0 else active[(interval - 1) * REFRESH : interval * REFRESH]
        np.testing.assert_allclose(frequencies.values(), seen.reshape(-1, 5).mean(axis=0), rtol=1e-6)


def test_the_regularizer_weighs_terms_by_their_frequency():
    rng = np.random.default_rng(1)
    documents = np.maximum(rng.normal(size=(6, 9)), 0)
    settings = Regularizers.model_validate(
        {"query": 0, "document": {"name": "df_flops", "weight": 2.0, "ramp": "constant", "threshold": 4}}
    )
    regularizers = WeightedRegularizers(settings, 10, {"document": DocumentFrequencies(9)})
    found = regularizers(torch.ones(2, 9), torch.tensor(documents), 0, learn=True)
    shares = (documents > 0).mean(axis=0)
    with np.errstate(divide="ignore"):
        g = 1 / (1 + (shares ** (np.log(2) / np.log(0.1)) - 1) ** 10)
    means = (documents * ((documents > 0).sum(axis=1, keepdims=True) > 4)).mean(axis=0)
    assert float(found["document_regularizer_loss"]) == pytest.approx(2 * ((g * means) ** 2).sum(), rel=1e-5)
    assert found.keys() == {"document_regularizer_loss"}


def test_idf_weighs_them_by_their_rarity():
    idf, queries = torch.tensor([3.0, 0.0, 1.0]), torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 2.0]])
    settings = Regularizers.model_validate({"query": {"name": "idf_flops", "weight": 1, "ramp": "constant"}})
    regularizers = WeightedRegularizers(settings, 10, {"query": FixedStatistic(idf)})
    found = regularizers(queries, torch.ones(2, 3), 0, learn=True)
    assert float(found["query_regularizer_loss"]) == 6**2 + 1**2
    assert regularizers.state_dict() == {}  # computed anew from the examples
