"""Models that weigh the tokens of a text, without expansion: BGE-M3's sparse side, GTE's, and uniCOIL.

A token has the weight ReLU(w . h + c) of its last hidden state h (Chen et al. 2024, eq. 3), and a term
the largest weight of its tokens; in a query of uniCOIL their sum. The dense side of BGE-M3 and GTE, from the same pass,
is the unit vector of the first token's state. w and c lie in `sparse_linear.pt` (BGE-M3), or with the encoder's weights
as `classifier` (gte-multilingual-base) or `tok_proj` (uniCOIL).

Letters: b texts, s tokens, v terms, d hidden.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.util import load_file_path
from torch import Tensor, nn
from torch.nn.functional import normalize
from transformers import PreTrainedConfig

from vocable.core.storage import regular
from vocable.encoding.hub import WEIGHTS
from vocable.encoding.protocol import Role, RoleEncoder, Tokenization
from vocable.encoding.vectors import token_names
from vocable.errors import ModelError
from vocable.options import DType
from vocable.torch_models.opening import open_model
from vocable.torch_models.output_vocabulary import special_tokens
from vocable.torch_models.torch_model import HostTokenization, TorchEncoder, TorchModel, in_dtype

TOKEN_HEADS = ("sparse_linear.safetensors", "sparse_linear.pt")  # in the folder of a model
ONLY_ENCODES = (
    "the model weighs the tokens of a text, without expansion: it encodes, indexes and searches, and has no output "
    "layer to inspect, adapt, train or export"
)


class HeadLayout(NamedTuple):
    """A layout of the head: the file and the beginning of the names of w and c."""

    file: str
    prefix: str = ""
    encoder: str = ""  # prefix of the encoder's weights that transformers does not know
    dense: bool = True  # the first token's state is a dense vector
    query_reduction: str = "amax"  # of the weights of a term's tokens in a query
    query_length: int | None = None


UNICOIL = HeadLayout(WEIGHTS, "tok_proj.", dense=False, query_reduction="sum", query_length=128)


class TokenWeights(nn.Module):
    """States of tokens [b, s, d] -> weights of terms [b, v], and the unit vectors [b, d] of the first states."""

    pooling_strategy = "tokens"
    forward_kwargs = frozenset({"task"})

    def __init__(self, linear: nn.Linear, terms: int, head: HeadLayout) -> None:
        super().__init__()
        self.head, self.terms, self.layout = linear, terms, head

    def forward(self, features: dict[str, Tensor], task: Role | None = None) -> dict[str, Tensor]:
        hidden, ids = features["token_embeddings"], features["input_ids"]
        weights = self.head(hidden).squeeze(-1).relu().float() * features["attention_mask"]
        reduction = self.layout.query_reduction if task == "query" else "amax"
        pooled = weights.new_zeros(len(ids), self.terms).scatter_reduce(1, ids, weights, reduction)
        dense = {"dense_embedding": normalize(hidden[:, 0].float(), dim=1)} if self.layout.dense else {}
        return features | {"sentence_embedding": pooled} | dense


class TokenWeightModel(TorchModel):
    """A model that weighs the tokens of a text. It only encodes."""

    refusal = ONLY_ENCODES

    def __init__(self, modules: SparseEncoder, name: str) -> None:
        """Take the modules, a `Transformer` and `TokenWeights`, and the name of their folder."""
        super().__init__(modules)
        self._name, self._tokenizer, self._size = name, modules[0].tokenizer, modules[1].terms

    @property
    def name(self) -> str:
        return self._name

    @property
    def own_terms(self) -> Sequence[str] | None:
        return None

    @property
    def notes(self) -> Mapping[str, Any]:
        return {}

    @property
    def dimensions(self) -> int | None:
        weights = self.sparse_encoder[1]
        return weights.head.in_features if weights.layout.dense else None

    @cached_property
    def terms(self) -> list[str]:
        return token_names(self._tokenizer, self._size)

    @property
    def tokenization(self) -> Tokenization:
        return HostTokenization(self._tokenizer)

    @property
    def special_terms(self) -> NDArray[np.int64]:
        return special_tokens(self._tokenizer, self._size)

    def encoder(self, role: Role, dtype: DType = "auto", max_length: int | None = None) -> RoleEncoder:
        encoder = TorchEncoder(TokenWeightModel(in_dtype(self.sparse_encoder, dtype), self.name), role, max_length)
        encoder.settings = encoder.settings._replace(dimensions=self.dimensions)
        return encoder


def weighs_tokens(place: str) -> bool:
    """Return whether a folder or a repository of the Hub has a head of token weights."""
    return head_of(place) is not None


def head_of(place: str) -> HeadLayout | None:
    """Return the layout of the head of token weights; None for a model without it."""
    for file in TOKEN_HEADS:
        if load_file_path(place, file) is not None:
            return HeadLayout(file)
    try:
        config, _ = PreTrainedConfig.get_config_dict(place)
        architecture = (config.get("architectures") or [""])[0]
        if architecture == "TILDEv2" or (weights := load_file_path(place, WEIGHTS)) is None:
            return None
        with safe_open(regular(weights), "pt") as tensors:
            names = tensors.keys()  # not a mapping: it cannot be iterated
            heads = {name for name in names if name.endswith(".weight") and name.count(".") < 3}
            one_weight = {name for name in heads if tensors.get_slice(name).get_shape()[:1] == [1]}
    except (OSError, ValueError, TypeError, AttributeError, SafetensorError):
        return None  # the error is raised when the model is loaded
    if architecture.endswith("ForTokenClassification") and "classifier.weight" in one_weight:
        return HeadLayout(WEIGHTS, "classifier.")
    for prefix in ("", "coil_encoder."):
        if f"{prefix}tok_proj.weight" in one_weight:
            return UNICOIL._replace(prefix=f"{prefix}tok_proj.", encoder=prefix)
    return None


def load_token_weights(name: str | Path, device: str | None = None) -> TokenWeightModel:
    """Load a model that weighs tokens, in float32.

    Raises `ModelError` if its encoder or its head is missing, damaged, or does not fit.
    """

    def open_place(place: str, device: str | None, trust_remote_code: bool) -> SparseEncoder:
        trust, head = {"trust_remote_code": trust_remote_code}, head_of(place)
        if head is None:
            raise ModelError(f"{name}: no head of token weights")
        settings: dict[str, Any] = {"dtype": "float32"} | trust
        if head.encoder:
            settings["key_mapping"] = {f"^{re.escape(head.encoder)}": ""}
        transformer = Transformer(place, model_kwargs=settings, processor_kwargs=trust, config_kwargs=trust)
        transformer.tokenizer.padding_side = "right"  # the first token gives the dense vector
        transformer.query_length = head.query_length
        config = transformer.auto_model.config
        linear = _linear(Path(str(load_file_path(place, head.file))), head, config.hidden_size)
        weights = TokenWeights(linear, config.vocab_size, head)
        return SparseEncoder(modules=[transformer, weights], device=device).eval()

    return TokenWeightModel(open_model(name, open_place, device), str(name))


def _linear(path: Path, head: HeadLayout, d: int) -> nn.Linear:
    """Read the head; BGE-M3's pickle with PyTorch's reader that takes only tensors and runs no code."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(regular(path), "pt") as file:
                tensors = {key: file.get_tensor(head.prefix + key).float() for key in ("weight", "bias")}
        else:
            state = torch.load(regular(path), map_location="cpu", weights_only=True)
            tensors = {key: state[key].float() for key in ("weight", "bias")}
    except Exception as error:  # any type of error, for a file that is damaged or has anything but tensors
        reason = "its head is damaged, or has more than the tensors weight and bias"
        if isinstance(error, OSError):
            reason = f"its head cannot be read ({error.strerror})"
        raise ModelError(f"{path}: {reason}") from error
    shapes = [list(part.shape) for part in tensors.values()]
    if shapes != [[1, d], [1]]:
        raise ModelError(f"{path}: weight and bias have the shapes {shapes}, config.json needs [[1, {d}], [1]]")
    linear = nn.Linear(d, 1)
    linear.load_state_dict(tensors)
    return linear
