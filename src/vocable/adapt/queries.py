"""Separate encoders for queries: looked-up token weights, or a second model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from sentence_transformers import SparseEncoder

from vocable.adapt.stages import Inputs, Stage, register
from vocable.encoder.asymmetric import asymmetric
from vocable.encoder.inference_free import make_inference_free
from vocable.encoder.sparse_encoder import load_sparse_encoder
from vocable.objectives import Settings


class QuerySettings(Settings):
    """The query encoder, if it differs from the document encoder."""

    weights: Literal["idf", "mean", "ones"] | None = Field(
        default=None, description="of the tokens; no encoder reads a query. mean: what the model gave them in examples"
    )
    corpus: str | None = Field(default=None, description="place of the texts whose document frequencies give the IDF")
    trainable: bool = Field(default=False, description="the weights learn, too")
    model: str | None = Field(default=None, description="an encoder with the same terms: folder or Hub id")
    learning_rate: float | None = Field(default=None, gt=0, description="of what encodes queries, where it is another")
    freeze_documents: bool = Field(default=False, description="what encodes documents stays as it is")

    @model_validator(mode="after")
    def _one_kind(self) -> QuerySettings:
        if (self.weights is None) == (self.model is None):
            raise ValueError("queries have either weights or a model")
        if (self.weights == "idf") != (self.corpus is not None):
            raise ValueError("a corpus goes with weights: idf, and idf with a corpus")
        if self.model is not None and self.trainable:
            raise ValueError("trainable is for weights: a model of its own learns in any case")
        if self.learning_rate is not None and self.weights is not None and not self.trainable:
            raise ValueError("weights that are not trainable have no learning_rate")
        if self.freeze_documents and self.weights is not None and not self.trainable:
            raise ValueError("nothing would learn: freeze_documents goes with trainable weights, or with a model")
        return self


def _adapt(model: SparseEncoder, settings: QuerySettings, inputs: Inputs) -> SparseEncoder:
    if settings.model is not None:
        return asymmetric(load_sparse_encoder(settings.model), model)
    texts = None
    if settings.weights != "ones":
        texts = inputs.queries() if settings.corpus is None else inputs.texts([settings.corpus])
    return make_inference_free(model, texts, weights=settings.weights or "idf", trainable=settings.trainable)


register(
    Stage(
        "queries",
        QuerySettings,
        70,
        "by default queries are encoded as documents are",
        _adapt,
        sources=("corpus",),
        models=("model",),
    )
)
