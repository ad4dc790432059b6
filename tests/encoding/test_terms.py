"""Terms of a model: names, splitters, the terms of a text, and expansions."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder
from tokenizers import Tokenizer, models, normalizers
from transformers import PreTrainedTokenizerFast

from vocable.encoding.load import load
from vocable.encoding.terms import (
    Word,
    expansion_entries,
    input_terms,
    normal_form,
    remove_expansions,
    special_terms,
    splitter,
    term_places,
    terms,
    without_accents,
)
from vocable.encoding.vectors import vocabulary_fingerprint
from vocable.errors import ArgumentError, VectorsError
from vocable.torch_models.fuse import fuse, unfuse
from vocable.torch_models.output_vocabulary import OutputVocabulary, give_output_vocabulary


def test_terms_are_named_by_column(toy_model: SparseEncoder, tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    names = terms(toy_model)
    vocabulary = tokenizers["wordpiece"].get_vocab()
    assert len(names) == len(vocabulary)
    assert all(names[column] == token for token, column in vocabulary.items())
    assert terms(unfuse(toy_model)) == names


def test_columns_without_a_token_are_named_by_their_number(
    backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast]
) -> None:
    size = len(tokenizers["byte-level"])
    names = terms(load(backbones["modernbert"], device="cpu"))
    assert names[:size] == tokenizers["byte-level"].convert_ids_to_tokens(range(size))
    assert names[size:] == [f"<{column}>" for column in range(size, size + 5)]


def test_a_gap_in_the_tokenizer_does_not_move_the_names_after_it(toy_model: SparseEncoder) -> None:
    names = terms(toy_model)
    tokenizer = toy_model[0].tokenizer
    vocabulary = tokenizer.get_vocab()
    missing, last = names[40], len(names) - 1
    tokenizer.get_vocab = lambda: {token: column for token, column in vocabulary.items() if token != missing}
    found = terms(toy_model)
    assert (found[40], found[last]) == ("<40>", names[last])


def test_fingerprint_tells_vocabularies_apart() -> None:
    assert vocabulary_fingerprint(["a", "b"]) == vocabulary_fingerprint(["a", "b"])
    assert (
        len({vocabulary_fingerprint(names) for names in (["a", "b"], ["b", "a"], ["a"], ["a", "b", "<2>"], ["ab"], [])})
        == 6
    )
    assert len(vocabulary_fingerprint(["a"])) == 16
    int(vocabulary_fingerprint(["a"]), 16)


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
    with pytest.raises(ArgumentError):
        splitter(tokenizers["wordpiece"], "os:system")


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
    monkeypatch.setattr("vocable.encoding.terms.TOKENIZED_TEXTS", 4)
    parts = input_terms(toy_model, toy_texts[:10])
    assert (parts != whole).nnz == 0
    assert input_terms(toy_model, []).shape == (0, whole.shape[1])


def test_an_unknown_kind_of_words_is_refused(toy_model: SparseEncoder) -> None:
    with pytest.raises(ArgumentError):
        input_terms(toy_model, ["fox"], words="all")  # type: ignore[arg-type]


M, V = 4, 6
dense = arrays(np.float32, (M, V), elements=st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0]))
columns = st.lists(st.integers(0, V - 1), unique=True).map(lambda found: np.array(found, dtype=np.int64))


@given(dense, dense, columns)
def test_only_chosen_expansions_go(vectors: np.ndarray, own: np.ndarray, terms: np.ndarray) -> None:
    expected = vectors.copy()
    for row in range(M):
        for column in range(V):
            if column in terms and own[row, column] == 0:
                expected[row, column] = 0
    result = remove_expansions(csr_array(vectors), csr_array(own), terms)
    np.testing.assert_array_equal(result.toarray(), expected)
    assert result.nnz == np.count_nonzero(expected)
    assert result.has_canonical_format


@given(dense, dense)
def test_an_expansion_is_what_the_text_does_not_have(vectors: np.ndarray, own: np.ndarray) -> None:
    sparse = csr_array(vectors)
    rows, terms = np.nonzero(vectors)
    assert expansion_entries(sparse, csr_array(own)).tolist() == (own[rows, terms] == 0).tolist()
    np.testing.assert_array_equal(remove_expansions(sparse, csr_array(own), np.empty(0, int)).toarray(), vectors)
    alone = remove_expansions(sparse, csr_array(own), np.arange(V)).toarray()
    np.testing.assert_array_equal(alone, np.where(own > 0, vectors, 0))


def test_terms_and_shapes_are_checked() -> None:
    vectors = csr_array(np.ones((2, 3), dtype=np.float32))
    for term in (-1, 3):
        with pytest.raises(ArgumentError):
            remove_expansions(vectors, vectors, np.array([term]))
    with pytest.raises(VectorsError):
        remove_expansions(vectors, vectors[:1], np.array([1]))
