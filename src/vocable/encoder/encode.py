"""Texts -> csr_array: sorted by length, batched by tokens, without the logits and without COO."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor, nn

from vocable.encoder.fuse import splade_modules
from vocable.encoder.output_vocabulary import output_layer
from vocable.encoder.precision import native_bfloat16
from vocable.errors import ArgumentError

logger = logging.getLogger(__name__)

Role = Literal["query", "document"]
DType = Literal["auto", "float32", "bfloat16"]

# Tokens of a batch, padding included: on a processor a batch should stay in the cache, a GPU wants to be filled.
BATCH_TOKENS = {"cpu": 1024, "cuda": 32768}
PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}


class TextEncoder:
    """A model made ready for encoding one role: its number type, route, prompt and length are settled once.

    `truncated` counts the texts that were longer than `max_length` tokens and lost their end.

    Raises:
        ArgumentError: an unknown role or dtype, top_k or max_length below 1, min_weight below 0.
    """

    def __init__(
        self,
        model: SparseEncoder,
        role: Role = "document",
        *,
        top_k: int | None = None,
        min_weight: float = 0.0,
        dtype: DType = "auto",
        max_length: int | None = None,
    ) -> None:
        _check(role, top_k, min_weight, dtype, max_length)
        self.role, self.min_weight = role, min_weight
        self.top_k = top_k or _own_top_k(model, role)
        self.model = _in_dtype(model, dtype)
        self.prompt = _prompt(model, role)
        self.max_length = _max_length(model, role, max_length)
        self.pooling = _pooling(model, role)
        self.truncated = 0
        self._batch_tokens = BATCH_TOKENS.get(model.device.type, BATCH_TOKENS["cuda"])

    def encode(self, texts: Sequence[str], advance: Callable[[int], object] = lambda done: None) -> csr_array:
        """Encode b texts into [b, v]; `advance` is called with the number of texts done after every batch."""
        if not texts:
            return csr_array((0, _output_size(self.model)), dtype=np.float32)
        lengths = self._token_counts(texts)
        if self.max_length is not None:
            self.truncated += int((lengths > self.max_length).sum())
            lengths = np.minimum(lengths, self.max_length)
        order = np.argsort(-lengths, kind="stable")
        rows = []
        for batch in _batches(order, lengths, self._batch_tokens):
            rows.append(self._encode_batch([texts[i] for i in batch]))
            advance(len(batch))
        stacked = csr_array(vstack(rows, format="csr"))
        return stacked[np.argsort(order)]

    @torch.inference_mode()
    def _encode_batch(self, texts: list[str]) -> csr_array:
        options = {} if self.max_length is None else {"max_length": self.max_length}
        features = self.model.preprocess(texts, prompt=self.prompt, task=self.role, **options)
        features = {
            key: value.to(self.model.device) if isinstance(value, Tensor) else value for key, value in features.items()
        }
        pooled = self.model(features, task=self.role)["sentence_embedding"]
        return _to_csr(pooled, self.top_k, self.min_weight)

    def _token_counts(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Tokens of each text before it is cut; characters where the route has no transformer, hence no length."""
        route = _route(self.model, self.role)[0]
        if not isinstance(route, Transformer):
            return np.array([len(text) for text in texts])
        prompted = [self.prompt + text for text in texts] if self.prompt else list(texts)
        ids = route.tokenizer(prompted, return_attention_mask=False, return_token_type_ids=False, verbose=False)
        return np.array([len(row) for row in ids["input_ids"]])


def encode(
    model: SparseEncoder,
    texts: Sequence[str],
    role: Role = "document",
    *,
    top_k: int | None = None,
    min_weight: float = 0.0,
    dtype: DType = "auto",
    max_length: int | None = None,
) -> csr_array:
    """Encode texts with a model from `vocable.load`.

    Args:
        model: a fused SparseEncoder (a stock one works, slower); it is not changed.
        texts: b texts; one without a word gives what the model makes of its special tokens.
        role: "query" or "document": chooses the model's prompt, `Router` route and length.
        top_k: keep only the k heaviest terms of a text; by default what the model's configuration has for the role
            under `active_terms`, or its `max_active_dims`, if it has either.
        min_weight: drop lighter terms.
        dtype: "auto" computes in bfloat16 where the device has it natively, in float32 elsewhere.
        max_length: tokens of a text, in place of the model's own length for the role; longer texts are cut, with a
            warning that counts them.

    Returns:
        [b, v] csr_array of float32 weights > 0, indices sorted.

    Raises:
        ArgumentError: an argument out of its range.
    """
    encoder = TextEncoder(model, role, top_k=top_k, min_weight=min_weight, dtype=dtype, max_length=max_length)
    vectors = encoder.encode(texts)
    if encoder.truncated:
        logger.warning("%d of %d texts were cut at %d tokens", encoder.truncated, len(texts), encoder.max_length)
    return vectors


def _check(role: str, top_k: int | None, min_weight: float, dtype: str, max_length: int | None) -> None:
    if role not in PROMPTS:
        raise ArgumentError(f"role must be query or document, not {role!r}")
    if dtype not in get_args(DType):
        raise ArgumentError(f"dtype must be one of {', '.join(get_args(DType))}, not {dtype!r}")
    if top_k is not None and top_k < 1:
        raise ArgumentError(f"top_k must be at least 1, not {top_k}")
    if not min_weight >= 0:
        raise ArgumentError(f"min_weight must be 0 or more, not {min_weight}")
    if max_length is not None and max_length < 1:
        raise ArgumentError(f"max_length must be at least 1, not {max_length}")


def _in_dtype(model: SparseEncoder, dtype: DType) -> SparseEncoder:
    """The model itself, or a copy in another type: casting it back and forth would lose its weights."""
    native = dtype == "auto" and native_bfloat16(model.device)
    wanted = torch.bfloat16 if dtype == "bfloat16" or native else torch.float32
    if model.dtype == wanted:
        return model.eval()
    return copy.deepcopy(model).to(wanted).eval()


def _prompt(model: SparseEncoder, role: Role) -> str | None:
    """The prompt that `encode_query` and `encode_document` would choose."""
    name = next((name for name in PROMPTS[role] if name in model.prompts), model.default_prompt_name)
    return None if name is None else model.prompts.get(name)


def _route(model: SparseEncoder, role: Role) -> Sequence[nn.Module]:
    first = model[0]
    return list(first.sub_modules[role]) if isinstance(first, Router) and role in first.sub_modules else list(model)


def _max_length(model: SparseEncoder, role: Role, override: int | None) -> int | None:
    first: Any = _route(model, role)[0]
    if not isinstance(first, Transformer):
        return None
    longest = min(first.tokenizer.model_max_length, first.config.max_position_embeddings)
    if override is not None and override > longest:
        raise ArgumentError(f"max_length must be at most {longest}, the positions of this model, not {override}")
    if override is not None:
        return override
    own: int | None = first.query_length if role == "query" else first.document_length
    return own or first.max_seq_length


def _pooling(model: SparseEncoder, role: Role) -> str:
    """The pooling's name, "static" for a route that looks weights up."""
    poolings = [module.pooling_strategy for module in _route(model, role) if isinstance(module, SpladePooling)]
    return poolings[0] if poolings else "static"


def _own_top_k(model: SparseEncoder, role: Role) -> int | None:
    """How many terms of a text the model itself wants kept."""
    [(transformer, _), *_] = splade_modules(model)
    limits = getattr(transformer.auto_model.config, "active_terms", None) or {}
    own: int | None = limits.get(role, model.max_active_dims)
    return own


def _output_size(model: SparseEncoder) -> int:
    # The model's own get_embedding_dimension gives the hidden size until something has been encoded.
    [(transformer, _), *_] = splade_modules(model)
    return output_layer(transformer.auto_model).out_features


def _batches(order: NDArray[np.int64], lengths: NDArray[np.int64], budget: int) -> list[NDArray[np.int64]]:
    """Cut the texts, longest first, so that no batch has more than `budget` tokens (a single text may)."""
    batches, start = [], 0
    while start < len(order):
        size = max(1, budget // max(1, int(lengths[order[start]])))
        batches.append(order[start : start + size])
        start += size
    return batches


def _to_csr(pooled: Tensor, top_k: int | None, min_weight: float) -> csr_array:
    """[b, v] dense -> csr_array; of equal weights the lower column is kept."""
    pooled = pooled.float()
    keep = pooled > min_weight if min_weight > 0 else pooled > 0
    if top_k is not None and top_k < pooled.shape[1]:
        ranks = torch.sort(pooled, dim=1, descending=True, stable=True).indices[:, :top_k]
        keep &= torch.zeros_like(keep).scatter_(1, ranks, True)
    rows, columns = keep.nonzero(as_tuple=True)
    indptr = np.zeros(len(pooled) + 1, dtype=np.int32)
    np.cumsum(keep.sum(dim=1).cpu().numpy(), out=indptr[1:])
    values = pooled[rows, columns].cpu().numpy()
    return csr_array((values, columns.to(torch.int32).cpu().numpy(), indptr), shape=tuple(pooled.shape))
