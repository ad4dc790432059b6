"""Term weights by wackiness: measured as by hand, every so many steps, and in the regularizer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SparseEncoder

from vocable.encoding.encode import encode
from vocable.encoding.protocol import Role
from vocable.objectives.regularizers import Regularizers, WackinessFlops
from vocable.training.term_statistics import (
    REFRESH,
    DocumentFrequencies,
    FixedStatistic,
    TermWackiness,
    WeightedRegularizers,
    term_statistics,
)

K = 3


def examples(texts: list[str], size: int = 40) -> DatasetDict:
    """Two sources; a query is the beginning of its document, and one document is there twice."""
    documents = [*list(dict.fromkeys(texts))[: size - 1], texts[0]]
    queries = [f"{' '.join(text.split()[:3])} {i}" for i, text in enumerate(documents)]
    half = size // 2
    return DatasetDict(
        {
            "a": Dataset.from_dict({"query": queries[:half], "positive": documents[:half]}),
            "b": Dataset.from_dict({"query": queries[half:], "positive": documents[half:]}),
        }
    )


def settings(**sides: Any) -> Regularizers:
    return Regularizers.model_validate({"query": 0, "document": 0} | sides)


def by_hand(model: SparseEncoder, inputs: list[str], documents: list[str], role: Role) -> np.ndarray:
    """The definition, a term and an input at a time."""
    asked, given = encode(model, inputs, role).toarray(), encode(model, documents).toarray()
    tokens = [Counter(model[0].tokenizer(text, add_special_tokens=False)["input_ids"]) for text in documents]
    importance: dict[int, list[float]] = {}
    for i, (text, vector) in enumerate(zip(inputs, asked, strict=True)):
        found = [row for row in np.argsort(-(given @ vector), kind="stable") if role == "query" or row != i][:K]
        own = set(model[0].tokenizer(text, add_special_tokens=False)["input_ids"])
        for term in set(np.flatnonzero(vector).tolist()) - own:
            frequency = sum(tokens[row][term] for row in found)
            having = sum(term in document for document in tokens)
            importance.setdefault(term, []).append(frequency * np.log(len(documents) / max(having, 1)))
    means = {term: np.mean(values) for term, values in importance.items()}
    least, most = min(means.values()), max(means.values())
    scores = np.zeros(asked.shape[1])
    for term, mean in means.items():
        scores[term] = 1 - (mean - least) / (most - least)
    return scores


def wackiness(model: SparseEncoder, given: DatasetDict, role: Role, sample: int, seed: int = 0) -> TermWackiness:
    v = model[0].auto_model.config.vocab_size
    return TermWackiness(v, WackinessFlops(sample=sample, k=K), role, given, seed)


@pytest.mark.parametrize("role", ["query", "document"])
def test_the_scores_are_those_of_the_definition(toy_model: SparseEncoder, toy_texts: list[str], role: Role) -> None:
    given = examples(toy_texts)
    queries = [row["query"] for source in given.values() for row in source]
    documents = list(dict.fromkeys(row["positive"] for source in given.values() for row in source))
    assert len(documents) == 39
    found = wackiness(toy_model, given, role, 100).measure(toy_model)
    expected = by_hand(toy_model, queries if role == "query" else documents, documents, role)
    assert found.dtype == torch.float32
    assert 0 < np.count_nonzero(expected < 1) < len(expected)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_sample_is_of_all_sources_and_the_same_for_a_seed(toy_model: SparseEncoder, toy_texts: list[str]) -> None:
    given = examples(toy_texts)
    first, again, other = (wackiness(toy_model, given, "query", 5, s).measure(toy_model) for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_it_is_measured_every_so_many_steps_and_by_no_forward_pass(
    toy_model: SparseEncoder, toy_texts: list[str], tmp_path: Path
) -> None:
    given, v = examples(toy_texts), toy_model[0].auto_model.config.vocab_size
    side = {"name": "wackiness_flops", "weight": 1, "ramp": "constant", "every": 3, "sample": 100, "k": K}
    parts = settings(query=side, document=side | {"every": 2})
    statistics = term_statistics(parts, toy_model, given, tmp_path, seed=0)
    regularizers = WeightedRegularizers(parts, 10, statistics)
    measured: dict[int, dict[str, torch.Tensor]] = {}
    for step in range(5):
        toy_model.train()
        regularizers.begin_step(toy_model, step)
        assert toy_model.training
        measured[step] = {role: statistic.values().clone() for role, statistic in statistics.items()}
        with torch.no_grad():  # another model in every step
            toy_model[0].auto_model.get_output_embeddings().weight.mul_(1.2)
        for learn in (False, True):
            regularizers(torch.rand(2, v), torch.rand(4, v), step, learn=learn)
    for role, every in (("query", 3), ("document", 2)):
        for step in range(1, 5):
            same = torch.equal(measured[step][role], measured[step - 1][role])
            assert same == (step % every > 0), (role, step)


def test_the_regularizer_weighs_terms_by_their_wackiness(toy_texts: list[str]) -> None:
    rng = np.random.default_rng(1)
    queries, scores = np.maximum(rng.normal(size=(6, 9)), 0), rng.random(9)
    side = {"name": "wackiness_flops", "weight": 2.0, "ramp": "constant", "threshold": 4}
    statistic = TermWackiness(9, WackinessFlops(), "query", examples(toy_texts), 0)
    regularizers = WeightedRegularizers(settings(query=side), 10, {"query": statistic})
    free = regularizers(torch.tensor(queries), torch.ones(2, 9), 0, learn=True)
    assert float(free["query_regularizer_loss"]) == 0  # nothing is measured yet
    statistic.scores.copy_(torch.tensor(scores))
    vectors = torch.tensor(queries, requires_grad=True)
    found = regularizers(vectors, torch.ones(2, 9), 0, learn=True)["query_regularizer_loss"]
    [gradient] = torch.autograd.grad(found, vectors)
    kept = (queries > 0).sum(axis=1, keepdims=True) > 4
    means = (queries * kept).mean(axis=0)
    assert found.item() == pytest.approx(2 * ((scores * means) ** 2).sum(), rel=1e-5)
    np.testing.assert_allclose(gradient, np.broadcast_to(4 * scores**2 * means / 6, (6, 9)) * kept, rtol=1e-5)
    assert regularizers.state_dict()["statistics.query.scores"].tolist() == pytest.approx(scores.tolist())


def test_a_side_without_the_penalty_keeps_no_scores(
    toy_model: SparseEncoder, toy_texts: list[str], tmp_path: Path
) -> None:
    off = settings(query={"name": "wackiness_flops", "weight": 0}, document=1)
    assert term_statistics(off, toy_model, examples(toy_texts), tmp_path, seed=0) == {}
    assert WeightedRegularizers(off, 10, {}).state_dict() == {}


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
