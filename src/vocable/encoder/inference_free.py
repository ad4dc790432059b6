"""Queries that no encoder reads: the distinct tokens of a query, each with a weight that is looked up.

The score of a query q and a document d is the sum of weight_t w_t(d) over the tokens t of q (papers 001, section 3.3,
and 002). With weights of 1 queries are binary, as in SPLADE-doc (Formal et al. 2021, arXiv 2109.10086); IDF enters as
in Geng et al. (2024, arXiv 2411.04403); and a training can move the weights.

Letters: v tokens of the vocabulary.

Inverse document frequency in the tokens of a model: what a token weighs in a query that no encoder reads.

Letters: v tokens of the vocabulary, n documents.

Inference-free vectors: the weights of a text's tokens, looked up in a table.

Letters: b texts, v terms.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from transformers import PreTrainedTokenizerBase

from vocable.encoder.output_vocabulary import output_layer
from vocable.encoder.roles import own_prompt, refuse_output_vocabulary, route, routed
from vocable.errors import ArgumentError, ModelError, check_texts

Formula = Literal["bm25", "log"]
BATCH = 1000  # texts tokenized at a time


def document_frequencies(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, *, size: int | None = None
) -> tuple[NDArray[np.int64], int]:
    """In how many texts each token occurs, and how many texts there are.

    Args:
        texts: read once, in a stream; counted to their ends, however long the model reads.
        tokenizer: the document encoder's. The special tokens that it puts around a text are not counted.
        size: v, for a head that is wider than the tokenizer; by default the highest id and one.

    Returns:
        int64 [v], and n.
    """
    check_texts(texts)
    counts = np.zeros(size or 1 + max(tokenizer.get_vocab().values()), dtype=np.int64)
    documents, stream = 0, iter(texts)
    while batch := list(islice(stream, BATCH)):
        documents += len(batch)
        for ids in tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]:
            counts[np.unique(np.asarray(ids, dtype=np.int64))] += 1
    return counts, documents


def idf(frequencies: NDArray[np.int64], documents: int, *, formula: Formula = "bm25") -> NDArray[np.float32]:
    """The weight of each token by the number of documents that have it.

    Args:
        frequencies: [v] df, for each token the number of documents that it occurs in.
        documents: n, how many documents were counted.
        formula: `bm25` is log(1 + (n - df + 0.5) / (df + 0.5)), Lucene's variant, which inference-free retrievers use
            (Geng et al. 2024, arXiv 2411.04403): never negative, and largest for a token that no document has. `log` is
            log(n / df), where such a token counts as one of a single document.

    Returns:
        float32 [v], no weight negative.

    Raises:
        ArgumentError: there are no documents, fewer than a token has, or no such formula.

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


def look_up(static: SparseStaticEmbedding, tokens: Sequence[Sequence[int]]) -> csr_array:
    """The vectors that `static` gives texts, without the b x v matrices by which it does.

    Args:
        static: the table, its weights [v].
        tokens: the token ids of each of b texts. How often a token occurs does not count.

    Returns:
        [b, v] csr_array of float32 weights > 0, indices sorted.
    """
    weights = static.weight.detach().float().cpu().numpy()
    columns = [np.unique(np.asarray(ids, dtype=np.int32)) for ids in tokens]
    columns = [found[weights[found] > 0] for found in columns]
    indices = np.concatenate([np.empty(0, dtype=np.int32), *columns])
    indptr = np.array([0, *accumulate(map(len, columns))], dtype=np.int32)
    return csr_array((weights[indices], indices, indptr), shape=(len(tokens), len(weights)))


def inference_free(
    model: SparseEncoder, texts: Iterable[str] | None = None, *, formula: Formula = "bm25", trainable: bool = False
) -> SparseEncoder:
    """A model with the document encoder of `model`, and with queries that are looked up; `model` is left as it is.

    Special tokens weigh nothing. A prompt for queries is dropped, since its words would be in every query, and so is a
    limit on the terms of a query. Columns of the head that no token has (some heads are padded) are cut off.

    Args:
        model: from `vocable.load`. Of an asymmetric one, the document encoder is kept.
        texts: the corpus from which each token gets its IDF, counted in the model's tokens. Without it each weighs 1.
        formula: of the IDF, as in `vocable.encoder.inference_free.idf`.
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
