"""Surfaces of tokens, and the marks of the families of tokenizers; `tests/adapt/test_alignment.py` compares them."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from vocable.encoding.tokens import CONTINUATION_MARKS, FAMILIES, WORD_MARKS, TokenizerFamily, token_surfaces
from vocable.errors import ModelError


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_mark_says_whether_a_token_begins_a_word(family: TokenizerFamily) -> None:
    model = {"continuing_subword_prefix": "##"}
    assert family.read(f"{family.word_mark}play", model) == ("play", True, "word")
    assert family.read(f"{family.continuation_mark}ing", model) == ("ing", False, "continuation")
    assert family.marks_continuations == (not family.word_mark)


def test_the_marks_of_all_families() -> None:
    assert WORD_MARKS == ("Ġ", "▁")
    assert CONTINUATION_MARKS == ("##",)


def test_a_tokenizer_that_does_not_mark_words_is_refused() -> None:
    bare = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")))
    with pytest.raises(ModelError):
        token_surfaces(bare)
