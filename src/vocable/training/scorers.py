"""Teachers that score pairs of texts: cross-encoders, and dense or sparse bi-encoders.

Letters: p pairs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from huggingface_hub.errors import HFValidationError
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.util import load_file_path
from torch import nn
from transformers import AutoConfig

from vocable.encoder.encode import TextEncoder
from vocable.encoder.load import load, locate, open_whole
from vocable.errors import ModelError

Kind = Literal["cross", "dense", "sparse"]
SAVED_AS: dict[str, Kind] = {"CrossEncoder": "cross", "SentenceTransformer": "dense", "SparseEncoder": "sparse"}
ARCHITECTURES: dict[str, Kind] = {"ForSequenceClassification": "cross", "ForMaskedLM": "sparse"}

Model: TypeAlias = CrossEncoder | SentenceTransformer | SparseEncoder
Scorer: TypeAlias = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]


class CrossScorer:
    """A cross-encoder's scores as they leave its head: an activation such as the sigmoid would flatten the margins.

    Raises:
        ModelError: it has several labels, so that a pair has no one score.
    """

    def __init__(self, model: CrossEncoder) -> None:
        if model.num_labels != 1:
            raise ModelError(f"a cross-encoder with {model.num_labels} labels gives a pair no single score")
        self._model = model

    def __call__(self, queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float32]:
        """The scores [p] of p queries, each with its text."""
        pairs = list(zip(queries, texts, strict=True))
        scores: NDArray[np.float32] = self._model.predict(pairs, activation_fn=nn.Identity(), show_progress_bar=False)
        return scores


class DenseScorer:
    """A dense bi-encoder's similarities, each text encoded once a call."""

    def __init__(self, model: SentenceTransformer) -> None:
        self._model = model

    def __call__(self, queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float32]:
        """The scores [p] of p queries, each with its text."""
        (asked, query_rows), (answers, text_rows) = _distinct(queries), _distinct(texts)
        encoded = self._model.encode_query(asked, show_progress_bar=False, convert_to_tensor=True)
        others = self._model.encode_document(answers, show_progress_bar=False, convert_to_tensor=True)
        scores = self._model.similarity_pairwise(encoded[query_rows], others[text_rows])
        found: NDArray[np.float32] = scores.float().cpu().numpy()
        return found


class SparseScorer:
    """A sparse encoder's dot products, each text encoded once a call."""

    def __init__(self, model: SparseEncoder) -> None:
        self._queries, self._texts = TextEncoder(model, "query"), TextEncoder(model, "document")

    def __call__(self, queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float32]:
        """The scores [p] of p queries, each with its text."""
        (asked, query_rows), (answers, text_rows) = _distinct(queries), _distinct(texts)
        products = self._queries.encode(asked)[query_rows].multiply(self._texts.encode(answers)[text_rows])
        scores: NDArray[np.float32] = products.sum(axis=1)
        return scores


def make_scorer(model: Model) -> Scorer:
    """What scores pairs with a loaded model."""
    if isinstance(model, CrossEncoder):
        return CrossScorer(model)
    return SparseScorer(model) if isinstance(model, SparseEncoder) else DenseScorer(model)


def load_scoring_model(name: str | Path, kind: Kind | None = None) -> Model:
    """Load a model that can score pairs.

    Args:
        name: a folder, a Hub id, `package:NAME/FOLDER` or "vocable-mini".
        kind: what it is; by default what its configuration says.

    Raises:
        ModelError: nothing is there, it cannot be loaded, lacks weights, or does not say what kind it is.
    """
    place = locate(name)
    try:
        kind = kind or _kind(place)
    except (OSError, ValueError, HFValidationError) as error:
        raise ModelError(f"{name}: {str(error).strip().partition(chr(10))[0]}") from error
    if kind == "sparse":
        return load(name)
    return open_whole(name, lambda: CrossEncoder(place) if kind == "cross" else SentenceTransformer(place))


def _kind(place: str) -> Kind:
    saved_as = load_file_path(place, "config_sentence_transformers.json")
    if saved_as is not None:
        return SAVED_AS[json.loads(Path(saved_as).read_text(encoding="utf-8")).get("model_type", "SentenceTransformer")]
    if load_file_path(place, "modules.json") is not None:
        return "dense"  # of a time when there were no others
    architectures = AutoConfig.from_pretrained(place).architectures or []
    for architecture in architectures:
        for ending, kind in ARCHITECTURES.items():
            if architecture.endswith(ending):
                return kind
    found = ", ".join(architectures) or "no architecture"
    raise ModelError(f"{place}: its configuration names {found}: say with --kind whether it is cross, dense or sparse")


def _distinct(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """The distinct texts, and the place among them of every text."""
    places = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return list(places), [places[text] for text in texts]
