from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForMaskedLM, PreTrainedTokenizerFast

from tests.by_parts import expand
from vocable.adapt.expand_vocabulary import frequent_words
from vocable.encoder.fuse import without_logits
from vocable.encoder.output_vocabulary import output_vocabulary
from vocable.encoder.terms import splitter
from vocable.training import micro_batches
from vocable.training.pretraining.mlm import MASKS, PARTS, HeldOut, Masker, split
from vocable.training.pretraining.windows import IGNORED, Part, WordAlignment, whole_words, write_windows
from vocable.training.settings import PretrainSettings


@given(windows=st.integers(1, 500), asked=st.integers(0, 100), seed=st.integers(0, 5))
def test_every_window_is_learned_from_or_kept_apart(windows: int, asked: int, seed: int) -> None:
    learned, kept = split(windows, asked, seed)
    assert sorted([*learned, *kept]) == list(range(windows))
    assert len(kept) == min(asked, windows // 10)
    again = split(windows, asked, seed)
    assert np.array_equal(again[0], learned)
    assert np.array_equal(again[1], kept)


def test_another_seed_keeps_other_windows_apart() -> None:
    assert not np.array_equal(split(500, 50, 0)[1], split(500, 50, 1)[1])


@pytest.mark.parametrize("at_once", [2048, 60])  # tokens: whole batches, or parts of them in threads
@pytest.mark.parametrize(
    ("architecture", "family"), [("bert", "wordpiece"), ("roberta", "byte-level"), ("albert", "unigram")]
)
def test_guesses_are_those_of_the_stock_model_text_by_text(
    backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], architecture: str, family: str,
    toy_texts: list[str], tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name in ("TOGETHER", "LEAST"):
        monkeypatch.setattr(micro_batches, name, at_once)
    tokenizer, mlm = tokenizers[family], AutoModelForMaskedLM.from_pretrained(backbones[architecture]).train()
    windows, rows = write_windows(tmp_path, toy_texts, tokenizer, 32), np.arange(0, 120, 3)
    new = np.arange(mlm.config.vocab_size) % 3 == 0
    settings = PretrainSettings(texts=["-"], steps=1, masking="overlap-aware")
    masker = Masker(tokenizer, settings, mlm.config.vocab_size, new)
    padding = tokenizer.pad_token_id
    with without_logits(mlm) as decoder:
        found = HeldOut(windows, rows, masker, new=new, padding=padding, seed=3, dtype="float32").guess(mlm, decoder)
        whole = HeldOut(windows, rows, masker, new=None, padding=padding, seed=3, dtype="float32").guess(mlm, decoder)
        assert mlm.training
        assert (
            HeldOut(windows, rows[:0], masker, new=new, padding=padding, seed=3, dtype="float32").guess(mlm, decoder)
            == {}
        )
    losses: dict[str, list[float]] = {"shared": [], "new": []}
    right: dict[str, list[bool]] = {"shared": [], "new": []}
    mlm.eval()
    for i, row in enumerate(rows):
        text = masker.uniform(windows[int(row)], np.random.default_rng((3, 0, i, MASKS)))
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
    places = WordAlignment(words, tokenizer, splitter(tokenizer))
    windows, rows = write_windows(tmp_path, toy_texts, tokenizer, 32, places), np.arange(0, 120, 3)
    settings = PretrainSettings(texts=["-"], steps=1, masking="whole-word")
    masker = Masker(tokenizer, settings, mlm.config.vocab_size)
    held_out = HeldOut(windows, rows, masker, new=None, padding=tokenizer.pad_token_id, seed=3, dtype="float32")
    with without_logits(mlm) as decoder:
        assert decoder is layer
        found = held_out.guess(mlm, decoder)
    sets: dict[str, tuple[Part, int]] = {
        "all": ("all", MASKS), "first sub-word": ("first", PARTS), "later sub-words": ("later", PARTS),
    }  # fmt: skip
    common = {"rate": 0.15, "mask_id": tokenizer.mask_token_id, "size": mlm.config.vocab_size}
    for name, (part, stream) in sets.items():
        losses, right = [], []
        for i, row in enumerate(rows):
            of_words = windows.words(int(row))
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
