"""Lower-case a tokenizer's input, not its vocabulary: paper 001's "+ lowercase input" rows (tables 2, 7 and 8)."""

from __future__ import annotations

import copy

from tokenizers import normalizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from vocable.errors import ModelError


def lowercased(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """A copy of `tokenizer` that lower-cases a text before anything else.

    Raises:
        ModelError: a tokenizer without a backend of the `tokenizers` library.
    """
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise ModelError(f"{type(tokenizer).__name__} is not made with the tokenizers library: save it as a fast one")
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
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
