"""The checkpoint that counts is the newest that was on disk, with all its files, when it was marked."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SparseEncoder
from torch import Tensor
from transformers import TrainerControl, TrainerState

from vocable.torch_models.cpu import float32_attention
from vocable.training import callbacks
from vocable.training.callbacks import COMPLETE, last_checkpoint, set_dropout


def checkpoint(folder: Path, step: int, *, marked: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "trainer_state.json").write_text("{}", encoding="utf-8")
    if marked:
        (path / COMPLETE).touch()
    return path


def test_the_highest_step_wins_not_the_highest_name(tmp_path: Path) -> None:
    checkpoint(tmp_path, 800)
    newest = checkpoint(tmp_path, 1000)
    checkpoint(tmp_path, 900)
    assert last_checkpoint(tmp_path) == str(newest)


def test_half_a_checkpoint_does_not_count(tmp_path: Path) -> None:
    whole = checkpoint(tmp_path, 2)
    checkpoint(tmp_path, 4, marked=False)
    assert last_checkpoint(tmp_path) == str(whole)


def test_without_a_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path / "missing") is None
    (tmp_path / "checkpoint-of-mine").mkdir()
    assert last_checkpoint(tmp_path) is None


def test_a_resumed_training_tells_its_loss_from_the_first_step_on_and_its_own_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that was killed after its sixth step goes on from the checkpoint of its fourth."""
    path, advanced, begun = tmp_path / "log.jsonl", list[tuple[int, dict[str, Any]]](), list[Any]()
    lines = [{"step": step, "loss": 2.0 - step / 10} for step in (1, 2, 4, 6)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    @contextmanager
    def shown(*given: object, **options: object) -> Iterator[Callable[..., None]]:
        begun.append((given, options))
        yield lambda done, **more: advanced.append((done, more))

    monkeypatch.setattr(callbacks, "progress", shown)
    state, control = TrainerState(global_step=4, max_steps=8), TrainerControl()
    log = callbacks.ProgressLog("train", path, lambda: {"query_terms": 46.4, "document_terms": 81.2})
    arguments: Any = None
    log.on_train_begin(arguments, state, control)
    assert begun == [(("train", 8), {"begun": 4})]
    state.global_step, state.max_steps = 5, 7  # the steps are fewer on a slow machine
    log.on_step_end(arguments, state, control)
    log.on_log(arguments, state, control, {"loss": 1.0125, "grad_norm": 9.0, "epoch": 0.5})
    log.on_log(arguments, state, control, {"nDCG@10": 0.4})
    assert advanced[0] == (1, {"total": 7})
    text = "loss 1.90 → 1.01, 46 terms a query, 81 a document, as usual"
    assert [more["more"] for _, more in advanced[1:]] == [text, f"{text}, nDCG@10 0.400"]
    kept = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in kept] == [1, 2, 4, 5, 5]
    assert kept[3] == {"step": 5, "loss": 1.0125, "grad_norm": 9.0, "query_terms": 46.4, "document_terms": 81.2}
    with caplog.at_level(logging.INFO):
        log.on_train_end(arguments, state, control)
    assert re.fullmatch(rf"train: 5 steps, 0\.\d minutes: {text} █▇▆▁", caplog.messages[0])


def gradient(model: SparseEncoder, texts: list[str], *, half: bool) -> Tensor:
    """Of a fixed sum of the last states, without the maxima of pooling, whose places change with little."""
    model.zero_grad()
    batch = {key: value for key, value in model.preprocess(texts).items() if key in {"input_ids", "attention_mask"}}
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        states = model[0].auto_model.base_model(**batch).last_hidden_state.float()
    factors = torch.randn(states.shape, generator=torch.Generator().manual_seed(0))
    (states * factors * batch["attention_mask"][:, :, None]).sum().backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


def test_gradients_in_bfloat16_are_as_near_to_float32_as_the_stock_ones(backbone: Path, toy_texts: list[str]) -> None:
    model, texts = SparseEncoder(str(backbone), device="cpu").train(), toy_texts[:12]  # of unlike lengths
    set_dropout(model, 0.0)
    exact, stock = (gradient(model, texts, half=half) for half in (False, True))
    with float32_attention(model[0].auto_model):
        assert torch.equal(gradient(model, texts, half=False), exact)
        error = (found := gradient(model, texts, half=True)) - exact
    fused = SparseEncoder(str(backbone), device="cpu")[0].auto_model.config._attn_implementation == "sdpa"
    assert torch.equal(found, stock) != fused
    assert error.norm() <= 1.1 * (stock - exact).norm()
    assert error.norm() < 0.03 * exact.norm()


def test_vectors_are_the_same_with_gradients_and_without(toy_model: SparseEncoder, toy_texts: list[str]) -> None:
    """Gradient caching goes forward twice."""
    set_dropout(toy_model.train(), 0.0)
    batch = toy_model.preprocess(toy_texts[:12])
    with float32_attention(toy_model[0].auto_model), torch.autocast("cpu", torch.bfloat16):
        learning = toy_model(dict(batch))["sentence_embedding"]
        with torch.no_grad():
            assert torch.equal(toy_model(dict(batch))["sentence_embedding"], learning)


def test_only_fused_attention_is_replaced_and_only_for_a_while(toy_model: SparseEncoder, tmp_path: Path) -> None:
    transformer, texts = toy_model[0].auto_model, ["a text", "another one, longer"]
    vectors = toy_model.encode(texts).to_dense()
    transformer.set_attn_implementation("eager")
    with float32_attention(transformer):
        assert transformer.config._attn_implementation == "eager"
    transformer.set_attn_implementation("sdpa")
    with float32_attention(transformer):
        assert torch.equal(toy_model.encode(texts).to_dense(), vectors)
        toy_model.save_pretrained(str(tmp_path / "saved"))
    assert transformer.config._attn_implementation == "sdpa"
    assert "sdpa" not in (tmp_path / "saved" / "config.json").read_text()
