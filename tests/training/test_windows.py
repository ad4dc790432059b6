from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from vocable.errors import DataError
from vocable.training.pretraining.windows import SHORTEST, Windows, write_windows

LENGTH = 20


@pytest.fixture
def tokenizer(tokenizers: dict[str, PreTrainedTokenizerFast]) -> PreTrainedTokenizerFast:
    return tokenizers["wordpiece"]


@pytest.fixture
def texts(toy_texts: list[str]) -> list[str]:
    return [*toy_texts[:7], "", " ".join(toy_texts[:6]), "fox", " \n", " ".join(toy_texts[10:30])]


def tokens(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def expected(tokenizer: PreTrainedTokenizerFast, texts: list[str], length: int) -> list[list[int]]:
    """Brute force: cut each text's tokens, put [CLS] and [SEP] around, drop short tails of longer texts."""
    windows = []
    for text in texts:
        ids = tokens(tokenizer, text)
        for start in range(0, len(ids), length - 2):
            window = [tokenizer.cls_token_id, *ids[start : start + length - 2], tokenizer.sep_token_id]
            if start == 0 or len(window) >= SHORTEST:
                windows.append(window)
    return windows


@pytest.mark.parametrize("length", [8, LENGTH, 64])
def test_every_token_is_in_its_place(
    tokenizer: PreTrainedTokenizerFast, texts: list[str], tmp_path: Path, length: int
) -> None:
    windows = write_windows(tmp_path / "tokens", iter(texts), tokenizer, length)
    found = [windows[i].tolist() for i in range(len(windows))]
    assert found == expected(tokenizer, texts, length)
    assert windows[0].dtype == np.int64
    assert max(map(len, found)) <= length
    lost = sum(len(tokens(tokenizer, text)) for text in texts) - sum(len(window) - 2 for window in found)
    assert (
        lost <= sum(1 for text in texts if len(tokens(tokenizer, text)) > length - 2) * (SHORTEST - 3)
        or length < SHORTEST
    )


def test_written_windows_are_used_as_they_are(
    tokenizer: PreTrainedTokenizerFast, texts: list[str], tmp_path: Path
) -> None:
    first = write_windows(tmp_path, texts, tokenizer, LENGTH)

    def unread() -> Iterator[str]:
        raise AssertionError("the texts were read again")
        yield ""

    as_cut = tokenizer.backend_tokenizer.truncation
    tokenizer.backend_tokenizer.no_truncation()
    again = write_windows(tmp_path, unread(), tokenizer, LENGTH)
    assert tokenizer.backend_tokenizer.truncation == as_cut  # saved with the model, whether or not a kill was between
    assert len(again) == len(first) == len(Windows(tmp_path))
    assert all(np.array_equal(again[i], first[i]) for i in range(len(first)))


def test_what_a_kill_left_is_written_anew(tokenizer: PreTrainedTokenizerFast, texts: list[str], tmp_path: Path) -> None:
    def killed() -> Iterator[str]:
        yield from texts * 300
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_windows(tmp_path, killed(), tokenizer, LENGTH)
    assert not any(tmp_path.iterdir())
    windows = write_windows(tmp_path, texts, tokenizer, LENGTH)
    assert [windows[i].tolist() for i in range(len(windows))] == expected(tokenizer, texts, LENGTH)


def test_a_corpus_larger_than_a_batch_is_cut_in_order(
    tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    texts = toy_texts * 8
    windows = write_windows(tmp_path, texts, tokenizer, 64)
    assert len(windows) == len(texts) == 2400
    assert [windows[i].tolist() for i in (0, 999, 1000, 2399)] == [
        tokenizer(texts[i])["input_ids"] for i in (0, 999, 1000, 2399)
    ]


@pytest.mark.parametrize("texts", [[], ["", "  "]])
def test_a_corpus_without_text_is_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path, texts: list[str]) -> None:
    with pytest.raises(DataError, match="no text to learn from"):
        write_windows(tmp_path, texts, tokenizer, LENGTH)
    assert not any(tmp_path.iterdir())
