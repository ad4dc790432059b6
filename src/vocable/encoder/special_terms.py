"""Output terms that stand for no text: special and unused tokens, and columns of the head without a token.

They are no terms: no text has them. Their output bias is so low that no logit is ever above zero, in this toolkit, in
an exported graph and in stock sentence-transformers alike. A model whose configuration says `special_terms: true` keeps
them.

Letters: v output terms.
"""

from __future__ import annotations

import re

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vocable.encoder.output_vocabulary import output_layer, output_vocabulary

KEPT = "special_terms"  # in a model's configuration
NEVER = -8192.0  # a bias below all logits, the same number in float32, float16 and bfloat16
UNUSED = re.compile(r"[\[<]unused[ _-]?\d+[\]>]|madeupword\d+", re.IGNORECASE)
# As the usual tokenizers spell special tokens; in an output vocabulary, whose tokenizer is not at hand.
SPECIAL = re.compile(r"[\[<](cls|sep|pad|unk|mask|bos|eos|/?s|\d+)[\]>]|<\|.*\|>", re.IGNORECASE)


def special_tokens(tokenizer: PreTrainedTokenizerBase, size: int | None = None) -> NDArray[np.int64]:
    """Return the ids below `size`, ascending, that stand for no text: int64.

    These are the special tokens, added tokens that are marked as special, unused tokens such as [unused7], and ids that
    no token has. `size` is by default the highest id and one.
    """
    vocabulary = tokenizer.get_vocab()
    ordinary = np.zeros(max(size or 0, 1 + max(vocabulary.values(), default=-1)), dtype=bool)
    ordinary[[i for token, i in vocabulary.items() if not UNUSED.fullmatch(token)]] = True
    added = [i for i, token in tokenizer.added_tokens_decoder.items() if token.special]
    ordinary[[i for i in {*tokenizer.all_special_ids, *added} if i < len(ordinary)]] = False
    return np.flatnonzero(~ordinary[:size])


def special_columns(mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> NDArray[np.int64]:
    """Return the output terms of `mlm`, ascending, that stand for no text: int64.

    In an output vocabulary of its own, they are known by their spelling.
    """
    layer = output_vocabulary(mlm)
    if layer is None:
        return special_tokens(tokenizer, output_layer(mlm).out_features)
    spelled = [bool(SPECIAL.fullmatch(term) or UNUSED.fullmatch(term)) for term in layer.terms]
    return np.flatnonzero(spelled)


def keeps_special_terms(config: PreTrainedConfig) -> bool:
    """Return whether a model's configuration lets special tokens be terms."""
    return bool(getattr(config, KEPT, False))


@torch.no_grad()
def silence(layer: nn.Linear, columns: NDArray[np.int64]) -> None:
    """Give the terms `columns` of an output layer, in place, a bias with which they are never active.

    A layer without a bias gets one that is no parameter: it is not trained, shifted or saved.
    """
    if not len(columns):
        return
    if not has_bias(layer):
        if "bias" in layer._parameters:  # as None
            del layer.bias
        layer.register_buffer("bias", layer.weight.new_zeros(len(layer.weight)), persistent=False)
    rows = torch.from_numpy(columns).to(layer.bias.device)
    layer.bias[rows] = layer.bias[rows].clamp(max=NEVER)


def has_bias(layer: nn.Linear) -> bool:
    """Return whether an output layer has a bias of its own, which can be shifted and trained."""
    return isinstance(layer.bias, nn.Parameter)
