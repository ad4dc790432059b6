"""The queue of documents from earlier batches: whose vectors it holds, in which loss, and in checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from scipy.special import logsumexp
from sentence_transformers import SparseEncoder
from torch import Tensor
from transformers import TrainingArguments

from vocable.objectives.settings import QueueSettings
from vocable.training.callbacks import QUEUE_FILE, MarkComplete, ObjectiveState, set_dropout
from vocable.training.data import TrainingData
from vocable.training.objective import Momentum, Objective, fingerprints, make_objective
from vocable.training.recipe import TrainingSettings
from vocable.training.recipe_files import make_recipe
from vocable.training.train import train

SIZE, MOMENTUM, B, STEPS = 10, 0.6, 4, 5


def objective(model: SparseEncoder, queue: dict[str, Any], **settings: Any) -> Objective:
    losses = [{"name": "info_nce", "queue": queue}]
    regularizers = {"query": 0, "document": 0}
    training = TrainingSettings(steps=30, losses=losses, regularizers=regularizers, **settings)  # type: ignore[arg-type]
    return make_objective(model, training, TrainingData(None))  # type: ignore[arg-type]


def batches(model: SparseEncoder, texts: list[str]) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    """Of 12 texts: the second half of each batch's documents come again in the next one, as positives or negatives."""
    for step in range(STEPS):
        drawn = [texts[(4 * step + i) % len(texts)] for i in range(3 * B)]
        yield drawn, [dict(model.preprocess(drawn[i : i + B])) for i in range(0, 3 * B, B)]


def vectors(model: SparseEncoder, texts: list[str]) -> NDArray[np.float64]:
    with torch.no_grad():
        return np.asarray(model.eval()(model.preprocess(texts))["sentence_embedding"], dtype=np.float64)


def heaviest(rows: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    return np.where(rows >= np.sort(rows, axis=1)[:, -k, None], rows, 0)


@pytest.mark.parametrize("settings", [{}, {"micro_batch": 1}, {"max_terms": {"query": 30, "document": 30}}])
def test_the_loss_is_over_a_queue_of_a_following_copy_s_documents(
    toy_model: SparseEncoder, texts: list[str], settings: dict[str, Any]
) -> None:
    set_dropout(toy_model, 0.3)  # the copy takes no part in it
    toy_model.train()
    follower, k = deepcopy(toy_model), 20
    ours = objective(toy_model, {"size": SIZE, "momentum": MOMENTUM, "terms": k}, batch_size=B, **settings)
    seen: dict[str, Any] = {}
    ours.monitor.see = lambda *vectors: seen.update(  # type: ignore[method-assign]
        queries=vectors[0].detach().double().numpy(), documents=vectors[1].detach().double().numpy()
    )
    assert ours.momentum is not None
    optimizer = torch.optim.SGD(toy_model.parameters(), lr=1e-3)
    queue: list[tuple[str, NDArray[np.float64]]] = []
    for drawn, columns in batches(toy_model, texts):
        toy_model.train()
        found = ours(columns)["base_loss"]
        left_out = np.array([[text == positive for text, _ in queue] for positive in drawn[B : 2 * B]]).reshape(B, -1)
        expected = 0.0
        masked = (heaviest(seen["queries"], 30), heaviest(seen["documents"], 30))
        for queries, documents in [tuple(seen.values()), *([masked] if "max_terms" in settings else [])]:
            scores = queries @ documents.T
            if queue:
                further = queries @ np.stack([vector for _, vector in queue]).T
                scores = np.concatenate([scores, np.where(left_out, -np.inf, further)], axis=1)
            expected += np.mean(logsumexp(scores, axis=1) - scores.diagonal())
        assert found.item() == pytest.approx(expected, rel=1e-5)
        read = heaviest(vectors(follower, drawn[B:]), k)
        queue = [*queue, *zip(drawn[B:], read, strict=True)][-SIZE:]
        optimizer.zero_grad()
        found.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        ours.momentum.follow()
        for own, theirs in zip(follower.parameters(), toy_model.parameters(), strict=True):
            own.data = MOMENTUM * own.data + (1 - MOMENTUM) * theirs.data
    assert left_out.any()  # the case has been there


def test_evaluation_leaves_the_queue_alone(toy_model: SparseEncoder, texts: list[str]) -> None:
    ours = objective(toy_model, {"size": SIZE})
    assert ours.momentum is not None
    for training, expected in ((False, 0), (True, 8), (False, 8), (True, 10)):
        toy_model.train(training)
        ours(next(batches(toy_model, texts))[1])
        assert len(ours.momentum.state_dict()["queue.texts"]) == expected


def test_the_same_tokens_have_the_same_fingerprint(toy_model: SparseEncoder) -> None:
    texts = ["the old fox", "the old fox reads books", "the old", "fox the old"]
    together = fingerprints(toy_model.preprocess(texts))
    assert len(set(together.tolist())) == 4
    for text, expected in zip(texts, together, strict=True):
        assert torch.equal(fingerprints(toy_model.preprocess([text])), expected[None])  # whatever the padding


def test_the_state_restores_the_queue_and_the_copy(toy_model: SparseEncoder, texts: list[str], tmp_path: Path) -> None:
    settings = QueueSettings(size=SIZE)
    first, second = (Momentum(deepcopy(toy_model), settings, B) for _ in range(2))
    for _, columns in batches(toy_model, texts):
        first.push(first.read(columns[1:]))
    with torch.no_grad():
        next(first.model.parameters()).add_(1)
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    expected = first.state_dict()
    assert expected["queue.terms"].dtype == torch.int32
    for name, tensor in second.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def recipe(model: Path, examples: Path, seed: int = 0) -> Any:
    losses = [{"name": "info_nce", "queue": {"size": 12, "momentum": 0.7}}]
    training = {"steps": 6, "batch_size": 8, "save_every": 2, "log_every": 1, "learning_rate": 1e-3, "dropout": 0.1}
    values = {"model": str(model), "data": {"examples": [str(examples)]}, "training": training | {"losses": losses}}
    return make_recipe({**values, "seed": seed})


class StoppedError(Exception):
    """A run that ends in the middle."""


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int, *, written: bool) -> None:
    """Have runs end when a checkpoint is whole but for the queue and the mark, or when these are there, too."""
    last = MarkComplete if written else ObjectiveState
    save = last.on_save

    def stop(self: Any, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        if written or state.global_step != step:
            save(self, args, state, control, **kwargs)
        if state.global_step == step:
            raise StoppedError

    monkeypatch.setattr(last, "on_save", stop)


@pytest.mark.slow
def test_a_run_goes_on_as_if_it_had_not_stopped(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = tmp_path / "pairs.jsonl"
    pairs = [{"query": text, "positive": f"chapter {i} {text}"} for i, text in enumerate(sorted(set(toy_texts))[:40])]
    examples.write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    train(recipe(backbones["bert"], examples), tmp_path / "whole")
    expected = load_file(tmp_path / "whole" / "model.safetensors")
    restore, begun = Momentum.load_state_dict, []
    for written in (False, True):
        output = tmp_path / f"out-{written}"
        stop_at(monkeypatch, 4, written=written)
        with pytest.raises(StoppedError):
            train(recipe(backbones["bert"], examples), output)
        checkpoint = tmp_path / f"out-{written}.partial" / "train" / "checkpoint-4"
        assert (checkpoint / "trainer_state.json").exists()
        assert (checkpoint / QUEUE_FILE).exists() == written
        monkeypatch.undo()
        monkeypatch.setattr(
            Momentum, "load_state_dict", lambda self, state: (begun.append(state["queue.texts"]), restore(self, state))
        )
        train(recipe(backbones["bert"], examples), output)
        found = load_file(output / "model.safetensors")
        for name, weights in expected.items():
            np.testing.assert_array_equal(found[name], weights, err_msg=name)
        assert not (output / QUEUE_FILE).exists()
    assert [len(texts) for texts in begun] == [12, 12]  # both went on from a checkpoint, and its queue was full


def test_gradients_do_not_reach_the_copy(toy_model: SparseEncoder, texts: list[str]) -> None:
    ours = objective(toy_model, {"size": SIZE, "momentum": 0.0})
    assert ours.momentum is not None
    assert set(map(id, ours.parameters())) == set(map(id, toy_model.parameters()))  # what is trained and moved about
    copied: list[Tensor] = list(ours.momentum.model.parameters())
    assert not any(weight.requires_grad for weight in copied)
    with torch.no_grad():
        for weight in toy_model.parameters():
            weight.add_(1)
    ours.momentum.follow()  # without momentum the copy is the encoder
    for own, theirs in zip(copied, toy_model.parameters(), strict=True):
        torch.testing.assert_close(own, theirs)
