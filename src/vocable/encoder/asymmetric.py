"""Roles: which of a model's modules encode queries and documents, and models whose two encoders are not the same.

They are stock sentence-transformers models with a `Router`. Queries may be looked up in a table instead of encoded
(`inference_free.py`).

Letters: b texts, v terms, n documents.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from torch import nn
from transformers import PreTrainedTokenizerBase

from vocable.data.texts import iter_texts
from vocable.encoder.fuse import fuse, splade_modules
from vocable.encoder.graph import refuse_exported
from vocable.encoder.output_vocabulary import output_vocabulary
from vocable.encoder.terms import terms, token_ids
from vocable.errors import ArgumentError, ModelError

Role = Literal["query", "document"]
Formula = Literal["bm25", "log"]

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
    """Return a model that encodes queries as `queries` does and documents as `documents` does, which stay as they are.

    Of an asymmetric model the encoder of the role is taken. Both must have the same terms, which are their tokens.
    """
    for model in (queries, documents):
        refuse_exported(model)
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


def document_frequencies(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, *, size: int | None = None
) -> tuple[NDArray[np.int64], int]:
    """Return in how many of `texts`, which are read once, each token occurs, int64 [v], and how many texts there are.

    Texts are counted to their ends, without the special tokens around them. `size` is v for a head that is wider than
    the tokenizer; by default the highest id and one.
    """
    counts = np.zeros(size or 1 + max(tokenizer.get_vocab().values()), dtype=np.int64)
    documents = 0
    for ids in token_ids(tokenizer, iter_texts(texts)):
        documents += 1
        counts[np.unique(np.asarray(ids, dtype=np.int64))] += 1
    return counts, documents


def idf(frequencies: NDArray[np.int64], documents: int, *, formula: Formula = "bm25") -> NDArray[np.float32]:
    """The weight of each token, float32 [v] and not negative, by the number of documents that have it.

    Of the n `documents` that were counted, df, its entry in `frequencies` [v], have the token. The formula `bm25` is
    log(1 + (n - df + 0.5) / (df + 0.5)), Lucene's variant, which inference-free retrievers use (Geng et al. 2024, arXiv
    2411.04403): never negative, and largest for a token that no document has. `log` is log(n / df), where such a token
    counts as one of a single document. Raises `ArgumentError` where a token has more than all documents.

    >>> idf(np.array([0, 1, 2, 4]), 4).round(3)
    array([2.303, 1.204, 0.693, 0.105], dtype=float32)
    >>> idf(np.array([0, 1, 2, 4]), 4, formula="log").round(3)
    array([1.386, 1.386, 0.693, 0.   ], dtype=float32)
    """
    if documents < 1 or frequencies.min(initial=0) < 0 or frequencies.max(initial=0) > documents:
        raise ArgumentError(f"no document frequencies: {frequencies.max(initial=0)} of {documents} documents")
    if formula == "bm25":
        weights = np.log1p((documents - frequencies + 0.5) / (frequencies + 0.5))
    elif formula == "log":
        weights = np.log(documents / np.maximum(frequencies, 1))
    else:
        raise ArgumentError(f"the formula of an IDF is bm25 or log, not {formula!r}")
    return weights.astype(np.float32)


def static_lookup(static: SparseStaticEmbedding, tokens: Sequence[Sequence[int]]) -> csr_array:
    """The vectors, float32 [b, v], that `static` gives b texts of these token ids, without its b x v matrices."""
    weights = static.weight.detach().float().cpu().numpy()
    columns = [np.unique(np.asarray(ids, dtype=np.int32)) for ids in tokens]
    columns = [found[weights[found] > 0] for found in columns]
    indices = np.concatenate([np.empty(0, dtype=np.int32), *columns])
    indptr = np.array([0, *accumulate(map(len, columns))], dtype=np.int32)
    return csr_array((weights[indices], indices, indptr), shape=(len(tokens), len(weights)))


def trainable_tables(model: SparseEncoder) -> list[SparseStaticEmbedding]:
    """The tables of `model` whose weights a training moves."""
    return [module for module in model.modules() if isinstance(module, SparseStaticEmbedding) and not module.frozen]
