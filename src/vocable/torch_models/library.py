"""Models in PyTorch for the search side, which reaches them only through `vocable.encoding.torch_library`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vocable.encoding.hub import trusting
from vocable.encoding.protocol import EncodingModel
from vocable.encoding.torch_library import ModelKind
from vocable.errors import ArgumentError
from vocable.torch_models.autoencoders import has_autoencoder, load_autoencoder
from vocable.torch_models.opening import model_kind, open_model, without_bars
from vocable.torch_models.sparse_encoder import load_sparse_encoder
from vocable.torch_models.token_weights import load_token_weights, weighs_tokens
from vocable.torch_models.torch_model import TorchModel
from vocable.torch_models.torch_model import library_fingerprint as fingerprint

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

__all__ = ["as_encoding_model", "fingerprint", "kinds", "model_kind", "open_model", "without_bars"]


def kinds() -> tuple[ModelKind, ...]:
    """Return the kinds of sparse models; the first kind that opens a model loads it, the last opens any model."""
    return (
        ModelKind("token weights", weighs_tokens, partial(_load_encoder, load_token_weights)),
        ModelKind("autoencoder", has_autoencoder, partial(_load_encoder, load_autoencoder)),
        ModelKind(
            "sparse encoder",
            lambda place: True,
            lambda name, changes, **options: load_sparse_encoder(name, **changes, **options),
        ),
    )


def as_encoding_model(model: SparseEncoder) -> EncodingModel:
    """Return a model of sentence-transformers as an `EncodingModel`."""
    return TorchModel(model)


def _load_encoder(
    load: Callable[[str | Path, str | None], TorchModel],
    name: str | Path,
    changes: Mapping[str, Any],
    *,
    device: str | None,
    trust_remote_code: bool,
) -> TorchModel:
    """Load a model that only encodes."""
    with trusting(trust_remote_code):
        model = load(name, device)
    if any(changes.values()):
        raise ArgumentError(f"{name}: pooling, activation and special_terms are of an output layer: {model.refusal}")
    return model
