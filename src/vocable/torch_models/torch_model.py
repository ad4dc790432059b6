"""PyTorch models as `EncodingModel`: a SparseEncoder of sentence-transformers, its roles and its tokenizer.

Letters: b texts, v output terms.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.util import batch_to_device
from tokenizers import Tokenizer
from tokenizers.normalizers import Normalizer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from vocable.encoding.lookup import TableEncoder
from vocable.encoding.model_fingerprint import of_role, relevant, tokenizer_digest
from vocable.encoding.protocol import (
    NOTES_KEY,
    TOKENIZING,
    EncodedTexts,
    EncodingModel,
    PaddingSide,
    Role,
    RoleEncoder,
    RoleSettings,
    Token,
    Tokenization,
)
from vocable.encoding.tokens import Surface, backend_of, token_surfaces
from vocable.encoding.vectors import FingerprintParts
from vocable.options import DType
from vocable.torch_models.asymmetric import (
    length_read,
    own_prompt,
    role_config,
    route,
    static_embedding,
    terms_kept,
)
from vocable.torch_models.cpu import in_bfloat16, use_few_shapes
from vocable.torch_models.fuse import fused, main_transformer, splade_modules
from vocable.torch_models.output_vocabulary import (
    keeps_special_terms,
    output_terms,
    output_vocabulary,
    special_columns,
)

# Tokens of a batch, padding included: a batch should stay in the cache of a CPU, and should fill a GPU.
BATCH_TOKENS = {"cpu": 1024, "cuda": 32768}


class TorchModel(EncodingModel):
    """A model of sentence-transformers, fused or stock."""

    runtime = "torch"

    def __init__(self, sparse_encoder: SparseEncoder) -> None:
        self.sparse_encoder = sparse_encoder
        self.prompts, self.default_prompt = sparse_encoder.prompts, sparse_encoder.default_prompt_name
        self.device = sparse_encoder.device.type
        self.dtype = str(sparse_encoder.dtype).removeprefix("torch.")

    @property
    def name(self) -> str:
        names = [transformer.auto_model.name_or_path for transformer, _ in splade_modules(self.sparse_encoder)]
        return names[0] if names and names[0] else "model"

    @property
    def own_terms(self) -> Sequence[str] | None:
        layer = output_vocabulary(main_transformer(self.sparse_encoder).auto_model)
        return None if layer is None else layer.terms

    @property
    def notes(self) -> Mapping[str, Any]:
        transformer, _ = splade_modules(self.sparse_encoder)[-1]  # queries come first
        return getattr(transformer.auto_model.config, NOTES_KEY, None) or {}

    @property
    def parameters(self) -> int | None:
        return sum(weights.numel() for weights in self.sparse_encoder.parameters())

    @cached_property  # 24 ms for 30,522 terms
    def terms(self) -> list[str]:
        transformer = main_transformer(self.sparse_encoder)
        return output_terms(transformer.auto_model, transformer.tokenizer)

    @property
    def tokenization(self) -> Tokenization:
        return HostTokenization(main_transformer(self.sparse_encoder).tokenizer)

    @property
    def special_terms(self) -> NDArray[np.int64]:
        transformer = main_transformer(self.sparse_encoder)
        return special_columns(transformer.auto_model, transformer.tokenizer)

    def fingerprint(self, number_type: str | None = None) -> FingerprintParts:
        parts: dict[str, Any] = {"weights": _weights_digest(self.sparse_encoder, number_type or self.dtype)}
        for role in get_args(Role):
            read = _modules_read(route(self.sparse_encoder, role))
            read |= role_settings(self.sparse_encoder, role, None)._asdict()
            parts |= of_role(role, {name: value for name, value in read.items() if name != "role"})
        return parts

    def encoder(self, role: Role, dtype: DType = "auto", max_length: int | None = None) -> RoleEncoder:
        if (table := static_embedding(self.sparse_encoder, role)) is None:
            return TorchEncoder.of(self.sparse_encoder, role, dtype, max_length)
        self.sparse_encoder.eval()
        return TableEncoder(
            self,
            HostTokenization(table.tokenizer),
            lambda: table.weight.detach().float().cpu().numpy(),
            role_settings(self.sparse_encoder, role, max_length),
        )


def role_settings(model: SparseEncoder, role: Role, max_length: int | None) -> RoleSettings:
    config = role_config(model, role)
    length, power = length_read(model, role, max_length), getattr(config, "query_idf", None) or 0.0
    return RoleSettings(
        role=role,
        prompt=own_prompt(model, role),
        max_length=length,
        max_terms=terms_kept(model, role),
        query_idf=power,
        keeps_special=keeps_special_terms(config),
    )


class TorchEncoder(RoleEncoder):
    """The encoder of a role of a `TorchModel`: its modules."""

    model: TorchModel
    looked_up, takes_all_threads = False, True

    @classmethod
    def of(cls, model: SparseEncoder, role: Role, dtype: DType = "auto", max_length: int | None = None) -> TorchEncoder:
        """Return the encoder of a role of `model`, or of a copy in another number type."""
        return cls(TorchModel(in_dtype(model, dtype)), role, max_length)

    def __init__(self, model: TorchModel, role: Role, max_length: int | None) -> None:
        self.model, modules = model, route(model.sparse_encoder, role)
        self.settings = role_settings(model.sparse_encoder, role, max_length)
        poolings = [str(module.pooling_strategy) for module in modules if hasattr(module, "pooling_strategy")]
        self.pooling = poolings[0] if poolings else "static"
        self._tokenizer: Any = getattr(modules[0], "tokenizer", None)
        self.tokenization = HostTokenization(self._tokenizer) if isinstance(modules[0], Transformer) else None
        self.truncation = getattr(self._tokenizer, "truncation_side", "right")
        self.batch_tokens = BATCH_TOKENS.get(model.device, BATCH_TOKENS["cuda"])
        # Only the stock head lets special terms through.
        stock = not self.settings.keeps_special and not fused(model.sparse_encoder)
        self._silenced = torch.from_numpy(model.special_terms) if stock else None

    @property
    def threads(self) -> int:
        """The number of PyTorch's threads on a CPU, and 1 on a GPU."""
        return torch.get_num_threads() if self.model.device == "cpu" else 1

    @contextmanager
    def one_thread_each(self) -> Iterator[Callable[[], object]]:
        threads = torch.get_num_threads()
        try:
            yield partial(torch.set_num_threads, 1)
        finally:
            torch.set_num_threads(threads)  # for threads that start later

    def features(self, texts: Sequence[str], prompt: str | None, side: PaddingSide = "right") -> dict[str, object]:
        """Return the inputs of the modules: tokens, truncated and padded, on the model's device."""
        options = {} if self.settings.max_length is None else {"max_length": self.settings.max_length}
        model, tokenizer = self.model.sparse_encoder, self._tokenizer
        with TOKENIZING:
            if tokenizer is not None:
                tokenizer.truncation_side = side
            try:
                features = model.preprocess(list(texts), prompt=prompt, task=self.settings.role, **options)
            finally:
                if tokenizer is not None:
                    tokenizer.truncation_side = self.truncation
        return batch_to_device(features, model.device)

    @torch.inference_mode()
    def encode(
        self, texts: Sequence[str], ids: Sequence[Sequence[int]], prompt: str | None, side: PaddingSide
    ) -> EncodedTexts:
        if self.tokenization is not None and not all(ids):  # without special tokens, an empty text has no token
            return self._encode_some(texts, ids, prompt, side)
        features = self.model.sparse_encoder(self.features(texts, prompt, side), task=self.settings.role)
        pooled, dense = features["sentence_embedding"], features.get("dense_embedding")
        if self._silenced is not None:
            pooled = pooled.index_fill(1, self._silenced.to(pooled.device), 0)
        return EncodedTexts(_to_csr(pooled), None if dense is None else dense.cpu().numpy())

    def _encode_some(self, texts: Sequence[str], ids: Sequence[Sequence[int]], *how: Any) -> EncodedTexts:
        """Encode the texts with tokens; other texts get zeros."""
        kept, d = [i for i, tokens in enumerate(ids) if tokens], self.settings.dimensions
        counts = np.zeros(len(texts), dtype=np.int32)
        dense = None if d is None else np.zeros((len(texts), d), dtype=np.float32)
        sparse = csr_array((0, len(self.model.terms)), dtype=np.float32)
        if kept:
            sparse, dense_rows = self.encode([texts[i] for i in kept], [ids[i] for i in kept], *how)
            counts[kept] = np.diff(sparse.indptr)
            if dense is not None:
                dense[kept] = dense_rows
        indptr = np.append(0, counts.cumsum()).astype(np.int32)
        rows = csr_array((sparse.data, sparse.indices, indptr), shape=(len(texts), sparse.shape[1]))
        return EncodedTexts(rows, dense)


class HostTokenization(Tokenization):
    """A tokenizer of transformers."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer, self.has_places = tokenizer, tokenizer.is_fast
        self.special, self.unknown = frozenset(tokenizer.all_special_ids), tokenizer.unk_token_id
        self.marked = self.special | {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}

    @property
    def backend(self) -> Tokenizer:
        return backend_of(self.tokenizer)

    @property
    def added(self) -> int:
        return self.tokenizer.num_special_tokens_to_add()

    @property
    def normalizer(self) -> Normalizer | None:
        return backend_of(self.tokenizer).normalizer

    def ids(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        options = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        with TOKENIZING:
            ids: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=special, **options)["input_ids"]
        return ids

    def places(self, text: str) -> list[Token]:
        with TOKENIZING:
            cut = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [Token(i, *place) for i, place in zip(cut["input_ids"], cut["offset_mapping"], strict=True)]

    def word_numbers(self, text: str) -> list[int | None]:
        with TOKENIZING:
            numbers: list[int | None] = self.tokenizer(text, add_special_tokens=False, verbose=False).word_ids()
        return numbers

    def names(self, ids: Sequence[int]) -> list[str]:
        names: list[str] = self.tokenizer.convert_ids_to_tokens(list(ids))
        return names

    def surfaces(self) -> list[Surface | None]:
        return token_surfaces(self.tokenizer)


def weights_checksum(model: nn.Module, dtype: torch.dtype | None = None) -> str:
    """Return eight hexadecimal digits that change with the weights of a model, converted to `dtype` if given."""
    total = 0
    for parameter in model.parameters():
        content = parameter.detach().to(dtype=dtype).cpu().contiguous().view(-1).view(torch.uint8)
        total = zlib.crc32(content.numpy().data, total)
    return f"{total:08x}"


def library_fingerprint(model: SentenceTransformer | CrossEncoder) -> FingerprintParts:
    """Return the fingerprint of a model of sentence-transformers that is not sparse."""
    limits = {"prompts": model.prompts, "default_prompt": model.default_prompt_name, "max_length": model.max_seq_length}
    weights = _weights_digest(model, str(model.dtype).removeprefix("torch."))
    return {"weights": weights, **_modules_read(list(model)), **relevant(limits)}


def _weights_digest(model: nn.Module, number_type: str) -> str:
    return f"{number_type}:{weights_checksum(model, getattr(torch, number_type))}"


def _modules_read(modules: Sequence[Any]) -> dict[str, Any]:
    """Return the settings of modules and their tokenizers."""
    parts = dict[str, Any]()
    for module in modules:
        if isinstance(module, Transformer):
            parts |= relevant(module.auto_model.config.to_dict())
        elif hasattr(module, "get_config_dict"):
            parts |= relevant(module.get_config_dict())
        if (tokenizer := getattr(module, "tokenizer", None)) is not None:
            parts |= {"tokenizer": _tokenizer_digest(tokenizer), "truncation": tokenizer.truncation_side}
    return parts


def _tokenizer_digest(tokenizer: Any) -> str:
    """Return the digest of a tokenizer of transformers; for a tokenizer in Python, of its vocabulary and settings."""
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
        return tokenizer_digest(backend)
    content = sorted(tokenizer.get_vocab().items()), sorted(map(str, tokenizer.init_kwargs.items()))
    return f"{zlib.crc32(str(content).encode()):08x}"


def in_dtype(model: SparseEncoder, dtype: DType) -> SparseEncoder:
    """Return the model itself, or a copy in another type, because casting back and forth would lose precision."""
    wanted = torch.bfloat16 if in_bfloat16(dtype, model.device) else torch.float32
    converted = model if model.dtype == wanted else copy.deepcopy(model).to(wanted)
    if wanted == torch.bfloat16:
        for transformer, _ in splade_modules(converted):
            use_few_shapes(transformer.auto_model)
    return converted.eval()


def _to_csr(pooled: Tensor) -> csr_array:
    """Convert dense weights [b, v] to a csr_array."""
    pooled = pooled.float()
    keep = pooled > 0
    rows, columns = keep.nonzero(as_tuple=True)
    indptr = np.zeros(len(pooled) + 1, dtype=np.int32)
    np.cumsum(keep.sum(dim=1).cpu().numpy(), out=indptr[1:])
    values = pooled[rows, columns].cpu().numpy()
    return csr_array((values, columns.to(torch.int32).cpu().numpy(), indptr), shape=tuple(pooled.shape))
