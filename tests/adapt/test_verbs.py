"""Every verb that adapts leaves its model as it was, and what it makes comes back whole from a folder."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from transformers import AutoModelForMaskedLM, AutoTokenizer

import vocable as vo
from tests.conftest import some_pairs
from vocable.errors import ArgumentError, ModelError
from vocable.torch_models.fuse import parts
from vocable.torch_models.output_vocabulary import OutputVocabularyTransformer
from vocable.torch_models.sparse_encoder import sparse_encoder

# Architecture -> the backbone whose vocabulary it moves to: every family is left and reached.
TARGETS = {"bert": "albert", "roberta": "bert", "albert": "distilbert", "modernbert": "electra", "deberta": "roberta"}

Verb = Callable[[SparseEncoder, list[str], Path], SparseEncoder]
VERBS: dict[str, Verb] = {
    "rescale": lambda model, texts, target: vo.rescale(model, 2),
    "transfer": lambda model, texts, target: vo.transfer(model, target),
    "head-only": lambda model, texts, target: vo.transfer(model, target, head_only=True),
    "expand": lambda model, texts, target: vo.expand_vocabulary(model, texts=texts),
    "pretrain": lambda model, texts, target: vo.pretrain(model, texts, steps=2, batch_size=4, max_length=16),
    "calibrate": lambda model, texts, target: vo.calibrate(model, texts, activation_rate=0.2),
    "inference-free": lambda model, texts, target: vo.make_inference_free(model, texts),
}


def weights(model: SparseEncoder) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def vectors(model: SparseEncoder, texts: list[str]) -> list[np.ndarray]:
    return [vo.encode(model, texts, role).toarray() for role in ("query", "document")]  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "verb"), some_pairs(VERBS))
def test_a_model_that_a_verb_made_comes_back_whole(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, name: str, verb: str
) -> None:
    model = vo.load(backbones[name], device="cpu")
    before, texts = weights(model), toy_texts[:3]
    vectors_before = vectors(model, texts)
    made = VERBS[verb](model, toy_texts, backbones[TARGETS.get(name, "bert")])
    assert made is not model
    assert vo.provenance(model) == []
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(np.array_equal(*pair) for pair in zip(vectors(model, texts), vectors_before, strict=True))

    [step] = vo.provenance(made)
    assert step["verb"] == {
        "head-only": "transfer",
        "expand": "expand-vocabulary",
        "inference-free": "make-inference-free",
    }.get(verb, verb)
    made.save_pretrained(str(tmp_path / "made"))
    again = vo.load(tmp_path / "made", device="cpu")
    assert vo.terms(again) == vo.terms(made)
    assert vo.provenance(again) == vo.provenance(made)
    new = vo.new_tokens(made), vo.new_tokens(again)
    assert (new[0] is None) == (new[1] is None) == (step["verb"] != "transfer")
    if new[0] is not None:
        np.testing.assert_array_equal(*new)
        assert len(new[0]) == step["new_tokens"]
    assert all(np.array_equal(*pair) for pair in zip(vectors(made, texts), vectors(again, texts), strict=True))
    if verb in ("rescale", "transfer", "pretrain", "calibrate"):  # its terms are its tokens: transformers reads it, too
        mlm, tokenizer = (auto.from_pretrained(tmp_path / "made") for auto in (AutoModelForMaskedLM, AutoTokenizer))
        assert tokenizer.get_vocab() == parts(made).tokenizer.get_vocab()
        assert all(torch.equal(value, mlm.state_dict()[name]) for name, value in parts(made).mlm.state_dict().items())
        ties = [m.get_input_embeddings().weight is m.get_output_embeddings().weight for m in (mlm, parts(made).mlm)]
        assert ties[0] == ties[1]


def test_provenance_has_the_steps_in_their_order(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path
) -> None:
    model = vo.load(backbones["roberta"], device="cpu")
    model = vo.transfer(model, vo.load(backbones["bert"], device="cpu"))
    new = vo.new_tokens(model)
    model = vo.pretrain(model, toy_texts, steps=2, batch_size=4, max_length=16, masking="overlap-aware")
    model = vo.calibrate(model, toy_texts, activation_rate=0.2)
    model = vo.expand_vocabulary(model, ["fox", "books"])
    assert [step["verb"] for step in vo.provenance(model)] == ["transfer", "pretrain", "calibrate", "expand-vocabulary"]
    assert vo.provenance(model)[2]["after"]["share"] == pytest.approx(0.2, abs=0.01)
    assert vo.terms(model) == ["fox", "books"]
    np.testing.assert_array_equal(vo.new_tokens(model), new)
    vo.rescale(model, 2).save_pretrained(str(tmp_path / "made"))
    again = vo.load(tmp_path / "made", device="cpu")
    assert vo.terms(again) == ["fox", "books"]
    assert [step["verb"] for step in vo.provenance(again)][-1] == "rescale"
    assert set(vo.provenance(model)[1]["held_out"]["before"]) == {"shared", "new"}


def test_a_copy_of_a_fused_model_is_a_model_of_its_own(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    for model in (vo.load(backbones["bert"]), vo.expand_vocabulary(vo.load(backbones["bert"]), ["fox", "books"])):
        twin, before = copy.deepcopy(model), vectors(model, toy_texts[:3])
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        assert all(np.array_equal(*pair) for pair in zip(vectors(twin, toy_texts[:3]), before, strict=True))


def test_an_expanded_model_knows_how_it_is_saved(backbones: dict[str, Path]) -> None:
    model = vo.expand_vocabulary(vo.load(backbones["bert"], device="cpu"), ["fox", "books"])
    assert isinstance(model[0], OutputVocabularyTransformer)
    decoded = model.decode(model.encode(["the fox"])[0])
    assert {term for term, _ in decoded} <= {"fox", "books"}


def test_a_model_of_parts_is_the_same_model(backbone: Path, toy_texts: list[str]) -> None:
    mlm, tokenizer = (auto.from_pretrained(backbone) for auto in (AutoModelForMaskedLM, AutoTokenizer))
    model = sparse_encoder(mlm, tokenizer)
    assert parts(model).mlm is mlm
    assert parts(model).tokenizer is tokenizer
    loaded = vo.load(backbone, device="cpu")
    assert np.array_equal(*(vo.encode(one, toy_texts[:4]).toarray() for one in (model, loaded)))


def test_models_with_two_encoders_are_not_adapted(backbones: dict[str, Path]) -> None:
    model = vo.make_inference_free(vo.load(backbones["bert"], device="cpu"), weights="ones")
    with pytest.raises(ModelError):
        vo.rescale(model, 2)


def test_settings_of_pretraining_are_checked_by_name(backbones: dict[str, Path]) -> None:
    model = vo.load(backbones["bert"], device="cpu")
    for settings, message in (
        ({"held_out": -1}, "held_out must be .* not -1"),
        ({"maskings": "uniform"}, "maskings: .* masking$"),
        ({"train_bias": True}, "train_bias needs trainable"),
    ):
        with pytest.raises(ArgumentError, match=message):
            vo.pretrain(model, ["a text"], steps=1, **settings)
    with pytest.raises(ArgumentError):
        vo.pretrain(model, ["a text"], steps=0)
