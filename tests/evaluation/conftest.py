"""A toy dataset, and toy models that write words: random, and made offline in code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from vocable.data import Document, Qrel, Query
from vocable.evaluation import cost
from vocable.evaluation.cost import timed_rows
from vocable.evaluation.dataset import Dataset

POSITIONS = 160  # of the causal one; the other has no end of them
UNHEARD_OF = ["zeppelin", "quokka", "marzipan", "gazebo"]  # words that no toy text has
PADDING, END, UNKNOWN = "<pad>", "<end>", "<unknown>"


def _tokenizer(texts: list[str], *, ends: bool) -> PreTrainedTokenizerFast:
    """A token a word; one that `ends` puts the end after a text, as T5's does, and has a token for padding."""
    split = pre_tokenizers.Whitespace()
    words = {word for text in texts for word, _ in split.pre_tokenize_str(text)}
    special = {"eos_token": END, "unk_token": UNKNOWN} | ({"pad_token": PADDING} if ends else {})
    vocabulary = [*special.values(), *sorted(words), *UNHEARD_OF]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = split
    if ends:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


@pytest.fixture
def all_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many answers are timed as for users."""
    monkeypatch.setattr(cost, "timed_rows", timed_rows)


@pytest.fixture
def dataset(toy_texts: list[str]) -> Dataset:
    documents = [Document(f"d{i}", text, title="A title") for i, text in enumerate(toy_texts[:12])]
    queries = [Query(f"q{i}", text) for i, text in enumerate(toy_texts[12:15])]
    return Dataset("toy", documents, queries, [Qrel("q0", "d0", 1), Qrel("q2", "d5", 1)])


@pytest.fixture(scope="session")
def causal(tmp_path_factory: pytest.TempPathFactory, toy_texts: list[str]) -> Path:
    """The folder of a GPT-2 whose tokenizer, like the real one's, has no token for padding."""
    folder, tokenizer = tmp_path_factory.mktemp("gpt2"), _tokenizer(toy_texts, ends=False)
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": POSITIONS, "initializer_range": 0.5}
    config = GPT2Config(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0, **sizes)
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def seq2seq(tmp_path_factory: pytest.TempPathFactory, toy_texts: list[str]) -> Path:
    """The folder of a T5."""
    folder, tokenizer = tmp_path_factory.mktemp("t5"), _tokenizer(toy_texts, ends=True)
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    ids = {"eos_token_id": 0, "pad_token_id": 2, "decoder_start_token_id": 2}
    spread = {"initializer_factor": 2.0, "tie_word_embeddings": False}
    model = T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **sizes, **ids, **spread))
    with torch.no_grad():  # else it would say its first word again and again, whatever it is asked
        model.shared.weight.mul_(0.3)
        model.lm_head.weight.mul_(0.25)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
