"""Whole words as output terms, many more than the tokenizer has tokens: the Expanded-SPLADE of paper 004, appendix B.1.

The model reads what it read before. Beside its decoder it gets an output vocabulary of words
(`vocable.encoder.output_vocabulary`), whose rows are made of the decoder's.

Letters: v tokens, u words, d size of the decoder's input.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from scipy.sparse import csr_array, vstack
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.alignment import align
from vocable.adapt.initialization import barycentres, mix, random_rows, subtoken_weights
from vocable.adapt.subtokens import cut_words
from vocable.adapt.target import Target
from vocable.adapt.vocabulary import Vocabulary, vocabulary_of, with_output_vocabulary
from vocable.adapt.words import check_words
from vocable.encoder.output_vocabulary import OutputVocabulary
from vocable.encoder.splitters import normal_form
from vocable.errors import ArgumentError, ModelError, check_texts

logger = logging.getLogger(__name__)

Init = Literal["mean", "semantic", "random"]


def expand(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    words: Sequence[str],
    *,
    init: Init = "mean",
    target: Target | None = None,
    seed: int = 0,
) -> PreTrainedModel:
    """A copy of a masked language model whose output terms are `words`.

    Args:
        mlm: the source model; it is left as it is.
        tokenizer: its tokenizer, which stays that of the result.
        words: the u terms, as they are to be called; `vocable.adapt.words` takes them from a corpus or a file.
        init: where the rows and biases of words start. "mean": the means of their sub-tokens'. "semantic": as in
            `transfer`, the mean of the source's tokens that are near the word in the embeddings of `target`, for words
            that are one token of the target and several of the source; "mean" for all others. "random": rows from a
            normal with the spread of the decoder's entries, and the mean of its biases.
        target: a tokenizer and its model that have words as tokens; needed by "semantic" alone.
        seed: decides the random rows.

    Raises:
        ArgumentError: no such init, no words, or some that cannot be terms (`check_words`).
        ModelError: `mlm` has no masked-language-model head, or other output terms already; "semantic" without a
            target's embeddings, or with one that has none of the words.
    """
    check_texts(words, "words")
    if init not in get_args(Init):
        raise ArgumentError(f"init must be one of {', '.join(get_args(Init))}, not {init!r}")
    if not words:
        raise ArgumentError("there are no words to expand to")
    old = vocabulary_of(mlm)
    pieces = cut_words(tokenizer, words)
    check_words(words, pieces, normal_form(tokenizer))
    if init == "random":
        rows, bias = _random(old, len(words), torch.Generator().manual_seed(seed))
    else:
        weights = subtoken_weights(pieces, len(old.decoder))
        if init == "semantic":
            weights = _semantic(weights, pieces, tokenizer, words, target)
        rows, bias = _mixed(old, weights)
    return with_output_vocabulary(mlm, OutputVocabulary(words, rows, bias))


def _mixed(old: Vocabulary, weights: csr_array) -> tuple[Tensor, Tensor | None]:
    """Rows [u, d] and biases [u] from the weights [u, v] of the source's tokens."""
    rows = mix(weights, old.decoder).to(old.decoder)
    return rows, None if old.bias is None else mix(weights, old.bias[:, None])[:, 0].to(old.bias)


def _random(old: Vocabulary, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
    bias = None if old.bias is None else old.bias.float().mean().to(old.bias).expand(count)
    return random_rows(old.decoder, count, generator), bias


def _semantic(
    weights: csr_array,
    pieces: Sequence[Sequence[int]],
    tokenizer: PreTrainedTokenizerBase,
    words: Sequence[str],
    target: Target | None,
) -> csr_array:
    """The weights [u, v] with barycentres for the words that are one token of the target and several of the source."""
    if target is None or target.model is None:
        raise ModelError("init='semantic' needs a target with embeddings that has words as tokens: use 'mean'")
    known = cut_words(target.tokenizer, words)
    placed = [i for i, ids in enumerate(known) if len(ids) == 1 < len(pieces[i])]
    if not placed:
        raise ModelError("no word of several tokens is one token of the target: nothing to compare, use init='mean'")
    alignment = align(tokenizer, target.tokenizer)
    if not len(alignment.anchors):
        raise ModelError("the tokens of the model and of the target have not one in common")
    embeddings = target.model.get_input_embeddings().weight.detach()
    ids = np.array([known[i][0] for i in placed])
    found = barycentres(embeddings, alignment, ids, weights.shape[1])
    message = "%d words start near their meaning, the other %d at the mean of their tokens"
    logger.info(message, len(placed), len(words) - len(placed))
    row_of = np.arange(len(words))
    row_of[placed] = len(words) + np.arange(len(placed))
    return csr_array(vstack([weights, found], format="csr")[row_of])
