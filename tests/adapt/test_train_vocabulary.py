"""Normalized vocabularies: their training, redundancy and fragmentation."""

from __future__ import annotations

import json
import random
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.forks import Fork
from vocable.adapt.train_vocabulary import (
    ACCENTS,
    CASES,
    RARE,
    SPECIAL_TOKENS,
    count_words,
    fragmentation,
    redundancy,
    tells_apart,
    train_tokenizer,
)
from vocable.encoding.terms import without_accents
from vocable.encoding.tokens import token_surfaces
from vocable.errors import ArgumentError, DataError

SIZES = {"wordpiece": 150, "bpe": 320}
KINDS = pytest.mark.parametrize("model", SIZES)


@KINDS
def test_the_vocabulary_is_normalized_and_of_the_size_asked_for(model: str, toy_texts: list[str]) -> None:
    tokenizer = train_tokenizer(toy_texts, SIZES[model], algorithm=model)
    assert len(tokenizer) == len(tokenizer.get_vocab()) == SIZES[model]
    assert sorted(tokenizer.get_vocab().values()) == list(range(SIZES[model]))
    assert [tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS.values()] == list(range(5))
    assert all(getattr(tokenizer, role) == token for role, token in SPECIAL_TOKENS.items())
    cased, plain = tokenizer("The Naïve FOX, Ålesund"), tokenizer("the naive fox, alesund")
    assert cased["input_ids"] == plain["input_ids"]
    assert cased["input_ids"][0] == tokenizer.cls_token_id
    assert cased["input_ids"][-1] == tokenizer.sep_token_id
    assert sorted(cased) == ["attention_mask", "input_ids"]
    kinds = Counter(surface.kind for surface in token_surfaces(tokenizer) if surface is not None)
    assert kinds["special"] == 5
    assert kinds["word"] > 10
    learned = [
        found.text
        for found in token_surfaces(tokenizer)
        if found is not None and found.kind in ("word", "continuation")
    ]
    assert not [text for text in learned if len(text) > 1 and text != text.lower()]


@KINDS
def test_a_word_is_spelled_in_one_way_only(model: str, toy_texts: list[str]) -> None:
    tokenizer = train_tokenizer(toy_texts, SIZES[model], algorithm=model)
    [word] = {tuple(tokenizer.tokenize(text)) for text in ("fox", " Fox", "FOX")}
    for text in ("(fox", "the,fox", "an owl fox"):
        assert tuple(tokenizer.tokenize(text))[-len(word) :] == word


def print_tokenizers(texts: list[str]) -> None:
    made = {model: train_tokenizer(texts, size, algorithm=model) for model, size in SIZES.items()}
    print(json.dumps({model: one.backend_tokenizer.to_str() for model, one in made.items()}))


@pytest.mark.slow
def test_a_vocabulary_does_not_depend_on_the_process_or_the_order(toy_texts: list[str]) -> None:
    with Fork(print_tokenizers, toy_texts) as process:
        other = json.load(process.stdout)
    shuffled = random.Random(1).sample(toy_texts, len(toy_texts))
    for corpus in (shuffled, Counter(toy_texts), count_words(toy_texts)):
        found = {model: train_tokenizer(corpus, size, algorithm=model) for model, size in SIZES.items()}
        assert {model: tokenizer.backend_tokenizer.to_str() for model, tokenizer in found.items()} == other


def test_frequent_pairs_become_tokens() -> None:
    tokenizer = train_tokenizer(["abab xbab"] * 9 + ["zz"], 16)
    # By hand: 5 special tokens; a b x z ##a ##b ##z; then ##ab (18 times), ##bab (18), abab and xbab (9 each).
    assert sorted(tokenizer.get_vocab())[:7] == ["##a", "##ab", "##b", "##bab", "##z", "[CLS]", "[MASK]"]
    assert tokenizer.tokenize("abab") == ["abab"]
    assert tokenizer.tokenize("xbab") == ["xbab"]
    assert tokenizer.tokenize("zz") == ["z", "##z"]  # seen once: no token of its own
    assert tokenizer.tokenize("q") == ["[UNK]"]


@KINDS
def test_a_vocabulary_is_saved_as_a_stock_tokenizer(model: str, toy_texts: list[str], tmp_path: Path) -> None:
    tokenizer = train_tokenizer(toy_texts, SIZES[model], algorithm=model)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for text in toy_texts[:10]:
        assert again(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert again("a", "b")["input_ids"].count(again.sep_token_id) == 2
    assert again.mask_token == "[MASK]"


def brute_force(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> tuple[int, int, float]:
    counts = Counter(token for text in texts for token in tokenizer.tokenize(text))
    ordinary = [token for token in tokenizer.get_vocab() if token not in tokenizer.all_special_tokens]
    words = sum(len(text.split()) for text in texts)
    return words, counts.total(), float(np.mean([counts[token] < RARE for token in ordinary]))


def test_fragmentation_is_tokens_by_words(tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str]) -> None:
    made = {model: train_tokenizer(toy_texts, size, algorithm=model) for model, size in SIZES.items()}
    for name, tokenizer in (tokenizers | made).items():
        words, tokens, rare = brute_force(tokenizer, toy_texts)
        found = fragmentation(tokenizer, toy_texts)
        assert found == (len(tokenizer), words, tokens, tokens / words, pytest.approx(rare))
        assert 0 < found.rare < 1
        if name in made:  # a corpus counted before gives the same
            assert fragmentation(tokenizer, count_words(toy_texts)) == found


def test_a_larger_vocabulary_cuts_less_and_has_more_rare_tokens(toy_texts: list[str]) -> None:
    small, large = (fragmentation(train_tokenizer(toy_texts, size), toy_texts) for size in (100, 180))
    assert large.tokens_per_word < small.tokens_per_word
    assert large.rare > small.rare


@pytest.mark.parametrize("texts", [[], ["", " \n"]])
def test_a_corpus_without_text_is_refused(texts: list[str], tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    with pytest.raises(DataError):
        train_tokenizer(texts, 1000)
    with pytest.raises(DataError):
        fragmentation(tokenizers["wordpiece"], texts)


@KINDS
def test_impossible_sizes_are_refused(model: str, toy_texts: list[str]) -> None:
    with pytest.raises(DataError):
        train_tokenizer(toy_texts, 9000, algorithm=model)
    with pytest.raises(ArgumentError):
        train_tokenizer(toy_texts, 20, algorithm=model)
    with pytest.raises(ArgumentError):
        train_tokenizer(toy_texts, 100, algorithm="unigram")


def wordpiece(pieces: list[str], *, lower: bool, strip: bool) -> PreTrainedTokenizerFast:
    vocabulary = {piece: i for i, piece in enumerate([*SPECIAL_TOKENS.values(), *pieces])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=strip)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL_TOKENS)


LETTERS = [
    mark + letter for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZéñüïå" for mark in ("", "##")
]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("strip", [True, False])
def test_case_and_accents_are_seen_in_what_the_tokenizer_does(lower: bool, strip: bool) -> None:
    tokenizer = wordpiece(LETTERS, lower=lower, strip=strip)
    assert tells_apart(tokenizer, CASES) is not lower
    assert tells_apart(tokenizer, ACCENTS) is not strip


def test_byte_level_and_unigram_tokenizers_tell_cases_apart(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
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


def test_accents_are_removed_and_other_letters_kept() -> None:
    assert [without_accents(text.lower()) for text in ("Naïve", "ÅNGSTRÖM", "straße", "İ")] == [
        "naive",
        "angstrom",
        "straße",
        "i",
    ]
