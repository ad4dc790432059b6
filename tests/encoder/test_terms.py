from __future__ import annotations

from pathlib import Path

from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerFast

from vocable.encoder.fuse import unfuse
from vocable.encoder.load import load
from vocable.encoder.terms import terms
from vocable.vectors import vocabulary_fingerprint


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
