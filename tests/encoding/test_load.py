from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import logging

from vocable.encoding.hub import check_length
from vocable.encoding.load import load
from vocable.encoding.pooling import POOLINGS
from vocable.errors import ArgumentError, ModelError
from vocable.torch_models.fuse import splade_modules
from vocable.torch_models.opening import load_target


def is_fused(model: SparseEncoder) -> bool:
    hidden = model[0](model.preprocess(["a fox"]))["token_embeddings"]
    return hidden.shape[-1] == model[0].auto_model.get_output_embeddings().in_features


@pytest.fixture
def texts(toy_texts: list[str]) -> list[str]:
    return [*toy_texts[:8], "fox"]


def test_a_plain_checkpoint_gets_max_pooling_and_the_fused_head(backbone: Path, texts: list[str]) -> None:
    model = load(backbone, device="cpu")
    assert is_fused(model)
    assert not model.training
    assert model[1].pooling_strategy == "max"
    expected = SparseEncoder(str(backbone), device="cpu").encode(texts).to_dense()
    torch.testing.assert_close(model.encode(texts).to_dense(), expected, rtol=1e-5, atol=1e-6)


def test_a_saved_sparse_encoder_keeps_its_pooling_and_activation(
    backbones: dict[str, Path], tmp_path: Path, texts: list[str]
) -> None:
    transformer = Transformer(str(backbones["distilbert"]), transformer_task="fill-mask")
    stock = SparseEncoder(modules=[transformer, SpladePooling("sum", "log1p_relu")], device="cpu")
    stock.save(str(tmp_path / "model"))
    expected = stock.encode(texts).to_dense()
    model = load(tmp_path / "model", device="cpu")
    assert is_fused(model)
    torch.testing.assert_close(model.encode(texts).to_dense(), expected, rtol=1e-5, atol=1e-6)
    assert load(str(tmp_path / "model"), pooling="max", device="cpu")[1].pooling_strategy == "max"


def test_half_precision_checkpoints_are_loaded_in_float32(backbones: dict[str, Path], tmp_path: Path) -> None:
    SparseEncoder(str(backbones["bert"]), device="cpu").bfloat16().save(str(tmp_path / "half"))
    model = load(tmp_path / "half", device="cpu")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_router_with_static_queries_loads_and_gives_what_the_stock_model_gives(
    backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path: Path, texts: list[str]
) -> None:
    tokenizer = tokenizers["wordpiece"]
    static = SparseStaticEmbedding(tokenizer, weight=torch.linspace(0.5, 3, len(tokenizer)))
    documents = [Transformer(str(backbones["bert"]), transformer_task="fill-mask"), SpladePooling()]
    stock = SparseEncoder(modules=[Router.for_query_document([static], documents)], device="cpu")
    stock.save(str(tmp_path / "router"))
    model = load(tmp_path / "router", device="cpu")
    assert len(splade_modules(model)) == 1
    queries = stock.encode_query(texts).to_dense()
    assert (queries > 0).any()
    assert torch.equal(model.encode_query(texts).to_dense(), queries)
    torch.testing.assert_close(
        model.encode_document(texts).to_dense(), stock.encode_document(texts).to_dense(), rtol=1e-5, atol=1e-6
    )


def test_a_dense_model_is_refused(backbones: dict[str, Path], tmp_path: Path) -> None:
    dense = SentenceTransformer(modules=[Transformer(str(backbones["bert"])), Pooling(32)], device="cpu")
    dense.save(str(tmp_path / "dense"))
    with pytest.raises(ModelError):
        load(tmp_path / "dense")


def test_modules_without_a_model_type_count_as_dense(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ModelError):
        load(tmp_path)


def test_an_encoder_without_a_head_is_refused(backbones: dict[str, Path], tmp_path: Path) -> None:
    AutoModel.from_pretrained(backbones["bert"]).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(backbones["bert"]).save_pretrained(tmp_path)
    with pytest.raises(ModelError):
        load(tmp_path)
    load(tmp_path, new_head=True)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        load(tmp_path)


def test_a_sparse_encoder_of_other_modules_is_refused(backbones: dict[str, Path], tmp_path: Path) -> None:
    transformer = Transformer(str(backbones["bert"]), transformer_task="fill-mask")
    SparseEncoder(modules=[transformer], device="cpu").save(str(tmp_path / "other"))
    with pytest.raises(ModelError):
        load(tmp_path / "other", device="cpu")


def test_a_damaged_model_is_refused_by_name(backbones: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    SparseEncoder(str(backbones["bert"]), device="cpu").save(str(folder))
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    weights = folder / modules[0]["path"] / "model.safetensors"
    weights.unlink()
    with pytest.raises(ModelError):
        load(folder, device="cpu")
    weights.write_bytes(b"\x00" * 100)
    with pytest.raises(ModelError):
        load(folder, device="cpu")


def test_a_damaged_configuration_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]", encoding="utf-8")
    (tmp_path / "config_sentence_transformers.json").write_text("{not json", encoding="utf-8")
    with pytest.raises(ModelError):
        load(tmp_path)


def test_an_unknown_pooling_is_refused(backbones: dict[str, Path]) -> None:
    with pytest.raises(ArgumentError):
        load(backbones["bert"], pooling="mean")
    with pytest.raises(ArgumentError):
        load(backbones["bert"], activation="gelu")  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["cpuu", "meta", "cuda:99", ""])
def test_a_device_that_is_not_here_is_refused_and_the_processor_is_always_here(
    backbones: dict[str, Path], device: str
) -> None:
    with pytest.raises(ArgumentError):
        load(backbones["bert"], device=device)
    assert load(backbones["bert"], device="cpu").device.type == "cpu"


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_and_activation_are_chosen_saved_and_read_again(
    backbones: dict[str, Path], tmp_path: Path, texts: list[str], pooling: str, activation: str
) -> None:
    model = load(backbones["distilbert"], pooling=pooling, activation=activation, device="cpu")
    with torch.no_grad():
        model[0].auto_model.get_output_embeddings().bias += 3  # so that a single row has active terms, too
    expected = model.encode(texts).to_dense()
    assert (expected > 0).any(dim=1).all()
    model.save(str(tmp_path / "model"))
    again = load(tmp_path / "model", device="cpu")
    settings = again[1].get_config_dict()
    assert (settings["pooling_strategy"], settings["activation_function"]) == (pooling, activation)
    assert torch.equal(again.encode(texts).to_dense(), expected)


CONFIG, TOKENIZER, HOST = "config.json", "tokenizer_config.json", "sentence_bert_config.json"


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        *((CONFIG, "query_idf", value) for value in ("0.5", -1, [1], True, float("inf"))),
        *((CONFIG, "active_terms", value) for value in ({"query": "x"}, {"query": 0}, {"other": 3}, [3], 5)),
        (CONFIG, "special_terms", "no"),
        (TOKENIZER, "model_max_length", -1),
        (HOST, "query_length", -3),
        (HOST, "document_length", 2.5),
        (HOST, "transformer_task", "text-generation"),
    ],
)
def test_settings_that_no_text_can_be_encoded_with_are_named(
    toy_model: SparseEncoder, tmp_path: Path, file: str, key: str, value: object
) -> None:
    toy_model.save_pretrained(str(tmp_path / "model"))
    path = tmp_path / "model" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ModelError, match=f"model: {key} in {file} ") as caught:
        load(tmp_path / "model")
    assert "\n" not in str(caught.value)


def test_no_bar_is_shown_for_weights_and_others_stay(
    backbones: dict[str, Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "_tqdm_active", True)  # as in a plain script
    seen = list[str]()

    def hook(make: Any, given: Any, options: Any) -> Any:
        seen.append(options.get("desc"))
        return make(*given, **options)

    before = logging.set_tqdm_hook(hook)
    try:
        load(backbones["bert"])
        load_target(backbones["bert"])
        assert capfd.readouterr().err == ""
        assert list(logging.tqdm([1], desc="Others")) == [1]
        assert "Others" in capfd.readouterr().err
        assert seen == ["Others"]
        assert logging.set_tqdm_hook(hook) is hook  # as it was
    finally:
        logging.set_tqdm_hook(before)


def test_a_length_beyond_the_positions_is_known_before_a_model_is_opened(backbones: dict[str, Path]) -> None:
    check_length(backbones["bert"], 80)
    check_length(load(backbones["bert"]), 81)  # which is open, and says so itself
    with pytest.raises(ArgumentError):
        check_length(backbones["bert"], 81)


def test_a_checkpoint_as_splade_was_published_has_the_formula_of_plain_transformers(
    backbones: dict[str, Path], texts: list[str]
) -> None:
    """`naver/splade_v2_max` and its followers are a masked language model and a tokenizer (Formal et al. 2021)."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer, mlm = (kind.from_pretrained(backbones["bert"]) for kind in (AutoTokenizer, AutoModelForMaskedLM))
    inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        weights = torch.log1p(torch.relu(mlm.eval()(**inputs).logits))
    expected = (weights * inputs["attention_mask"].unsqueeze(-1)).max(dim=1).values
    found = load(backbones["bert"], device="cpu").encode(texts).to_dense()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
