"""The names of a model's output terms: the one place that knows which vocabulary the vectors speak."""

from __future__ import annotations

from hashlib import blake2b

from sentence_transformers import SparseEncoder

from vocable.encoder.fuse import splade_modules


def terms(model: SparseEncoder) -> list[str]:
    """The v output terms of `model`, by column; one without a token (padding of the head) is `<column>`."""
    [(transformer, _), *_] = splade_modules(model)
    size = transformer.auto_model.get_output_embeddings().out_features
    named = {column: token for token, column in transformer.tokenizer.get_vocab().items()}
    return [named.get(column, f"<{column}>") for column in range(size)]


def fingerprint(names: list[str]) -> str:
    """Sixteen hexadecimal digits that tell one vocabulary from another."""
    return blake2b("\n".join(names).encode(), digest_size=8).hexdigest()
