from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from vocable.training.pretraining.mlm import MaskedWindows, Masker, collate
from vocable.training.pretraining.windows import IGNORED, Windows, write_windows
from vocable.training.settings import PretrainSettings


@pytest.fixture
def tokenizer(tokenizers: dict[str, PreTrainedTokenizerFast]) -> PreTrainedTokenizerFast:
    return tokenizers["wordpiece"]


def schedule_of(tokenizer: PreTrainedTokenizerFast, windows: Windows, draws: int, seed: int = 0) -> MaskedWindows:
    masker = Masker(tokenizer, PretrainSettings(texts=["-"], steps=1), len(tokenizer))
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
    masker = Masker(tokenizer, settings, len(tokenizer), new)
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
