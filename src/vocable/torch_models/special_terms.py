"""Special terms, which vectors do not have: special and unused tokens, and columns of the head without a token.

Their output bias is so low that their logits are never above zero, in this toolkit, in an exported graph and in stock
sentence-transformers alike. A model with `special_terms: true` in its configuration keeps them.

Letters: v output terms.
"""

from __future__ import annotations

import torch
from numpy import int64
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vocable.encoding.tokens import special_columns_of, special_ids
from vocable.torch_models.output_vocabulary import output_layer, output_vocabulary

KEPT = "special_terms"  # key in a model's configuration
NEVER = -8192.0  # a bias below all logits, the same number in float32, float16 and bfloat16


def special_tokens(tokenizer: PreTrainedTokenizerBase, size: int | None = None) -> NDArray[int64]:
    """Return the ids below `size` of special tokens, ascending, int64.

    These are the special tokens, added tokens marked as special, unused tokens such as [unused7], and ids without a
    token. `size` is by default the highest id plus one.
    """
    added = [i for i, token in tokenizer.added_tokens_decoder.items() if token.special]
    return special_ids(tokenizer.get_vocab(), {*tokenizer.all_special_ids, *added}, size)


def special_columns(mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> NDArray[int64]:
    """Return the special output terms of `mlm`, ascending, int64; in an output vocabulary, by their spelling."""
    layer = output_vocabulary(mlm)
    if layer is None:
        return special_tokens(tokenizer, output_layer(mlm).out_features)
    return special_columns_of(layer.terms)


def keeps_special_terms(config: PreTrainedConfig) -> bool:
    """Return whether a model's configuration keeps special tokens as terms."""
    return bool(getattr(config, KEPT, False))


@torch.no_grad()
def silence(layer: nn.Linear, columns: NDArray[int64]) -> None:
    """Set the bias of the terms `columns` of an output layer, in place, so that they are never active.

    A layer without a bias gets one as a buffer, which is not trained, shifted or saved.
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
    """Return whether an output layer has a bias that can be shifted and trained."""
    return isinstance(layer.bias, nn.Parameter)
