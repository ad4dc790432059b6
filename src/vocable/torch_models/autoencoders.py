"""Sparse autoencoders over dense models, such as CSR: `SparseAutoEncoder` in `modules.json`.

A text's dense vector x becomes k codes, the largest of ReLU(W (x - b) + c). A term is a latent, which has no word: its
name is its number. Such a model encodes, indexes and searches; it has no output layer over a vocabulary.

Letters: b texts, v latents, d dimensions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder
from sentence_transformers.util import batch_to_device, load_file_path

from vocable.encoding.hub import MODULES
from vocable.encoding.protocol import Role, RoleEncoder, Tokenization
from vocable.errors import ModelError
from vocable.options import DType
from vocable.torch_models.layouts import check_modules
from vocable.torch_models.opening import open_model
from vocable.torch_models.torch_model import HostTokenization, TorchEncoder, TorchModel, in_dtype

LATENTS_ONLY = (
    "the model's terms are the latents of an autoencoder over dense vectors: it encodes, indexes and searches, and has "
    "no output layer to inspect, adapt, train or export"
)
KEPT_TOKENS, SHOWN_TOKENS = 9, 3  # tokens of a latent that are kept, and distinct ones that are shown


class AutoencoderModel(TorchModel):
    """A dense model with a sparse autoencoder. It only encodes."""

    refusal = LATENTS_ONLY

    def __init__(self, modules: SparseEncoder, name: str) -> None:
        """Take the modules, from a `Transformer` to a `SparseAutoEncoder`, and the name of their folder."""
        super().__init__(modules)
        self._name, self._tokenizer, self._size = name, modules[0].tokenizer, autoencoder_of(modules).hidden_dim

    @property
    def name(self) -> str:
        return self._name

    @property
    def own_terms(self) -> Sequence[str] | None:
        return self.terms

    @property
    def notes(self) -> Mapping[str, Any]:
        return {}

    @property
    def dimensions(self) -> int | None:
        return None

    @cached_property
    def terms(self) -> list[str]:
        return [f"latent {number}" for number in range(self._size)]

    @torch.inference_mode()
    def described_terms(self, texts: Callable[[], Sequence[str]]) -> Sequence[str]:
        """Return the latents with the tokens whose states activate each most."""
        first, last = self.sparse_encoder[0], autoencoder_of(self.sparse_encoder)
        best, tokens = torch.zeros(0, self._size), torch.zeros(0, self._size, dtype=torch.long)
        for text in texts():
            features = batch_to_device(self.sparse_encoder.preprocess([text]), self.sparse_encoder.device)
            ids = features["input_ids"][0].cpu()
            # [s, d] -> [s, v]
            states, _ = last.prepare(first(features)["token_embeddings"][0])
            activations = last.encode_pre_act(states).cpu()
            activations[torch.isin(ids, torch.tensor(self._tokenizer.all_special_ids))] = 0
            best = torch.cat([best, activations])
            tokens = torch.cat([tokens, ids[:, None].expand(-1, self._size)])
            best, places = best.topk(min(KEPT_TOKENS, len(best)), dim=0)
            tokens = tokens.gather(0, places)
        described = list(self.terms)
        for latent in (best > 0).any(dim=0).nonzero()[:, 0].tolist():
            active = tokens[best[:, latent] > 0, latent].tolist()
            words = [self._tokenizer.decode([token]).strip() for token in dict.fromkeys(active)]
            described[latent] += f" ({', '.join(words[:SHOWN_TOKENS])})"
        return described

    @property
    def tokenization(self) -> Tokenization:
        return HostTokenization(self._tokenizer)

    @property
    def special_terms(self) -> NDArray[np.int64]:
        return np.empty(0, dtype=np.int64)

    def encoder(self, role: Role, dtype: DType = "auto", max_length: int | None = None) -> RoleEncoder:
        encoder = TorchEncoder(AutoencoderModel(in_dtype(self.sparse_encoder, dtype), self.name), role, max_length)
        encoder.pooling = f"the largest {autoencoder_of(self.sparse_encoder).k} codes"
        return encoder


def autoencoder_of(modules: SparseEncoder) -> SparseAutoEncoder:
    """Return the autoencoder of a model; raise `ModelError` for a model without one at its end."""
    *_, last = modules
    if not isinstance(modules[0], Transformer) or not isinstance(last, SparseAutoEncoder):
        outline = " -> ".join(type(module).__name__ for module in modules)
        raise ModelError(f"{outline} is not a transformer with an autoencoder at its end")
    return last


def has_autoencoder(place: str) -> bool:
    """Return whether `modules.json` of a folder or a repository of the Hub names a sparse autoencoder."""
    if (file := load_file_path(place, MODULES)) is None:
        return False
    try:
        kinds = [str(module["type"]) for module in json.loads(Path(file).read_text(encoding="utf-8"))]
    except (ValueError, TypeError, KeyError):
        return False  # the error is raised when the model is loaded
    return any(kind.endswith("SparseAutoEncoder") for kind in kinds)


def load_autoencoder(name: str | Path, device: str | None = None) -> AutoencoderModel:
    """Load a dense model with an autoencoder, in float32; raise `ModelError` if a part is missing or damaged."""

    def open_place(place: str, device: str | None, trust_remote_code: bool) -> SparseEncoder:
        kwargs: dict[str, Any] = {"device": device, "trust_remote_code": trust_remote_code}
        check_modules(place)
        model = SparseEncoder(place, model_kwargs={"dtype": "float32"}, **kwargs).eval()
        autoencoder = autoencoder_of(model)
        autoencoder.k = min(model.max_active_dims or autoencoder.k, autoencoder.hidden_dim)
        return model

    return AutoencoderModel(open_model(name, open_place, device), str(name))
