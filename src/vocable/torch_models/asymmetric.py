"""Asymmetric models, with separate query and document encoders, and the modules, prompt and lengths of a role.

Such models are stock sentence-transformers models with a `Router`. The query encoder may be a table of token weights
(`inference_free.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from torch import nn
from transformers import PreTrainedConfig
from transformers.tokenization_utils_base import LARGE_INTEGER

from vocable.encoding.graph import refuse_exported
from vocable.encoding.protocol import Role
from vocable.errors import ArgumentError, ModelError
from vocable.torch_models.fuse import fuse, main_transformer, splade_modules
from vocable.torch_models.output_vocabulary import output_terms, output_vocabulary

PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}


def route(model: SparseEncoder, role: Role) -> Sequence[nn.Module]:
    """Return the modules that encode a text of the role."""
    first = model[0]
    return list(first.sub_modules[role]) if isinstance(first, Router) and role in first.sub_modules else list(model)


def own_prompt(model: SparseEncoder, role: Role) -> str | None:
    """Return the prompt that `encode_query` and `encode_document` choose."""
    name = next((name for name in PROMPTS[role] if name in model.prompts), model.default_prompt_name)
    return None if name is None else model.prompts.get(name)


def static_embedding(model: SparseEncoder, role: Role) -> SparseStaticEmbedding | None:
    """Return the table of token weights of a role; None if an encoder reads its texts."""
    modules = route(model, role)
    return modules[0] if len(modules) == 1 and isinstance(modules[0], SparseStaticEmbedding) else None


def role_config(model: SparseEncoder, role: Role) -> PreTrainedConfig:
    """Return the configuration of the encoder of a role, or of the other encoder if a table encodes the role."""
    first = route(model, role)[0]
    if not isinstance(first, Transformer):
        first = main_transformer(model)
    return first.auto_model.config


def terms_kept(model: SparseEncoder, role: Role) -> int | None:
    """Return the number of heaviest terms that a model keeps of a text of the role; None for all terms."""
    limits: dict[str, int] = getattr(role_config(model, role), "active_terms", None) or {}
    limit: int | None = model.max_active_dims
    return limits.get(role, limit)


def length_read(model: SparseEncoder, role: Role, override: int | None = None) -> int | None:
    """Return the maximum number of tokens of a text, `override` or the model's limit; None without a limit.

    Raises `ArgumentError` if the model has fewer positions.
    """
    first: Any = route(model, role)[0]
    if static_embedding(model, role) is not None:
        longest = override or first.tokenizer.model_max_length
        return longest if longest < LARGE_INTEGER else None  # transformers' number for no maximum
    if not isinstance(first, Transformer):
        return None
    longest = positions(first)
    if override is not None and override > longest:
        raise ArgumentError(f"max_length must be at most {longest}, the positions of this model, not {override}")
    length: int | None = override or (first.query_length if role == "query" else first.document_length)
    return length or first.max_seq_length


def positions(transformer: Transformer) -> int:
    """Return the number of tokens that a model can read."""
    most: int = getattr(transformer.config, "max_position_embeddings", transformer.tokenizer.model_max_length)
    for module in transformer.modules():
        if isinstance(table := getattr(module, "position_embeddings", None), nn.Embedding):
            # RoBERTa's positions begin after the position of padding.
            most = table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    longest: int = transformer.tokenizer.model_max_length
    return min(longest, most)


def asymmetric(queries: SparseEncoder, documents: SparseEncoder) -> SparseEncoder:
    """Return a model with copies of the query encoder of `queries` and the document encoder of `documents`.

    Raises `ModelError` if the two have different terms, or terms that are not their tokens.
    """
    for model in (queries, documents):
        refuse_exported(model)
        refuse_output_vocabulary(model)
    encoders = [main_transformer(model) for model in (queries, documents)]
    if len({tuple(output_terms(encoder.auto_model, encoder.tokenizer)) for encoder in encoders}) > 1:
        raise ModelError("the query encoder and the document encoder do not have the same terms: they share no score")
    prompts = {"query": own_prompt(queries, "query"), "document": own_prompt(documents, "document")}
    copies = copy.deepcopy(queries), copy.deepcopy(documents)
    return routed(route(copies[0], "query"), route(copies[1], "document"), documents, prompts)


def routed(
    queries: Sequence[nn.Module], documents: Sequence[nn.Module], like: SparseEncoder, prompts: dict[str, str | None]
) -> SparseEncoder:
    """Make a fused model of these modules, with `prompts` by role; other settings are copied from `like`."""
    model = SparseEncoder(
        modules=[Router.for_query_document(list(queries), list(documents))],
        device=str(like.device),
        prompts={role: prompt for role, prompt in prompts.items() if prompt},
        similarity_fn_name=like.similarity_fn_name,
        max_active_dims=like.max_active_dims,
    )
    return fuse(model).eval()


def refuse_output_vocabulary(model: SparseEncoder) -> None:
    """Raise `ModelError` if the terms of `model` are not its tokens: sentence-transformers could not load it."""
    if any(output_vocabulary(transformer.auto_model) is not None for transformer, _ in splade_modules(model)):
        raise ModelError(
            "the model has an output vocabulary other than its tokenizer's: "
            "separate query and document encoders need terms that are tokens"
        )


def trainable_tables(model: SparseEncoder) -> list[SparseStaticEmbedding]:
    """Return the tables of token weights that training changes."""
    return [module for module in model.modules() if isinstance(module, SparseStaticEmbedding) and not module.frozen]
