from __future__ import annotations

import unicodedata

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from vocable.adapt.alignment import token_surfaces
from vocable.adapt.train_vocabulary import ACCENTS, CASES, redundancy, tells_apart
from vocable.encoder.terms import without_accents

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def wordpiece(pieces: list[str], *, lower: bool, strip: bool) -> PreTrainedTokenizerFast:
    vocabulary = {piece: i for i, piece in enumerate(SPECIAL + pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=strip)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


LETTERS = [
    mark + letter for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZéñüïå" for mark in ("", "##")
]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("strip", [True, False])
def test_case_and_accents_are_seen_in_what_the_tokenizer_does(lower: bool, strip: bool) -> None:
    tokenizer = wordpiece(LETTERS, lower=lower, strip=strip)
    assert tells_apart(tokenizer, CASES) is not lower
    assert tells_apart(tokenizer, ACCENTS) is not strip


def test_the_families(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    assert {family: tells_apart(tokenizer, CASES) for family, tokenizer in tokenizers.items()} == {
        "wordpiece": False,
        "byte-level": True,
        "unigram": True,
    }


def test_forms_that_repeat_are_counted_by_hand() -> None:
    # fox, Fox and ##fox are one form; café and cafe another; the comma and the special tokens stand alone.
    tokenizer = wordpiece(["fox", "Fox", "##fox", "café", "cafe", "dog", ","], lower=False, strip=False)
    assert redundancy(tokenizer) == pytest.approx(3 / 7)


@pytest.mark.parametrize("family", ["wordpiece", "byte-level", "unigram"])
def test_redundancy_as_by_brute_force(tokenizers: dict[str, PreTrainedTokenizerFast], family: str) -> None:
    def form(text: str) -> str:
        return "".join(c for c in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(c))

    kept = [
        s.text for s in token_surfaces(tokenizers[family]) if s and s.kind in ("word", "continuation", "punctuation")
    ]
    repeated = sum(any(form(kept[j]) == form(text) for j in range(i)) for i, text in enumerate(kept))
    assert redundancy(tokenizers[family]) == pytest.approx(repeated / len(kept), abs=0.01)  # NFKD folds ² and ª, too


def test_a_vocabulary_without_words_repeats_nothing() -> None:
    assert redundancy(wordpiece([], lower=False, strip=False)) == 0


def test_folding() -> None:
    assert [without_accents(text.lower()) for text in ("Naïve", "ÅNGSTRÖM", "straße", "İ")] == [
        "naive",
        "angstrom",
        "straße",
        "i",
    ]
