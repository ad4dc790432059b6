"""GTE's checkpoints, computed by transformers, against an independent computation; code that loses its buffers."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import gelu
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from tests.torch_models.test_sparse_encoder import publish
from vocable import load, rescale
from vocable.errors import ModelError
from vocable.torch_models.fuse import parts, splade_modules
from vocable.torch_models.opening import load_target

HIDDEN, HEADS, LAYERS, INNER = 32, 2, 2, 48
TEXTS = ["the cat sat on the mat", "a dog barked", "module of the standard library"]


def settings(vocabulary: int, **changes: Any) -> dict[str, Any]:
    """A configuration as GTE's checkpoints have it."""
    return {
        "architectures": ["NewForMaskedLM"],
        "auto_map": {
            "AutoConfig": "Alibaba-NLP/new-impl--configuration.NewConfig",
            "AutoModelForMaskedLM": "Alibaba-NLP/new-impl--modeling.NewForMaskedLM",
        },
        "model_type": "new", "vocab_size": vocabulary, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "intermediate_size": INNER, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 64, "type_vocab_size": 0,
        "initializer_range": 0.02, "layer_norm_type": "layer_norm", "layer_norm_eps": 1e-12, "pad_token_id": 0,
        "position_embedding_type": "rope", "rope_theta": 10000.0, "rope_scaling": None, "pack_qkv": True,
        "unpad_inputs": False, "use_memory_efficient_attention": False, "logn_attention_scale": False,
        "logn_attention_clip1": False, "torch_dtype": "float32",
    } | changes  # fmt: skip


def weights(vocabulary: int, types: int = 0) -> dict[str, torch.Tensor]:
    """Random weights in the layout of GTE's checkpoints."""
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw) * 0.3

    found = {"new.embeddings.word_embeddings.weight": normal(vocabulary, HIDDEN)}
    if types:
        found["new.embeddings.token_type_embeddings.weight"] = normal(types, HIDDEN)
    norms = ["new.embeddings.LayerNorm", "lm_head.norm"]
    for number in range(LAYERS):
        layer = f"new.encoder.layer.{number}"
        for name, outputs, inputs, bias in (
            ("attention.qkv_proj", 3 * HIDDEN, HIDDEN, True),
            ("attention.o_proj", HIDDEN, HIDDEN, True),
            ("mlp.up_gate_proj", 2 * INNER, HIDDEN, False),
            ("mlp.down_proj", HIDDEN, INNER, True),
        ):
            found[f"{layer}.{name}.weight"] = normal(outputs, inputs)
            found |= {f"{layer}.{name}.bias": normal(outputs)} if bias else {}
        norms += [f"{layer}.attn_ln", f"{layer}.mlp_ln"]
    for name in norms:
        found |= {f"{name}.weight": 1 + normal(HIDDEN), f"{name}.bias": normal(HIDDEN)}
    found |= {"lm_head.dense.weight": normal(HIDDEN, HIDDEN), "lm_head.dense.bias": normal(HIDDEN)}
    return found | {"lm_head.decoder.bias": normal(vocabulary)}


def linear(of: dict[str, torch.Tensor], x: torch.Tensor, name: str) -> torch.Tensor:
    product = x @ of[f"{name}.weight"].T
    return product + of[f"{name}.bias"] if f"{name}.bias" in of else product


def norm(of: dict[str, torch.Tensor], x: torch.Tensor, name: str) -> torch.Tensor:
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-12).sqrt()
    return x * of[f"{name}.weight"] + of[f"{name}.bias"]


def logits(of: dict[str, torch.Tensor], tokens: list[int], factor: float | None = None) -> torch.Tensor:
    """The logits [s, v] of one text by the definition of the architecture; `factor` of the NTK scaling."""
    x = norm(of, gelu(linear(of, states(of, tokens, factor), "lm_head.dense")), "lm_head.norm")
    return x @ of["new.embeddings.word_embeddings.weight"].T + of["lm_head.decoder.bias"]


def states(of: dict[str, torch.Tensor], tokens: list[int], factor: float | None = None) -> torch.Tensor:
    """The last states [s, d] of one text by the definition of the architecture."""
    size = HIDDEN // HEADS
    frequencies = torch.tensor([(10000.0 * (factor or 1)) ** (-2 * i / size) for i in range(size // 2)])
    if factor is not None:
        frequencies = frequencies / factor ** (2 / size)
    x = of["new.embeddings.word_embeddings.weight"][tokens]
    angles = torch.arange(len(tokens), dtype=x.dtype)[:, None] * frequencies  # [s, size / 2]

    def turned(x: torch.Tensor) -> torch.Tensor:  # [s, size]: pairs are a half apart
        one, two = x[:, : size // 2], x[:, size // 2 :]
        return torch.cat([one * angles.cos() - two * angles.sin(), two * angles.cos() + one * angles.sin()], dim=1)

    if "new.embeddings.token_type_embeddings.weight" in of:
        x = x + of["new.embeddings.token_type_embeddings.weight"][0]
    x = norm(of, x, "new.embeddings.LayerNorm")
    for number in range(LAYERS):
        layer = f"new.encoder.layer.{number}"
        query, key, value = linear(of, x, f"{layer}.attention.qkv_proj").split(HIDDEN, dim=1)
        heads = []
        for head in range(HEADS):
            some = slice(head * size, (head + 1) * size)
            attention = (turned(query[:, some]) @ turned(key[:, some]).T / math.sqrt(size)).softmax(dim=1)
            heads.append(attention @ value[:, some])
        x = norm(of, x + linear(of, torch.cat(heads, dim=1), f"{layer}.attention.o_proj"), f"{layer}.attn_ln")
        up, gate = linear(of, x, f"{layer}.mlp.up_gate_proj").split(INNER, dim=1)
        x = norm(of, x + linear(of, up * gelu(gate), f"{layer}.mlp.down_proj"), f"{layer}.mlp_ln")
    return x


@pytest.fixture
def make(backbones: dict[str, Path], tmp_path: Path) -> Any:
    """Save a checkpoint in GTE's layout, with the tokenizer of a toy BERT; returns its folder and weights."""

    def made(types: int = 0, **changes: Any) -> tuple[Path, dict[str, torch.Tensor]]:
        folder = tmp_path / "gte"
        shutil.copytree(backbones["bert"], folder, ignore=shutil.ignore_patterns("model.safetensors"))
        vocabulary = len(AutoTokenizer.from_pretrained(folder)) + 3  # as padded as the real one
        found = weights(vocabulary, types)
        save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
        config = settings(vocabulary, type_vocab_size=types, **changes)
        (folder / "config.json").write_text(json.dumps(config))
        return folder, found

    return made


@pytest.mark.parametrize(
    ("types", "changes", "factor"),
    [(0, {}, None), (2, {}, None), (0, {"rope_scaling": {"type": "ntk", "factor": 2.0}}, 2.0)],
)
def test_gte_is_computed_as_its_published_code_does(
    make: Any, types: int, changes: dict[str, Any], factor: float | None
) -> None:
    folder, found = make(types, **changes)
    model = load(folder)  # nobody is asked to trust any code
    encoded = model.encode(TEXTS).to_dense()
    for text, vector in zip(TEXTS, encoded, strict=True):
        tokens = parts(model).tokenizer(text)["input_ids"]
        expected = logits(found, tokens, factor).relu().log1p().amax(0)
        kept = vector > 0  # special tokens are no terms
        assert kept.sum() > 50
        torch.testing.assert_close(vector[kept], expected[kept], rtol=1e-4, atol=1e-5)
    mlm = load_target(folder).model
    assert mlm is not None
    shown = mlm(input_ids=torch.tensor([tokens])).logits[0]
    torch.testing.assert_close(shown, logits(found, tokens, factor), rtol=1e-4, atol=1e-4)


def test_opensearch_v3_gte_takes_the_logarithm_twice(make: Any, tmp_path: Path) -> None:
    plain, found = make()
    routes = {"query": ["query_0_SparseStaticEmbedding"], "document": ["", "document_1_SpladePooling"]}
    model = load(publish(tmp_path / "v3", plain, routes, "log1p_relu"))
    for text in TEXTS:
        vector = model.encode_document(text).to_dense()
        tokens = splade_modules(model)[0][0].tokenizer(text)["input_ids"]
        expected = logits(found, tokens).relu().log1p().log1p().amax(0)
        assert (vector > 0).sum() > 50
        torch.testing.assert_close(vector[vector > 0], expected[vector > 0], rtol=1e-4, atol=1e-5)


def test_a_saved_gte_model_is_a_stock_checkpoint(make: Any, tmp_path: Path) -> None:
    model = load(make()[0])
    rescaled = rescale(model, factor=2)
    rescaled.save_pretrained(str(tmp_path / "saved"))
    again = load(tmp_path / "saved")
    torch.testing.assert_close(again.encode(TEXTS).to_dense(), rescaled.encode(TEXTS).to_dense())
    assert AutoConfig.from_pretrained(tmp_path / "saved").model_type == "gte"
    stock = AutoModelForMaskedLM.from_pretrained(tmp_path / "saved")
    torch.testing.assert_close(stock.get_output_embeddings().weight, parts(rescaled).mlm.get_output_embeddings().weight)
    with pytest.raises(ValueError, match="new"):  # nothing is left behind in transformers
        AutoConfig.for_model("new")


@pytest.mark.parametrize(
    "changes",
    [
        {"position_embedding_type": "absolute"},
        {"logn_attention_scale": True},
        {"layer_norm_type": "rms_norm"},
        {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.75}},
    ],
)
def test_a_variant_that_transformers_has_not_is_refused(make: Any, changes: dict[str, Any]) -> None:
    [key] = changes
    folder, _ = make(**changes)
    with pytest.raises(ModelError, match=f"gte: {key} "):
        load(folder, trust_remote_code=True)


CODE = """
import torch
from transformers import BertConfig, BertForMaskedLM


class OwnConfig(BertConfig):
    model_type = "own-bert"


class OwnForMaskedLM(BertForMaskedLM):
    config_class = OwnConfig
    {line}

    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("table", torch.arange(7.0), persistent=False)
"""


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("", "transformers.*loses table"),
        ("_tied_weights_keys = ['cls.predictions.decoder.weight']", "code.*transformers.*keys"),
    ],
)
def test_code_for_transformers_4_is_refused_for_the_true_reason(
    backbones: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, facts: str
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / "own"
    shutil.copytree(backbones["bert"], folder)
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "own_bert.OwnConfig", "AutoModelForMaskedLM": "own_bert.OwnForMaskedLM"}
    config |= {"model_type": "own-bert", "architectures": ["OwnForMaskedLM"], "auto_map": classes}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own_bert.py").write_text(CODE.format(line=line))
    with pytest.raises(ModelError, match=facts) as caught:
        load(folder, trust_remote_code=True)
    assert "damaged" not in str(caught.value)
