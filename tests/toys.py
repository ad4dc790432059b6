"""Toys that several rooms of tests make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Never

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def killed(*_: object, **__: object) -> Never:
    """Stand for a function during which the process is killed."""
    raise KeyboardInterrupt


def make_m3(tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    """Write files as BGE-M3 has them, but for weights in safetensors; its head is stored in 16 bits."""
    import torch
    from transformers import XLMRobertaConfig, XLMRobertaModel

    config = XLMRobertaConfig(
        vocab_size=len(tokenizer) + 3, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=66, pad_token_id=1, bos_token_id=2, eos_token_id=3, initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(0)
    XLMRobertaModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for file, size in (("sparse_linear.pt", 1), ("colbert_linear.pt", 32)):
        torch.save(torch.nn.Linear(32, size).half().state_dict(), folder / file)
    (folder / "modules.json").write_text("[]")
    return folder
