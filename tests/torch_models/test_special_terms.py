"""Special and unused tokens are no terms, wherever a text is encoded; texts of unknown tokens have no terms."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, PreTrainedTokenizerFast

from vocable import calibrate, encode, index, inspect, load, make_inference_free, search
from vocable.adapt.expand_vocabulary import expand_vocabulary
from vocable.encoding.encode import EncodedCorpus
from vocable.encoding.terms import special_terms, terms
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ModelError
from vocable.torch_models.fuse import fuse
from vocable.torch_models.output_vocabulary import special_tokens

UNREADABLE = ["", "  ", "言葉", "葉 言", "[CLS]", "[MASK] [PAD]"]  # by the toy WordPiece tokenizer


@pytest.fixture
def lively(backbone: Path, tmp_path: Path) -> Path:
    """Each architecture's checkpoint, of which every text makes every special token a heavy term."""
    return with_lively_tokens(backbone, tmp_path / "lively")


def with_lively_tokens(backbone: Path, folder: Path) -> Path:
    mlm, tokenizer = AutoModelForMaskedLM.from_pretrained(backbone), AutoTokenizer.from_pretrained(backbone)
    bias = mlm.get_output_embeddings().bias
    bias.data[bias < -100] = 50.0
    mlm.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_no_special_token_is_a_term_of_any_text(lively: Path, toy_texts: list[str], tmp_path: Path) -> None:
    texts, model = toy_texts[:6], load(lively, device="cpu")
    columns = special_terms(model)
    assert len(columns) >= 5
    stock = SparseEncoder(str(lively), device="cpu").encode(texts).to_dense().numpy()
    assert (stock[:, columns] > 3).all()
    vectors = encode(model, texts, dtype="float32").toarray()
    assert not vectors[:, columns].any()
    ordinary = np.setdiff1d(np.arange(stock.shape[1]), columns)
    np.testing.assert_allclose(vectors[:, ordinary], stock[:, ordinary], rtol=1e-4, atol=1e-5)
    # So it is for the host library's own methods, in a training, and where the model is saved and read by another.
    assert not model.encode(texts).to_dense().numpy()[:, columns].any()
    model.train()
    features = model.preprocess(texts)
    pooled = model(features)["sentence_embedding"]
    assert pooled.requires_grad
    assert not pooled[:, columns].any()
    model.eval().save_pretrained(str(tmp_path / "saved"))
    again = SparseEncoder(str(tmp_path / "saved"), device="cpu").encode(texts).to_dense().numpy()
    np.testing.assert_allclose(again, vectors, rtol=1e-4, atol=1e-5)


def test_special_terms_stay_silent_through_a_training_step(toy_model: SparseEncoder, toy_texts: list[str]) -> None:
    columns = special_terms(toy_model)
    optimizer = torch.optim.AdamW(toy_model.parameters(), lr=0.1)
    for _ in range(3):
        pooled = toy_model.train()(toy_model.preprocess(toy_texts[:4]))["sentence_embedding"]
        assert not pooled[:, columns].any()
        (-pooled.sum()).backward()  # everything is to become heavier
        optimizer.step()
    assert not encode(toy_model, toy_texts[:4])[:, columns].nnz


def test_special_terms_that_are_asked_for_stay_in_a_saved_model(backbones: dict[str, Path], tmp_path: Path) -> None:
    folder = with_lively_tokens(backbones["bert"], tmp_path / "lively")
    model = load(folder, special_terms=True, device="cpu")
    columns = special_terms(model)
    texts = ["the old fox", ""]
    expected = SparseEncoder(str(folder), device="cpu").encode(texts).to_dense().numpy()
    np.testing.assert_allclose(encode(model, texts, dtype="float32").toarray(), expected, rtol=1e-4, atol=1e-5)
    assert encode(model, texts)[:, columns].nnz == 2 * len(columns)
    model.save_pretrained(str(tmp_path / "kept"))
    assert encode(load(tmp_path / "kept", device="cpu"), texts)[:, columns].nnz == 2 * len(columns)


def test_a_stock_model_is_encoded_without_them_and_not_changed(backbones: dict[str, Path], tmp_path: Path) -> None:
    model = SparseEncoder(str(with_lively_tokens(backbones["bert"], tmp_path / "lively")), device="cpu")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert not encode(model, ["the old fox"])[:, special_terms(model)].nnz
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_head_without_a_bias_is_silenced_as_well(backbones: dict[str, Path], tmp_path: Path) -> None:
    folder, backbone = tmp_path / "free", backbones["modernbert"]
    config = AutoConfig.from_pretrained(backbone)
    config.decoder_bias = False
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(backbone).save_pretrained(folder)
    model = load(folder, device="cpu")
    columns, texts = special_terms(model), ["the old fox reads books", "the lazy dog"]
    stock = SparseEncoder(str(folder), device="cpu").encode(texts).to_dense().numpy()
    assert stock[:, columns].any()
    vectors = encode(model, texts, dtype="float32").toarray()
    assert not vectors[:, columns].any()
    assert vectors.any()
    stock[:, columns] = 0
    np.testing.assert_allclose(vectors, stock, rtol=1e-4, atol=1e-5)
    assert not any(name.endswith("decoder.bias") for name in model.state_dict())
    assert not inspect(model, texts=[" ".join(texts * 2), " ".join(texts * 3)]).head.biased
    with pytest.raises(ModelError):
        calibrate(model, texts, shift=1)


def test_looked_up_queries_have_no_special_terms(toy_model: SparseEncoder) -> None:
    model = make_inference_free(toy_model, weights="ones")
    [table] = [module for module in model.modules() if isinstance(module, SparseStaticEmbedding)]
    table.weight.data.fill_(2.0)  # as other toolkits write it
    vectors = encode(fuse(model), ["the 言 fox [SEP]", "言葉", ""], role="query")
    assert sorted(terms(model)[column] for column in vectors[[0]].indices) == ["fox", "the"]
    assert np.diff(vectors.indptr).tolist() == [2, 0, 0]


def test_special_terms_of_an_output_vocabulary_are_recognized_by_name(toy_model: SparseEncoder) -> None:
    model = expand_vocabulary(toy_model, ["fox", "old", "dog"])
    layer = model[0].auto_model.output_vocabulary
    layer.terms = ("fox", "[CLS]", "[unused7]")
    layer.bias.data.fill_(50.0)
    assert encode(fuse(model), ["the old fox"]).indices.tolist() == [0]


def test_special_tokens_of_each_family_are_recognized(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    for family, names in {
        "wordpiece": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        "byte-level": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    }.items():
        tokenizer = tokenizers[family]
        assert {tokenizer.convert_ids_to_tokens(int(i)) for i in special_tokens(tokenizer)} == set(names)
        size = len(tokenizer)
        assert special_tokens(tokenizer, size + 2)[-2:].tolist() == [size, size + 1]  # columns that pad a head
        assert special_tokens(tokenizer, 3).tolist() == [0, 1, 2]


def test_unused_and_added_tokens_stand_for_no_text(
    tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path: Path
) -> None:
    tokenizers["wordpiece"].save_pretrained(tmp_path)
    written = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    first = len(written["model"]["vocab"])
    for number, token in enumerate(["[unused0]", "[unused993]", "<unused12>", "madeupword0003", "unused"]):
        written["model"]["vocab"][token] = first + number
    (tmp_path / "tokenizer.json").write_text(json.dumps(written), encoding="utf-8")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.add_tokens(["<|query|>"], special_tokens=True)
    tokenizer.add_tokens(["gene"])
    found = special_tokens(tokenizer).tolist()
    assert found == [0, 1, 2, 3, 4, *range(first, first + 4), tokenizer.convert_tokens_to_ids("<|query|>")]


@pytest.mark.parametrize("long_documents", ["truncate", "maxpool"])
def test_a_text_of_unknown_tokens_has_no_terms(toy_model: SparseEncoder, long_documents: Any) -> None:
    encoder = TextEncoder(toy_model, long_documents=long_documents)
    vectors = encoder.encode([*UNREADABLE, "the 言 fox", "言 葉 fox", "fox"])
    assert [bool(count) for count in np.diff(vectors.indptr)] == [False] * len(UNREADABLE) + [True] * 3
    assert encoder.unknown == 3  # 言葉, 葉 言, 言 葉 fox; what is empty is not unknown
    assert encoder.encode(["fox"]).nnz
    assert encoder.unknown == 3


def test_a_prompt_does_not_make_a_text_known(backbones: dict[str, Path]) -> None:
    prompts = {"query": "the rain ", "document": "An Owl "}
    model = fuse(SparseEncoder(str(backbones["bert"]), prompts=prompts, device="cpu"))
    for role in ("query", "document"):
        encoder = TextEncoder(model, role)  # type: ignore[arg-type]
        assert not encoder.encode(UNREADABLE).nnz
        assert encoder.unknown == 2


def test_only_what_is_read_counts(toy_model: SparseEncoder) -> None:
    assert not encode(toy_model, ["言 葉 言 葉 the old fox"], max_length=6).nnz  # [CLS], four unknown ones and [SEP]
    assert encode(toy_model, ["言 葉 言 the old fox"], max_length=6).nnz


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "know" in record.getMessage()]


def test_a_corpus_in_another_language_is_one_warning(
    toy_model: SparseEncoder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = "the model's vocabulary does not know most tokens of {}: it was made for other languages"
    with caplog.at_level(logging.WARNING, logger="vocable"):
        encode(toy_model, ["言葉", "fox"])  # half of it is not more than half
    assert not messages(caplog)
    with caplog.at_level(logging.WARNING, logger="vocable"):
        encode(toy_model, ["言葉", "葉", "fox"])
    assert messages(caplog) == [unknown.format("2 of 3 texts")]
    corpus = tmp_path / "corpus.jsonl"
    rows = [{"_id": str(number), "text": text} for number, text in enumerate(["言葉", "葉", "fox"])]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = encode(toy_model, corpus, output=tmp_path / "vectors")
    assert isinstance(done, EncodedCorpus)
    assert (done.empty, done.unknown) == (2, 2)
    assert "2 texts mostly unknown to the vocabulary" in str(done)
    assert done.to_json()["unknown"] == 2
    assert len(messages(caplog)) == 2
    made = index(toy_model, corpus, tmp_path / "index")
    assert made.built is not None
    assert (made.built.empty, made.built.unknown) == (2, 2)
    assert len(messages(caplog)) == 3


def test_a_query_in_another_language_is_one_warning(
    toy_model: SparseEncoder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"_id": "1", "text": "the old fox"}\n', encoding="utf-8")
    made = index(toy_model, corpus, tmp_path / "index")
    with caplog.at_level(logging.WARNING, logger="vocable"):
        answers = search(made, ["fox", "言 the fox", "言葉", "言 葉 fox"])
    assert [len(answer.hits) for answer in answers] == [1, 1, 0, 1]
    [message] = messages(caplog)
    assert "2 of 4 queries" in message
