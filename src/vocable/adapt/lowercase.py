"""Lower-cased input: "+ lowercase input" of Geng and Yang 2026, tables 2, 7 and 8."""

from __future__ import annotations

import copy

from sentence_transformers import SparseEncoder
from tokenizers import normalizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from vocable.adapt.stages import Inputs
from vocable.encoding.tokens import backend_of
from vocable.torch_models.fuse import copy_with, parts
from vocable.torch_models.provenance import record


def lowercased(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return a copy of `tokenizer` that lower-cases a text before any other normalization."""
    backend = copy.deepcopy(backend_of(tokenizer))
    normalizer = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *normalizer])
    # Not the tokenizer's own class: a BertTokenizer builds a new normalizer when it is loaded.
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        padding_side=tokenizer.padding_side,
        **tokenizer.special_tokens_map,
    )


def adapt(model: SparseEncoder, settings: bool, inputs: Inputs) -> SparseEncoder:
    """Return the model with a tokenizer that lower-cases its input."""
    model = copy_with(model, tokenizer=lowercased(parts(model).tokenizer))
    record(model, "lowercase")
    return model
