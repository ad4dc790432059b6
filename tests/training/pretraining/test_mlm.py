""""""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedTokenizerFast

from tests.by_parts import expand
from vocable.adapt.expand_vocabulary import frequent_words
from vocable.adapt.stages import PretrainSettings
from vocable.encoding.terms import splitter
from vocable.torch_models.fuse import without_logits
from vocable.torch_models.output_vocabulary import output_vocabulary
from vocable.training import micro_batches
from vocable.training.pretraining import mlm as cross_entropy
from vocable.training.pretraining.masking import IGNORED, WordPart, whole_words
from vocable.training.pretraining.mlm import (
    MASK_STREAM,
    PART_STREAM,
    HeldOut,
    MaskedWindows,
    MaskingTask,
    collate,
    mean_cross_entropy,
    split_windows,
    token_losses,
)
from vocable.training.pretraining.windows import Windows, WordFinder, write_windows


def schedule_of(tokenizer: PreTrainedTokenizerFast, windows: Windows, draws: int, seed: int = 0) -> MaskedWindows:
    masker = MaskingTask(tokenizer, PretrainSettings(texts=["-"], steps=1), len(tokenizer), None)
    return MaskedWindows(windows, np.arange(len(windows)), masker, draws, seed)


def test_batches_are_padded_on_the_right(
    tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    schedule = schedule_of(tokenizer, write_windows(tmp_path, toy_texts, tokenizer, 24), 4)
    items = [schedule[i] for i in range(4)]
    batch = collate(items, tokenizer.pad_token_id)
    for row, item in enumerate(items):
        s = len(item.input_ids)
        assert (
            batch["input_ids"][row].tolist()
            == [*item.input_ids, *[tokenizer.pad_token_id] * (24 - s)][: batch["input_ids"].shape[1]]
        )
        assert batch["labels"][row, :s].tolist() == item.labels.tolist()
        assert (batch["labels"][row, s:] == IGNORED).all()
        assert batch["attention_mask"][row].sum() == s


def test_the_schedule_shows_every_window_once_an_epoch_under_new_masks(
    tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    texts = [f"{text} {i}" for i, text in enumerate(toy_texts[:20])]
    windows = write_windows(tmp_path, texts, tokenizer, 64)
    schedule = schedule_of(tokenizer, windows, 40)
    assert len(schedule) == 40

    def original(index: int) -> tuple[int, ...]:
        item = schedule[index]
        return tuple(np.where(item.labels == IGNORED, item.input_ids, item.labels))

    epochs = [[original(index) for index in range(start, start + 20)] for start in (0, 20)]
    everything = sorted(tuple(windows[i]) for i in range(20))
    assert sorted(epochs[0]) == sorted(epochs[1]) == everything
    assert epochs[0] != epochs[1]
    masks = [{original(i): tuple(schedule[i].labels) for i in range(start, start + 20)} for start in (0, 20)]
    assert masks[0] != masks[1]
    again = schedule_of(tokenizer, windows, 40)
    assert all(np.array_equal(again[i].input_ids, schedule[i].input_ids) for i in (39, 3, 20))
    other = schedule_of(tokenizer, windows, 40, seed=1)
    assert [other[i].input_ids.tolist() for i in range(20)] != [schedule[i].input_ids.tolist() for i in range(20)]
    special = set(tokenizer.all_special_ids)
    assert not special & {int(label) for i in range(40) for label in schedule[i].labels if label != IGNORED}


def test_new_tokens_are_masked_more_often_if_so_asked(
    tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    windows = write_windows(tmp_path, [" ".join(toy_texts[:60])] * 40, tokenizer, 64)
    new = np.arange(len(tokenizer)) % 2 == 0
    settings = PretrainSettings(texts=["-"], steps=1, masking="overlap-aware", new_token_weight=3.0)
    masker = MaskingTask(tokenizer, settings, len(tokenizer), new)
    found = {True: np.zeros(2), False: np.zeros(2)}
    for i in range(len(windows)):
        ordinary = ~np.isin(windows[i], tokenizer.all_special_ids)
        chosen = masker(windows[i], np.random.default_rng(i)).labels != IGNORED
        for kind, counts in found.items():
            members = ordinary & (new[windows[i]] == kind)
            counts += chosen[members].sum(), members.sum()
    (new_chosen, of_new), (shared_chosen, of_shared) = found[True], found[False]
    assert (new_chosen + shared_chosen) / (of_new + of_shared) == pytest.approx(0.3, abs=0.02)
    assert new_chosen / of_new == pytest.approx(3 * shared_chosen / of_shared, rel=0.1)


@given(windows=st.integers(1, 500), asked=st.integers(0, 100), seed=st.integers(0, 5))
def test_every_window_is_learned_from_or_kept_apart(windows: int, asked: int, seed: int) -> None:
    learned, kept = split_windows(windows, asked, seed)
    assert sorted([*learned, *kept]) == list(range(windows))
    assert len(kept) == min(asked, windows // 10)
    again = split_windows(windows, asked, seed)
    assert np.array_equal(again[0], learned)
    assert np.array_equal(again[1], kept)


def test_another_seed_keeps_other_windows_apart() -> None:
    assert not np.array_equal(split_windows(500, 50, 0)[1], split_windows(500, 50, 1)[1])


@pytest.mark.parametrize("at_once", [2048, 60])  # tokens: whole batches, or parts of them in threads
@pytest.mark.parametrize(
    ("architecture", "family"), [("bert", "wordpiece"), ("roberta", "byte-level"), ("albert", "unigram")]
)
def test_guesses_are_those_of_the_stock_model_text_by_text(
    backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], architecture: str, family: str,
    toy_texts: list[str], tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name in ("PART_TOKENS", "MIN_PART_TOKENS"):
        monkeypatch.setattr(micro_batches, name, at_once)
    tokenizer, mlm = tokenizers[family], AutoModelForMaskedLM.from_pretrained(backbones[architecture]).train()
    windows, rows = write_windows(tmp_path, toy_texts, tokenizer, 32), np.arange(0, 120, 3)
    new = np.arange(mlm.config.vocab_size) % 3 == 0
    settings = PretrainSettings(texts=["-"], steps=1, masking="overlap-aware")
    masker = MaskingTask(tokenizer, settings, mlm.config.vocab_size, new)
    padding = tokenizer.pad_token_id
    with without_logits(mlm) as decoder:
        found = HeldOut(windows, rows, masker, padding=padding, seed=3, dtype="float32").evaluate(mlm, decoder)
        plain = MaskingTask(tokenizer, settings, mlm.config.vocab_size, None)
        whole = HeldOut(windows, rows, plain, padding=padding, seed=3, dtype="float32").evaluate(mlm, decoder)
        assert mlm.training
        assert HeldOut(windows, rows[:0], masker, padding=padding, seed=3, dtype="float32").evaluate(mlm, decoder) == {}
    losses: dict[str, list[float]] = {"shared": [], "new": []}
    right: dict[str, list[bool]] = {"shared": [], "new": []}
    mlm.eval()
    for i, row in enumerate(rows):
        text = masker.uniform(windows[int(row)], np.random.default_rng((3, 0, i, MASK_STREAM)))
        with torch.no_grad():
            logits = mlm(input_ids=torch.tensor(text.input_ids[None])).logits[0].double().log_softmax(dim=1)
        for place in np.flatnonzero(text.labels != IGNORED):
            group, label = "new" if new[text.labels[place]] else "shared", text.labels[place]
            losses[group].append(-float(logits[place, label]))
            right[group].append(int(logits[place].argmax()) == label)
    for group, guesses in found.items():
        assert guesses.tokens == len(losses[group]) > 20
        assert guesses.loss == pytest.approx(np.mean(losses[group]), rel=1e-4)
        assert guesses.accuracy == pytest.approx(np.mean(right[group]))
    assert whole["all"].tokens == sum(map(len, losses.values()))
    assert whole["all"].loss == pytest.approx(np.mean(losses["shared"] + losses["new"]), rel=1e-4)


@pytest.mark.parametrize(
    ("architecture", "family"), [("bert", "wordpiece"), ("roberta", "byte-level"), ("albert", "unigram")]
)
def test_words_are_guessed_whole_by_their_beginning_and_by_what_follows(
    backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], architecture: str, family: str,
    toy_texts: list[str], tmp_path: Path,
) -> None:  # fmt: skip
    tokenizer = tokenizers[family]
    words = frequent_words(toy_texts, tokenizer, size=60).words
    mlm = expand(AutoModelForMaskedLM.from_pretrained(backbones[architecture]), tokenizer, words)
    layer = output_vocabulary(mlm)
    assert layer is not None
    finder = WordFinder(words, tokenizer, splitter(tokenizer))
    windows, rows = write_windows(tmp_path, toy_texts, tokenizer, 32, finder), np.arange(0, 120, 3)
    settings = PretrainSettings(texts=["-"], steps=1, masking="whole-word")
    masker = MaskingTask(tokenizer, settings, mlm.config.vocab_size, None)
    held_out = HeldOut(windows, rows, masker, padding=tokenizer.pad_token_id, seed=3, dtype="float32")
    with without_logits(mlm) as decoder:
        assert decoder is layer
        found = held_out.evaluate(mlm, decoder)
    sets: dict[str, tuple[WordPart, int]] = {
        "all": ("all", MASK_STREAM),
        "first sub-word": ("first", PART_STREAM), "later sub-words": ("later", PART_STREAM),
    }  # fmt: skip
    common = {"rate": 0.15, "mask_id": tokenizer.mask_token_id, "size": mlm.config.vocab_size}
    for name, (part, stream) in sets.items():
        losses, right = [], []
        for i, row in enumerate(rows):
            of_words = windows.labels(int(row))
            assert of_words is not None
            rng = np.random.default_rng((3, 0, i, stream))
            text = whole_words(windows[int(row)], of_words, rng, part=part, **common)
            with torch.no_grad():
                logits = mlm(input_ids=torch.tensor(text.input_ids[None])).logits[0].double().log_softmax(dim=1)
            for place in np.flatnonzero(text.labels != IGNORED):
                losses.append(-float(logits[place, text.labels[place]]))
                right.append(int(logits[place].argmax()) == text.labels[place])
        assert found[name].tokens == len(losses) > 10
        assert found[name].loss == pytest.approx(np.mean(losses), rel=1e-4)
        assert found[name].accuracy == pytest.approx(np.mean(right))


def inputs(m: int, d: int, v: int, *, bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    torch.manual_seed(m)
    drawn = torch.randn(m, d), torch.randn(v, d), torch.randn(v) if bias else None
    return *drawn, torch.randint(v, (m,))


@pytest.mark.parametrize("margin", [0.0, 0.4, 3.0])
def test_a_margin_is_subtracted_from_the_logit_of_the_label(margin: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vocable.training.pretraining.mlm.BLOCK_LOGITS", 40)  # several blocks
    draw = torch.Generator().manual_seed(0)
    parts = [torch.randn(*shape, generator=draw).requires_grad_() for shape in ((7, 5), (11, 5), (11,))]
    labels = torch.randint(11, (7,), generator=draw)
    mean_cross_entropy(*parts, labels, margin).backward()
    found = [part.grad.clone() for part in parts]
    for part in parts:
        part.grad = None
    states, weight, bias = parts
    shifted = states @ weight.T + bias - margin * torch.nn.functional.one_hot(labels, 11)
    loss = torch.nn.functional.cross_entropy(shifted, labels)
    torch.testing.assert_close(mean_cross_entropy(*parts, labels, margin), loss)
    loss.backward()
    for gradient, part in zip(found, parts, strict=True):
        torch.testing.assert_close(gradient, part.grad)


@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize("bias", [False, True])
def test_loss_and_gradients_are_those_of_all_logits_at_once(
    monkeypatch: pytest.MonkeyPatch, rows: int, bias: bool
) -> None:
    states, weight, offset, labels = inputs(10, 6, 17, bias=bias)
    monkeypatch.setattr(cross_entropy, "BLOCK_LOGITS", rows * 17)
    given = [part.requires_grad_() for part in (states, weight, offset) if part is not None]
    expected = nn.functional.cross_entropy(nn.functional.linear(states, weight, offset), labels)
    gradients = torch.autograd.grad(3 * expected, given)
    found = mean_cross_entropy(states, weight, offset, labels)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(torch.autograd.grad(3 * found, given), gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_in_bfloat16_gradients_come_in_the_types_of_their_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "BLOCK_LOGITS", 4 * 17)
    states, weight, offset, labels = inputs(10, 6, 17, bias=True)
    layer = [part.requires_grad_() for part in (states, weight, offset) if part is not None]
    with torch.autocast("cpu", torch.bfloat16):
        found = mean_cross_entropy(states, weight, offset, labels)
        expected = nn.functional.cross_entropy(nn.functional.linear(states, weight, offset).float(), labels)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    gradients = torch.autograd.grad(found, layer)
    assert (gradients[1] != gradients[1].bfloat16()).any()  # a sum over blocks, not rounded afterwards
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, layer), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=0.03, atol=0.01)


def test_what_is_held_is_a_block_and_not_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []
    linear = nn.functional.linear

    def seen(*given: Tensor) -> Tensor:
        made = linear(*given)
        shapes.append(tuple(made.shape))
        return made

    monkeypatch.setattr(cross_entropy, "BLOCK_LOGITS", 4000)
    monkeypatch.setattr(nn.functional, "linear", seen)
    states, weight, offset, labels = inputs(50, 2, 1000, bias=True)
    mean_cross_entropy(states.requires_grad_(), weight, offset, labels)
    assert shapes == [(4, 1000)] * 12 + [(2, 1000)]


def test_losses_and_largest_logits_token_by_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "BLOCK_LOGITS", 3 * 17)
    states, weight, offset, labels = inputs(10, 6, 17, bias=True)
    logits = nn.functional.linear(states, weight, offset)
    labels[:5] = logits[:5].argmax(dim=1)
    losses, right = token_losses(states, weight, offset, labels)
    torch.testing.assert_close(losses, nn.functional.cross_entropy(logits, labels, reduction="none"))
    assert torch.equal(right, logits.argmax(dim=1) == labels)
    assert right[:5].all()
