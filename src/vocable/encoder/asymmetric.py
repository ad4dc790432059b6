"""Two ways into one vocabulary: queries and documents encoded by different modules, in one model.

The result is a stock sentence-transformers model with a `Router`, saved and loaded as such.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from torch import nn

from vocable.encoder.fuse import fuse, splade_modules
from vocable.encoder.output_vocabulary import output_vocabulary
from vocable.encoder.routes import own_prompt, route
from vocable.encoder.terms import terms
from vocable.errors import ModelError


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
