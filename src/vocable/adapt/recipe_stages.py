"""Stages without a verb: lower-cased input, and a separate encoder for queries.

Lower-casing is "+ lowercase input" of Geng and Yang 2026, tables 2, 7 and 8.
"""

from __future__ import annotations

import copy
from typing import Literal

from pydantic import Field, model_validator
from sentence_transformers import SparseEncoder
from tokenizers import normalizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from vocable.adapt.stages import Inputs, Stage, register
from vocable.encoder.asymmetric import asymmetric
from vocable.encoder.fuse import copy_with, parts
from vocable.encoder.inference_free import make_inference_free
from vocable.encoder.provenance import record
from vocable.encoder.sparse_encoder import load_sparse_encoder
from vocable.encoder.tokens import backend_of
from vocable.objectives import Settings


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


def _lowercase(model: SparseEncoder, settings: bool, inputs: Inputs) -> SparseEncoder:
    model = copy_with(model, tokenizer=lowercased(parts(model).tokenizer))
    record(model, "lowercase")
    return model


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
        if self.weights is not None and not self.trainable:
            if self.learning_rate is not None:
                raise ValueError("weights that are not trainable have no learning_rate")
            if self.freeze_documents:
                raise ValueError("nothing would learn: freeze_documents goes with trainable weights, or with a model")
        return self


def _encode_queries(model: SparseEncoder, settings: QuerySettings, inputs: Inputs) -> SparseEncoder:
    if settings.model is not None:
        return asymmetric(load_sparse_encoder(settings.model), model)
    texts = None
    if settings.weights != "ones":
        texts = inputs.queries() if settings.corpus is None else inputs.texts([settings.corpus])
    return make_inference_free(model, texts, weights=settings.weights or "idf", trainable=settings.trainable)


ABOUT_QUERIES = "by default queries are encoded as documents are"
register(Stage("lowercase", bool, 10, "the tokenizer lower-cases its input", _lowercase))
register(Stage("queries", QuerySettings, 70, ABOUT_QUERIES, _encode_queries, sources=("corpus",), models=("model",)))
