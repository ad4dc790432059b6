"""Checkpoints in the layouts in which they are published, against the computation that their authors publish."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from vocable import export_model, index, inspect, load, search
from vocable.encoding.encode import encode
from vocable.errors import ModelError

TEXTS = [
    "the fox ran over the hill and slept in the rain",
    "a librarian reads a book to the children in the hall",
    "the quick brown fox, the lazy dog, the fox",
]
OLD = "sentence_transformers.sparse_encoder.models."  # of modules that version 5 saved
TABLE = "query_0_SparseStaticEmbedding"


def publish(folder: Path, backbone: Path, routes: Mapping[str, Sequence[str]], activation: str = "relu") -> Path:
    """Write a checkpoint as the Hub has it: the weights at the root, other modules in folders named by their class."""

    def write(file: str, content: object) -> None:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(json.dumps(content))

    shutil.copytree(backbone, folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    types = {path: OLD + (path.rpartition("_")[2] or "MLMTransformer") for paths in routes.values() for path in paths}
    for path in types:
        if path.endswith("SpladePooling"):
            pooling = {"pooling_strategy": "max", "activation_function": activation, "word_embedding_dimension": None}
            write(f"{path}/config.json", pooling)
        elif path.endswith("SparseStaticEmbedding"):
            write(f"{path}/config.json", {"frozen": True})
            tokenizer.save_pretrained(folder / path)
            save_file({"weight": table(len(tokenizer))}, folder / path / "model.safetensors")
    write("sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": False})
    saved = {"model_type": "SparseEncoder", "prompts": {"query": "", "document": ""}, "similarity_fn_name": "dot"}
    write("config_sentence_transformers.json", saved)
    modules = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(types.items())]
    if "query" in routes:
        modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}]
        parameters = {"default_route": "document", "allow_empty_key": True}
        write("router_config.json", {"types": types, "structure": routes, "parameters": parameters})
    write("modules.json", modules)
    return folder


def table(size: int) -> torch.Tensor:
    return torch.linspace(0.5, 6, size)


def splade(folder: Path, logs: int = 1) -> torch.Tensor:
    """The maximum over tokens of log(1 + ReLU(x)), or of log(1 + log(1 + ReLU(x))), as the model cards have it."""
    tokenizer, mlm = (kind.from_pretrained(folder) for kind in (AutoTokenizer, AutoModelForMaskedLM))
    inputs = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        weights = mlm.eval().float()(**inputs).logits.relu()
    for _ in range(logs):
        weights = torch.log(1 + weights)
    weights = (weights * inputs["attention_mask"].unsqueeze(-1)).amax(1)
    weights[:, tokenizer.all_special_ids] = 0
    return weights


def looked_up(folder: Path, weights: torch.Tensor) -> torch.Tensor:
    """The weight of each token of a text, once."""
    tokenizer, found = AutoTokenizer.from_pretrained(folder), torch.zeros(len(TEXTS), len(weights))
    for row, text in zip(found, TEXTS, strict=True):
        for token in tokenizer(text, add_special_tokens=False)["input_ids"]:
            row[token] = weights[token]
    return found


def check(folder: Path, queries: torch.Tensor, documents: torch.Tensor) -> None:
    model = load(folder, device="cpu")
    for role, expected in (("query", queries), ("document", documents)):
        found = torch.from_numpy(encode(model, TEXTS, role, dtype="float32").toarray())  # type: ignore[arg-type]
        assert ((expected > 0).sum(1) > 2).all()
        torch.testing.assert_close(found, expected[:, : found.shape[1]], rtol=1e-4, atol=1e-5)


def test_splade_v2_and_v3_granite_and_prithivida_are_an_encoder_with_pooling(
    backbones: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("distilbert", "bert"):
        folder = publish(tmp_path / name, backbones[name], {"": ["", "1_SpladePooling"]})
        check(folder, splade(backbones[name]), splade(backbones[name]))
    mlm = AutoModelForMaskedLM.from_pretrained(backbones["roberta"]).bfloat16()  # as Granite's weights are
    shutil.copytree(backbones["roberta"], tmp_path / "half")
    mlm.save_pretrained(tmp_path / "half")
    folder = publish(tmp_path / "granite", tmp_path / "half", {"": ["", "1_SpladePooling"]})
    check(folder, splade(tmp_path / "half"), splade(tmp_path / "half"))
    assert inspect(folder, texts=TEXTS).kind == "max pooling of log(1 + ReLU(x))"


@pytest.mark.parametrize("logs", [1, 2])
def test_opensearch_looks_queries_up(backbones: dict[str, Path], tmp_path: Path, logs: int) -> None:
    routes = {"query": [TABLE], "document": ["", "document_1_SpladePooling"]}
    folder = publish(tmp_path / "model", backbones["distilbert"], routes, ["relu", "log1p_relu"][logs - 1])
    tokens = len(AutoTokenizer.from_pretrained(folder))
    check(folder, looked_up(folder, table(tokens)), splade(backbones["distilbert"], logs))
    assert inspect(folder, texts=TEXTS).kind.endswith(
        "ReLU(x))" + ")" * (logs - 1) + ", queries looked up in token weights"
    )


def test_opensearch_without_modules_has_a_table_of_idf(backbones: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(backbones["distilbert"], folder)
    vocabulary = AutoTokenizer.from_pretrained(folder).get_vocab()
    weights = table(len(vocabulary))
    (folder / "idf.json").write_text(json.dumps({token: float(weights[i]) for token, i in vocabulary.items()}))
    check(folder, looked_up(folder, weights), splade(backbones["distilbert"]))
    for content in ("[1, 2]", '{"fox": "one"}', "{"):
        (folder / "idf.json").write_text(content)
        with pytest.raises(ModelError, match=r"idf\.json"):
            load(folder)


def test_efficient_splade_has_two_encoders(backbones: dict[str, Path], tmp_path: Path) -> None:
    query = ["query_0_MLMTransformer", "query_1_SpladePooling"]
    routes = {"query": query, "document": ["", "document_1_SpladePooling"]}
    folder = publish(tmp_path / "model", backbones["distilbert"], routes)
    shutil.copytree(backbones["bert"], folder / query[0])
    shutil.copy(folder / "sentence_bert_config.json", folder / query[0])
    check(folder, splade(backbones["bert"]), splade(backbones["distilbert"]))
    assert inspect(folder, texts=TEXTS).kind.endswith("queries encoded by a separate BertForMaskedLM")


def test_splade_lexical_has_only_the_own_tokens_of_a_query(backbones: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(backbones["bert"], backbone := tmp_path / "backbone")
    mlm = AutoModelForMaskedLM.from_pretrained(backbone)
    mlm.get_output_embeddings().bias.data += 3  # so that texts have some of their own tokens
    mlm.save_pretrained(backbone)
    query = ["", "query_1_SpladePooling", "query_2_SparseStaticEmbedding"]
    routes = {"query": query, "document": ["", "document_1_SpladePooling"]}
    folder = publish(tmp_path / "model", backbone, routes)
    ones = torch.ones(len(AutoTokenizer.from_pretrained(folder)))
    save_file({"weight": ones}, folder / query[2] / "model.safetensors")
    check(folder, splade(backbone) * looked_up(folder, ones), splade(backbone))
    assert inspect(folder, texts=TEXTS).kind.endswith("queries keep only the terms of their own tokens")
    with pytest.raises(ModelError):
        export_model(load(folder, device="cpu"), tmp_path / "graph")


@pytest.fixture
def decoder(tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path: Path) -> Path:
    """A plain causal language model, which pads in front, and whose tokenizer adds no special tokens."""
    from tokenizers import Tokenizer, processors

    backend = Tokenizer.from_str(tokenizers["byte-level"].backend_tokenizer.to_str())
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    special = {"pad_token": "<pad>", "eos_token": "</s>", "padding_side": "left", "model_max_length": 100}
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(tmp_path / "decoder")
    config = Qwen3Config(
        vocab_size=len(backend.get_vocab()) + 7, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=128,
        tie_word_embeddings=True, initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(tmp_path / "decoder")
    return tmp_path / "decoder"


def qwen3_logits(folder: Path, tokens: list[int], causal: bool) -> torch.Tensor:
    """The logits [s, v] of one text by the definition of the architecture."""
    w = Qwen3ForCausalLM.from_pretrained(folder).state_dict()

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w[f"{name}.weight"]

    angles = torch.arange(len(tokens))[:, None] * torch.tensor([10000.0 ** (-2 * i / 8) for i in range(4)])

    def turned(x: torch.Tensor) -> torch.Tensor:
        one, two = x[:, :4], x[:, 4:]
        return torch.cat([one * angles.cos() - two * angles.sin(), two * angles.cos() + one * angles.sin()], dim=1)

    hidden = torch.full((len(tokens), len(tokens)), -torch.inf).triu(1) if causal else torch.zeros(1)
    x = w["model.embed_tokens.weight"][tokens]
    for layer in ("model.layers.0", "model.layers.1"):
        y = norm(x, f"{layer}.input_layernorm")
        query, key, value = (y @ w[f"{layer}.self_attn.{part}_proj.weight"].T for part in "qkv")
        heads = []
        for head in range(4):
            own, shared = slice(8 * head, 8 * head + 8), slice(8 * (head // 2), 8 * (head // 2) + 8)
            q = turned(norm(query[:, own], f"{layer}.self_attn.q_norm"))
            k = turned(norm(key[:, shared], f"{layer}.self_attn.k_norm"))
            heads.append((q @ k.T / 8**0.5 + hidden).softmax(1) @ value[:, shared])
        x = x + torch.cat(heads, 1) @ w[f"{layer}.self_attn.o_proj.weight"].T
        y = norm(x, f"{layer}.post_attention_layernorm")
        gate, up, down = (w[f"{layer}.mlp.{part}_proj.weight"].T for part in ("gate", "up", "down"))
        x = x + (torch.nn.functional.silu(y @ gate) * (y @ up)) @ down
    return norm(x, "model.norm") @ w["model.embed_tokens.weight"].T


@pytest.mark.parametrize("causal", [False, True])
def test_splade_code_is_a_decoder_whose_tokens_may_see_the_whole_text(
    decoder: Path, tmp_path: Path, causal: bool
) -> None:
    folder = publish(tmp_path / "model", decoder, {"": ["", "1_SpladePooling"]})
    config = json.loads((folder / "config.json").read_text()) | ({} if causal else {"is_causal": False})
    config["auto_map"] = {"AutoModelForMaskedLM": "splade.Qwen3ForCausalLM"}  # which is not asked for, nor there
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = [qwen3_logits(folder, tokenizer(text)["input_ids"], causal).relu().log1p().amax(0) for text in TEXTS]
    expected = torch.stack(rows)
    special = [i for i, token in tokenizer.added_tokens_decoder.items() if token.special]
    expected[:, [*special, *range(len(tokenizer), expected.shape[1])]] = 0
    check(folder, expected, expected)
    model = load(folder, device="cpu")
    for text, row in zip(TEXTS, expected, strict=True):  # alone, without padding
        np.testing.assert_allclose(encode(model, [text], dtype="float32").toarray()[0], row, rtol=1e-4, atol=1e-5)
    vectors = encode(model, ["", TEXTS[0], " "], dtype="float32")
    assert (vectors.count_nonzero(axis=1) > 0).tolist() == [False, True, False]
    assert encode(model, [""], dtype="float32").nnz == 0
    kind = "Qwen3ForCausalLM", f"a token sees {'only earlier tokens' if causal else 'the whole text'}"
    found = inspect(folder, texts=TEXTS)
    assert (found.architecture, found.kind) == (kind[0], f"max pooling of log(1 + ReLU(x)), {kind[1]}")
    model.save_pretrained(str(tmp_path / "again"))
    check(tmp_path / "again", expected, expected)
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"id": str(i), "text": text}) for i, text in enumerate(TEXTS)))
    index(folder, corpus, tmp_path / "index")
    assert search(tmp_path / "index", [TEXTS[1]], 1)[0].hits[0].document.id == "1"


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2"])
def test_other_decoders_see_the_whole_text(decoder: Path, tmp_path: Path, family: str) -> None:
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family, vocab_size=400, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3, is_causal=False,
    )  # fmt: skip
    mlm, expected = AutoModelForCausalLM.from_config(config).eval(), torch.zeros(len(TEXTS), 400)
    mlm.save_pretrained(decoder)
    config.is_causal = True  # from here on a mask says what is seen
    tokenizer = AutoTokenizer.from_pretrained(decoder)
    for row, text in zip(expected, TEXTS, strict=True):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        nothing_hidden = torch.zeros(1, 1, ids.shape[1], ids.shape[1])
        row[:] = mlm(ids, attention_mask=nothing_hidden).logits[0].detach().relu().log1p().amax(0)
    special = [i for i, token in tokenizer.added_tokens_decoder.items() if token.special]
    expected[:, [*special, *range(len(tokenizer), 400)]] = 0
    check(publish(tmp_path / "model", decoder, {"": ["", "1_SpladePooling"]}), expected, expected)


@pytest.mark.slow
@pytest.mark.parametrize("int8", [False, True])
def test_a_decoder_is_exported(decoder: Path, tmp_path: Path, int8: bool) -> None:
    folder = publish(tmp_path / "model", decoder, {"": ["", "1_SpladePooling"]})
    made = export_model(load(folder, device="cpu"), tmp_path / "graph", int8=int8, texts=[*TEXTS, "fox"])
    wanted, found = (encode(load(one, device="cpu"), ["", *TEXTS]).toarray() for one in (folder, tmp_path / "graph"))
    assert made.same_top > 0.8
    assert (wanted[1:] > 0).sum(1).min() > 20
    np.testing.assert_allclose(found, wanted, atol=1 if int8 else 1e-4)


def test_models_of_other_kinds_are_refused_for_the_true_reason(
    decoder: Path, backbones: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ModelError):
        load(decoder)
    t5 = T5Config(vocab_size=50, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0)
    for name, made in (
        ("reranker", BertForSequenceClassification.from_pretrained(backbones["bert"])),
        ("t5", T5ForConditionalGeneration(t5)),
    ):
        shutil.copytree(backbones["bert"], tmp_path / name)
        made.save_pretrained(tmp_path / name)
        with pytest.raises(ModelError):
            load(tmp_path / name)
    for name, file in (("one", "adapter_config.json"), ("two", "lora/adapter_config.json")):
        folder = tmp_path / name
        shutil.copytree(backbones["bert"], folder, ignore=shutil.ignore_patterns("*.safetensors"))
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text('{"base_model_name_or_path": "Qwen/Qwen3-8B"}')
        if name == "one":
            (folder / "config.json").unlink()
        with pytest.raises(ModelError) as caught:
            load(folder)
        assert "\n" not in str(caught.value)
