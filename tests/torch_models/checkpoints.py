"""Folders in the layouts of public checkpoints, tiny and random: what the table of docs/models.md says is tested.

`python -m tests.torch_models.checkpoints` writes the table. The layouts come from listings of the Hub, from the code
that wrote the files, and where neither could be seen, from documentation.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertJapaneseTokenizer,
    PreTrainedTokenizerFast,
)

from tests.torch_models import test_layouts as gte
from tests.torch_models.test_sparse_encoder import TABLE, TEXTS, looked_up, publish, splade, table
from vocable.torch_models.layouts import reading_layouts

DOCUMENT = Path(__file__).parents[2] / "docs" / "models.md"
WEIGHTS, PICKLE = "model.safetensors", "pytorch_model.bin"
PLAIN = {"": ["", "1_SpladePooling"]}
FREE = {"query": [TABLE], "document": ["", "document_1_SpladePooling"]}
Vectors = tuple[Tensor, Tensor]  # of queries and of documents
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


class Toys(NamedTuple):
    """Backbones and tokenizers that the layouts are made of, and a folder for what they need beside themselves."""

    backbones: dict[str, Path]
    tokenizers: dict[str, PreTrainedTokenizerFast]
    place: Path


class Layout(NamedTuple):
    """A layout: how its folder is made, and what its vectors are."""

    name: str
    checkpoints: str  # its cells in the table
    make: Callable[[Path, Toys], object]
    expected: Callable[[Path], Vectors] | None = None  # None for a layout that is refused
    documents: str = "log(1 + ReLU(x)), maximum"
    queries: str = "the same encoder"
    note: str = ""
    needs: str = ""  # a package without which the folder does not open
    facts: str = ""  # of the message of a refusal


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def change(path: Path, **settings: object) -> None:
    write(path, json.loads(path.read_text()) | settings)


def special(folder: Path, size: int) -> list[int]:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    named = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special} | {*tokenizer.all_special_ids}
    return sorted({i for i in range(size) if i in named or i >= len(tokenizer)})


def library(folder: Path) -> Vectors:
    """The vectors of sentence-transformers, without special tokens."""
    model = SparseEncoder(str(folder), device="cpu", model_kwargs={"dtype": "float32"})
    queries, documents = (encode(TEXTS).to_dense() for encode in (model.encode_query, model.encode_document))
    for vectors in (queries, documents):
        vectors[:, special(folder, vectors.shape[1])] = 0
    return queries, documents


def by_hand(logs: int = 1) -> Callable[[Path], Vectors]:
    """The same encoder for both roles: the definition, computed with transformers."""
    return lambda folder: (splade(folder, logs), splade(folder, logs))


def from_table(logs: int = 1) -> Callable[[Path], Vectors]:
    def vectors(folder: Path) -> Vectors:
        documents = splade(folder, logs)
        return looked_up(folder, table(len(AutoTokenizer.from_pretrained(folder)))), documents

    return vectors


def plain(name: str) -> Callable[[Path, Toys], object]:
    return lambda folder, toys: shutil.copytree(toys.backbones[name], folder)


def published(name: str, routes: Any = PLAIN, activation: str = "relu") -> Callable[[Path, Toys], object]:
    return lambda folder, toys: publish(folder, toys.backbones[name], routes, activation)


def after(make: Callable[[Path, Toys], object], *steps: Callable[[Path], object]) -> Callable[[Path, Toys], object]:
    """Make a folder, and change it in steps."""

    def made(folder: Path, toys: Toys) -> None:
        make(folder, toys)
        for step in steps:
            step(folder)

    return made


def pickle(folder: Path) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / PICKLE)
    (folder / WEIGHTS).unlink()


def graph(folder: Path) -> None:
    write(folder / "onnx" / "model.onnx", "a graph")


def halved(dtype: torch.dtype) -> Callable[[Path], None]:
    def half(folder: Path) -> None:
        save_file({k: v.to(dtype) for k, v in load_file(folder / WEIGHTS).items()}, folder / WEIGHTS, {"format": "pt"})
        change(folder / "config.json", dtype=str(dtype).removeprefix("torch."))

    return half


def shards(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    files = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    of = {name: files[i % 2] for i, name in enumerate(tensors)}
    for file in files:
        save_file({k: v for k, v in tensors.items() if of[k] == file}, folder / file, {"format": "pt"})
    write(folder / f"{WEIGHTS}.index.json", {"metadata": {}, "weight_map": of})


def random_backbone(kind: str, family: str) -> Callable[[Path, Toys], object]:
    """A masked language model of another architecture, saved as a sparse encoder."""

    def made(folder: Path, toys: Toys) -> None:
        tokenizer, place = toys.tokenizers[family], toys.place / f"backbone-{kind}"
        settings = {"vocab_size": len(tokenizer) + 3, "max_position_embeddings": 80, "initializer_range": 0.3, **SIZES}
        settings |= {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.cls_token_id}
        torch.manual_seed(0)
        AutoModelForMaskedLM.from_config(AutoConfig.for_model(kind, **settings)).save_pretrained(place)
        tokenizer.save_pretrained(place)
        publish(folder, place, PLAIN)

    return made


def own_terms_of_queries(folder: Path, toys: Toys) -> None:
    routes = {"query": ["", "query_1_SpladePooling", "query_2_SparseStaticEmbedding"], "document": FREE["document"]}
    publish(folder, toys.backbones["bert"], routes)
    tensors = load_file(folder / WEIGHTS)
    tensors["cls.predictions.bias"] += 3  # so that texts have some of their own tokens
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def two_encoders(folder: Path, toys: Toys) -> None:
    query = ["query_0_MLMTransformer", "query_1_SpladePooling"]
    publish(folder, toys.backbones["distilbert"], {"query": query, "document": FREE["document"]})
    shutil.copytree(toys.backbones["bert"], folder / query[0])
    shutil.copy(folder / "sentence_bert_config.json", folder / query[0])


def limited(folder: Path) -> None:
    change(folder / "config_sentence_transformers.json", prompts={"query": "find: ", "document": ""}, max_active_dims=9)


def tables(*files: str) -> Callable[[Path], None]:
    def write_tables(folder: Path) -> None:
        vocabulary = AutoTokenizer.from_pretrained(folder).get_vocab()
        weights = {
            token: float(weight)
            for token, weight in zip(
                sorted(vocabulary, key=lambda t: vocabulary[t]), table(len(vocabulary)), strict=True
            )
        }
        for file in files:
            lines = "".join(f"{token}\t{weight}\n" for token, weight in weights.items())
            write(folder / file, weights if file.endswith("json") else lines)

    return write_tables


def gte_mlm(folder: Path, toys: Toys) -> None:
    shutil.copytree(toys.backbones["bert"], folder, ignore=shutil.ignore_patterns(WEIGHTS))
    size = len(toys.tokenizers["wordpiece"]) + 3
    save_file(gte.weights(size), folder / WEIGHTS, metadata={"format": "pt"})
    write(folder / "config.json", gte.settings(size))


def opensearch_gte(folder: Path, toys: Toys) -> None:
    gte_mlm(toys.place / "gte", toys)
    publish(folder, toys.place / "gte", FREE, "log1p_relu")


def gte_pooled(folder: Path) -> Vectors:
    with reading_layouts():
        mlm = AutoModelForMaskedLM.from_pretrained(folder).eval()
    of, tokenizer = load_file(folder / WEIGHTS), PreTrainedTokenizerFast.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    logits = mlm(**inputs).logits.detach()
    ids = tokenizer(TEXTS[0])["input_ids"]
    torch.testing.assert_close(logits[0, : len(ids)], gte.logits(of, ids), rtol=1e-4, atol=1e-4)
    documents = (logits.relu().log1p().log1p() * inputs["attention_mask"][:, :, None]).amax(1)
    documents[:, special(folder, documents.shape[1])] = 0
    return looked_up(folder / TABLE, table(len(tokenizer))), documents


def decoder(folder: Path, toys: Toys) -> None:
    place, tokenizer = toys.place / "decoder", toys.tokenizers["byte-level"]
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "qwen3", vocab_size=len(tokenizer) + 7, head_dim=8, num_key_value_heads=1, tie_word_embeddings=True,
        max_position_embeddings=128, initializer_range=0.3, **SIZES,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    publish(folder, place, PLAIN)
    change(folder / "config.json", is_causal=False, auto_map={"AutoModelForMaskedLM": "splade.Qwen3ForCausalLM"})


def decoder_pooled(folder: Path) -> Vectors:
    config = AutoConfig.from_pretrained(folder)
    config.is_causal = True  # a mask says what is seen
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder, config=config).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    rows = []
    for text in TEXTS:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        nothing_hidden = torch.zeros(1, 1, ids.shape[1], ids.shape[1])
        rows.append(model(ids, attention_mask=nothing_hidden).logits[0].detach().relu().log1p().amax(0))
    vectors = torch.stack(rows)
    vectors[:, special(folder, vectors.shape[1])] = 0
    return vectors, vectors


def token_weights(folder: Path, encoder: Any, w: Tensor, c: Tensor, query: str = "amax") -> Vectors:
    """The weight ReLU(w . h + c) of each token; the largest, or in a query the sum, of a term's tokens."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    hidden = encoder.eval()(**inputs).last_hidden_state.detach()
    weights = (hidden @ w + c).relu() * inputs["attention_mask"]
    queries, documents = (
        torch.zeros(len(TEXTS), size).scatter_reduce(1, inputs["input_ids"], weights, reduction)
        for reduction in (query, "amax")
    )
    for vectors in (queries, documents):
        vectors[:, special(folder, size)] = 0
    return queries, documents


def bge_m3(folder: Path, toys: Toys) -> None:
    tokenizer = toys.tokenizers["byte-level"]
    config = AutoConfig.for_model(
        "xlm-roberta",
        vocab_size=len(tokenizer) + 3,
        max_position_embeddings=66,
        pad_token_id=1,
        initializer_range=0.3,
        **SIZES,
    )
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    torch.save(torch.nn.Linear(32, 1).half().state_dict(), folder / "sparse_linear.pt")
    write(folder / "modules.json", [])


def bge_weights(folder: Path) -> Vectors:
    head = torch.load(folder / "sparse_linear.pt", weights_only=True)
    return token_weights(folder, AutoModel.from_pretrained(folder), head["weight"][0].float(), head["bias"].float())


def gte_tagger(folder: Path, toys: Toys) -> None:
    gte_mlm(folder, toys)
    tensors = {k: v for k, v in load_file(folder / WEIGHTS).items() if not k.startswith("lm_head")}
    tensors |= {"classifier.weight": torch.linspace(-1, 1, gte.HIDDEN)[None], "classifier.bias": torch.tensor([4.0])}
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    change(folder / "config.json", architectures=["NewForTokenClassification"], id2label={"0": "LABEL_0"})
    kinds = ["models.Transformer", "models.Pooling"]
    write(
        folder / "modules.json",
        [
            {"idx": i, "name": str(i), "path": ["", "1_Pooling"][i], "type": f"sentence_transformers.{kind}"}
            for i, kind in enumerate(kinds)
        ],
    )
    write(
        folder / "1_Pooling" / "config.json", {"word_embedding_dimension": gte.HIDDEN, "pooling_mode_cls_token": True}
    )


def gte_weights(folder: Path) -> Vectors:
    with reading_layouts():
        encoder = AutoModel.from_pretrained(folder).eval()
    of, ids = load_file(folder / WEIGHTS), PreTrainedTokenizerFast.from_pretrained(folder)(TEXTS[0])["input_ids"]
    hidden = encoder(torch.tensor([ids])).last_hidden_state[0].detach()
    torch.testing.assert_close(hidden, gte.states(of, ids), rtol=1e-4, atol=1e-4)
    return token_weights(folder, encoder, of["classifier.weight"][0], of["classifier.bias"])


def unicoil(folder: Path, toys: Toys) -> None:
    shutil.copytree(toys.backbones["bert"], folder)
    tensors = {f"coil_encoder.{k}": v for k, v in load_file(folder / WEIGHTS).items() if k.startswith("bert.")}
    torch.manual_seed(0)
    head = torch.nn.Linear(32, 1).state_dict()
    torch.save(tensors | {f"coil_encoder.tok_proj.{k}": v for k, v in head.items()}, folder / PICKLE)
    (folder / WEIGHTS).unlink()
    change(folder / "config.json", architectures=["UniCoilEncoder"])


def unicoil_weights(folder: Path) -> Vectors:
    of, encoder = (
        torch.load(folder / PICKLE, weights_only=True),
        AutoModel.from_config(AutoConfig.from_pretrained(folder)).eval(),
    )
    names = {k.removeprefix("coil_encoder.bert."): v for k, v in of.items() if ".bert." in k}
    assert not encoder.load_state_dict(names, strict=False).unexpected_keys
    head = of["coil_encoder.tok_proj.weight"][0], of["coil_encoder.tok_proj.bias"]
    return token_weights(folder, encoder, *head, "sum")


def lsr(folder: Path, toys: Toys) -> None:
    tensors = load_file(toys.backbones["distilbert"] / WEIGHTS)
    folder.mkdir()
    save_file({f"model.{k}": v for k, v in tensors.items()}, folder / WEIGHTS, {"format": "pt"})
    settings = {
        "model_type": "SPLADE",
        "pool": "max",
        "activation": "relu",
        "norm": "log1p",
        "architectures": ["SPLADE"],
    }
    write(folder / "config.json", settings | {"tf_base_model_name_or_dir": str(toys.backbones["distilbert"])})


def words_pooled(folder: Path) -> Vectors:
    """LSR leaves out the positions of the special tokens around a text."""
    base = json.loads((folder / "config.json").read_text())["tf_base_model_name_or_dir"]
    tokenizer, mlm = AutoTokenizer.from_pretrained(base), AutoModelForMaskedLM.from_pretrained(base).eval()
    rows = []
    for text in TEXTS:
        inputs = tokenizer(text, return_tensors="pt", return_special_tokens_mask=True)
        words = 1 - inputs.pop("special_tokens_mask")[0]
        rows.append((mlm(**inputs).logits[0].detach() * words[:, None]).relu().log1p().amax(0))
    vectors = torch.stack(rows)
    vectors[:, special(Path(base), vectors.shape[1])] = 0
    return vectors, vectors


def lightning(folder: Path, toys: Toys) -> None:
    shutil.copytree(toys.backbones["bert"], folder)
    names = {"bert.": "", "cls.": "projection."}
    tensors = load_file(folder / WEIGHTS)
    save_file(
        {re.sub(r"^(bert|cls)\.", lambda m: names[m[0]], k): v for k, v in tensors.items()},
        folder / WEIGHTS,
        {"format": "pt"},
    )
    change(
        folder / "config.json", model_type="splade", backbone_model_type="bert", architectures=["SpladeBertModel"],
        sparsification="relu_log", query_pooling_strategy="max", doc_pooling_strategy="max", similarity_function="dot",
        query_length=32, doc_length=64, projection="mlm",
    )  # fmt: skip
    change(
        folder / "tokenizer_config.json",
        tokenizer_class="SpladeBertTokenizer",
        backbone_tokenizer_class="BertTokenizer",
    )
    write(folder / "mask_scoring_tokens.json", {"query": None, "doc": None})


def translated(folder: Path) -> Vectors:
    """Lightning IR: the head of BERT on the states of BERT, by the names of the checkpoint."""
    settings = json.loads((folder / "config.json").read_text())
    config = AutoConfig.for_model(
        "bert", **{k: v for k, v in settings.items() if k not in ("model_type", "architectures")}
    )
    mlm = AutoModelForMaskedLM.from_config(config).eval()
    of = load_file(folder / WEIGHTS)
    for module, beginning in ((mlm.cls, "projection."), (mlm.bert, "")):
        named = {k.removeprefix(beginning): v for k, v in of.items() if k.startswith("projection.") == bool(beginning)}
        module.load_state_dict(named, strict=False)
    mlm.tie_weights()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    vectors = (mlm(**inputs).logits.detach().relu().log1p() * inputs["attention_mask"][:, :, None]).amax(1)
    vectors[:, tokenizer.all_special_ids] = 0
    return vectors, vectors


def adapter(folder: Path, toys: Toys) -> None:
    from peft import LoraConfig

    torch.manual_seed(0)
    model = SparseEncoder(str(toys.backbones["bert"]), device="cpu")
    model.add_adapter(LoraConfig(r=4, lora_alpha=16, target_modules=["query", "value"], init_lora_weights=False))
    model.save_pretrained(str(folder), create_model_card=False)


def merged(folder: Path) -> Vectors:
    """W + B A alpha / r for each weight W with an adapter."""
    base = Path(json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"])
    shutil.copytree(base, whole := folder.with_name("whole"))
    tensors, changes = load_file(base / WEIGHTS), load_file(folder / "adapter_model.safetensors")
    for name in [name for name in changes if name.endswith("lora_A.weight")]:
        key = name.removeprefix("base_model.model.").replace("lora_A.", "")
        tensors[key] += changes[name.replace("lora_A", "lora_B")] @ changes[name] * 16 / 4
    save_file(tensors, whole / WEIGHTS, {"format": "pt"})
    return splade(whole), splade(whole)


def autoencoder(folder: Path, toys: Toys) -> None:
    torch.manual_seed(0)
    sparse = SparseAutoEncoder(32, 96, k=8, k_aux=16)
    torch.nn.init.normal_(sparse.latent_bias)
    SparseEncoder(
        modules=[Transformer(str(toys.backbones["bert"])), Pooling(32, "mean"), sparse], device="cpu"
    ).save_pretrained(str(folder), create_model_card=False)


def codes(folder: Path) -> Vectors:
    model = SparseEncoder(str(folder), device="cpu")
    return model.encode_query(TEXTS).to_dense(), model.encode_document(TEXTS).to_dense()


def japanese(folder: Path, toys: Toys) -> None:
    publish(folder, toys.backbones["bert"], PLAIN)
    (folder / "tokenizer.json").unlink()
    names = sorted(toys.tokenizers["wordpiece"].get_vocab().items(), key=lambda item: item[1])
    write(folder / "vocab.txt", "".join(f"{token}\n" for token, _ in names))
    kinds = {
        "word_tokenizer_type": "mecab",
        "subword_tokenizer_type": "wordpiece",
        "mecab_kwargs": {"mecab_dic": "unidic_lite"},
    }
    settings = {"tokenizer_class": "BertJapaneseTokenizer", "model_max_length": 64, "do_lower_case": True}
    write(folder / "tokenizer_config.json", settings | kinds)


def japanese_pooled(folder: Path) -> Vectors:
    tokenizer, mlm = BertJapaneseTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    vectors = (mlm(**inputs).logits.detach().relu().log1p() * inputs["attention_mask"][:, :, None]).amax(1)
    vectors[:, tokenizer.all_special_ids] = 0
    return vectors, vectors


def without_weights(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "model.onnx")


def early_table(folder: Path) -> None:
    text = (folder / "router_config.json").read_text().replace("SparseStaticEmbedding", "IDF")
    (folder / TABLE).rename(folder / "query_0_IDF")
    write(folder / "router_config.json", text)


def first_splade_code(folder: Path, toys: Toys) -> None:
    decoder(folder, toys)
    for file in ("modules.json", "config_sentence_transformers.json", "1_SpladePooling/config.json"):
        (folder / file).unlink()
    (folder / "1_SpladePooling").rmdir()
    change(
        folder / "config.json",
        model_type="splade",
        architectures=["Splade"],
        auto_map={"AutoModel": "splade.Splade", "AutoConfig": "splade.SpladeConfig"},
    )


def part_of_8b(folder: Path, toys: Toys) -> None:
    first_splade_code(folder, toys)
    (folder / WEIGHTS).unlink()
    write(folder / "lora" / "adapter_config.json", {"base_model_name_or_path": "Qwen/Qwen3-8B"})


NAVER = "`naver/splade_v2_max`, `splade_v2_distil`, `splade-cocondenser-ensembledistil`, `-selfdistil`"
SEARCH = "`opensearch-project/opensearch-neural-sparse-encoding"
TABLE_CELL, CONVERT = "a table of weights", "converted"

LAYOUTS = (
    Layout("naver-v2", NAVER, after(plain("distilbert"), pickle), library, note=CONVERT),
    Layout("naver-v2-bert", "", after(plain("bert"), pickle), by_hand()),
    Layout(
        "naver-v3",
        "`naver/splade-v3` (gated)",
        published("bert"),
        library,
        note="converted",
    ),
    Layout(
        "naver-v3-distilbert",
        "`naver/splade-v3-distilbert`",
        after(published("distilbert"), pickle),
        library,
        note=CONVERT,
    ),
    Layout(
        "prithivida",
        "`prithivida/Splade_PP_en_v1`, `_v2`",
        after(published("bert"), graph, pickle),
        library,
        note=CONVERT,
    ),
    Layout(
        "naver-lexical",
        "`naver/splade-v3-lexical`",
        own_terms_of_queries,
        library,
        queries="the same encoder, only the query's own tokens",
    ),
    Layout(
        "efficient",
        "`naver/efficient-splade-V-large-doc`, `-VI-BT-large-doc`",
        two_encoders,
        library,
        queries="their own encoder",
    ),
    Layout("splade-code", "`naver/splade-code-06B`", decoder, decoder_pooled),
    Layout(
        "granite",
        "`ibm-granite/granite-embedding-30m-sparse`",
        after(published("roberta"), halved(torch.bfloat16)),
        library,
    ),
    Layout("float16", "", after(published("bert"), halved(torch.float16)), by_hand()),
    Layout("opensearch-v1", f"{SEARCH}-v1`", plain("bert"), library),
    Layout("opensearch-v2", "`opensearch-...-v2-distill`", published("distilbert"), library),
    Layout(
        "opensearch-doc",
        "`opensearch-...-doc-v1`, `-doc-v2-distill`, `-doc-v2-mini`, `-multilingual-v1`",
        after(published("distilbert", FREE), tables("idf.json", "query_token_weights.txt")),
        library,
        queries=TABLE_CELL,
    ),
    Layout(
        "opensearch-idf",
        "",
        after(plain("bert"), tables("idf.json", "query_token_weights.txt")),
        from_table(),
        queries=TABLE_CELL,
    ),
    Layout(
        "opensearch-txt",
        "",
        after(plain("bert"), tables("query_token_weights.txt")),
        from_table(),
        queries=TABLE_CELL,
    ),
    Layout(
        "opensearch-v3",
        "`opensearch-...-doc-v3-distill`",
        published("distilbert", FREE, "log1p_relu"),
        library,
        "the logarithm twice",
        TABLE_CELL,
    ),
    Layout("opensearch-v3-gte", "`-doc-v3-gte`", opensearch_gte, gte_pooled, "the logarithm twice", TABLE_CELL),
    Layout(
        "example",
        "`sparse-encoder/example-splade-distilbert-base-uncased-nq`, `rasyosef/splade-tiny`, `-mini`",
        after(published("bert"), limited),
        library,
    ),
    Layout(
        "example-free",
        "`sparse-encoder/example-inference-free-splade-distilbert-base-uncased-nq`",
        published("bert", FREE),
        from_table(),
        queries=TABLE_CELL,
    ),
    Layout(
        "camembert",
        "`sparse-encoder/splade-camembert-base-v2`, `antoinelouis/splade-max-camembert-base-mmarcoFR`",
        random_backbone("camembert", "byte-level"),
        library,
    ),
    Layout(
        "modernbert",
        "`telepix/PIXIE-Splade-Preview`, `-v1.0`, `yjoonjang/splade-ko-v1`, `Shuu12121/Code-SparseEncoder-Finch`",
        after(published("modernbert"), graph),
        library,
    ),
    Layout(
        "modernbert-free",
        "`yjoonjang/inference-free-splade-ko-v1`",
        published("modernbert", FREE),
        from_table(),
        queries=TABLE_CELL,
    ),
    Layout("xlm-roberta", "", random_backbone("xlm-roberta", "byte-level"), library),
    Layout("deberta", "", published("deberta"), library),
    Layout("electra", "", published("electra"), library),
    Layout("mpnet", "", published("mpnet"), library),
    Layout("albert", "", published("albert"), library),
    Layout("eurobert", "", random_backbone("eurobert", "byte-level"), library),
    Layout("nomic", "", random_backbone("nomic_bert", "wordpiece"), library),
    Layout("jina", "", random_backbone("jina_embeddings_v3", "byte-level"), library),
    Layout("shards", "", after(published("bert"), shards), by_hand()),
    Layout(
        "japanese",
        "`hotchpotch/japanese-splade-v2`, `-base-v1`, `bizreach-inc/light-splade-japanese-28M`, `-56M`",
        japanese,
        japanese_pooled,
        note="`pip install fugashi unidic-lite`",
        needs="fugashi",
        facts="fugashi",
    ),
    Layout("bge-m3", "`BAAI/bge-m3`", bge_m3, bge_weights, "ReLU(w . h + c) of each token, and a dense vector"),
    Layout(
        "gte-multilingual",
        "`Alibaba-NLP/gte-multilingual-base`",
        gte_tagger,
        gte_weights,
        "ReLU(w . h + c) of each token, and a dense vector",
    ),
    Layout(
        "unicoil",
        "`castorini/unicoil-msmarco-passage`",
        unicoil,
        unicoil_weights,
        "ReLU(w . h + c) of each token",
        "the same encoder, the sum of a term's tokens",
        CONVERT,
    ),
    Layout(
        "lsr", "`lsr42/splade` (learned-sparse-retrieval)", lsr, words_pooled, "log(1 + ReLU(x)), maximum over words"
    ),
    Layout("lightning-ir", "`webis/splade` (Lightning IR)", lightning, translated),
    Layout(
        "adapter",
        "adapters (LoRA) of a sparse encoder",
        adapter,
        merged,
        note="`pip install peft`",
        needs="peft",
        facts="peft",
    ),
    Layout(
        "csr",
        "`nickprock/csr-multi-sentence-BERTino-cv`, `Y-Research-Group/CSR-*`",
        autoencoder,
        codes,
        "the largest codes of an autoencoder",
    ),
    Layout(
        "fastembed",
        "",
        after(plain("bert"), without_weights),
        note="refused: a graph alone",
        facts="model.onnx",
    ),
    Layout(
        "idf-module",
        "",
        after(published("distilbert", FREE), early_table),
        note="refused: a module of no release",
        facts="router_config.json names the module .*IDF",
    ),
    Layout(
        "splade-code-first",
        "",
        first_splade_code,
        note="refused: own code",
        facts="own code",
    ),
    Layout(
        "splade-code-8b",
        "",
        part_of_8b,
        note="refused: own code",
        facts="own code",
    ),
)


def rows() -> Sequence[str]:
    """The lines of the table: checkpoints of equal cells share a line."""
    usual, lines = Layout._field_defaults, dict[tuple[str, ...], list[str]]()
    for one in LAYOUTS:
        cells = ["" if getattr(one, key) == usual[key] else getattr(one, key) for key in ("documents", "queries")]
        if one.checkpoints:
            lines.setdefault((*cells, one.note), []).append(one.checkpoints)
    header = ["| checkpoints | documents | queries | |", "|:--|:--|:--|:--|"]
    return [
        *header,
        *(
            re.sub(r"\|(?=\|)", "| ", f"| {', '.join(names)} | {' | '.join(cells)} |".replace("  |", " |"))
            for cells, names in lines.items()
        ),
    ]


def with_table(text: str) -> str:
    """The page with its table."""
    return re.sub(r"\| checkpoints \|.*?\n\n", lambda _: "\n".join(rows()) + "\n\n", text, flags=re.DOTALL)


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
