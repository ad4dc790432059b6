"""Fuse decoder and pooling of a SparseEncoder into the head without logits, and undo it; parts and copies of a model.

The decoder passes its input through, so that the "logits" of the model are the hidden states before it. The pooling
module applies the weight and bias of the decoder, or of an output vocabulary. Only the two `forward` methods are
replaced, on the instances: parameters, ties, state-dict keys, module classes and the saved folder do not change.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.encoding.graph import refuse_exported
from vocable.encoding.pooling import POOLINGS, rows_to_pool
from vocable.errors import ModelError
from vocable.options import Activation
from vocable.torch_models.head import sparse_head
from vocable.torch_models.output_vocabulary import (
    OutputVocabularyTransformer,
    keeps_special_terms,
    output_layer,
    output_vocabulary,
    pass_on,
    silence,
    special_columns,
    special_tokens,
)

# Key of a configuration: the positions of the special tokens around a text are not pooled.
WORD_POSITIONS = "word_positions"
# Vectors [b, v] of the texts that the model is called with, if they were computed before: gradient caching sets them.
KNOWN_VECTORS: ContextVar[Tensor | None] = ContextVar("KNOWN_VECTORS", default=None)


class Parts(NamedTuple):
    """Parts of a SPLADE model with one encoder."""

    mlm: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pooling: str
    activation: Activation


def splade_modules(model: SparseEncoder) -> list[tuple[Transformer, SpladePooling]]:
    """Return all (fill-mask Transformer, SpladePooling) pairs of a model, at most one for each `Router` route.

    Raises `ModelError` for an exported model.
    """
    refuse_exported(model)
    chains: list[list[nn.Module]] = [list(model.children())]
    if chains[0] and isinstance(chains[0][0], Router):
        chains = [list(route) for route in chains[0][0].sub_modules.values()]
    return [
        (chain[0], chain[1])
        for chain in chains
        if len(chain) >= 2 and isinstance(chain[0], Transformer) and isinstance(chain[1], SpladePooling)
    ]


def main_transformer(model: SparseEncoder) -> Transformer:
    """Return the transformer of a model; for an asymmetric model with two transformers, the query transformer."""
    return splade_modules(model)[0][0]


def freeze_embeddings(model: SparseEncoder) -> None:
    """Do not train the token embeddings of a model, in place; a decoder that is tied to them is not trained either."""
    for transformer, _ in splade_modules(model):
        transformer.auto_model.get_input_embeddings().requires_grad_(False)


def _some_pairs(model: SparseEncoder) -> list[tuple[Transformer, SpladePooling]]:
    if pairs := splade_modules(model):
        return pairs
    outline = " -> ".join(type(module).__name__ for module in model.children()) or "an empty model"
    raise ModelError(f"no fill-mask Transformer followed by SpladePooling in {outline}")


def parts(model: SparseEncoder) -> Parts:
    """Return the masked language model of `model`, its tokenizer, its pooling and its activation."""
    pairs = _some_pairs(model)
    if isinstance(model[0], Router):
        raise ModelError("this model has separate query and document encoders: use the encoder that it was made of")
    [(transformer, pooling)] = pairs
    return Parts(transformer.auto_model, transformer.tokenizer, pooling.pooling_strategy, pooling.activation_function)


def copy_with(
    model: SparseEncoder, mlm: PreTrainedModel | None = None, tokenizer: PreTrainedTokenizerBase | None = None
) -> SparseEncoder:
    """Return a fused copy of `model`, in evaluation mode, with `mlm` and `tokenizer` unless they are None.

    `mlm` and `tokenizer` are not copied. The copy of a model with an output vocabulary is saved with its terms.
    """
    old = parts(model)
    replaced = (old.mlm, mlm), (old.tokenizer, tokenizer)
    copied = copy.deepcopy(model, {id(part): given for part, given in replaced if given is not None})
    transformer = copied[0]
    if output_vocabulary(transformer.auto_model) is not None:
        transformer.__class__ = OutputVocabularyTransformer
        transformer.on_model_ready(copied)
    return fuse(copied).eval()


def fuse(model: SparseEncoder) -> SparseEncoder:
    """Replace the head of `model`, in place, by a head that never holds the logits; return the model.

    Outputs, always float32, and gradients equal the stock model's, up to the order of additions. Special and unused
    tokens are not terms: their output bias, and their weight in a table of query weights, is set so that they are never
    active, even when stock sentence-transformers uses the saved model.

    Raises:
        ModelError: the model has no fill-mask Transformer followed by SpladePooling, or its decoder cannot be bypassed.
    """
    for transformer, pooling in _some_pairs(model):
        mlm = transformer.auto_model
        decoder = plain_decoder(mlm)
        layer = output_layer(mlm)
        kept = keeps_special_terms(mlm.config)
        if not kept:
            silence(layer, special_columns(mlm, transformer.tokenizer))
        # Instance attributes hide the class's methods, and deleting them restores the methods.
        pooling.embedding_dimension = layer.weight.shape[0]  # saved, even if no text is ever encoded
        pooling.__dict__["forward"] = partial(_pool, pooling, layer, _outside_words(transformer))
        decoder.__dict__["forward"] = _hand_through
    for table in model.modules():
        if isinstance(table, SparseStaticEmbedding) and not kept:
            table.weight.data[special_tokens(table.tokenizer, len(table.weight))] = 0
    return model


def fused(model: SparseEncoder) -> bool:
    """Return whether `model` has the head that never holds the logits."""
    return any("forward" in pooling.__dict__ for _, pooling in splade_modules(model))


def unfuse(model: SparseEncoder) -> SparseEncoder:
    """Restore the stock head of `model`, in place; return the model.

    Raises:
        ModelError: the stock head does not know the model's pooling, and would sum instead, without an error.
    """
    pairs = splade_modules(model)
    for name in (pooling.pooling_strategy for _, pooling in pairs):
        if not POOLINGS[name].stock:
            raise ModelError(f"the stock SpladePooling has no {name} pooling: choose max or sum before unfusing")
    for transformer, pooling in pairs:
        for module in (transformer.auto_model.get_output_embeddings(), pooling):
            module.__dict__.pop("forward", None)
        pass_on(transformer.auto_model)
    return model


@contextmanager
def without_logits(mlm: PreTrainedModel) -> Iterator[nn.Linear]:
    """Make the decoder's inputs [b, s, d] the `logits` of `mlm` within the context; yield the output layer."""
    decoder = plain_decoder(mlm)
    forward = decoder.__dict__.get("forward")  # set in a fused model, and with an output vocabulary
    decoder.__dict__["forward"] = _hand_through
    try:
        yield output_layer(mlm)
    finally:
        del decoder.__dict__["forward"]
        if forward is not None:
            decoder.__dict__["forward"] = forward


def plain_decoder(mlm: PreTrainedModel) -> nn.Linear:
    """Return the decoder of a masked language model; raise `ModelError` if a bypass would change the result."""
    decoder = mlm.get_output_embeddings()
    name = type(mlm).__name__
    if decoder is None:
        raise ModelError(f"{name} has no masked-language-model head")
    if type(decoder) is not nn.Linear:
        kind = f"{type(decoder).__module__}.{type(decoder).__qualname__}"  # quantized layers are also named Linear
        repair = "merge the adapter or load the model unquantized"
        raise ModelError(f"the output layer of {name} is a {kind}, not a plain Linear: {repair}")
    if "forward" not in decoder.__dict__:
        _check_bypass(mlm, decoder)
    return decoder


@torch.no_grad()
def _check_bypass(mlm: PreTrainedModel, decoder: nn.Linear) -> None:
    """Compare the logits of two tokens with the decoder applied by hand: some architectures scale or cap them."""
    training, inputs = mlm.training, list[Tensor]()
    mlm.eval()
    ids = torch.tensor([[1, 2]], device=decoder.weight.device)
    handle = decoder.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    try:
        logits = mlm(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    finally:
        handle.remove()
        mlm.train(training)
    if inputs and not bool(decoder(inputs[0]).isfinite().all()):
        raise ModelError(f"the logits of {type(mlm).__name__} are not finite: its weights are too large")
    if not inputs or not torch.equal(decoder(inputs[0]).view(-1), logits.view(-1)):
        raise ModelError(f"{type(mlm).__name__} changes its logits after the output layer: its head cannot be bypassed")


def _hand_through(hidden: Tensor) -> Tensor:
    return hidden


def _outside_words(transformer: Transformer) -> list[int]:
    """Return the ids of the tokens whose positions are not pooled: none for most models."""
    if not getattr(transformer.auto_model.config, WORD_POSITIONS, False):
        return []
    tokenizer = transformer.tokenizer
    around = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    return [token for token in around if token is not None]


def _pool(pooling: SpladePooling, layer: nn.Linear, left_out: list[int], features: dict[str, Any]) -> dict[str, Any]:
    """Replace SpladePooling.forward; `token_embeddings` are the decoder's inputs: [b, s, d], or flat [1, n, d]."""
    packed, without_words = pack(features), None
    if left_out:
        ids, mask = features["input_ids"], features["attention_mask"]
        words = mask.bool() & ~torch.isin(ids, torch.tensor(left_out, device=ids.device))
        without_words = ~words.any(dim=1)
        words[:, 0] |= without_words  # a text without a token cannot be pooled
        packed = pack({**features, "attention_mask": words})
    hidden, offsets = rows_to_pool(*packed, pooling.pooling_strategy)
    reduction = POOLINGS[pooling.pooling_strategy].reduction
    known = KNOWN_VECTORS.get()
    pooled = sparse_head(hidden, layer.weight, layer.bias, offsets, reduction, pooling.activation_function, known)
    if without_words is not None:
        pooled = pooled.masked_fill(without_words[:, None], 0)
    features["sentence_embedding"] = pooled
    return features


def pack(features: Mapping[str, Any]) -> tuple[Tensor, list[int]]:
    """Return the tokens without padding [n, d] and the b + 1 offsets of the texts."""
    hidden = features["token_embeddings"]
    if "cu_seq_lens_q" in features:  # already flat: flash attention without padding
        return hidden.squeeze(0), features["cu_seq_lens_q"].tolist()
    mask = features["attention_mask"].bool()
    offsets = [0, *accumulate(mask.sum(dim=1).tolist())]
    return (hidden.flatten(0, 1) if offsets[-1] == mask.numel() else hidden[mask]), offsets


@contextmanager
def every_pooling_allowed() -> Iterator[None]:
    """Let the stock class also accept the poolings of the fused head within the context.

    It patches sentence-transformers, whose SpladePooling refuses other names when it is constructed. Without the patch,
    it refuses a folder with such a pooling, which its head cannot compute.
    """
    modes = SpladePooling.SPLADE_POOLING_MODES
    SpladePooling.SPLADE_POOLING_MODES = tuple(POOLINGS)
    try:
        yield
    finally:
        SpladePooling.SPLADE_POOLING_MODES = modes
