"""Models and texts of several tests of the adaptations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM


@pytest.fixture
def untied(tokenizers: dict[str, Any]) -> BertForMaskedLM:
    """A BERT for the word-piece tokenizer whose decoder is not its input embeddings."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizers["wordpiece"]), hidden_size=16, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=16, tie_word_embeddings=False,
    )  # fmt: skip
    return BertForMaskedLM(config).eval()


@pytest.fixture(scope="session")
def texts(toy_texts: list[str]) -> list[str]:
    """64 different texts of at least 8 words: two batches."""
    return [text for text in dict.fromkeys(toy_texts) if len(text.split()) >= 8][:64]
