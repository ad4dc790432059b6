"""The names of a model's output terms: the one place that knows which vocabulary the vectors speak."""

from __future__ import annotations

from hashlib import blake2b

from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerBase

from vocable.encoder.fuse import splade_modules
from vocable.encoder.output_vocabulary import output_layer, output_vocabulary


def terms(model: SparseEncoder) -> list[str]:
    """The v output terms of `model`, by column; one without a token (padding of the head) is `<column>`."""
    [(transformer, _), *_] = splade_modules(model)
    layer = output_vocabulary(transformer.auto_model)
    if layer is not None:
        return list(layer.terms)
    return token_names(transformer.tokenizer, output_layer(transformer.auto_model).out_features)


def token_names(tokenizer: PreTrainedTokenizerBase, size: int) -> list[str]:
    """The tokens with the ids from 0 to `size`; `<id>` where no token has the id."""
    named = {column: token for token, column in tokenizer.get_vocab().items()}
    return [named.get(column, f"<{column}>") for column in range(size)]


def fingerprint(names: list[str]) -> str:
    """Sixteen hexadecimal digits that tell one vocabulary from another."""
    return blake2b("\n".join(names).encode(), digest_size=8).hexdigest()
