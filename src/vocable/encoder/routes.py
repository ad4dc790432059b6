"""Which of a model's modules encode a role, and what they are told: the way of queries, and that of documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from torch import nn

Role = Literal["query", "document"]

PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}


def route(model: SparseEncoder, role: Role) -> Sequence[nn.Module]:
    """The modules that a text of the role goes through."""
    first = model[0]
    return list(first.sub_modules[role]) if isinstance(first, Router) and role in first.sub_modules else list(model)


def own_prompt(model: SparseEncoder, role: Role) -> str | None:
    """The prompt that `encode_query` and `encode_document` would choose."""
    name = next((name for name in PROMPTS[role] if name in model.prompts), model.default_prompt_name)
    return None if name is None else model.prompts.get(name)


def static_embedding(model: SparseEncoder, role: Role) -> SparseStaticEmbedding | None:
    """The table in which the tokens of the role are looked up; None where an encoder reads them."""
    modules = route(model, role)
    return modules[0] if len(modules) == 1 and isinstance(modules[0], SparseStaticEmbedding) else None
