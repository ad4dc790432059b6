"""Two ways into one vocabulary: queries and documents encoded by different modules, in one model.

The result is a stock sentence-transformers model with a `Router`, saved and loaded as such.

Which of a model's modules encode a role, and what they are told: the way of queries, and that of documents.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Literal

from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from torch import nn

from vocable.encoder.fuse import fuse, splade_modules
from vocable.encoder.output_vocabulary import output_vocabulary
from vocable.encoder.terms import terms
from vocable.errors import ModelError

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


def asymmetric(queries: SparseEncoder, documents: SparseEncoder) -> SparseEncoder:
    """A model that encodes queries as `queries` does and documents as `documents` does; both are left as they are.

    Args:
        queries: a model from `vocable.load`. Of an asymmetric one, the way of its queries is taken.
        documents: likewise.

    Raises:
        ModelError: they have not the same terms, or one has an output vocabulary of its own.
    """
    for model in (queries, documents):
        refuse_output_vocabulary(model)
    if terms(queries) != terms(documents):
        raise ModelError("the query encoder and the document encoder do not have the same terms: they share no score")
    prompts = {"query": own_prompt(queries, "query"), "document": own_prompt(documents, "document")}
    own = copy.deepcopy(queries), copy.deepcopy(documents)
    return routed(route(own[0], "query"), route(own[1], "document"), documents, prompts)


def routed(
    queries: Sequence[nn.Module], documents: Sequence[nn.Module], like: SparseEncoder, prompts: dict[str, str | None]
) -> SparseEncoder:
    """These modules as a fused model with `prompts` by role; what concerns neither role is as in `like`."""
    model = SparseEncoder(
        modules=[Router.for_query_document(list(queries), list(documents))],
        device=str(like.device),
        prompts={role: prompt for role, prompt in prompts.items() if prompt},
        similarity_fn_name=like.similarity_fn_name,
        max_active_dims=like.max_active_dims,
    )
    return fuse(model).eval()


def refuse_output_vocabulary(model: SparseEncoder) -> None:
    """Raise `ModelError` if the terms of `model` are not its tokens: plain sentence-transformers could not load it."""
    if any(output_vocabulary(transformer.auto_model) is not None for transformer, _ in splade_modules(model)):
        raise ModelError(
            "the model has an output vocabulary other than its tokenizer's: "
            "queries and documents can only go different ways where terms are tokens"
        )
