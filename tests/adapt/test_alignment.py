"""Tokens of two vocabularies that are the same unit, on vocabularies trained on real text and on hand-made ones."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from vocable.adapt.alignment import align, role_id
from vocable.data import pydocs
from vocable.encoding.tokens import Surface, token_surfaces

SIZE = 1200
BERT = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
ROBERTA = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}


@pytest.fixture(scope="module")
def trained() -> dict[str, PreTrainedTokenizerFast]:
    """A vocabulary of each family, of Python's documentation; about 1,200 tokens."""
    texts = [document.text for document in pydocs.documents()[:300]]
    wordpiece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    wordpiece.normalizer = normalizers.BertNormalizer(lowercase=True)
    wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = list(BERT.values())
    wordpiece.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=special, show_progress=False)
    )
    byte_level = Tokenizer(models.BPE())
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=list(ROBERTA.values()), initial_alphabet=alphabet, show_progress=False
    )
    byte_level.train_from_iterator([*texts, "café naïve 中文 " * 50], trainer)
    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.decoder = decoders.Metaspace()
    unigram.train_from_iterator(
        texts,
        trainers.UnigramTrainer(vocab_size=SIZE, special_tokens=special, unk_token="[UNK]", show_progress=False),
    )
    return {
        "wordpiece": PreTrainedTokenizerFast(tokenizer_object=wordpiece, **BERT),
        "byte-level": PreTrainedTokenizerFast(tokenizer_object=byte_level, **ROBERTA),
        "unigram": PreTrainedTokenizerFast(tokenizer_object=unigram, **BERT),
    }


def unit(tokenizer: Any, family: str, i: int) -> tuple[str, bool] | None:
    """Return what a token spells after "a", by the library's decoder; None for lone bytes and special tokens."""
    token = tokenizer.convert_ids_to_tokens(i)
    if i in tokenizer.all_special_ids:
        return None
    if family == "wordpiece":
        return (token[2:], False) if token.startswith("##") else (token, True)
    before = tokenizer.convert_tokens_to_ids("a")
    assert before != tokenizer.unk_token_id
    text = tokenizer.backend_tokenizer.decode([before, i])[1:]
    return None if "\N{REPLACEMENT CHARACTER}" in text else (text.removeprefix(" "), text.startswith(" "))


def slow(source: Any, source_family: str, target: Any, target_family: str) -> list[int]:
    """`source_of`, a pair of tokens at a time."""
    units = [(i, unit(source, source_family, i)) for i in range(len(source))]
    found = []
    for i in range(len(target)):
        wanted = unit(target, target_family, i)
        same = [j for j, other in units if wanted and other == wanted]
        if wanted and len(wanted[0]) == 1 and not wanted[0].isalnum() and source_family != target_family:
            flipped = [j for j, other in units if other == (wanted[0], not wanted[1])]
            if target_family == "wordpiece" and wanted[1]:
                same = flipped or same
            if source_family == "wordpiece" and not wanted[1]:
                same = flipped or same
        found.append(same[0] if same else -1)
    for role in ("pad", "unk", "mask", "cls", "sep"):
        found[role_id(target, role)] = role_id(source, role)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [*product(("wordpiece", "byte-level", "unigram"), repeat=2)])
def test_every_pair_of_families_agrees_with_a_slow_matcher(
    trained: dict[str, PreTrainedTokenizerFast], source: str, target: str
) -> None:
    alignment = align(trained[source], trained[target])
    expected = np.array(slow(trained[source], source, trained[target], target))
    readable = alignment.kinds != "bytes"  # the slow matcher leaves lone bytes out
    np.testing.assert_array_equal(alignment.source_of[readable], expected[readable])
    special = trained[target].all_special_ids
    assert alignment.overlap == pytest.approx((np.delete(alignment.source_of, special) >= 0).sum() / len(expected))
    assert set(alignment.shared) == set(alignment.anchors) | set(special)
    assert sum(matched for matched, _ in alignment.classes.values()) == len(alignment.shared)
    assert sum(total for _, total in alignment.classes.values()) == len(expected)
    assert alignment.classes["special"] == (5, 5)
    assert 0.1 < alignment.overlap < 1


def test_a_vocabulary_matches_itself_wholly(trained: dict[str, PreTrainedTokenizerFast]) -> None:
    for tokenizer in trained.values():
        assert align(tokenizer, tokenizer).source_of.tolist() == list(range(len(tokenizer)))


def wordpiece(*tokens: str) -> PreTrainedTokenizerFast:
    vocabulary = {token: i for i, token in enumerate([*BERT.values(), *tokens])}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]")), **BERT)


def byte_level(*tokens: str) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate([*ROBERTA.values(), *tokens])}, []))
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ROBERTA)


def matches(source: Any, target: Any) -> dict[str, str]:
    """Target token -> source token, special ones left out."""
    alignment = align(source, target)
    return {
        target.convert_ids_to_tokens(int(i)): source.convert_ids_to_tokens(int(alignment.source_of[i]))
        for i in alignment.anchors
    }


def test_matches_of_tokens_by_example() -> None:
    source = byte_level("Ġthe", "the", "ĠThe", "ing", ",", "Ġ,", "Ġ(", "cafÃ©", "ĠÃ©", "Ã", "Ġ42", "...")
    target = wordpiece("the", "##the", "ing", "##ing", ",", "(", "##café", "é", "à", "42", "...", "new", "##,")
    assert matches(source, target) == {
        "the": "Ġthe",
        "##the": "the",
        "##ing": "ing",
        ",": ",",  # not Ġ,: WordPiece splits at every mark, with a space before it or not
        "##,": ",",
        "(": "Ġ(",  # there is no bare one
        "##café": "cafÃ©",
        "é": "ĠÃ©",
        "42": "Ġ42",
    }
    assert matches(target, source) == {
        "Ġthe": "the", "the": "##the", "ing": "##ing", ",": ",", "Ġ,": ",", "Ġ(": "(", "cafÃ©": "##café", "ĠÃ©": "é",
        "Ġ42": "42",
    }  # fmt: skip


def test_special_tokens_are_matched_by_role_and_never_by_name() -> None:
    source, target = byte_level("Ġ[MASK]", "[SEP]"), wordpiece("x")
    alignment = align(source, target)
    assert [source.convert_ids_to_tokens(int(alignment.source_of[i])) for i in range(5)] == [
        "<pad>", "<unk>", "<s>", "</s>", "<mask>",
    ]  # fmt: skip
    assert alignment.overlap == 0
    assert alignment.classes["special"] == (5, 5)


def test_surfaces_of_each_kind() -> None:
    found = token_surfaces(byte_level("Ġthe", "s", "Ġ.", "Ġ", "âĢ", "Ã©", "Ċ"))[5:]
    assert found == [
        Surface("the", True, "word"),
        Surface("s", False, "continuation"),
        Surface(".", True, "punctuation"),
        Surface("", True, "punctuation"),
        Surface("âĢ", False, "bytes"),
        Surface("é", False, "continuation"),
        Surface("\n", False, "punctuation"),
    ]
    assert token_surfaces(byte_level())[0] == Surface("<s>", False, "special")


def test_bytes_that_sentencepiece_falls_back_to_are_those_of_byte_level() -> None:
    pieces = [*BERT.values(), "▁the", "s", "▁▁x", "<0xC3>", "<0x0A>"]
    tokenizer = Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], unk_id=1))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    source = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **BERT)
    assert token_surfaces(source)[5:] == [
        Surface("the", True, "word"),
        Surface("s", False, "continuation"),
        Surface(" x", True, "word"),
        Surface("Ã", False, "bytes"),
        Surface("\n", False, "punctuation"),
    ]
    assert matches(source, byte_level("Ã", "Ċ", "Ġthe")) == {"Ã": "<0xC3>", "Ċ": "<0x0A>", "Ġthe": "▁the"}


def test_ids_without_a_token_and_added_tokens() -> None:
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "the": 9}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordPiece(vocabulary)), **BERT)
    tokenizer.add_tokens([" two words"])
    found = token_surfaces(tokenizer)
    assert found[5:] == [None, Surface("two words", True, "word"), None, None, Surface("the", True, "word")]
    alignment = align(tokenizer, tokenizer)
    assert alignment.source_of.tolist() == [0, 1, 2, 3, 4, -1, 6, -1, -1, 9]
    assert alignment.overlap == 2 / 7


def test_ids_of_new_tokens_rise() -> None:
    alignment = align(byte_level("Ġa"), wordpiece("b", "a", "c"))
    assert all(one < other for one, other in pairwise(alignment.new.tolist()))
    assert alignment.new.tolist() == [5, 7]
