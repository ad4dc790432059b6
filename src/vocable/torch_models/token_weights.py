"""Models that weigh the tokens of a text, without expansion: the sparse side of BGE-M3 (Chen et al. 2024, eq. 3).

A token has the weight ReLU(w . h + c) of its last hidden state h, and a term the largest weight of its tokens. The
dense side, from the same pass, is the unit vector of the first token's state. w and c lie in `sparse_linear.pt`.

Letters: b texts, s tokens, v terms, d hidden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.util import load_file_path
from torch import Tensor, nn
from torch.nn.functional import normalize

from vocable.core.storage import regular
from vocable.encoding.protocol import Role, RoleEncoder, Tokenization
from vocable.encoding.vectors import token_names
from vocable.errors import ModelError
from vocable.options import DType
from vocable.torch_models.opening import open_model
from vocable.torch_models.output_vocabulary import special_tokens
from vocable.torch_models.torch_model import HostTokenization, TorchEncoder, TorchModel, in_dtype

TOKEN_HEAD = "sparse_linear.pt"  # in the folder of a model
ONLY_ENCODES = (
    f"the model weighs the tokens of a text, without expansion (BGE-M3's {TOKEN_HEAD}): it encodes, indexes and "
    "searches, and has no output layer to inspect, adapt, train or export"
)


class TokenWeights(nn.Module):
    """States of tokens [b, s, d] -> weights of terms [b, v], and the unit vectors [b, d] of the first states."""

    pooling_strategy = "tokens"

    def __init__(self, head: nn.Linear, terms: int) -> None:
        super().__init__()
        self.head, self.terms = head, terms

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden, ids = features["token_embeddings"], features["input_ids"]
        weights = self.head(hidden).squeeze(-1).relu().float() * features["attention_mask"]
        pooled = weights.new_zeros(len(ids), self.terms).scatter_reduce(1, ids, weights, "amax")
        dense = normalize(hidden[:, 0].float(), dim=1)
        return features | {"sentence_embedding": pooled, "dense_embedding": dense}


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
        return self.sparse_encoder[1].head.in_features

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
    """Return whether a folder or a repository of the Hub has the head of token weights."""
    return load_file_path(place, TOKEN_HEAD) is not None


def load_token_weights(name: str | Path, device: str | None = None) -> TokenWeightModel:
    """Load a model that weighs tokens, in float32.

    Raises `ModelError` if its encoder or its head is missing, damaged, or does not fit.
    """

    def open_place(place: str, device: str | None, trust_remote_code: bool) -> SparseEncoder:
        trust = {"trust_remote_code": trust_remote_code}
        transformer = Transformer(
            place, model_kwargs={"dtype": "float32"} | trust, processor_kwargs=trust, config_kwargs=trust
        )
        transformer.tokenizer.padding_side = "right"  # the first token gives the dense vector
        config = transformer.auto_model.config
        head = TokenWeights(_head(Path(str(load_file_path(place, TOKEN_HEAD))), config.hidden_size), config.vocab_size)
        return SparseEncoder(modules=[transformer, head], device=device).eval()

    return TokenWeightModel(open_model(name, open_place, device), str(name))


def _head(path: Path, d: int) -> nn.Linear:
    """Read the head, which is stored as a pickle, with PyTorch's reader that takes only tensors and runs no code."""
    try:
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
    head = nn.Linear(d, 1)
    head.load_state_dict(tensors)
    return head
