"""Queries that no encoder reads: the distinct tokens of a query, each with a weight that is looked up.

The score of a query q and a document d is the sum of weight_t w_t(d) over the tokens t of q (papers 001, section 3.3,
and 002). With weights of 1 queries are binary, as in SPLADE-doc (Formal et al. 2021, arXiv 2109.10086); IDF enters as
in Geng et al. (2024, arXiv 2411.04403); and a training can move the weights.

Letters: v tokens of the vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from transformers import PreTrainedTokenizerBase

from vocable.encoder.asymmetric import refuse_output_vocabulary, routed
from vocable.encoder.idf import Formula, document_frequencies, idf
from vocable.encoder.output_vocabulary import output_layer
from vocable.encoder.routes import own_prompt, route
from vocable.errors import ArgumentError, ModelError, check_texts


def inference_free(
    model: SparseEncoder, texts: Iterable[str] | None = None, *, formula: Formula = "bm25", trainable: bool = False
) -> SparseEncoder:
    """A model with the document encoder of `model`, and with queries that are looked up; `model` is left as it is.

    Special tokens weigh nothing. A prompt for queries is dropped, since its words would be in every query, and so is a
    limit on the terms of a query. Columns of the head that no token has (some heads are padded) are cut off.

    Args:
        model: from `vocable.load`. Of an asymmetric one, the document encoder is kept.
        texts: the corpus from which each token gets its IDF, counted in the model's tokens. Without it each weighs 1.
        formula: of the IDF, as in `vocable.encoder.idf.idf`.
        trainable: whether a training moves the weights.

    Returns:
        a stock `SparseEncoder` with a `Router`, fused.

    Raises:
        ModelError: the model's terms are not its tokens.
        ArgumentError: there is no text, or no such formula.
    """
    check_texts(texts)
    refuse_output_vocabulary(model)
    documents = route(copy.deepcopy(model), "document")
    transformer = documents[0]
    if not isinstance(transformer, Transformer):
        raise ModelError("the model has no document encoder whose terms could be looked up")
    tokenizer = copy.deepcopy(transformer.tokenizer)  # with a length of its own
    _fit_head(transformer, tokenizer)
    weights = np.ones(len(tokenizer), dtype=np.float32)
    if texts is not None:
        weights = _corpus_idf(texts, tokenizer, formula)
    weights[tokenizer.all_special_ids] = 0
    queries = SparseStaticEmbedding(tokenizer, torch.from_numpy(weights), frozen=not trainable)
    limits = getattr(transformer.auto_model.config, "active_terms", None) or {}
    transformer.auto_model.config.active_terms = {role: k for role, k in limits.items() if role != "query"}
    return routed([queries], documents, model, {"document": own_prompt(model, "document")})


def _corpus_idf(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, formula: Formula) -> NDArray[np.float32]:
    frequencies, documents = document_frequencies(texts, tokenizer)
    if not documents:
        raise ArgumentError("there is no text to count document frequencies in")
    return idf(frequencies, documents, formula=formula)


def _fit_head(transformer: Transformer, tokenizer: PreTrainedTokenizerBase) -> None:
    """Cut the head to the tokens, in place: a stock table of weights has as many columns as its tokenizer has tokens.

    Raises:
        ModelError: the tokens' ids have gaps, or some have no column.
    """
    mlm, tokens = transformer.auto_model, len(tokenizer)
    columns = output_layer(mlm).out_features
    if columns < tokens or max(tokenizer.get_vocab().values()) >= tokens:
        raise ModelError(
            f"the {tokens:,} tokens of the tokenizer are not the first {tokens:,} of the {columns:,} terms: "
            "queries cannot be looked up"
        )
    if columns > tokens:
        mlm.resize_token_embeddings(tokens)


def trainable_tables(model: SparseEncoder) -> list[SparseStaticEmbedding]:
    """The tables of `model` whose weights a training moves."""
    return [module for module in model.modules() if isinstance(module, SparseStaticEmbedding) and not module.frozen]
