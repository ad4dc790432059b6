"""Inference-free models: query weights are looked up in a table of token weights.

The score of a query q and a document d is the sum of weight_t w_t(d) over the distinct tokens t of q. With weights of 1
queries are binary, as in SPLADE-doc (Formal et al. 2021, arXiv 2109.10086); IDF enters as in Geng et al. (2024, arXiv
2411.04403). The result is a stock sentence-transformers model with a `Router`.

Letters: q queries, v terms, n documents.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

from vocable.data.texts import iter_texts
from vocable.encoding.graph import refuse_exported
from vocable.encoding.idf import IdfFormula, document_frequencies, idf
from vocable.encoding.terms import input_terms, special_terms
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, ModelError
from vocable.options import checked
from vocable.torch_models.asymmetric import own_prompt, refuse_output_vocabulary, route, routed
from vocable.torch_models.output_vocabulary import output_layer, special_tokens
from vocable.torch_models.provenance import Step, describes, record


@checked
def make_inference_free(
    model: SparseEncoder,
    texts: Iterable[str] | None = None,
    *,
    weights: Literal["idf", "mean", "ones"] = "idf",
    formula: IdfFormula = "bm25",
    trainable: bool = False,
) -> SparseEncoder:
    """Give a model queries that need no encoder.

    A query is its distinct tokens, each with a weight from a table; documents are encoded as before. Train the result
    for good rankings. Special tokens have weight 0. A query prompt is dropped, since its words would be in every query,
    and so is a limit on the terms of a query. Columns of the head without a token (some heads are padded) are removed.

    Args:
        model: from `vocable.load`; it is not changed. The document encoder of an asymmetric model is kept.
        texts: the corpus of the IDF, counted in the model's tokens; for mean weights, examples, whose queries are read;
            in Python the queries.
        weights: weight of a token. idf: its inverse document frequency in `texts`. mean: its average weight from the
            model's query encoder in the `texts` that contain it. ones: 1.
        formula: formula of the IDF: bm25 is log(1 + (n - df + 0.5) / (df + 0.5)), log is log(n / df).
        trainable: let a later training change the weights.

    Returns:
        a stock `SparseEncoder` with a `Router`, fused. Its provenance has the number of texts that were read.

    Raises:
        ModelError: the model's terms are not its tokens.
        ArgumentError: `texts` are missing for idf or mean, given for ones, or empty, or the formula is unknown.
    """
    texts = None if texts is None else iter_texts(texts)
    if (weights == "ones") != (texts is None):
        raise ArgumentError("give either `texts`, for weights idf or mean, or `weights` ones")
    refuse_exported(model)
    tokenizer = _document_encoder(model).tokenizer
    # The weight of each token [v].
    values, counted = np.ones(len(tokenizer), dtype=np.float32), None
    if texts is not None and weights == "mean":
        queries = list(texts)
        values = mean_weights(model, queries)[: len(tokenizer)].copy()
        counted = len(queries)
    elif texts is not None:
        frequencies, counted = document_frequencies(texts, tokenizer)
        if not counted:
            raise ArgumentError("no text to count document frequencies")
        values = idf(frequencies, counted, formula=formula)
    # The provenance names what was counted.
    inference_free = by_lookup(model, values, trainable=trainable)
    figures: dict[str, Any] = {} if counted is None else {"documents" if weights == "idf" else "queries": counted}
    if weights == "idf":
        figures = {"formula": formula, **figures}
    tokens = int((values > 0).sum())
    record(inference_free, "make-inference-free", weights=weights, trainable=trainable, **figures, tokens=tokens)
    return inference_free


@describes("make-inference-free")
def _describe(step: Step) -> list[str]:
    return [f"{step['tokens']:,} tokens have a weight, and no encoder reads a query"]


def by_lookup(model: SparseEncoder, values: NDArray[np.float32], *, trainable: bool = False) -> SparseEncoder:
    """Return a model with the document encoder of `model` and a table of query weights, `values` [v].

    Raises:
        ModelError: the model's terms are not its tokens.
    """
    documents = copy.deepcopy(model)
    encoder = _document_encoder(documents)
    mlm, tokenizer = encoder.auto_model, copy.deepcopy(encoder.tokenizer)  # with its own maximum length
    # A stock table of weights has one column per token of its tokenizer: remove the other columns of the head.
    size, columns = len(tokenizer), output_layer(mlm).out_features
    if columns < size or max(tokenizer.get_vocab().values()) >= size:
        first = f"the first {size:,} of the {columns:,} terms"
        raise ModelError(f"the {size:,} tokens of the tokenizer are not {first}: queries cannot be looked up")
    if columns > size:
        mlm.resize_token_embeddings(size)
    values[special_tokens(tokenizer, size)] = 0
    table = SparseStaticEmbedding(tokenizer, torch.from_numpy(values), frozen=not trainable)
    limits = getattr(mlm.config, "active_terms", None) or {}
    mlm.config.active_terms = {role: k for role, k in limits.items() if role != "query"}
    return routed([table], route(documents, "document"), model, {"document": own_prompt(model, "document")})


def _document_encoder(model: SparseEncoder) -> Transformer:
    refuse_output_vocabulary(model)
    transformer = route(model, "document")[0]
    if not isinstance(transformer, Transformer):
        raise ModelError("the model has no document encoder, which a table of query weights needs")
    return transformer


def mean_weights(model: SparseEncoder, queries: list[str]) -> NDArray[np.float32]:
    """Return each token's average weight from the query encoder in the queries that contain it, float32 [v].

    A token of a query without a weight from the encoder counts as 0. A token without a query is about as rare as the
    tokens in the fewest queries, mostly a single query, and gets their average weight.

    Raises:
        ArgumentError: no query contains a token.
    """
    vectors = TextEncoder(model, "query").encode(queries)
    counts_of_queries = input_terms(model, queries).sign()
    counts = counts_of_queries.sum(axis=0)
    counts[special_terms(model)] = 0  # the unknown token is not rare
    if not counts.any():
        raise ArgumentError("mean weights need queries that have tokens")
    rarest = counts == counts[counts > 0].min()
    sums = vectors.multiply(counts_of_queries).sum(axis=0)
    means: NDArray[np.float32] = (sums / np.maximum(counts, 1)).astype(np.float32)
    means[counts == 0] = means[rarest].mean()
    return means
