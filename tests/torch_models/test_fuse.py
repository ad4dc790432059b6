from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM, BertForMaskedLM

from tests.conftest import some_pairs
from vocable.encoding.load import load
from vocable.encoding.pooling import POOLINGS
from vocable.errors import ArgumentError, ModelError
from vocable.torch_models import head
from vocable.torch_models.fuse import fuse, pack, plain_decoder, splade_modules, unfuse, without_logits
from vocable.training.callbacks import set_dropout

Features = dict[str, Any]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "TERM_BLOCK", 50)  # several blocks and a rest in a toy vocabulary


def stock(folder: Path, pooling: str = "max", activation: str = "relu", dtype: Any = torch.float32) -> SparseEncoder:
    """A stock SparseEncoder in training mode (in evaluation mode its in-place activation has no gradient)."""
    model = SparseEncoder(str(folder), device="cpu").to(dtype)
    model[1].pooling_strategy, model[1].activation_function = pooling, activation
    set_dropout(model, 0.0)
    with torch.no_grad():
        model[0].auto_model.get_output_embeddings().bias += 1  # so that a single token has active terms, too
    return model.train()


def padded(model: SparseEncoder, toy_texts: list[str]) -> Features:
    features = model.preprocess([toy_texts[0], "fox", toy_texts[1] * 2, "", "the the the"])
    assert not features["attention_mask"].all()
    return features


def one_token(model: SparseEncoder, toy_texts: list[str]) -> Features:
    ids = padded(model, toy_texts)["input_ids"][:, 1:2]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def one_token_among_longer(model: SparseEncoder, toy_texts: list[str]) -> Features:
    features = padded(model, toy_texts)
    features["attention_mask"][1, 1:] = 0
    return features


def run(model: SparseEncoder, features: Features) -> tuple[Tensor, dict[str, Tensor]]:
    """Embeddings [b, v] and every parameter's gradient of their squared norm, weighted at random by term."""
    model.zero_grad()
    output = model(dict(features))["sentence_embedding"]
    weights = torch.randn(output.shape[1], generator=torch.Generator().manual_seed(0))
    (output.float() ** 2 * weights).sum().backward()
    return output.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_gradients_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Up to float32 rounding of the largest gradient: some (of an attention's key bias) are zero but for rounding."""
    assert found.keys() == expected.keys()
    scale = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=2e-6 * scale)


def error(found: Tensor, expected: Tensor) -> float:
    return float(torch.linalg.norm(found.double() - expected.double()) / torch.linalg.norm(expected.double()))


@pytest.mark.parametrize(("name", "batch"), some_pairs([padded, one_token, one_token_among_longer]))
def test_outputs_and_gradients_are_the_stock_model_s(
    backbones: dict[str, Path], name: str, batch: Any, toy_texts: list[str]
) -> None:
    model = stock(backbones[name])
    features = batch(model, toy_texts)
    expected, expected_gradients = run(model, features)
    found, gradients = run(fuse(model), features)
    assert found.shape == expected.shape
    assert 0.02 < float((expected > 0).float().mean()) < 0.8
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert_gradients_close(gradients, expected_gradients)


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_every_pooling_and_activation_is_the_stock_one(
    backbones: dict[str, Path], pooling: str, activation: str, toy_texts: list[str]
) -> None:
    model = stock(backbones["bert"], pooling, activation)
    features = padded(model, toy_texts)
    expected, expected_gradients = run(model, features)
    found, gradients = run(fuse(model), features)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert_gradients_close(gradients, expected_gradients)


@pytest.mark.parametrize("batch", [padded, one_token])
def test_the_fused_head_in_bfloat16_is_no_further_from_float32_than_the_stock_model(
    backbone: Path, batch: Any, toy_texts: list[str]
) -> None:
    exact = stock(backbone)
    features = batch(exact, toy_texts)
    outputs, gradients = run(exact, features)
    expected, expected_gradients = run(stock(backbone, dtype=torch.bfloat16), features)
    found, found_gradients = run(fuse(stock(backbone, dtype=torch.bfloat16)), features)
    assert found.dtype == torch.float32
    # Rounding moves winners about in both; neither is right to the bit, so they are held against the exact result.
    assert error(found, outputs) < 1.2 * error(expected, outputs) + 0.005
    assert error(found, expected) < 0.02
    ours, theirs, right = (
        torch.cat([part[name].flatten() for name in gradients])
        for part in (found_gradients, expected_gradients, gradients)
    )
    assert error(ours, right) < 1.5 * error(theirs, right) + 0.02


def test_the_fused_head_under_autocast_is_no_further_from_float32_than_the_stock_model(
    backbones: dict[str, Path], toy_texts: list[str]
) -> None:
    model = stock(backbones["bert"])
    features = padded(model, toy_texts)
    outputs, _ = run(model, features)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, _ = run(model, features)
        found, gradients = run(fuse(model), features)
    assert error(found, outputs) < 1.2 * error(expected, outputs) + 0.005
    assert all(gradient.dtype == torch.float32 for gradient in gradients.values())


def test_flat_batches_of_flash_attention_are_pooled_text_by_text(
    backbones: dict[str, Path], toy_texts: list[str]
) -> None:
    model = stock(backbones["roberta"])
    decoder = model[0].auto_model.get_output_embeddings()
    hidden = torch.randn(1, 9, 32, generator=torch.Generator().manual_seed(0))
    bounds = torch.tensor([0, 4, 5, 9], dtype=torch.int32)
    expected = model[1]({"token_embeddings": decoder(hidden), "cu_seq_lens_q": bounds})["sentence_embedding"]
    found = fuse(model)[1]({"token_embeddings": hidden, "cu_seq_lens_q": bounds})["sentence_embedding"]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_pack_drops_padding_on_either_side() -> None:
    hidden = torch.arange(12.0).view(2, 3, 2)
    packed, offsets = pack({"token_embeddings": hidden, "attention_mask": torch.tensor([[0, 1, 1], [1, 0, 0]])})
    assert offsets == [0, 2, 3]
    assert packed.tolist() == [[2, 3], [4, 5], [6, 7]]


def test_fusing_twice_changes_nothing_and_unfusing_restores_the_last_bit(backbone: Path, toy_texts: list[str]) -> None:
    model = stock(backbone)
    features = padded(model, toy_texts)
    expected, expected_gradients = run(model, features)
    once, _ = run(fuse(model), features)
    twice, _ = run(fuse(model), features)
    assert torch.equal(once, twice)
    restored, gradients = run(unfuse(model), features)
    assert torch.equal(restored, expected)
    assert all(torch.equal(gradients[name], gradient) for name, gradient in expected_gradients.items())
    assert torch.equal(run(unfuse(model), features)[0], expected)


def test_state_dict_and_ties_are_unchanged(backbone: Path) -> None:
    model = stock(backbone)
    before = {name: (value.data_ptr(), value.clone()) for name, value in model.state_dict().items()}
    fuse(model)
    after = model.state_dict()
    assert list(after) == list(before)
    for name, (pointer, value) in before.items():
        assert after[name].data_ptr() == pointer
        assert torch.equal(after[name], value)
    mlm = model[0].auto_model
    assert mlm.get_output_embeddings().weight is mlm.get_input_embeddings().weight


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_fused_model_is_its_own(backbones: dict[str, Path], copied: Any, toy_texts: list[str]) -> None:
    model = fuse(stock(backbones["bert"]))
    features = padded(model, toy_texts)
    expected, _ = run(model, features)
    twin = copied(model)
    assert torch.equal(run(twin, features)[0], expected)
    with torch.no_grad():
        twin[0].auto_model.get_output_embeddings().bias += 1
    changed, _ = run(twin, features)
    assert (changed > expected).any()
    assert torch.equal(run(model, features)[0], expected)
    unfuse(twin)
    torch.testing.assert_close(run(twin, features)[0], changed, rtol=1e-5, atol=1e-6)
    assert torch.equal(run(model, features)[0], expected)


def test_a_saved_fused_model_is_a_plain_sentence_transformers_folder(
    backbone: Path, tmp_path: Path, toy_texts: list[str]
) -> None:
    model = stock(backbone).eval()
    expected = model.encode(toy_texts[:20], convert_to_sparse_tensor=False)
    fuse(model).save(str(tmp_path / "saved"))
    plain = SparseEncoder(str(tmp_path / "saved"), device="cpu")
    assert torch.equal(plain.encode(toy_texts[:20], convert_to_sparse_tensor=False), expected)
    fused = model.encode(toy_texts[:20], convert_to_sparse_tensor=False)
    torch.testing.assert_close(fused, expected, rtol=1e-5, atol=1e-6)


def test_encode_of_a_fused_model_gives_what_the_stock_one_gives(
    backbones: dict[str, Path], toy_texts: list[str]
) -> None:
    model = stock(backbones["bert"])
    expected = model.encode(toy_texts[:40], batch_size=7).to_dense()
    torch.testing.assert_close(fuse(model).encode(toy_texts[:40], batch_size=7).to_dense(), expected)


class LowRank(nn.Linear):
    """A Linear with an added term, as adapter libraries put in place of a Linear."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x.sum(dim=-1, keepdim=True)


class ScaledBert(BertForMaskedLM):
    """An architecture that changes its logits after the output layer."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits * 0.5
        return output


def test_an_adapter_in_the_decoder_s_place_is_refused(backbones: dict[str, Path]) -> None:
    model = stock(backbones["bert"])
    model[0].auto_model.set_output_embeddings(LowRank(32, model[0].config.vocab_size))
    with pytest.raises(ModelError):
        fuse(model)


def test_a_head_whose_logits_overflow_is_refused_as_such(backbones: dict[str, Path]) -> None:
    mlm = stock(backbones["roberta"])[0].auto_model
    with torch.no_grad():
        mlm.get_output_embeddings().weight.mul_(1e38)
    with pytest.raises(ModelError) as refused:
        plain_decoder(mlm)
    assert "not finite" in str(refused.value)


def test_a_quantized_decoder_is_refused_by_its_full_name(backbones: dict[str, Path]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces a successor
        quantized = torch.ao.quantization.quantize_dynamic(stock(backbones["bert"])[0].auto_model, {nn.Linear})
    with pytest.raises(ModelError):
        plain_decoder(quantized)


def test_logits_changed_after_the_decoder_are_refused(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    model = stock(backbones["bert"])
    features = padded(model, toy_texts)
    mlm = model[0].auto_model
    mlm.__class__ = ScaledBert
    expected, _ = run(model, features)
    with pytest.raises(ModelError):
        fuse(model)
    assert model.training
    assert torch.equal(run(model, features)[0], expected)  # a refused model is left as it was


def test_models_without_a_splade_head_are_refused(backbones: dict[str, Path]) -> None:
    folder = str(backbones["bert"])
    with pytest.raises(ModelError):
        plain_decoder(AutoModel.from_pretrained(folder))
    headless = SparseEncoder(modules=[Transformer(folder, transformer_task="fill-mask")], device="cpu")
    with pytest.raises(ModelError):
        fuse(headless)


def test_all_routes_of_a_router_are_fused(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    routes = {
        role: [Transformer(str(backbones[name]), transformer_task="fill-mask"), SpladePooling()]
        for role, name in (("query", "bert"), ("document", "distilbert"))
    }
    model = SparseEncoder(modules=[Router.for_query_document(routes["query"], routes["document"])], device="cpu")
    assert len(splade_modules(model)) == 2
    texts = toy_texts[:5]
    expected = [model.encode_query(texts).to_dense(), model.encode_document(texts).to_dense()]
    fuse(model)
    torch.testing.assert_close(model.encode_query(texts).to_dense(), expected[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.encode_document(texts).to_dense(), expected[1], rtol=1e-5, atol=1e-6)
    assert not torch.equal(*expected)


def test_cls_pooling_activates_the_first_token_s_logits(backbone: Path, toy_texts: list[str]) -> None:
    model = stock(backbone)
    features = padded(model, toy_texts)
    mlm = model[0].auto_model
    inputs = {key: value for key, value in features.items() if key in ("input_ids", "attention_mask")}
    expected = torch.log1p(torch.relu(mlm(**inputs).logits[:, 0]))
    fuse(model)[1].pooling_strategy = "cls"
    torch.testing.assert_close(run(model, features)[0], expected.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_mean_before_the_head_activates_the_logits_of_the_mean_token(
    backbone: Path, activation: str, toy_texts: list[str]
) -> None:
    model = stock(backbone, activation=activation)
    features = padded(model, toy_texts)
    mlm, mask = model[0].auto_model, features["attention_mask"].bool()
    inputs = {key: value for key, value in features.items() if key in ("input_ids", "attention_mask")}
    logits = mlm(**inputs).logits
    # The decoder is linear: the logits of the mean are the mean of the logits.
    expected = torch.stack([text[real].mean(dim=0) for text, real in zip(logits, mask, strict=True)])
    expected = torch.log1p(torch.relu(expected))
    expected = torch.log1p(expected) if activation == "log1p_relu" else expected
    weights = torch.randn(expected.shape[1], generator=torch.Generator().manual_seed(0))
    model.zero_grad()
    (expected**2 * weights).sum().backward()
    expected_gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    fuse(model)[1].pooling_strategy = "mean-before-head"
    found, gradients = run(model, features)
    assert (expected > 0).any()
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)
    assert_gradients_close(gradients, expected_gradients)


@pytest.mark.parametrize("pooling", [name for name, pooling in POOLINGS.items() if not pooling.stock])
def test_a_text_without_a_token_is_refused(toy_model: SparseEncoder, pooling: str, toy_texts: list[str]) -> None:
    toy_model[1].pooling_strategy = pooling
    features = padded(toy_model, toy_texts)
    features["attention_mask"][1] = 0
    with pytest.raises(ArgumentError):
        toy_model(features)


@pytest.mark.parametrize("pooling", [name for name, pooling in POOLINGS.items() if not pooling.stock])
def test_a_pooling_of_ours_is_refused_by_stock_classes_and_read_by_load(
    toy_model: SparseEncoder, pooling: str, tmp_path: Path, toy_texts: list[str]
) -> None:
    toy_model[1].pooling_strategy = pooling
    expected = toy_model.encode(toy_texts[:5]).to_dense()
    toy_model.save(str(tmp_path / "model"))
    with pytest.raises(ValueError, match=r"pooling_strategy .*'max' or 'sum'"):
        SparseEncoder(str(tmp_path / "model"), device="cpu")
    assert torch.equal(load(tmp_path / "model", device="cpu").encode(toy_texts[:5]).to_dense(), expected)
    with pytest.raises(ValueError, match=r"pooling_strategy .*'max' or 'sum'"):
        SpladePooling(pooling)  # load leaves the stock classes as they were


@pytest.mark.parametrize("pooling", [name for name, pooling in POOLINGS.items() if not pooling.stock])
def test_a_pooling_of_ours_cannot_be_unfused(toy_model: SparseEncoder, pooling: str, toy_texts: list[str]) -> None:
    toy_model[1].pooling_strategy = pooling
    expected = toy_model.encode(toy_texts[:5]).to_dense()
    with pytest.raises(ModelError):
        unfuse(toy_model)
    assert torch.equal(toy_model.encode(toy_texts[:5]).to_dense(), expected)


@pytest.fixture
def mlm_and_ids(backbones: dict[str, Path]) -> tuple[Any, Tensor]:
    return AutoModelForMaskedLM.from_pretrained(backbones["bert"]).eval(), torch.tensor([[2, 9, 11, 3]])


def test_without_logits_hands_the_decoder_s_input_through_and_gives_the_logits_back(mlm_and_ids: Any) -> None:
    mlm, ids = mlm_and_ids
    logits = mlm(input_ids=ids).logits
    with without_logits(mlm) as decoder:
        hidden = mlm(input_ids=ids).logits
        assert hidden.shape == (1, 4, 32)
        assert torch.equal(nn.functional.linear(hidden, decoder.weight, decoder.bias), logits)
    assert torch.equal(mlm(input_ids=ids).logits, logits)


def test_without_logits_restores_the_decoder_after_an_error(mlm_and_ids: Any) -> None:
    mlm, ids = mlm_and_ids
    logits = mlm(input_ids=ids).logits
    with pytest.raises(RuntimeError), without_logits(mlm):
        raise RuntimeError("stop")
    assert torch.equal(mlm(input_ids=ids).logits, logits)


def test_without_logits_leaves_a_fused_model_fused(toy_model: SparseEncoder, toy_texts: list[str]) -> None:
    expected = toy_model.encode(toy_texts[:5]).to_dense()
    with without_logits(toy_model[0].auto_model):
        pass
    assert torch.equal(toy_model.encode(toy_texts[:5]).to_dense(), expected)
