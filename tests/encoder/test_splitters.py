from __future__ import annotations

from itertools import pairwise

import pytest
from tokenizers import Tokenizer, models, normalizers
from transformers import PreTrainedTokenizerFast

from vocable.encoder.terms import Word, normal_form, splitter
from vocable.errors import ArgumentError

TEXT = "The Fox's naïve हिन्दी।  x_1 re\u0301sume 中国"


@pytest.mark.parametrize("family", ["wordpiece", "byte-level", "unigram"])
@pytest.mark.parametrize("name", ["words", "whitespace"])
def test_words_stand_where_they_say(tokenizers: dict[str, PreTrainedTokenizerFast], family: str, name: str) -> None:
    tokenizer = tokenizers[family]
    found = list(splitter(tokenizer, name)(TEXT))
    normalize = normal_form(tokenizer)
    assert all(word.text == normalize(TEXT[word.start : word.end]).strip() for word in found)
    assert all(before.end <= after.start for before, after in pairwise(found))
    joined = "".join(TEXT[word.start : word.end] for word in found)
    kept = [character for character in TEXT if not character.isspace()]
    assert joined == "".join(kept if name == "whitespace" else [c for c in kept if c not in "'।"])


def test_normalization_is_the_tokenizer_s(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    assert [word.text for word in splitter(tokenizers["wordpiece"])("The FOX, 中国")] == ["the", "fox", "中", "国"]
    assert [word.text for word in splitter(tokenizers["byte-level"])("The FOX, 中国")] == ["The", "FOX", "中国"]
    assert list(splitter(tokenizers["unigram"])("ﬁne")) == [Word("fine", 0, 3)]
    assert list(splitter(tokenizers["wordpiece"], "whitespace")("U.S. don't")) == [
        Word("u.s.", 0, 4),
        Word("don't", 5, 10),
    ]
    assert list(splitter(tokenizers["unigram"])("")) == []


def test_a_space_that_a_normalizer_spells_out_is_one() -> None:
    backend = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    for name in ("words", "whitespace"):
        assert [(word.text, word.start, word.end) for word in splitter(tokenizer, name)("the fox")] == [
            ("the", 0, 3),
            ("fox", 4, 7),
        ]


def test_an_unknown_splitter_is_refused(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    with pytest.raises(ArgumentError, match=r"^splitter must be one of words, whitespace, not 'os:system'$"):
        splitter(tokenizers["wordpiece"], "os:system")
