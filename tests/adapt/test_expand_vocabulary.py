"""Whole words as output terms: the words, their rows, and the saved model."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from transformers import BertForMaskedLM, PreTrainedModel, PreTrainedTokenizerFast

import vocable as vo
from tests.by_parts import expand, load_checkpoint, save_checkpoint
from vocable.adapt.alignment import align
from vocable.adapt.expand_vocabulary import check_words, frequent_words, read_words
from vocable.adapt.initialization import semantic_weights
from vocable.encoding.terms import Splitter, Word, normal_form, splitter
from vocable.errors import ArgumentError, DataError, ModelError
from vocable.torch_models.opening import Target
from vocable.torch_models.output_vocabulary import output_vocabulary, special_tokens

ODD = ["u.s.", "it's", '"fox"', "the\x07fox", "read\nbooks", "a\u200bb", "\x1bthe", "naïve", "å"]


def sub_tokens(tokenizer: Any, word: str) -> list[int]:
    left_out = {*tokenizer.all_special_ids, *tokenizer.convert_tokens_to_ids(["▁", "Ġ"])}
    return [i for i in tokenizer(f" {word}", add_special_tokens=False)["input_ids"] if i not in left_out]


def layer_of(mlm: PreTrainedModel) -> tuple[np.ndarray, np.ndarray]:
    layer = output_vocabulary(mlm)
    assert layer is not None
    return layer.weight.detach().numpy(), layer.bias.detach().numpy()


@pytest.mark.parametrize(
    "name", ["bert", "distilbert", "roberta", "albert", "modernbert", "electra", "deberta", "mpnet"]
)
def test_rows_and_biases_are_means_over_sub_tokens(backbones: dict[str, Path], toy_texts: list[str], name: str) -> None:
    mlm, tokenizer = load_checkpoint(backbones[name])
    words = frequent_words(toy_texts, tokenizer).words
    made = expand(mlm, tokenizer, words)
    rows = mlm.get_output_embeddings().weight.detach().numpy()
    bias = mlm.get_output_embeddings().bias.detach().numpy()
    weight, found = layer_of(made)
    lengths = set()
    for i, word in enumerate(words):
        ids = sub_tokens(tokenizer, word)
        lengths.add(len(ids))
        np.testing.assert_allclose(weight[i], rows[ids].mean(axis=0), rtol=1e-5, atol=1e-6)
        assert found[i] == pytest.approx(bias[ids].mean(), rel=1e-5, abs=1e-6)
    assert len(lengths) > 1
    layer = output_vocabulary(made)
    assert layer is not None
    assert list(layer.terms) == words
    inputs = tokenizer(toy_texts[:2], padding=True, return_tensors="pt")
    with torch.no_grad():
        assert made(**inputs).logits.shape[-1] == len(words)
        assert mlm(**inputs).logits.shape[-1] == mlm.config.vocab_size  # the source is left as it is
    assert torch.equal(made.get_input_embeddings().weight, mlm.get_input_embeddings().weight)
    assert made.get_input_embeddings().weight is made.get_output_embeddings().weight


def test_random_rows_have_the_spread_of_the_decoder(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["roberta"])
    words = frequent_words(toy_texts, tokenizer).words
    decoder = mlm.get_output_embeddings()
    weight, bias = layer_of(expand(mlm, tokenizer, words, init="random", seed=1))
    assert weight.std() == pytest.approx(float(decoder.weight.detach().std()), rel=0.05)
    assert weight.mean() == pytest.approx(0, abs=0.02)
    ordinary = np.delete(decoder.bias.detach().numpy(), special_tokens(tokenizer))
    np.testing.assert_allclose(bias, ordinary.mean(), rtol=1e-5)
    again, other = (layer_of(expand(mlm, tokenizer, words, init="random", seed=seed))[0] for seed in (1, 2))
    assert np.array_equal(weight, again)
    assert not np.array_equal(weight, other)


def test_semantic_words_are_barycentres_where_the_target_has_them_as_tokens(
    backbones: dict[str, Path], toy_texts: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    mlm, tokenizer = load_checkpoint(backbones["roberta"])
    target_model, target = load_checkpoint(backbones["bert"])
    words = [word for word in frequent_words(toy_texts, tokenizer).words if word.islower()]
    with caplog.at_level(logging.INFO, logger="vocable"):
        made = expand(mlm, tokenizer, words, init="semantic", target=Target(target, target_model))
    weight, bias = layer_of(made)
    rows, biases = (part.detach().numpy() for part in mlm.get_output_embeddings().parameters())
    if rows.ndim == 1:
        rows, biases = biases, rows
    alignment, embeddings = align(tokenizer, target), target_model.get_input_embeddings().weight.detach()
    placed = 0
    for i, word in enumerate(words):
        ids, known = sub_tokens(tokenizer, word), sub_tokens(target, word)
        if len(known) == 1 < len(ids):
            alpha = semantic_weights(embeddings, alignment.anchors, np.array(known)).toarray()[0]
            sources = alignment.source_of[alignment.anchors]
            expected, prior = alpha @ rows[sources], alpha @ biases[sources]
            placed += 1
        else:
            expected, prior = rows[ids].mean(axis=0), biases[ids].mean()
        np.testing.assert_allclose(weight[i], expected, rtol=1e-4, atol=1e-5)
        assert bias[i] == pytest.approx(prior, rel=1e-4, abs=1e-5)
    assert 0 < placed < len(words)
    assert f"{placed} words start" in caplog.text
    assert f"the other {len(words) - placed}" in caplog.text
    for lacking in (None, Target(target, None)):
        with pytest.raises(ModelError):
            expand(mlm, tokenizer, words, init="semantic", target=lacking)
    with pytest.raises(ModelError):
        expand(mlm, tokenizer, ["the"], init="semantic", target=Target(target, target_model))


def test_an_untied_model_gives_the_rows_of_its_decoder(tokenizers: dict[str, Any], untied: BertForMaskedLM) -> None:
    tokenizer = tokenizers["wordpiece"]
    weight, _ = layer_of(expand(untied, tokenizer, ["foxes"]))
    expected = untied.get_output_embeddings().weight.detach().numpy()[sub_tokens(tokenizer, "foxes")].mean(axis=0)
    np.testing.assert_allclose(weight[0], expected, rtol=1e-5, atol=1e-6)


def test_words_that_cannot_be_terms_are_refused(backbones: dict[str, Path]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    cases = [
        (["fox", "", "fox"], r"line 2: an empty string; line 3: 'fox'.*line 1$"),
        (["fox", "FOX"], r"line 2: 'FOX'.*'fox'.*line 1$"),
        (["☃", "\x07", "[MASK]", " "], r"line 1: '☃' .*line 2: .*line 3: '\[MASK\]' .*; and 1 more$"),
        ([], "there are no words"),
    ]
    for words, message in cases:
        with pytest.raises(ArgumentError, match=message):
            expand(mlm, tokenizer, words)
    with pytest.raises(ArgumentError):
        expand(mlm, tokenizer, ["fox"], init="zero")  # type: ignore[arg-type]
    with pytest.raises(ModelError):
        expand(expand(mlm, tokenizer, ["fox"]), tokenizer, ["owl"])


@pytest.mark.parametrize("name", ["bert", "roberta", "albert"])
def test_terms_of_any_characters_survive(
    backbones: dict[str, Path], name: str, tmp_path: Path, toy_texts: list[str]
) -> None:
    mlm, tokenizer = load_checkpoint(backbones[name])
    words = [word for word in [*ODD, "हिन्दी", "中国", "словарь"] if sub_tokens(tokenizer, word)]
    assert set(ODD[:-1]) <= set(words)
    made = expand(mlm, tokenizer, words)
    layer_of(made)[1][:] = 3.0  # something is active in every text
    save_checkpoint(made, tokenizer, tmp_path / "saved")
    model = vo.load(tmp_path / "saved", device="cpu")
    assert vo.terms(model) == words
    model.save_pretrained(str(tmp_path / "again"))
    again = vo.load(tmp_path / "again", device="cpu")
    assert vo.terms(again) == words
    vector = model.encode(toy_texts[0])
    decoded = again.decode(vector)
    assert {word for word, _ in decoded} <= set(words)
    assert len(decoded) == int((vector.to_dense() > 0).sum()) > 0
    with pytest.raises(ValueError, match="trust_remote_code"):  # a stock loader does not drop the head in silence
        SparseEncoder(str(tmp_path / "again"), device="cpu")
    assert json.loads((tmp_path / "saved" / "output_vocabulary.jsonl").read_text("utf-8").split("\n")[0]) == words[0]


@pytest.mark.parametrize("family", ["wordpiece", "byte-level", "unigram"])
@pytest.mark.parametrize(("size", "min_count"), [(10, 1), (1000, 40), (1000, 1)])
def test_the_words_are_the_most_frequent(
    tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str], family: str, size: int, min_count: int
) -> None:
    tokenizer = tokenizers[family]
    counts = Counter(word.text for text in toy_texts for word in splitter(tokenizer)(text))
    expected = sorted((word for word, n in counts.items() if n >= min_count), key=lambda word: (-counts[word], word))
    found = frequent_words(reversed(toy_texts), tokenizer, size=size, min_count=min_count)
    assert found.words == expected[:size]
    covered = sum(counts[word] for word in found.words)
    assert found.covered == pytest.approx(covered / counts.total())
    tokens = sum(
        counts[word] * sum(token not in ("▁", "Ġ") for token in tokenizer.tokenize(f" {word}")) for word in found.words
    )
    assert found.tokens_per_word == pytest.approx(tokens / covered)
    assert found.passed_over == 0


def test_words_that_the_tokenizer_cannot_spell_are_passed_over(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    found = frequent_words(["日本 日本 fox", "fox 日本 the"], tokenizers["wordpiece"], size=2)
    assert found.words == ["fox", "the"]
    assert found.passed_over == 2  # this tokenizer's words are single characters
    assert found.covered == pytest.approx(3 / 9)
    with pytest.raises(DataError, match="5 times"):
        frequent_words(["the fox"], tokenizers["wordpiece"], min_count=5)
    for bad in ({"size": 0}, {"min_count": 0}):
        with pytest.raises(ArgumentError):
            frequent_words(["the fox"], tokenizers["wordpiece"], **bad)


def test_a_splitter_of_one_s_own(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    pairs: Splitter = lambda text: [Word(text[i : i + 2], i, i + 2) for i in range(0, len(text) - 1, 2)]  # noqa: E731
    assert frequent_words(["foxfo"], tokenizers["wordpiece"], split=pairs).words == ["fo", "xf"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", b"fox\nU.S.\r\n it's\x0b \xc2\x85x", ["fox", "U.S.", " it's\x0b \x85x"]),
        ("a.txt", b"\xef\xbb\xbffox\n\nowl\n", ["fox", "", "owl"]),
        ("a.txt", b"", []),
        ("a.jsonl", b'"a\\nb"\n"\\u0000"\n', ["a\nb", "\0"]),
    ],
)
def test_a_file_has_a_word_a_line(tmp_path: Path, name: str, content: bytes, expected: list[str]) -> None:
    (tmp_path / name).write_bytes(content)
    assert read_words(tmp_path / name) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"fox\n\xff\n", r"a\.txt:2: not UTF-8$"),
        ("a.jsonl", b'"fox"\n7\n', r"a\.jsonl:2: a term is a JSON string, in quotes$"),
        ("a.jsonl", b"fox\n", r"a\.jsonl:1: a term"),
        (None, b"", r"a\.txt: No such file"),
    ],
)
def test_a_file_that_is_no_list_of_words_is_refused(
    tmp_path: Path, name: str | None, content: bytes, message: str
) -> None:
    if name is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_words(tmp_path / (name or "a.txt"))


def test_faults_of_words_are_named_with_their_lines(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    normalize: Callable[[str], str] = normal_form(tokenizers["wordpiece"])
    words = ["fox", "", "the", "Fox", "fox", "☃", "owl"]
    pieces = [[1], [], [2], [1], [1], [], [3]]
    with pytest.raises(ArgumentError) as raised:
        check_words(words, pieces, normalize)
    assert str(raised.value) == (
        "not every word can be a term: line 2: an empty string; "
        "line 4: 'Fox' is a duplicate of 'fox' to the tokenizer, in line 1; "
        "line 5: 'fox' is a duplicate in line 1; and 1 more"
    )
    with pytest.raises(ArgumentError, match=r"line 1: '☃'"):
        check_words(["☃"], [[]], normalize)
    check_words(["fox", "the"], [[1], [2]], normalize)
