"""Encode texts as a csr_array: sorted by length, in batches of so many tokens, without ever making the logits."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Annotated, Any, get_args

import numpy as np
import torch
from annotated_types import Ge
from scipy.sparse import csr_array, vstack
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.tokenization_utils_base import LARGE_INTEGER

from vocable.data.texts import Texts, as_texts
from vocable.encoder.asymmetric import PROMPTS, Role, idf, own_prompt, route, static_embedding, static_lookup
from vocable.encoder.few_shapes import use_few_shapes
from vocable.encoder.fuse import fused, splade_modules
from vocable.encoder.graph import exported
from vocable.encoder.output_vocabulary import output_layer
from vocable.encoder.special_terms import keeps_special_terms
from vocable.encoder.terms import special_terms
from vocable.encoder.windows import Span, maximum, windows
from vocable.errors import ArgumentError
from vocable.options import Count, DType, LongDocuments, Share, checked
from vocable.vectors import heaviest, prune, selected

logger = logging.getLogger(__name__)

# Tokens of a batch, padding included: on a processor a batch should stay in the cache, a GPU wants to be filled.
BATCH_TOKENS = {"cpu": 1024, "cuda": 32768}
LONG = 32  # characters per token that is read, from which on a text is not tokenized whole
LOOKED_UP = 1024  # texts at a time where no encoder runs
# A tokenizer keeps how it cuts and pads, and the encoders of a model share it: one thread at a time sets and uses it.
TOKENIZING = Lock()


def native_bfloat16(device: torch.device) -> bool:
    """Whether `device` multiplies bfloat16 matrices in hardware (AMX, AVX512-BF16, CUDA from 8.0)."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))
    return False


def in_bfloat16(dtype: DType, device: torch.device) -> bool:
    """Whether to compute in bfloat16: "auto" does where `device` has it natively."""
    return dtype == "bfloat16" or (dtype == "auto" and native_bfloat16(device))


def warn_of_unknown(unknown: int, texts: int, kind: str = "texts", share: float = 0.5) -> None:
    """Warn in one line where more than a `share` of `texts` is mostly unknown to the vocabulary."""
    if unknown > share * texts:
        message = "the model's vocabulary does not know most tokens of %d of %d %s: it was made for other languages"
        logger.warning(message, unknown, texts, kind)


class TextEncoder:
    """A model made ready for encoding one role: its number type, route, prompt and length are settled once.

    With `long_documents` "maxpool" a text is read in windows, whose vectors' maximum is the text's. Limits that are
    asked for hold of the text; the model's own number of terms is that of one window, and a text of w windows may have sqrt(w) times as
    many: the number of different words of a text grows about so with its length (Heaps' law). `truncated` counts the
    texts, or windows, that were longer than `max_length` tokens and lost their end, `windows_read` the windows, and
    `unknown` those of which the vocabulary does not know more than half of the tokens. A text of which it knows none,
    as an empty one, has no terms. Once it knows the collection, the weights of queries are multiplied by the terms' IDF
    to the power `query_idf`.
    """

    @checked
    def __init__(
        self,
        model: SparseEncoder,
        role: Role = "document",
        *,
        max_terms: Count | None = None,
        min_weight: Annotated[float, Ge(0)] = 0.0,
        mass: Share | None = None,
        dtype: DType = "auto",
        max_length: Count | None = None,
        long_documents: LongDocuments = "truncate",
        query_idf: Annotated[float, Ge(0)] | None = None,
    ) -> None:
        if role not in PROMPTS:
            raise ArgumentError(f"role must be query or document, not {role!r}")
        if dtype not in get_args(DType):
            raise ArgumentError(f"dtype must be one of {', '.join(get_args(DType))}, not {dtype!r}")
        if long_documents not in ("truncate", "maxpool"):
            raise ArgumentError(f"long_documents must be truncate or maxpool, not {long_documents!r}")
        self.role, self.min_weight, self.mass, self.long_documents = role, min_weight, mass, long_documents
        config, own = _config(model, role), terms_kept(model, role)
        self.max_terms, self._grows = (
            max_terms or own,
            long_documents == "maxpool" and max_terms is None and own is not None,
        )
        own_idf = getattr(config, "query_idf", None) or 0.0
        self.query_idf: float = 0.0 if role == "document" else own_idf if query_idf is None else query_idf
        self._factors: np.ndarray | None = None
        self._static = static_embedding(model, role)
        self.model = _in_dtype(model, dtype) if self._static is None else model.eval()
        self.prompt = own_prompt(model, role)
        self.max_length = length_read(model, role, max_length)
        poolings = [module.pooling_strategy for module in route(model, role) if isinstance(module, SpladePooling)]
        self.pooling: str = poolings[0] if poolings else "static"
        self.truncated = self.windows_read = self.unknown = 0
        self._keeps_special = keeps_special_terms(config)
        # What the stock head lets through, and no other.
        stock = self._static is None and not self._keeps_special and not (fused(model) or exported(model))
        self._silenced = torch.from_numpy(special_terms(model)) if stock else None
        self._batch_tokens = BATCH_TOKENS.get(model.device.type, BATCH_TOKENS["cuda"])

    def encode(
        self,
        texts: Texts,
        advance: Callable[[int], object] = lambda done: None,
        *,
        begun: Callable[[np.ndarray], csr_array | None] = lambda order: None,
        keep: Callable[[list[csr_array]], object] = lambda rows: None,
    ) -> csr_array:
        """Encode b texts into [b, v]; `advance` is called with the number of texts done after every batch.

        `begun` is given the order in which the texts are encoded, int64 [b], and may give the vectors of the first of
        them, which an earlier call has made; those made so far are given to `keep` after every batch.
        """
        texts = as_texts(texts)
        if self.long_documents == "truncate":
            return self.weighed(self._rows(texts, advance, begun, keep))
        spans = [self.windows(text) for text in texts]
        counts, done = [len(some) for some in spans], 0
        owners = np.repeat(np.arange(len(texts)), counts)

        def in_texts(count: int) -> None:
            nonlocal done
            advance((done + count) * len(texts) // len(owners) - done * len(texts) // len(owners))
            done += count

        parts = [text[start:end] for text, some in zip(texts, spans, strict=True) for start, end in some]
        rows = self._rows(parts, in_texts, lambda order: begun(owners[order]), keep)
        self.windows_read += len(parts)
        return self.weighed(self._limited(maximum(rows, counts), np.array(counts)))

    def know_collection(self, frequencies: np.ndarray, documents: int) -> None:
        """From now on multiply the weights of queries by the terms' IDF in a collection, to the power `query_idf`.

        Of its `documents`, `frequencies` [v] have each term. A model cannot know which words everybody uses there.
        """
        if self.query_idf and documents:
            self._factors = idf(frequencies, documents) ** self.query_idf

    def weighed(self, vectors: csr_array) -> csr_array:
        """Vectors [b, v] with what is known of the collection."""
        if self._factors is None:
            return vectors
        weights = vectors.data * self._factors[vectors.indices]
        return csr_array((weights, vectors.indices, vectors.indptr), shape=vectors.shape)

    def windows(self, text: str, before: str = "", share: float = 1.0) -> list[Span]:
        """The windows over a text, each of which is read whole after the prompt and what stands `before` it.

        `share` is that of a model's length which a window may take. Raises `ArgumentError` where the tokenizer does not
        say which characters its tokens are.
        """
        if self.max_length is None:
            return [(0, len(text))]
        tokenizer: Any = route(self.model, self.role)[0].tokenizer
        if not tokenizer.is_fast:
            raise ArgumentError(
                "long_documents: this model's tokenizer does not tell the places of its tokens: truncate, or split texts"
            )
        options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
        with TOKENIZING:
            tokens = tokenizer(text, **options)["offset_mapping"]
        special = self._static is None
        room = int((self.max_length - len(self._tokens([before], special=special)[0])) * share)
        while True:  # a token may become several where a window begins within a word
            spans = windows(text, tokens, max(1, room))
            lengths = map(len, self._tokens([before + text[start:end] for start, end in spans], special=special))
            excess = max(lengths) - self.max_length
            if excess <= 0 or room <= 1:
                return spans
            room -= excess

    def _rows(
        self,
        texts: Sequence[str],
        advance: Callable[[int], object],
        begun: Callable[[np.ndarray], csr_array | None],
        keep: Callable[[list[csr_array]], object],
    ) -> csr_array:
        texts = [self._beginning(text) for text in texts]
        if not texts:
            # The model's own get_embedding_dimension gives the hidden size until something has been encoded.
            [(transformer, _), *_] = splade_modules(self.model)
            return csr_array((0, output_layer(transformer.auto_model).out_features), dtype=np.float32)
        if self._static is not None:
            return self._look_up(texts, advance)
        lengths, known = self._lengths_and_known(texts)
        if self.max_length is not None:
            self.truncated += int((lengths > self.max_length).sum())
            lengths = np.minimum(lengths, self.max_length)
        order = np.argsort(-lengths, kind="stable")
        batches, start = [], 0
        while start < len(order):  # the longest first, and no batch of more than so many tokens (a single text may)
            size = max(1, self._batch_tokens // max(1, int(lengths[order[start]])))
            batches.append(order[start : start + size])
            start += size
        rows, ends = [], np.cumsum([len(batch) for batch in batches])
        if (earlier := begun(order)) is not None and earlier.shape[0] in ends:  # else it was made in other batches
            rows.append(earlier)
            batches = batches[int(np.searchsorted(ends, earlier.shape[0])) + 1 :]
            advance(earlier.shape[0])
        for batch, vectors in zip(
            batches, self._encoded([[texts[i] for i in batch] for batch in batches]), strict=True
        ):
            rows.append(vectors)
            advance(len(batch))
            keep(rows)
        stacked = csr_array(vstack(rows, format="csr"))
        return _with_rows(stacked[np.argsort(order)], known)

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        """How many tokens each text has, the prompt's and special ones among them, int64 [b]; nothing is cut.

        Of a model that has no tokens, characters.
        """
        return self._lengths_and_known(texts)[0]

    def _lengths_and_known(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The lengths of texts, and whether the vocabulary knows any of their tokens, bool [b]."""
        if self._static is None and not isinstance(route(self.model, self.role)[0], Transformer):
            return np.array([len(text) for text in texts]), np.ones(len(texts), dtype=bool)
        ids = self._tokens(texts, special=self._static is None)
        return np.array(list(map(len, ids))), self._known(texts, ids)

    def _known(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> np.ndarray:
        """Return whether the vocabulary knows a token of each text that is read, bool [b]; counts the unknown texts.

        `ids` are the tokens of the texts behind the prompt, not cut. Of a text of blanks it knows none.
        """
        tokenizer: Any = route(self.model, self.role)[0].tokenizer
        missing = tokenizer.unk_token_id
        around = {*tokenizer.all_special_ids} - {missing}
        prompt = len(self._tokens([""], special=False)[0])
        added = tokenizer.num_special_tokens_to_add() if self._static is None else 0
        read = None if self.max_length is None else self.max_length - added
        own = [[token for token in some if token not in around] for some in ids]
        self.unknown += sum(2 * some[prompt:].count(missing) > len(some) - prompt for some in own)
        pairs = zip(texts, own, strict=True)
        known = [bool(text.strip()) and any(one != missing for one in some[prompt:read]) for text, some in pairs]
        return np.array(known) | np.bool_(self._keeps_special)

    def _encoded(self, batches: list[list[str]]) -> Iterator[csr_array]:
        """The vectors of each batch, on a processor several at once: a thread for each, and in it no further threads.

        Threads that share a product wait for each other, and for long where another process has one of the cores.
        """
        threads = torch.get_num_threads() if self.model.device.type == "cpu" else 1
        first, rest = batches[:1], batches[1:]
        yield from map(self._encode_batch, first)  # what is made once, as 8-bit weights, is made here
        if threads == 1 or len(rest) < threads:
            yield from map(self._encode_batch, rest)
            return
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                yield from pool.map(self._encode_batch, rest)
            finally:
                torch.set_num_threads(threads)  # of threads that begin later

    def _beginning(self, text: str) -> str:
        """A text without what is far behind the tokens that are read; those stay the same ones.

        Ever longer beginnings of a long text are tokenized, until enough tokens are of other words than the last one,
        which may be cut. The text of one word, as of a tokenizer that knows no words, stays whole.
        """
        if self.max_length is None or len(text) <= (size := LONG * self.max_length):
            return text
        tokenizer: Any = route(self.model, self.role)[0].tokenizer
        while tokenizer.is_fast and tokenizer.truncation_side == "right" and size < len(text):
            with TOKENIZING:
                words = tokenizer((self.prompt or "") + text[:size], add_special_tokens=False, verbose=False).word_ids()
            if sum(word != words[-1] for word in words) > self.max_length:
                return text[:size]
            size *= 2
        return text

    def _look_up(self, texts: Sequence[str], advance: Callable[[int], object]) -> csr_array:
        rows = []
        for start in range(0, len(texts), LOOKED_UP):
            batch = self._tokens(texts[start : start + LOOKED_UP], special=False)
            if self.max_length is not None:
                self.truncated += sum(len(ids) > self.max_length for ids in batch)
            found = static_lookup(self._static, [ids[: self.max_length] for ids in batch])
            rows.append(_with_rows(found, self._known(texts[start : start + LOOKED_UP], batch)))
            advance(len(batch))
        return self._pruned(csr_array(vstack(rows, format="csr")))

    def features(self, texts: Sequence[str]) -> dict[str, Any]:
        """What an encoder reads of the texts: their tokens, cut and padded, on the model's device."""
        options = {} if self.max_length is None else {"max_length": self.max_length}
        with TOKENIZING:
            features = self.model.preprocess(list(texts), prompt=self.prompt, task=self.role, **options)
        moved: dict[str, Any] = batch_to_device(features, self.model.device)
        return moved

    @torch.inference_mode()
    def _encode_batch(self, texts: list[str]) -> csr_array:
        pooled = self.model(self.features(texts), task=self.role)["sentence_embedding"]
        if self._silenced is not None:
            pooled = pooled.index_fill(1, self._silenced.to(pooled.device), 0)
        return self._pruned(_to_csr(pooled))

    def _pruned(self, vectors: csr_array) -> csr_array:
        """Return the vectors without the terms beyond the limits, which hold of a whole text, not of its windows."""
        return (
            vectors if self.long_documents == "maxpool" else prune(vectors, self.max_terms, self.min_weight, self.mass)
        )

    def _limited(self, vectors: csr_array, windows: np.ndarray) -> csr_array:
        """Return the vectors [b, v] of texts of so many windows [b] without the terms beyond the limits."""
        if not self._grows:
            return prune(vectors, self.max_terms, self.min_weight, self.mass)
        assert self.max_terms is not None
        return prune(
            heaviest(vectors, np.ceil(self.max_terms * np.sqrt(windows))), min_weight=self.min_weight, mass=self.mass
        )

    def _tokens(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        """The token ids of each text and its prompt, not cut; `special` for those that the tokenizer puts around."""
        tokenizer: Any = route(self.model, self.role)[0].tokenizer
        prompted = [self.prompt + text for text in texts] if self.prompt else list(texts)
        options = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        with TOKENIZING:
            ids: list[list[int]] = tokenizer(prompted, add_special_tokens=special, **options)["input_ids"]
        return ids


def _config(model: SparseEncoder, role: Role) -> PreTrainedConfig:
    """The configuration of the encoder of a role, or of the document encoder where a table encodes."""
    first = route(model, role)[0]
    if not isinstance(first, Transformer):
        [(first, _), *_] = splade_modules(model)
    config: PreTrainedConfig = first.auto_model.config
    return config


def terms_kept(model: SparseEncoder, role: Role) -> int | None:
    """Return how many terms of a text of the role a model keeps by itself, the heaviest; None for all."""
    limits: dict[str, int] = getattr(_config(model, role), "active_terms", None) or {}
    own: int | None = model.max_active_dims
    return limits.get(role, own)


def _in_dtype(model: SparseEncoder, dtype: DType) -> SparseEncoder:
    """The model itself, or a copy in another type: casting it back and forth would lose its weights."""
    if exported(model):
        if dtype == "bfloat16":
            raise ArgumentError("dtype bfloat16: an exported model computes in the numbers that it was written with")
        return model.eval()
    wanted = torch.bfloat16 if in_bfloat16(dtype, model.device) else torch.float32
    made = model if model.dtype == wanted else copy.deepcopy(model).to(wanted)
    if wanted == torch.bfloat16:
        for transformer, _ in splade_modules(made):
            use_few_shapes(transformer.auto_model)
    return made.eval()


def length_read(model: SparseEncoder, role: Role, override: int | None = None) -> int | None:
    """The tokens of a text that are read, its own or `override`; `ArgumentError` if it has not so many positions."""
    first: Any = route(model, role)[0]
    if static_embedding(model, role) is not None:
        longest = override or first.tokenizer.model_max_length
        return longest if longest < LARGE_INTEGER else None  # the tokenizer's way to say that it has no length
    if not isinstance(first, Transformer):
        return None
    longest = positions(first)
    if override is not None and override > longest:
        raise ArgumentError(f"max_length must be at most {longest}, the positions of this model, not {override}")
    own: int | None = override or (first.query_length if role == "query" else first.document_length)
    return own or first.max_seq_length


def positions(transformer: Transformer) -> int:
    """How many tokens of a text a model can read."""
    most: int = getattr(transformer.config, "max_position_embeddings", transformer.tokenizer.model_max_length)
    for module in transformer.modules():
        if isinstance(table := getattr(module, "position_embeddings", None), nn.Embedding):
            # RoBERTa's positions begin behind that of padding.
            most = table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    longest: int = transformer.tokenizer.model_max_length
    return min(longest, most)


def _with_rows(vectors: csr_array, kept: np.ndarray) -> csr_array:
    """Vectors [b, v] of which only the rows `kept`, bool [b], have entries."""
    return vectors if kept.all() else selected(vectors, np.repeat(kept, np.diff(vectors.indptr)))


def _to_csr(pooled: Tensor) -> csr_array:
    """[b, v] dense -> csr_array."""
    pooled = pooled.float()
    keep = pooled > 0
    rows, columns = keep.nonzero(as_tuple=True)
    indptr = np.zeros(len(pooled) + 1, dtype=np.int32)
    np.cumsum(keep.sum(dim=1).cpu().numpy(), out=indptr[1:])
    values = pooled[rows, columns].cpu().numpy()
    return csr_array((values, columns.to(torch.int32).cpu().numpy(), indptr), shape=tuple(pooled.shape))
