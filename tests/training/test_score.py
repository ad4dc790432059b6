"""Teacher scores: each pair's own, whatever the teacher, as the host library gives them one at a time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from vocable.data import read_examples
from vocable.errors import ArgumentError, ModelError
from vocable.training import mine as rewrite
from vocable.training.mine import teacher_scores
from vocable.training.teachers import load_scoring_model

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


def cross_encoder(folder: Path, tokenizer: PreTrainedTokenizerFast, labels: int = 1) -> Path:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), num_labels=labels, initializer_range=0.2, max_position_embeddings=80, **SIZES
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def cross(tmp_path: Path, tokenizers: dict[str, PreTrainedTokenizerFast]) -> Path:
    return cross_encoder(tmp_path / "cross", tokenizers["wordpiece"])


@pytest.fixture
def dense(tmp_path: Path, backbones: dict[str, Path]) -> Path:
    transformer = Transformer(str(backbones["roberta"]))
    pooling = Pooling(transformer.get_embedding_dimension())
    SentenceTransformer(modules=[transformer, pooling], device="cpu").save_pretrained(str(tmp_path / "dense"))
    return tmp_path / "dense"


@pytest.fixture
def examples(tmp_path: Path, toy_texts: list[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eleven examples with none to three negatives, texts of many lengths, in chunks of four."""
    monkeypatch.setattr(rewrite, "CHUNK", 4)
    texts = sorted(set(toy_texts))
    rows = [
        {"query": texts[i][:12], "positive": f"{texts[i]} " * (1 + i % 3), "negatives": texts[40 : 40 + i % 4]}
        for i in range(11)
    ]
    path = tmp_path / "examples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def scored(model, examples: Path, tmp_path: Path) -> list[tuple[str, str, float]]:
    """Every query and text with its score."""
    done = teacher_scores(model, examples, tmp_path / "out.jsonl")
    found = list(read_examples(tmp_path / "out.jsonl"))
    assert [one._replace(source="", scores=()) for one in found] == [
        one._replace(source="") for one in read_examples(examples)
    ]
    assert (done.read, done.written, done.negatives) == (11, 11, sum(i % 4 for i in range(11)))
    return [
        (one.query, text, value)
        for one in found
        for text, value in zip((one.positive, *one.negatives), one.scores, strict=True)
    ]


def test_cross_encoder(cross: Path, examples: Path, tmp_path: Path) -> None:
    model = load_scoring_model(cross)
    assert isinstance(model, CrossEncoder)
    found = scored(model, examples, tmp_path)
    for query, text, value in found:
        inputs = model.tokenizer(query, text, return_tensors="pt", truncation=True, max_length=64)
        with torch.inference_mode():
            logit = model.model(**inputs.to(model.device)).logits.item()
        assert value == pytest.approx(logit, abs=1e-4)
    values = [value for *_, value in found]
    assert not 0 <= min(values) <= max(values) <= 1  # no sigmoid


def test_dense(dense: Path, examples: Path, tmp_path: Path) -> None:
    model = load_scoring_model(dense)
    assert isinstance(model, SentenceTransformer)
    for query, text, value in scored(model, examples, tmp_path):
        one, other = model.encode([query]), model.encode([text])
        assert value == pytest.approx(float(model.similarity(one, other)), abs=1e-4)


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_sparse(backbones: dict[str, Path], examples: Path, tmp_path: Path, architecture: str) -> None:
    model = load_scoring_model(backbones[architecture])
    assert isinstance(model, SparseEncoder)
    for query, text, value in scored(model, examples, tmp_path):
        one, other = (model.encode([part], convert_to_sparse_tensor=False).float() for part in (query, text))
        assert value == pytest.approx(float((one * other).sum()), rel=0.02)


def test_saved_models_say_what_they_are(cross: Path, backbones: dict[str, Path], tmp_path: Path) -> None:
    CrossEncoder(str(cross)).save_pretrained(str(tmp_path / "saved-cross"))
    SparseEncoder(str(backbones["bert"])).save_pretrained(str(tmp_path / "saved-sparse"))
    assert isinstance(load_scoring_model(tmp_path / "saved-cross"), CrossEncoder)
    assert isinstance(load_scoring_model(tmp_path / "saved-sparse"), SparseEncoder)
    assert isinstance(load_scoring_model(backbones["bert"], "dense"), SentenceTransformer)


def test_models_that_cannot_score(tokenizers: dict[str, PreTrainedTokenizerFast], examples: Path, tmp_path: Path):
    several = load_scoring_model(cross_encoder(tmp_path / "several", tokenizers["wordpiece"], labels=3))
    with pytest.raises(ModelError, match="a cross-encoder with 3 labels gives a pair no single score"):
        teacher_scores(several, examples, tmp_path / "out.jsonl")
    with pytest.raises(ModelError, match="nowhere: no such model folder"):
        load_scoring_model(tmp_path / "nowhere")
    (tmp_path / "encoder").mkdir()
    config = {"model_type": "bert", "architectures": ["BertModel"]}
    (tmp_path / "encoder" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelError, match="its configuration names BertModel: say with --kind"):
        load_scoring_model(tmp_path / "encoder")


def test_scores_that_are_not_finite(cross: Path, examples: Path, tmp_path: Path) -> None:
    model = load_scoring_model(cross)
    torch.nn.init.constant_(model.model.classifier.bias, np.nan)
    with pytest.raises(ModelError, match="scores that are not finite"):
        teacher_scores(model, examples, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_another_model_does_not_go_on(cross: Path, examples: Path, tmp_path: Path, monkeypatch) -> None:
    model = load_scoring_model(cross)
    with monkeypatch.context() as patch:
        patch.setattr(rewrite, "write_record", raising)
        with pytest.raises(KeyboardInterrupt):
            teacher_scores(model, examples, tmp_path / "out.jsonl")
    torch.nn.init.constant_(model.model.classifier.bias, 1.0)
    with pytest.raises(ArgumentError, match=r"was made with other settings \(weights\)"):
        teacher_scores(model, examples, tmp_path / "out.jsonl")


def raising(*_: object) -> None:
    raise KeyboardInterrupt
