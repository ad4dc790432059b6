"""Which output terms stand in a text, and how often, for tokens and for words of a model's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from vocable.encoder.fuse import fuse
from vocable.encoder.output_vocabulary import OutputVocabulary, give_output_vocabulary
from vocable.encoder.terms import input_terms, special_terms, term_places, terms, without_accents
from vocable.errors import ArgumentError

WORDS = ["the", "The", "naive", "u.s.", ".", "Ġowl", "fox", "言葉", "##ing", "night"]


def with_words(folder: Path, words: list[str]) -> SparseEncoder:
    model = SparseEncoder(str(folder), device="cpu")
    mlm = model[0].auto_model
    give_output_vocabulary(mlm, OutputVocabulary(words, torch.zeros(len(words), mlm.config.hidden_size), None))
    return fuse(model).eval()


def named(model: SparseEncoder, text: str, **options: str) -> dict[str, float]:
    counts, names = input_terms(model, [text], **options), terms(model)  # type: ignore[arg-type]
    return {names[column]: count for column, count in zip(counts.indices, counts.data, strict=True)}


def test_tokens_are_counted_as_the_tokenizer_cuts_the_text(backbone: Path, toy_texts: list[str]) -> None:
    model = fuse(SparseEncoder(str(backbone), device="cpu")).eval()
    tokenizer = model[0].tokenizer
    texts = [*toy_texts[:5], "", "fox " * 200 + "compiler"]  # the last is far longer than the model reads
    counts = input_terms(model, texts)
    assert counts.shape == (len(texts), len(terms(model)))
    assert (counts.dtype, counts.indices.dtype) == (np.float32, np.int32)
    assert counts.has_canonical_format
    for row, text in enumerate(texts):
        backend: Tokenizer = tokenizer.backend_tokenizer
        expected = Counter(backend.encode(text, add_special_tokens=False).ids)
        found = counts[[row]]
        assert dict(zip(found.indices.tolist(), found.data.tolist(), strict=True)) == expected


def test_places_of_terms_are_those_that_count(backbone: Path, toy_texts: list[str]) -> None:
    model = fuse(SparseEncoder(str(backbone), device="cpu")).eval()
    text = f"{toy_texts[0]}  Ångström's {toy_texts[1]}\n言葉 the end"
    places, counted = term_places(model, text), named(model, text)
    special = {*model[0].tokenizer.all_special_tokens, "Ġ", "Ċ", "▁"}  # and white space
    assert Counter(place.text for place in places) == {term: n for term, n in counted.items() if term not in special}
    assert [place.start for place in places] == sorted(place.start for place in places)
    for term, start, end in places:
        assert text[start:end].strip() == text[start:end] != ""
        bare = term.removeprefix("##").lstrip("Ġ▁")
        if bare.isascii() and bare.isalpha():
            assert bare.lower() in without_accents(text[start:end]).lower()


def test_places_of_words_are_their_characters(backbones: dict[str, Path]) -> None:
    model, text = with_words(backbones["bert"], WORDS), "The NAÏVE fox. U.S. night"
    found = [(term, text[start:end]) for term, start, end in term_places(model, text)]
    assert Counter(term for term, _ in found) == named(model, text)
    assert {*found} >= {
        ("The", "The"),
        ("naive", "NAÏVE"),
        ("fox", "fox"),
        (".", "."),
        ("u.s.", "U.S."),
        ("night", "night"),
    }


def test_special_tokens_never_count_and_unknown_ones_do(
    toy_model: SparseEncoder, tokenizers: dict[str, PreTrainedTokenizerFast]
) -> None:
    tokenizer = tokenizers["wordpiece"]
    assert tokenizer.tokenize("[CLS] fox [SEP] 言 fox 葉") == ["[CLS]", "fox", "[SEP]", "[UNK]", "fox", "[UNK]"]
    assert named(toy_model, "[CLS] fox [SEP] 言 fox 葉") == {"fox": 2, "[UNK]": 2}
    names = terms(toy_model)
    assert [names[column] for column in special_terms(toy_model)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_columns_that_no_token_has_are_no_terms_of_a_text(backbones: dict[str, Path]) -> None:
    model = fuse(SparseEncoder(str(backbones["modernbert"]), device="cpu")).eval()
    counts = input_terms(model, ["The old fox"])
    assert counts.shape[1] > len(model[0].tokenizer)
    assert counts.indices.max() < len(model[0].tokenizer)


def test_words_are_counted_in_any_spelling(backbones: dict[str, Path]) -> None:
    model = with_words(backbones["bert"], WORDS)
    text = "The naïve Owl, U.S. the fox FOX. 言葉"
    # The full stops are the two of U.S. and that after FOX; "The" is both "the" and "The".
    assert named(model, text) == {"the": 2, "The": 1, "naive": 1, "u.s.": 1, ".": 3, "Ġowl": 1, "fox": 2, "言葉": 1}
    assert input_terms(model, ["", "no one"]).nnz == 0
    assert len(special_terms(model)) == 0


def test_words_are_counted_as_a_splitter_finds_them(backbones: dict[str, Path]) -> None:
    words = ["fox", "u.s.", "naïve", "Night"]
    model = with_words(backbones["bert"], words)  # its tokenizer lower-cases and keeps accents
    text = "Fox, fox U.S. naive naïve night"
    assert named(model, text, words="words") == {"fox": 2, "naïve": 1, "Night": 1}
    assert named(model, text, words="whitespace") == {"fox": 1, "u.s.": 1, "naïve": 1, "Night": 1}


def test_texts_are_counted_in_batches(
    toy_model: SparseEncoder, toy_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = input_terms(toy_model, toy_texts[:10])
    monkeypatch.setattr("vocable.encoder.terms.BATCH", 4)
    parts = input_terms(toy_model, toy_texts[:10])
    assert (parts != whole).nnz == 0
    assert input_terms(toy_model, []).shape == (0, whole.shape[1])


def test_no_such_words(toy_model: SparseEncoder) -> None:
    with pytest.raises(ArgumentError, match="words must be one of any, words, whitespace, not 'all'"):
        input_terms(toy_model, ["fox"], words="all")  # type: ignore[arg-type]
