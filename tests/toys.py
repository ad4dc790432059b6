"""Toys that several rooms of tests make."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Never

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from vocable.data import Document
    from vocable.training.objective import BatchStatistics


def killed(*_: object, **__: object) -> Never:
    """Stand for a function during which the process is killed."""
    raise KeyboardInterrupt


def write_corpus(documents: Iterable[Document], path: Path) -> Path:
    """Write documents with their titles and fields as JSON lines."""
    values = [{"_id": one.id, "title": one.title, "text": one.text, **one.fields} for one in documents]
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def sound_batch(documents: int) -> BatchStatistics:
    """Return the figures of a batch of a sound training, with this number of documents."""
    from vocable.training.objective import BatchStatistics

    return BatchStatistics(
        query_terms=40.0,
        document_terms=120.0,
        empty_queries=0.0,
        empty_documents=0.0,
        score=25.0,
        spread=8.0,
        loss=1.2,
        chance=math.log(documents),
        terms=30_522,
        finite=True,
    )


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
