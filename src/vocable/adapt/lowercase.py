"""Lower-case the input of a model: "+ lowercase input" of Geng and Yang 2026, tables 2, 7 and 8."""

from __future__ import annotations

import copy

from sentence_transformers import SparseEncoder
from tokenizers import normalizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from vocable.adapt.stages import Inputs, Stage, register
from vocable.encoder.fuse import copy_with, parts
from vocable.encoder.provenance import record
from vocable.encoder.tokens import backend_of


def lowercased(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return a copy of `tokenizer` that lower-cases a text before any other normalization."""
    backend = copy.deepcopy(backend_of(tokenizer))
    before = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])
    # Not the tokenizer's own class: when it is loaded, a BertTokenizer makes its normalizer anew.
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        padding_side=tokenizer.padding_side,
        **tokenizer.special_tokens_map,
    )


def _adapt(model: SparseEncoder, settings: bool, inputs: Inputs) -> SparseEncoder:
    model = copy_with(model, tokenizer=lowercased(parts(model).tokenizer))
    record(model, "lowercase")
    return model


register(Stage("lowercase", bool, 10, "the tokenizer lower-cases its input", _adapt))
