"""The objective of a batch: as the host library's, the same in micro batches, its state in checkpoints."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from scipy.special import log_softmax, logsumexp
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss
from torch import Tensor
from transformers import TrainerControl, TrainerState

from tests.objectives.test_losses import heaviest
from vocable.objectives.settings import KL, InfoNCE, MarginMSE, SparseAlignment
from vocable.torch_models import head
from vocable.torch_models.fuse import fuse
from vocable.training.callbacks import ObjectiveState, set_dropout
from vocable.training.data import TrainingData
from vocable.training.objective import (
    CachedObjective,
    Monitor,
    Objective,
    WeightedLosses,
    make_objective,
)
from vocable.training.recipe import MaxTermsSettings, TrainingSettings

EXAMPLES = DatasetDict({"a": Dataset.from_dict({"query": ["q"], "positive": ["p"]})})


Gradients = dict[str, Tensor]


def objective(model: SparseEncoder, **settings: Any) -> Objective:
    return make_objective(model, TrainingSettings(steps=30, **settings), TrainingData(EXAMPLES))


def tokens(model: SparseEncoder, texts: list[str], columns: int = 3, size: int = 4) -> list[dict[str, Any]]:
    """A batch of `columns` x `size` texts of different lengths."""
    parts = [texts[i * size : (i + 1) * size] for i in range(columns)]
    return [dict(model.preprocess(part)) for part in parts]


def gradients(model: SparseEncoder, loss: dict[str, Tensor]) -> Gradients:
    model.zero_grad()
    torch.stack(list(loss.values())).sum().backward()  # type: ignore[no-untyped-call]
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def values(loss: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(value.detach()) for name, value in loss.items()}


def assert_alike(found: Gradients, expected: Gradients) -> None:
    assert found.keys() == expected.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=3e-6 * largest, msg=name)


@pytest.fixture
def model(backbone: Path) -> SparseEncoder:
    return fuse(SparseEncoder(str(backbone), device="cpu"))


@pytest.mark.parametrize("together", [1024, 24, 1])
def test_info_nce_and_flops_are_the_host_library_s(
    model: SparseEncoder, texts: list[str], together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PART_TOKENS", "MIN_PART_TOKENS"):
        monkeypatch.setattr(f"vocable.training.micro_batches.{name}", together)  # groups of all texts, of some, of one
    set_dropout(model, 0.0)
    model.train()
    losses = [{"name": "info_nce", "temperature": 2.0}]
    ours = objective(model, losses=losses, regularizers={"query": 0.03, "document": 0.02})
    ours.step = 5  # the middle of the ramp: a quarter of the weights
    ranking = SparseMultipleNegativesRankingLoss(model, scale=0.5)
    theirs = SpladeLoss(model, ranking, query_regularizer_weight=0.03 / 4, document_regularizer_weight=0.02 / 4)
    found, expected = ours(tokens(model, texts)), theirs(tokens(model, texts), None)
    assert values(found) == pytest.approx(values(expected), rel=1e-5)
    assert_alike(gradients(model, found), gradients(model, expected))


REGULARIZED: dict[str, Any] = {
    "batch_size": 4,
    "regularizers": {"query": 0.03, "document": {"name": "df_flops", "weight": 0.02}, "joint": 0.01},
    "losses": [{"name": "info_nce", "margin": 0.5}],
}


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_micro_batches_give_the_gradients_of_the_whole(
    toy_model: SparseEncoder, texts: list[str], dropout: float, micro_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = tokens(toy_model, texts)
    part = micro_batch * max(column["attention_mask"].shape[1] for column in columns)
    for name in ("PART_TOKENS", "MIN_PART_TOKENS"):  # both draw for the same parts; there are threads without dropout
        monkeypatch.setattr(f"vocable.training.micro_batches.{name}", part if dropout else part // 2)
    set_dropout(toy_model, dropout)
    toy_model.train()
    whole, cached = objective(toy_model, **REGULARIZED), objective(toy_model, micro_batch=micro_batch, **REGULARIZED)
    whole.step = cached.step = 10
    torch.manual_seed(1)
    expected = whole(columns)
    wanted, drawn = gradients(toy_model, expected), torch.get_rng_state()
    torch.manual_seed(1)
    found = cached(columns)
    assert values(found) == pytest.approx(values(expected), rel=1e-5)
    assert_alike(gradients(toy_model, found), wanted)
    assert torch.equal(torch.get_rng_state(), drawn)
    kept, expected_kept = (one.regularizers.state_dict() for one in (cached, whole))  # counted once in two passes
    assert all(torch.equal(kept[name], buffer) for name, buffer in expected_kept.items())


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_micro_batches_of_a_gpu_give_the_gradients_of_the_whole(
    toy_model: SparseEncoder, texts: list[str], dropout: float, micro_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vocable.training.objective.in_parts", lambda model: False)
    set_dropout(toy_model, dropout)
    toy_model.train()
    whole, cached = objective(toy_model, **REGULARIZED), objective(toy_model, micro_batch=micro_batch, **REGULARIZED)
    assert isinstance(cached, CachedObjective)
    whole.step = cached.step = 10
    torch.manual_seed(1)
    columns = []
    for column in tokens(toy_model, texts):  # micro batch by micro batch, too, since dropout draws in this order
        parts = [cached.embed_minibatch(column, i, i + micro_batch, True, False)[0] for i in range(0, 4, micro_batch)]
        columns.append(torch.cat(parts))
    expected = whole.parts(columns, None)
    wanted = gradients(toy_model, expected)
    torch.manual_seed(1)
    found = cached(tokens(toy_model, texts))
    assert values(found) == pytest.approx(values(expected), rel=1e-5)
    assert_alike(gradients(toy_model, found), wanted)
    kept, expected_kept = (one.regularizers.state_dict() for one in (cached, whole))  # counted once in two passes
    assert all(torch.equal(kept[name], buffer) for name, buffer in expected_kept.items())


def test_micro_batches_are_read_twice_and_their_vectors_are_computed_once(
    toy_model: SparseEncoder, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOCABLE_HEAD", "direct")  # no measurement, which computes them as well
    computed, largest = [], head._largest
    monkeypatch.setattr(head, "_largest", lambda *inputs: computed.append(len(inputs[3]) - 1) or largest(*inputs))
    set_dropout(toy_model, 0.0)
    toy_model.train()
    read: list[tuple[int, int]] = []
    toy_model[0].register_forward_pre_hook(lambda module, given: read.append(tuple(given[0]["input_ids"].shape)))
    columns = tokens(toy_model, texts)
    gradients(toy_model, objective(toy_model, batch_size=4, micro_batch=1)(columns))
    longest = max(column["attention_mask"].shape[1] for column in columns)
    assert sum(computed) == 4 * len(columns)
    assert sum(count for count, _ in read) == 2 * 4 * len(columns)
    assert max(count * length for count, length in read) <= longest


def test_every_part_as_by_hand(toy_model: SparseEncoder) -> None:
    rng = np.random.default_rng(0)
    v = toy_model[0].auto_model.config.vocab_size
    vectors = [np.maximum(rng.normal(size=(4, v)), 0) for _ in range(3)]
    regularizers = {"query": {"name": "l1", "weight": 0.5, "ramp": "linear", "share": 0.5}, "document": 0, "joint": 2}
    regularizers["overlap"] = {"weight": 4, "ramp": "constant"}
    ours = objective(toy_model, losses=[{"name": "info_nce", "weight": 3, "margin": 1}], regularizers=regularizers)
    ours.step = 9
    found = ours.parts([torch.tensor(part) for part in vectors], None)
    queries, documents = vectors[0], np.concatenate(vectors[1:])
    scores = queries @ documents.T
    scores[np.arange(4), np.arange(4)] -= 1
    asked, given = 1 - np.exp(-queries), 1 - np.exp(-vectors[1])  # of a query and its positive
    shared = np.minimum(asked, given).sum(axis=1) / np.maximum(asked, given).sum(axis=1)
    assert values(found) == pytest.approx(
        {
            "base_loss": 3 * np.mean(logsumexp(scores, axis=1) - scores.diagonal()),
            "query_regularizer_loss": 0.5 * 9 / 15 * queries.sum(axis=1).mean(),
            "joint_regularizer_loss": 2 * (9 / 10) ** 2 * (queries.mean(axis=0) * documents.mean(axis=0)).sum(),
            "overlap_regularizer_loss": 4 * (1 - shared).mean(),
        }
    )


def test_evaluation_leaves_the_document_frequencies_alone(toy_model: SparseEncoder, texts: list[str]) -> None:
    ours = objective(toy_model, regularizers={"document": {"name": "df_flops", "weight": 1}})
    toy_model.eval()
    ours(tokens(toy_model, texts))
    assert not any(ours.regularizers.state_dict()["statistics.document.seen"])
    toy_model.train()
    ours(tokens(toy_model, texts))
    assert ours.regularizers.state_dict()["statistics.document.documents"] == 8


def test_a_checkpoint_brings_the_state_back(toy_model: SparseEncoder, texts: list[str], tmp_path: Path) -> None:
    regularizers = {
        "query": {"name": "df_flops", "weight": 2},
        "document": {"name": "df_flops", "weight": 1, "ramp": "constant"},
    }
    toy_model.train()
    first, second = (objective(deepcopy(toy_model), regularizers=regularizers) for _ in range(2))
    first(tokens(toy_model, texts))
    TrainerState(global_step=7, stateful_callbacks=[ObjectiveState(first)]).save_to_json(str(tmp_path / "state.json"))
    state = TrainerState.load_from_json(str(tmp_path / "state.json"))
    callback = ObjectiveState(second)
    callback.on_train_begin(None, state, TrainerControl())  # type: ignore[arg-type]
    callback.on_step_begin(None, state, TrainerControl())
    assert second.step == 7
    for name, buffer in first.regularizers.state_dict().items():
        assert torch.equal(buffer, second.regularizers.state_dict()[name]), name


def test_the_monitor_gives_means_since_it_was_last_asked() -> None:
    monitor = Monitor()
    queries = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    documents = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 4.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    for factor in (1.0, 3.0):
        losses = {"kl": torch.tensor(factor), "info_nce": torch.tensor(2 * factor)}
        monitor.see(factor * queries, documents, losses, {"query_regularizer_weight": factor})
    # Scores of the positives are 3 and 0, then 9 and 0.
    terms = {"query_terms": 1.5, "document_terms": 1.5, "score": 3.0}
    assert monitor.figures() == terms | {"kl": 2.0, "info_nce": 4.0, "query_regularizer_weight": 3.0}
    assert monitor.figures() == {}


B, C, V = 4, 2, 9


ROWS = np.array([7, 0, 3, 5])


class Known:
    """A teacher, sparse or not, that knows something of every row."""

    def __init__(self, values, wanted=lambda values: values):
        self._values, self._wanted = values, wanted

    def __call__(self, rows):
        return torch.from_numpy(self._wanted(self._values[rows]))


@pytest.fixture
def vectors():
    rng = np.random.default_rng(0)
    queries, documents = (np.maximum(rng.normal(size=(n, V)), 0) for n in (B, B * (1 + C)))
    return queries, documents


def value(ranking, vectors):
    found = ranking(*map(torch.from_numpy, vectors), torch.from_numpy(ROWS))
    return {name: float(loss) for name, loss in found.items()}


def divergence(scores, taught):
    p, q = log_softmax(taught, axis=1), log_softmax(scores, axis=1)
    return (np.exp(p) * (p - q)).sum(axis=1).mean()


def test_a_teacher_of_the_batch_is_compared_on_all_documents(vectors):
    queries, documents = vectors
    taught = np.random.default_rng(1).normal(size=(10, B * (1 + C)))
    losses = [KL(weight=2, temperature=0.8, teacher_temperature=0.5), MarginMSE(weight=3), InfoNCE(temperature=0.8)]
    scores, lesson = queries @ documents.T, taught[ROWS]
    margins = [np.delete(x[i, i] - x[i], i) for x in (scores, lesson) for i in range(B)]
    expected = {
        "kl": 2 * divergence(scores / 0.8, lesson / 0.5),
        "margin_mse": 3 * np.mean((np.array(margins[:B]) - np.array(margins[B:])) ** 2),
        "info_nce": -log_softmax(scores / 0.8, axis=1).diagonal().mean(),
    }
    assert value(WeightedLosses(losses, teacher=Known(taught)), vectors) == pytest.approx(expected)


def test_scores_of_examples_are_compared_on_their_own_documents(vectors):
    queries, documents = vectors
    taught = np.random.default_rng(1).normal(size=(10, 1 + C))
    scores = np.array([[queries[i] @ documents[i + column * B] for column in range(1 + C)] for i in range(B)])
    lesson = taught[ROWS]
    differences = (scores[:, :1] - scores[:, 1:]) - (lesson[:, :1] - lesson[:, 1:])
    expected = {"kl": divergence(scores, lesson), "margin_mse": (differences**2).mean()}
    assert value(WeightedLosses([KL(), MarginMSE()], teacher=Known(taught)), vectors) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "full"), [({"query": 2, "document": 3}, True), ({"document": 3, "full": False}, False)]
)
def test_the_heaviest_terms_count_alone_or_beside_all(vectors, settings, full):
    queries, documents = vectors
    masked = heaviest(queries, settings.get("query", V)), heaviest(documents, 3)
    views = [masked, vectors] if full else [masked]
    expected = sum(-log_softmax(q @ d.T, axis=1).diagonal().mean() for q, d in views)
    assert value(WeightedLosses([InfoNCE()], max_terms=MaxTermsSettings(**settings)), vectors)[
        "info_nce"
    ] == pytest.approx(expected)


def test_vectors_are_aligned_with_those_of_queries_and_documents(vectors):
    taught = np.maximum(np.random.default_rng(2).normal(size=(10, 2 + C, V)), 0)
    teacher = Known(taught, lambda values: values.transpose(1, 0, 2).reshape(-1, V))
    student = np.concatenate(vectors)
    lesson = np.concatenate([taught[ROWS, column] for column in range(2 + C)])
    shared = (student > 0) & (lesson > 0)
    expected = 0.5 * ((student - lesson)[shared] ** 2).mean()
    losses = WeightedLosses([SparseAlignment(weight=0.5)], sparse_teacher=teacher)
    assert value(losses, vectors)["alignment"] == pytest.approx(expected)
