"""Lower-cased input: the same tokens as of lower-cased text, also after loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, BertTokenizer

from vocable.adapt.lowercase import lowercased


@pytest.mark.parametrize("family", ["wordpiece", "byte-level", "unigram"])
def test_case_makes_no_difference_and_lower_case_is_as_before(
    tokenizers: dict[str, Any], family: str, tmp_path: Path
) -> None:
    tokenizer = tokenizers[family]
    lowercased(tokenizer).save_pretrained(tmp_path)
    lowered = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("The OLD fox reads Books", "an owl in Ålesund", "see chapter 7"):
        expected = tokenizer(text.lower())["input_ids"]
        assert lowered(text)["input_ids"] == lowered(text.upper())["input_ids"] == expected
    assert lowered.get_vocab() == tokenizer.get_vocab()


def test_the_tokenizer_itself_is_left_alone(tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers["byte-level"]
    before = tokenizer("The Fox")["input_ids"]
    lowercased(tokenizer)
    assert tokenizer("The Fox")["input_ids"] == before != tokenizer("the fox")["input_ids"]


def test_a_cased_bert_tokenizer_stays_lowered_when_it_is_loaded(tmp_path: Path) -> None:
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Fox", "fox"])}
    lowercased(BertTokenizer(vocab=vocabulary, do_lower_case=False)).save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).tokenize("Fox fox FOX") == ["fox"] * 3
