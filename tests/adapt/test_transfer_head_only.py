"""Head-only transfer: other output terms for a model that reads what it read before."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from transformers import AutoModelForMaskedLM, BertForMaskedLM, PreTrainedModel

import vocable as vo
from tests.by_parts import Moved, calibrate, load_checkpoint, neighbours, pretrain, rescale, save_checkpoint, transfer
from vocable.adapt.stages import PretrainSettings
from vocable.cli import main
from vocable.errors import ModelError
from vocable.torch_models.fuse import unfuse, without_logits
from vocable.torch_models.output_vocabulary import NEVER, output_vocabulary, special_columns, special_tokens
from vocable.training.recipe_files import make_recipe

TARGETS = {"bert": "albert", "albert": "roberta"}  # a model with another tokenizer; "bert" for all the others


def moved_head(backbones: dict[str, Path], name: str, **options: Any) -> tuple[PreTrainedModel, Any, Moved]:
    """The source, its tokenizer, and what head-only transfer makes of it."""
    mlm, tokenizer = load_checkpoint(backbones[name])
    target_model, target = load_checkpoint(backbones[TARGETS.get(name, "bert")])
    return mlm, tokenizer, transfer(mlm, tokenizer, target, target_model=target_model, head_only=True, **options)


def saved(moved: Moved, folder: Path) -> Path:
    save_checkpoint(moved.mlm, moved.tokenizer, folder)
    return folder


@torch.no_grad()
def hidden_states(mlm: PreTrainedModel, tokenizer: Any, texts: list[str]) -> list[np.ndarray]:
    """The decoder's inputs for each text alone, [s, d]."""
    with without_logits(mlm.eval()):
        return [mlm(**tokenizer(text, return_tensors="pt")).logits[0].numpy() for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bert", "distilbert", "roberta", "albert", "modernbert", "electra", "deberta", "mpnet"]
)
def test_terms_are_barycentres_of_decoder_rows_and_the_model_reads_as_before(
    backbones: dict[str, Path], name: str, toy_texts: list[str], tmp_path: Path
) -> None:
    mlm, tokenizer, moved = moved_head(backbones, name)
    layer, alignment = output_vocabulary(moved.mlm), moved.alignment
    assert layer is not None
    assert moved.weights is not None
    rows = mlm.get_output_embeddings().weight.detach().numpy()
    expected = np.zeros((len(moved.target), rows.shape[1]), dtype=np.float32)
    expected[alignment.shared] = rows[alignment.source_of[alignment.shared]]
    expected[alignment.new] = moved.weights.toarray() @ rows
    np.testing.assert_allclose(layer.weight.detach().numpy(), expected, atol=1e-6)
    np.testing.assert_array_equal(layer.weight.detach().numpy()[alignment.shared], expected[alignment.shared])

    source, made = mlm.get_input_embeddings().weight, moved.mlm.get_input_embeddings().weight
    assert torch.equal(source, made)
    assert made is moved.mlm.get_output_embeddings().weight  # the decoder of its own stays tied
    assert layer.weight.data_ptr() != made.data_ptr()
    assert moved.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert list(layer.terms) == moved.target.convert_ids_to_tokens(range(len(layer.terms)))

    before, after = (hidden_states(model, tokenizer, toy_texts[:3]) for model in (mlm, moved.mlm))
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    loaded, _ = load_checkpoint(saved(moved, tmp_path / "moved"))
    inputs = tokenizer(toy_texts[0], return_tensors="pt")
    with torch.no_grad():
        for model in (moved.mlm, loaded):
            logits = before[0] @ expected.T + layer.bias.detach().numpy()
            np.testing.assert_allclose(model(**inputs).logits[0].numpy(), logits, rtol=1e-4, atol=1e-5)


def test_the_bias_is_the_targets_prior_or_the_sources_own(backbones: dict[str, Path]) -> None:
    mlm, tokenizer, moved = moved_head(backbones, "modernbert")  # its head is wider than its tokenizer
    every = mlm.get_output_embeddings().bias.detach().double().numpy()
    own = np.delete(every, special_tokens(tokenizer, len(every)))
    other, target = load_checkpoint(backbones["bert"])
    special = special_tokens(target)
    theirs = np.delete(other.get_output_embeddings().bias.detach().double().numpy(), special)
    layer = output_vocabulary(moved.mlm)
    assert layer is not None
    expected = own.mean() + own.std() * (theirs - theirs.mean()) / theirs.std()
    np.testing.assert_allclose(np.delete(layer.bias.detach().numpy(), special), expected, rtol=1e-5, atol=1e-6)
    assert (layer.bias[special] == NEVER).all()

    kept = moved_head(backbones, "modernbert", bias="keep")[2]
    layer, shared = output_vocabulary(kept.mlm), kept.alignment.shared
    assert layer is not None
    np.testing.assert_allclose(layer.bias.detach().numpy()[shared], every[kept.alignment.source_of[shared]])
    new = np.setdiff1d(kept.alignment.new, special)
    np.testing.assert_allclose(layer.bias.detach().numpy()[new], own.mean(), rtol=1e-6)


def test_an_untied_model_gives_the_rows_of_its_decoder(tokenizers: dict[str, Any], untied: BertForMaskedLM) -> None:
    tokenizer, target = tokenizers["wordpiece"], tokenizers["unigram"]
    moved = transfer(untied, tokenizer, target, init="mean", bias="keep", head_only=True)
    layer = output_vocabulary(moved.mlm)
    assert layer is not None
    decoder = untied.get_output_embeddings().weight.detach().numpy()
    expected = decoder[moved.alignment.source_of[moved.alignment.anchors]].mean(axis=0)
    np.testing.assert_allclose(layer.weight.detach().numpy()[moved.alignment.new], expected[None].repeat(
        len(moved.alignment.new), axis=0), rtol=1e-4, atol=1e-6)  # fmt: skip
    assert torch.equal(moved.mlm.get_output_embeddings().weight, untied.get_output_embeddings().weight)


def test_the_source_is_left_as_it_is(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["roberta"])
    inputs = tokenizer(toy_texts[0], return_tensors="pt")
    with torch.no_grad():
        before = mlm(**inputs).logits
        mlm, tokenizer, moved = moved_head(backbones, "roberta")
        for parameter in moved.mlm.parameters():
            parameter.zero_()
        assert torch.equal(mlm(**inputs).logits, before)
    assert output_vocabulary(mlm) is None


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "modernbert"])
def test_load_gives_a_sparse_encoder_of_the_targets_terms(
    backbones: dict[str, Path], name: str, toy_texts: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mlm, tokenizer, moved = moved_head(backbones, name)
    folder = saved(moved, tmp_path / "moved")
    with caplog.at_level(logging.INFO, logger="vocable"):
        model = vo.load(folder, device="cpu")
    layer = output_vocabulary(moved.mlm)
    assert layer is not None
    assert caplog.messages == [f"{folder} has an output vocabulary of its own: {len(layer.terms)} terms"]
    assert vo.terms(model) == list(layer.terms)
    texts = toy_texts[:5]
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    states = hidden_states(mlm, tokenizer, texts)
    expected = np.stack([np.log1p(np.maximum((h @ weight.T + bias).max(axis=0), 0)) for h in states])
    vectors = vo.encode(model, texts)
    np.testing.assert_allclose(vectors.toarray(), expected, rtol=1e-4, atol=1e-5)
    best = expected[0].argmax()
    assert model.decode(model.encode(texts[0]), top_k=1) == [(layer.terms[best], pytest.approx(expected[0, best]))]
    np.testing.assert_allclose(unfuse(model).encode(texts).to_dense().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert vo.terms(model) == list(layer.terms)


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert"])
def test_stock_loaders_give_the_source_and_warn(
    backbones: dict[str, Path], name: str, toy_texts: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    mlm, tokenizer, moved = moved_head(backbones, name)
    folder = saved(moved, tmp_path / "moved")
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)  # to where caplog listens
    inputs = tokenizer(toy_texts[:2], padding=True, return_tensors="pt")
    stock = AutoModelForMaskedLM.from_pretrained(str(folder))
    for name in ("output_vocabulary.weight", "output_vocabulary.bias"):
        assert re.search(f"{name} +[|] UNEXPECTED", caplog.text)
    assert "MISSING" not in caplog.text
    with torch.no_grad():
        assert torch.equal(stock(**inputs).logits, mlm(**inputs).logits)
    assert stock.get_input_embeddings().weight is stock.get_output_embeddings().weight
    with pytest.raises(ValueError, match="trust_remote_code"):
        SparseEncoder(str(folder), device="cpu")
    caplog.clear()
    load_checkpoint(folder)
    vo.load(folder)
    assert "LOAD REPORT" not in caplog.text


@pytest.mark.slow
def test_rescale_calibrate_and_inspect_look_at_the_new_terms(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    _, tokenizer, moved = moved_head(backbones, "roberta")
    layer = output_vocabulary(moved.mlm)
    assert layer is not None
    rescaled = output_vocabulary(rescale(moved.mlm, 4))
    assert rescaled is not None
    assert torch.equal(rescaled.weight, layer.weight / 4)
    calibration = calibrate(moved.mlm, tokenizer, toy_texts, activation_rate=0.2)
    calibrated = output_vocabulary(calibration.mlm)
    assert calibrated is not None
    ordinary = np.setdiff1d(np.arange(len(layer.terms)), special_columns(moved.mlm, tokenizer))
    torch.testing.assert_close(calibrated.bias[ordinary], layer.bias[ordinary] - calibration.shift)
    assert len(ordinary) == len(layer.terms) - 5
    assert calibration.after.share == pytest.approx(0.2, abs=0.01)
    for model in (moved.mlm, calibration.mlm):
        assert torch.equal(model.get_input_embeddings().weight, moved.mlm.get_input_embeddings().weight)
    found = vo.inspect(calibration.mlm, tokenizer=tokenizer, texts=toy_texts)
    assert (found.head.terms, found.head.own_terms, found.head.tied) == (len(layer.terms), True, False)
    assert found.head.norm_mean == pytest.approx(float(layer.weight.detach().norm(dim=1).mean()))
    assert "own terms" in str(found)
    assert "transfer" not in found.verdict


def test_verbs_that_need_the_terms_of_the_tokenizer_refuse_others_in_one_line(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path
) -> None:
    _, tokenizer, moved = moved_head(backbones, "bert")
    with pytest.raises(ModelError):
        pretrain(moved.mlm, tokenizer, toy_texts, PretrainSettings(texts=["-"], steps=1), tmp_path / "run")
    for head_only in (False, True):
        with pytest.raises(ModelError):
            transfer(moved.mlm, tokenizer, moved.target, init="mean", bias="keep", head_only=head_only)


def test_neighbours_are_named_by_the_terms(backbones: dict[str, Path]) -> None:
    _, tokenizer, moved = moved_head(backbones, "roberta")
    shared = int(moved.alignment.anchors[0])
    word = moved.target.convert_ids_to_tokens(shared)
    same = tokenizer.convert_ids_to_tokens(int(moved.alignment.source_of[shared]))
    assert neighbours(moved, tokenizer, word).made_of == [(same, 1.0)]


@pytest.fixture
def pairs(toy_texts: list[str], tmp_path: Path) -> Path:
    rows = [json.dumps({"query": text, "positive": f"chapter {text}"}) for text in sorted(set(toy_texts))[:32]]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return tmp_path / "pairs.jsonl"


def recipe_of(model: Path, pairs: Path, **parts: Any) -> Any:
    training = {"steps": 4, "batch_size": 4, "save_every": 2}
    return make_recipe({"model": str(model), "data": {"examples": [str(pairs)]}, "training": training, **parts})


@pytest.mark.slow
def test_a_recipe_moves_the_head_trains_it_and_saves_it(
    backbones: dict[str, Path], toy_texts: list[str], pairs: Path, tmp_path: Path
) -> None:
    target = load_checkpoint(backbones["bert"])[1]
    recipe = recipe_of(backbones["roberta"], pairs, transfer={"target": str(backbones["bert"]), "head_only": True})
    model = vo.train(recipe, tmp_path / "trained")
    assert vo.terms(model) == target.convert_ids_to_tokens(range(len(target)))
    assert set(model[0].tokenizer.get_vocab()) == set(load_checkpoint(backbones["roberta"])[1].get_vocab())
    start = output_vocabulary(moved_head(backbones, "roberta")[2].mlm)
    trained = output_vocabulary(model[0].auto_model)
    assert start is not None
    assert trained is not None
    assert not torch.equal(trained.weight, start.weight)

    texts = toy_texts[:4]
    vectors = vo.encode(model, texts).toarray()
    model.save_pretrained(str(tmp_path / "again"))
    again = vo.load(tmp_path / "again", device="cpu")
    np.testing.assert_array_equal(vo.encode(again, texts).toarray(), vectors)
    assert vo.terms(again) == vo.terms(model)
    with pytest.raises(ValueError, match="trust_remote_code"):  # a stock loader, which knows nothing of the terms
        SparseEncoder(str(tmp_path / "trained"), device="cpu")
    stock = SparseEncoder(str(tmp_path / "trained"), device="cpu", trust_remote_code=True)
    embeddings = stock.encode_document(texts)
    np.testing.assert_allclose(embeddings.to_dense().numpy(), vectors, rtol=1e-4, atol=1e-5)
    assert stock.decode(embeddings)[0][0][0] == vo.terms(model)[vectors[0].argmax()]


@pytest.mark.slow
def test_a_killed_training_goes_on_with_its_terms(
    backbones: dict[str, Path], toy_texts: list[str], pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(moved_head(backbones, "roberta")[2], tmp_path / "moved")
    recipe = recipe_of(folder, pairs)
    whole = vo.encode(vo.train(recipe, tmp_path / "whole"), toy_texts[:4])

    from vocable.training.callbacks import ProgressLog

    def killed(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProgressLog, "on_step_end", killed, raising=False)
        with pytest.raises(KeyboardInterrupt):
            vo.train(recipe, tmp_path / "resumed")
    assert (tmp_path / "resumed.partial" / "train" / "checkpoint-2" / "output_vocabulary.jsonl").is_file()
    resumed = vo.encode(vo.train(recipe, tmp_path / "resumed"), toy_texts[:4])
    np.testing.assert_allclose(resumed.toarray(), whole.toarray(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_command_line_speaks_the_terms(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved, ready, index = (str(tmp_path / name) for name in ("moved", "ready", "index"))
    (tmp_path / "texts.txt").write_text("\n".join(dict.fromkeys(toy_texts)), encoding="utf-8")
    place = str(tmp_path / "texts.txt")
    given = [str(backbones["roberta"]), "--target", str(backbones["bert"]), "-o", moved, "--head-only"]
    assert main(["transfer", *given]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith(f"next: vocable calibrate {moved} TEXTS -o DIR --activation-rate 0.05\n")
    assert vo.provenance(vo.load(moved))[-1]["head_only"] is True
    assert main(["calibrate", moved, place, "-o", ready, "--activation-rate", "0.2"]) == 0
    assert main(["index", ready, place, "-o", index]) == 0
    capsys.readouterr()
    terms = set(load_checkpoint(backbones["bert"])[1].get_vocab())
    assert main(["search", index, toy_texts[0], "--explain", "--json"]) == 0
    matches = json.loads(capsys.readouterr().out)["hits"][0]["explanation"]["matches"]
    assert {match["term"] for match in matches} <= terms
    assert main(["explain", ready, "The Naïve fox", "A naive fox", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["matches"]
    assert {match["term"] for match in found} <= terms
    for match in found:
        assert match["in_query"] is (match["term"] in {"the", "naïve", "naive", "fox"})
        assert match["in_document"] is (match["term"] in {"a", "naive", "fox"})


@pytest.mark.parametrize("name", ["modernbert", "albert"])
def test_terms_are_learned_wherever_tokens_spell_them(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, name: str
) -> None:
    """Continuations have labels only with the longest spans, of tokens that differ from those after a space."""
    counts = {}
    for masking in ("whole-word", "longest-span"):
        model = vo.transfer(vo.load(str(backbones[name])), str(backbones["bert"]), head_only=True)
        adapted = vo.pretrain(
            model, toy_texts, work=tmp_path / masking, steps=3, batch_size=4, max_length=32, masking=masking, held_out=8
        )
        counts[masking] = vo.provenance(adapted)[-1]["words"]["words"]
        assert vo.provenance(adapted)[-1]["masking"] == masking
    assert counts["longest-span"] >= counts["whole-word"] > 0
    assert name != "modernbert" or counts["longest-span"] > counts["whole-word"]
