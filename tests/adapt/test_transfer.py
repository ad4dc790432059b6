"""A model on another vocabulary: every toy backbone onto every tokenizer family."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

import vocable as vo
from tests.by_parts import Moved, load_checkpoint, neighbours, save_checkpoint, transfer
from tests.conftest import some_pairs
from vocable.adapt.alignment import cut
from vocable.adapt.transfer import transfer as vo_transfer
from vocable.encoding.load import load
from vocable.encoding.tokens import token_surfaces
from vocable.errors import ArgumentError, ModelError
from vocable.torch_models.fuse import parts, without_logits
from vocable.torch_models.opening import load_target
from vocable.torch_models.output_vocabulary import NEVER, output_layer, special_tokens

FAMILY_MODELS = {"wordpiece": "bert", "byte-level": "roberta", "unigram": "albert"}


@torch.no_grad()
def decoder_inputs(mlm: PreTrainedModel, rows: list[list[int]], padding: int) -> torch.Tensor:
    """The hidden states that the decoder gets, for sequences of ids padded on the right."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=padding)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in rows], batch_first=True)
    with without_logits(mlm.eval()):
        hidden: torch.Tensor = mlm(input_ids=ids, attention_mask=mask).logits
    return hidden[mask.bool()]


def shared_texts(moved: Moved, count: int = 3) -> list[list[int]]:
    """Random sequences of shared tokens, framed as texts, of several lengths; no [UNK]."""
    target, rng = moved.tokenizer, np.random.default_rng(0)
    return [
        [target.cls_token_id, *rng.choice(moved.alignment.anchors, 5 + 9 * i).tolist(), target.sep_token_id]
        for i in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "family"), some_pairs(FAMILY_MODELS))
def test_shared_tokens_give_the_same_states_and_logits_to_the_last_bit(
    backbones: dict[str, Path], name: str, family: str, toy_texts: list[str], tmp_path: Path
) -> None:
    mlm, tokenizer = load_checkpoint(backbones[name])
    target_model, target = load_checkpoint(backbones[FAMILY_MODELS[family]])
    moved = transfer(mlm, tokenizer, target, target_model=target_model)
    save_checkpoint(moved.mlm, moved.tokenizer, tmp_path / "moved")
    saved = AutoModelForMaskedLM.from_pretrained(tmp_path / "moved")
    adopted = AutoTokenizer.from_pretrained(tmp_path / "moved")

    source_of = moved.alignment.source_of
    texts = shared_texts(moved)
    before = decoder_inputs(mlm, [source_of[row].tolist() for row in texts], tokenizer.pad_token_id)
    after = decoder_inputs(saved, texts, adopted.pad_token_id)
    assert torch.equal(before, after)
    weights = [model.get_output_embeddings().weight.detach() for model in (mlm, saved)]
    shared = moved.alignment.shared
    assert torch.equal(before @ weights[0][source_of[shared]].T, after @ weights[1][shared].T)

    for model in (moved.mlm, saved):
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
        assert model.config.vocab_size == len(weights[1]) == len(target)
        assert model.get_input_embeddings().padding_idx == (
            1 if model.config.model_type == "mpnet" else target.pad_token_id
        )
    assert adopted.get_vocab() == target.get_vocab()
    assert adopted.model_max_length == tokenizer.model_max_length
    assert adopted.model_input_names == tokenizer.model_input_names
    inputs = adopted(toy_texts[:3], padding=True, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(saved(**inputs).logits, moved.mlm(**inputs).logits)


def test_special_ids_follow_the_tokenizer(backbones: dict[str, Path], tokenizers: dict[str, Any]) -> None:
    target = tokenizers["wordpiece"]
    for name in ("roberta", "modernbert"):
        mlm, tokenizer = load_checkpoint(backbones[name])
        config = transfer(mlm, tokenizer, target, init="mean", bias="keep").mlm.config
        assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (0, 2, 3)
    assert (config.cls_token_id, config.sep_token_id) == (2, 3)


@pytest.mark.parametrize(("first", "second"), [("wordpiece", "byte-level"), ("unigram", "byte-level")])
def test_roberta_keeps_its_positions_there_and_back(
    backbones: dict[str, Path], tokenizers: dict[str, Any], first: str, second: str
) -> None:
    mlm, tokenizer = load_checkpoint(backbones["roberta"])
    rows = mlm.roberta.embeddings.position_embeddings.weight
    assert mlm.config.pad_token_id == 1
    there = transfer(mlm, tokenizer, tokenizers[first], init="mean", bias="keep")
    moved = there.mlm.roberta.embeddings.position_embeddings.weight
    assert there.mlm.config.pad_token_id == 0
    assert there.mlm.config.max_position_embeddings == len(moved) == len(rows) - 1
    assert torch.equal(moved, rows[1:])
    back = transfer(there.mlm, there.tokenizer, tokenizers[second], init="mean", bias="keep").mlm
    assert torch.equal(back.roberta.embeddings.position_embeddings.weight[1:], rows[1:])


def test_the_source_is_left_as_it_is(backbones: dict[str, Path], tokenizers: dict[str, Any]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["roberta"])
    before = {name: tensor.clone() for name, tensor in mlm.state_dict().items()}
    target = tokenizers["wordpiece"]
    length = target.model_max_length
    tokenizer.model_max_length = 48
    moved = transfer(mlm, tokenizer, target, init="random-all", bias="keep")
    with torch.no_grad():
        for parameter in moved.mlm.parameters():
            parameter.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in mlm.state_dict().items())
    assert mlm.config.pad_token_id == 1
    assert (moved.tokenizer.model_max_length, target.model_max_length) == (48, length)


def test_untied_matrices_are_both_made(tokenizers: dict[str, Any], untied: BertForMaskedLM) -> None:
    tokenizer, target = tokenizers["wordpiece"], tokenizers["unigram"]
    moved = transfer(untied, tokenizer, target, init="subtoken", bias="keep")
    assert moved.weights is not None
    for old, new in (
        (untied.get_input_embeddings(), moved.mlm.get_input_embeddings()),
        (untied.get_output_embeddings(), moved.mlm.get_output_embeddings()),
    ):
        expected = moved.weights.toarray() @ old.weight.detach().numpy()
        placed = moved.weights.sum(axis=1) > 0
        np.testing.assert_allclose(new.weight.detach()[moved.alignment.new][placed], expected[placed], atol=1e-6)
    assert moved.mlm.get_input_embeddings().weight is not moved.mlm.get_output_embeddings().weight


def test_the_prior_has_the_sources_mean_and_deviation_and_the_targets_order(backbones: dict[str, Path]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["modernbert"])  # its head is wider than its tokenizer
    target_model, target = load_checkpoint(backbones["bert"])
    with torch.no_grad():
        mlm.decoder.bias[len(tokenizer) :] = 1000.0  # no token's
    moved = transfer(mlm, tokenizer, target, target_model=target_model, init="mean").mlm.get_output_embeddings().bias
    own = mlm.get_output_embeddings().bias.detach().double().numpy()
    own = np.delete(own, special_tokens(tokenizer, len(own)))
    theirs = np.delete(target_model.get_output_embeddings().bias.detach().double().numpy(), special_tokens(target))
    expected = own.mean() + own.std() * (theirs - theirs.mean()) / theirs.std()
    assert (moved[special_tokens(target)] == NEVER).all()
    found = np.delete(moved.detach().double().numpy(), special_tokens(target))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert found.mean() == pytest.approx(own.mean(), abs=1e-5)
    assert found.std() == pytest.approx(own.std(), abs=1e-5)


def test_the_prior_from_texts_and_the_kept_bias(
    backbones: dict[str, Path], tokenizers: dict[str, Any], toy_texts: list[str]
) -> None:
    mlm, tokenizer = load_checkpoint(backbones["roberta"])
    target = tokenizers["wordpiece"]
    every = mlm.get_output_embeddings().bias.detach().double().numpy()
    own, special = np.delete(every, special_tokens(tokenizer)), special_tokens(target)
    counts = np.zeros(len(target))
    for text in toy_texts:
        for i in target(text, add_special_tokens=False)["input_ids"]:
            counts[i] += 1
    prior = np.delete(np.log(counts + 1), special)
    moved = transfer(mlm, tokenizer, target, init="mean", texts=iter(toy_texts))
    expected = own.mean() + own.std() * (prior - prior.mean()) / prior.std()
    found = np.delete(moved.mlm.get_output_embeddings().bias.detach().numpy(), special)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)

    kept = transfer(mlm, tokenizer, target, init="mean", bias="keep")
    found = kept.mlm.get_output_embeddings().bias.detach().numpy()
    np.testing.assert_array_equal(found[kept.alignment.shared], every[kept.alignment.source_of[kept.alignment.shared]])
    new = np.setdiff1d(kept.alignment.new, special)
    np.testing.assert_allclose(found[new], own.mean(), rtol=1e-6)


def test_neighbours_are_the_heaviest_source_tokens(backbones: dict[str, Path]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["roberta"])
    target_model, target = load_checkpoint(backbones["bert"])
    moved = transfer(mlm, tokenizer, target, target_model=target_model)
    assert moved.weights is not None
    position = next(i for i, t in enumerate(moved.alignment.new) if moved.alignment.kinds[t] == "word")
    word = target.convert_ids_to_tokens(int(moved.alignment.new[position]))
    row = moved.weights[[position]].toarray()[0]
    best = np.argsort(-row, kind="stable")[:3]
    found = neighbours(moved, tokenizer, word, k=3)
    assert found.token == word
    assert found.made_of == [(tokenizer.convert_ids_to_tokens(int(i)), pytest.approx(row[i])) for i in best if row[i]]
    assert found.subtokens == tokenizer.tokenize(" " + word)

    shared = int(next(i for i in moved.alignment.anchors if moved.alignment.kinds[i] == "word"))
    same = tokenizer.convert_ids_to_tokens(int(moved.alignment.source_of[shared]))
    assert neighbours(moved, tokenizer, target.convert_ids_to_tokens(shared)).made_of == [(same, 1.0)]
    with pytest.raises(ArgumentError, match="'nosuchtoken'"):
        neighbours(moved, tokenizer, "nosuchtoken")
    drawn = transfer(mlm, tokenizer, target, init="random-new", bias="keep")
    with pytest.raises(ArgumentError):
        neighbours(drawn, tokenizer, word)


@pytest.mark.parametrize("family", FAMILY_MODELS)
def test_pieces_spell_the_token_again(family: str, tokenizers: dict[str, Any]) -> None:
    source = tokenizers[family]
    units = [unit for tokenizer in tokenizers.values() for unit in token_surfaces(tokenizer) if unit]
    pieces = cut(source, units)
    spelled = 0
    for unit, ids in zip(units, pieces, strict=True):
        assert source.unk_token_id not in ids
        if unit.kind in ("special", "bytes"):
            assert not ids
        elif unit.kind != "punctuation" and source.unk_token_id not in source(unit.text)["input_ids"]:
            text = source.backend_tokenizer.decode(ids).removeprefix("##").strip()
            assert text == (unit.text.lower() if family == "wordpiece" else unit.text)
            spelled += 1
    assert spelled > 100


def test_a_continuation_is_cut_into_what_goes_on_with_a_word(tokenizers: dict[str, Any]) -> None:
    source = tokenizers["wordpiece"]
    goes_on = next(
        unit for unit in token_surfaces(source) if unit and unit.kind == "continuation" and len(unit.text) > 1
    )
    as_word = source.convert_ids_to_tokens(cut(source, [goes_on._replace(initial=True)])[0])
    as_rest = source.convert_ids_to_tokens(cut(source, [goes_on])[0])
    assert [token.startswith("##") for token in as_rest] == [True] * len(as_rest)
    assert [not as_word[0].startswith("##"), as_rest[1:]] == [True, as_word[1:]]


def test_a_target_of_another_language_is_warned_of_with_the_figure(
    backbones: dict[str, Path], tokenizers: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    from tokenizers import Tokenizer, models, processors

    words = ["the", *(chr(0x4E00 + i) for i in range(44))]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {token: i for i, token in enumerate([*special, *words])}
    foreign = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    foreign.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    target = PreTrainedTokenizerFast(
        tokenizer_object=foreign, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    )  # fmt: skip
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    with caplog.at_level(logging.WARNING, logger="vocable"):
        transfer(mlm, tokenizer, target, init="subtoken", bias="keep")
    assert caplog.messages == ["only 2.0 % of the target vocabulary is shared: most of it has to be learned anew"]


def test_mpnet_says_which_token_it_takes_for_padding(
    backbones: dict[str, Path], tokenizers: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    mlm, tokenizer = load_checkpoint(backbones["mpnet"])
    with caplog.at_level(logging.WARNING, logger="vocable"):
        transfer(mlm, tokenizer, tokenizers["byte-level"], init="mean", bias="keep")
        assert not caplog.messages
        transfer(mlm, tokenizer, tokenizers["wordpiece"], init="mean", bias="keep")
    assert len(caplog.messages) == 1
    assert "token 1, now '[UNK]', for padding" in caplog.messages[0]


def test_impossible_transfers_are_refused_in_one_line(backbones: dict[str, Path], tokenizers: dict[str, Any]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    target: Any = tokenizers["unigram"]

    def refuse(error: type[Exception], message: str, onto: Any = target, model: Any = mlm, **options: Any) -> None:
        with pytest.raises(error, match=message) as caught:
            transfer(model, tokenizer, onto, **options)
        assert "\n" not in str(caught.value)

    refuse(ModelError, "only a tokenizer: use 'subtoken'", bias="keep")
    refuse(ArgumentError, "prior' needs a target model with an output bias, or texts", init="mean")
    refuse(ArgumentError, "output bias.*no token", init="mean", texts=["", ""])
    refuse(ArgumentError, "init must be one of semantic, subtoken, .* not 'magic'", init="magic")
    refuse(ArgumentError, "bias must be.*prior.*keep.*'none'", bias="none")
    refuse(ModelError, "BertModel has no masked-language-model head", model=mlm.base_model)
    flat = load_checkpoint(backbones["albert"])[0]
    torch.nn.init.zeros_(flat.get_output_embeddings().bias)
    refuse(ArgumentError, "bias is the same for every token", init="mean", target_model=flat)
    maskless = PreTrainedTokenizerFast(tokenizer_object=target.backend_tokenizer, pad_token="[PAD]")
    refuse(ModelError, "the target tokenizer has no cls, sep, mask token", onto=maskless)
    from tokenizers import Tokenizer

    unframed = Tokenizer.from_str(target.backend_tokenizer.to_str())
    unframed.post_processor = None
    bare = PreTrainedTokenizerFast(tokenizer_object=unframed, **target.special_tokens_map)
    refuse(ModelError, "encodes a text as text, the model's as cls text sep", onto=bare)


def test_an_output_that_is_there_is_refused(
    backbones: dict[str, Path], tokenizers: dict[str, Any], tmp_path: Path
) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    moved = transfer(mlm, tokenizer, tokenizers["unigram"], init="mean", bias="keep")
    output = tmp_path / "moved"
    save_checkpoint(moved.mlm, moved.tokenizer, output)
    assert [path.name for path in tmp_path.iterdir()] == ["moved"]
    with pytest.raises(ArgumentError):
        save_checkpoint(moved.mlm, moved.tokenizer, output)


def test_a_target_may_be_a_model_an_encoder_or_a_tokenizer(backbones: dict[str, Path], tmp_path: Path) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    whole = load_target(backbones["bert"])
    assert whole.model is not None
    assert torch.equal(whole.model.get_output_embeddings().bias, mlm.get_output_embeddings().bias)
    mlm.base_model.save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    headless = load_target(tmp_path / "encoder")
    assert headless.model is not None
    assert headless.model.get_output_embeddings() is None
    assert torch.equal(headless.model.get_input_embeddings().weight, mlm.get_input_embeddings().weight)
    tokenizer.save_pretrained(tmp_path / "alone")
    assert load_target(tmp_path / "alone").model is None
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError):
        load_target(tmp_path / "empty")
    (tmp_path / "encoder" / "model.safetensors").write_bytes(b"\x10" * 32)
    with pytest.raises(ModelError):
        load_target(tmp_path / "encoder")


@pytest.mark.parametrize("head_only", [False, True])
@pytest.mark.parametrize("name", ["modernbert", "roberta"])
def test_matched_norms_are_those_of_the_target_on_shared_tokens(
    backbones: dict[str, Path], name: str, head_only: bool
) -> None:
    source, target = load(str(backbones[name])), load(str(backbones["bert"]))
    with torch.no_grad():
        parts(target).mlm.get_output_embeddings().weight.mul_(3)
    kept, matched = (vo_transfer(source, target, head_only=head_only, norm=norm) for norm in ("keep", "target"))
    layers = [output_layer(parts(model).mlm) for model in (kept, matched, target)]
    weights = [layer.weight.detach().double().numpy() for layer in layers]
    shared = vo.align(parts(source).tokenizer, parts(target).tokenizer).shared
    means = [np.linalg.norm(weight[shared], axis=1).mean() for weight in weights]
    assert means[1] == pytest.approx(means[2], rel=1e-5)
    assert means[0] != pytest.approx(means[2], rel=1e-2)
    factor = means[0] / means[2]
    assert vo.provenance(matched)[-1]["factor"] == pytest.approx(factor, rel=1e-5)
    np.testing.assert_allclose(weights[1], weights[0] / factor, rtol=1e-5)
    ordinary = np.setdiff1d(np.arange(len(weights[1])), special_tokens(parts(target).tokenizer, len(weights[1])))
    biases = [layer.bias.detach().numpy()[ordinary] for layer in layers]
    np.testing.assert_allclose(biases[1], biases[0] / factor, rtol=1e-5)
    if not head_only:
        assert layers[1].weight is parts(matched).mlm.get_input_embeddings().weight


def test_norms_need_a_target_with_a_head(
    backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast]
) -> None:
    source = load(str(backbones["modernbert"]))
    with pytest.raises(ArgumentError):
        vo_transfer(source, tokenizers["wordpiece"], init="subtoken", bias="keep", norm="target")
    with pytest.raises(ArgumentError):
        vo_transfer(source, tokenizers["wordpiece"], norm="source")  # type: ignore[arg-type]
