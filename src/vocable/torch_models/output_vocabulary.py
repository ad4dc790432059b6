"""Output terms: a layer of terms that are not the tokenizer's tokens, and the special terms that vectors do not have.

The layer is registered in the masked language model as `output_vocabulary`, in addition to the decoder. The decoder
passes its input on to it, so that the `logits` [b, s, v'] belong to the layer's terms; no weight of the model is
replaced or untied. In a saved model, its weights are in model.safetensors, where transformers reports them as
unexpected. The v' terms are in output_vocabulary.jsonl, one JSON string per line, in the order of the rows. Stock
sentence-transformers refuses the module below as foreign code.

Special terms are special and unused tokens, and columns of the head without a token. Their output bias is so low that
their logits are never above zero, in this toolkit, in an exported graph and in stock sentence-transformers alike. A
model with `special_terms: true` in its configuration keeps them.

Letters: b texts, s tokens, d size of the decoder's input, v and v' terms.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from numpy import int64
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from sentence_transformers import SparseEncoder
from sentence_transformers.base import BaseModel
from sentence_transformers.base.modules import Transformer
from sentence_transformers.util import load_file_path
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vocable.encoding.own_terms import TERMS_FILE, faults_of, read_terms, write_terms
from vocable.encoding.tokens import special_columns_of, special_ids
from vocable.encoding.vectors import token_names
from vocable.errors import ArgumentError, ModelError

LAYER = "output_vocabulary"


class OutputVocabulary(nn.Linear):
    """Output layer of an output vocabulary: weight [v', d], bias [v'] or None, and the v' distinct `terms`."""

    def __init__(self, terms: Iterable[str], weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
        self.terms = tuple(terms)
        if len(self.terms) != len(weight):
            raise ArgumentError(f"{len(self.terms):,} terms for an output layer of {len(weight):,} rows")
        for number, fault in faults_of(self.terms):
            raise ArgumentError(f"term {number}: {fault}")
        self.weight = nn.Parameter(weight.detach().clone())
        if bias is not None:
            self.bias = nn.Parameter(bias.detach().clone())


def output_vocabulary(mlm: nn.Module) -> OutputVocabulary | None:
    """Return the output vocabulary of `mlm`; None if its terms are its tokens."""
    return getattr(mlm, LAYER, None)


def output_layer(mlm: PreTrainedModel) -> nn.Linear:
    """Return the layer of the output terms of `mlm`, with rows [v, d]: its output vocabulary or its decoder."""
    layer: nn.Linear | None = output_vocabulary(mlm)
    return mlm.get_output_embeddings() if layer is None else layer


def give_output_vocabulary(mlm: PreTrainedModel, layer: OutputVocabulary) -> None:
    """Make `layer` the output layer of `mlm`, in place; a fused model must be fused again."""
    mlm.add_module(LAYER, layer.to(mlm.device, mlm.dtype))
    pass_on(mlm)


def pass_on(mlm: PreTrainedModel) -> None:
    """Let the decoder of `mlm` return the logits of its output vocabulary, if it has one.

    The decoder's weights that are not tied to the input embeddings are then unused: they require no gradient, which
    several processes would wait for.
    """
    layer = output_vocabulary(mlm)
    if layer is not None:  # set on the instance, which hides the class's method, as in `fuse`
        decoder, read = mlm.get_output_embeddings(), mlm.get_input_embeddings()
        decoder.__dict__["forward"] = layer
        for weight in decoder.parameters():
            if all(weight is not other for other in read.parameters()):
                weight.requires_grad_(False)


def restore_output_vocabulary(mlm: PreTrainedModel, place: str, **where: object) -> None:
    """Load the output vocabulary of `mlm` from `place`, a folder or a Hub id, if there is one.

    `where` holds subfolder, token, revision and other arguments of `load_file_path`.
    """
    terms_file = load_file_path(place, TERMS_FILE, **where)
    if terms_file is None:
        return
    terms = read_terms(terms_file)
    weights = load_file_path(place, "model.safetensors", **where)
    try:
        with safe_open(weights, framework="pt") as tensors:
            names = tensors.keys()
            bias = tensors.get_tensor(f"{LAYER}.bias") if f"{LAYER}.bias" in names else None
            layer = OutputVocabulary(terms, tensors.get_tensor(f"{LAYER}.weight"), bias)
    except (ArgumentError, OSError, TypeError, SafetensorError) as error:
        raise ModelError(f"{place}: the output vocabulary of {TERMS_FILE} has no weights that fit: {error}") from error
    give_output_vocabulary(mlm, layer)


def output_terms(mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the v' output terms of `mlm` by column; a column without a token (padding of the head) is `<column>`."""
    layer = output_vocabulary(mlm)
    return token_names(tokenizer, output_layer(mlm).out_features) if layer is None else list(layer.terms)


class OutputVocabularyTransformer(Transformer):
    """The fill-mask Transformer of sentence-transformers, which also loads and saves the output vocabulary."""

    def __init__(self, model_name_or_path: str, **settings: Any) -> None:
        logger = logging.getLogger("transformers.modeling_utils")
        logger.addFilter(_hide_unexpected_weights)
        try:
            super().__init__(model_name_or_path, **settings)
        finally:
            logger.removeFilter(_hide_unexpected_weights)
        given = settings.get("model_kwargs") or {}
        where = {key: given[key] for key in ("subfolder", "token", "revision", "local_files_only") if key in given}
        restore_output_vocabulary(self.auto_model, model_name_or_path, **where)

    def save(self, output_path: str, *args: Any, **kwargs: object) -> None:
        """Save the module with its terms."""
        super().save(output_path, *args, **kwargs)
        layer = output_vocabulary(self.auto_model)
        if layer is not None:
            write_terms(Path(output_path) / TERMS_FILE, layer.terms)

    def on_model_ready(self, model: BaseModel) -> None:
        """Give the model a `decode` with the terms: the stock method looks them up in the tokenizer."""
        layer = output_vocabulary(self.auto_model)
        if layer is not None:
            model.__dict__["decode"] = partial(SparseEncoder.decode, _Terms(layer.terms))


class _Terms:
    """The part of a model that `SparseEncoder.decode` uses: a tokenizer with the names of columns."""

    def __init__(self, terms: Sequence[str]) -> None:
        self._terms, self.tokenizer = terms, self

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._terms[i] for i in ids]


def _hide_unexpected_weights(record: logging.LogRecord) -> bool:
    """Return False for transformers' report of unexpected weights if it concerns only an output vocabulary."""
    report = record.getMessage()
    return f"{LAYER}." not in report or any(word in report for word in ("MISSING", "MISMATCH", "CONVERSION"))


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
