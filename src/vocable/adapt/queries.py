"""A separate encoder for queries: another model, or weights of tokens."""

from __future__ import annotations

from sentence_transformers import SparseEncoder

from vocable.adapt.stages import Inputs, QuerySettings
from vocable.torch_models.asymmetric import asymmetric
from vocable.torch_models.inference_free import make_inference_free
from vocable.torch_models.sparse_encoder import load_sparse_encoder


def adapt(model: SparseEncoder, settings: QuerySettings, inputs: Inputs) -> SparseEncoder:
    """Return the model with the query encoder of the settings."""
    if settings.model is not None:
        return asymmetric(load_sparse_encoder(settings.model), model)
    texts = None
    if settings.weights != "ones":
        texts = inputs.queries() if settings.corpus is None else inputs.texts([settings.corpus])
    return make_inference_free(model, texts, weights=settings.weights or "idf", trainable=settings.trainable)
