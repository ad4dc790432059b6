"""Encode texts as sparse vectors: sorted by length, in batches by number of tokens, without holding the logits."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from annotated_types import Ge
from scipy.sparse import csr_array, vstack
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from sentence_transformers.util import batch_to_device
from torch import Tensor
from typing_extensions import Unpack

from vocable.data.texts import Texts, as_texts
from vocable.encoder.asymmetric import (
    Role,
    length_read,
    own_prompt,
    role_config,
    route,
    static_embedding,
    static_lookup,
    terms_kept,
)
from vocable.encoder.cpu import in_bfloat16, use_few_shapes
from vocable.encoder.fuse import fused, main_transformer, splade_modules
from vocable.encoder.graph import exported
from vocable.encoder.idf import idf
from vocable.encoder.output_vocabulary import output_layer
from vocable.encoder.special_terms import keeps_special_terms
from vocable.encoder.terms import special_terms
from vocable.encoder.windows import CharacterSpan, maximum, windows
from vocable.errors import ArgumentError
from vocable.options import DType, Encoding, checked
from vocable.pruning import heaviest, prune
from vocable.vectors import selected

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

# Tokens of a batch, padding included: on a CPU a batch should stay in the cache, a GPU should be filled.
BATCH_TOKENS = {"cpu": 1024, "cuda": 32768}
LONGEST_TOKEN = 32  # characters; of a text with more of them per token that is read, only a beginning is tokenized
LOOKED_UP = 1024  # texts at a time with a table of token weights
# A tokenizer keeps its settings of truncation and padding, and the encoders of a model share it: one thread at a time.
TOKENIZING = Lock()


def warn_of_unknown(unknown: int, texts: int, kind: str = "texts", share: float = 0.5) -> None:
    """Warn if more than a `share` of `texts` has most of its tokens outside the vocabulary."""
    if unknown > share * texts:
        message = "the model's vocabulary does not know most tokens of %d of %d %s: it was made for other languages"
        logger.warning(message, unknown, texts, kind)


class TextEncoder:
    """A model prepared for encoding one role: number type, `Router` route, prompt and maximum length are set once.

    With `long_documents` "maxpool", a text is read in windows and gets each term's largest weight in any of them.
    `max_terms` is the limit of the whole text; the model's own number of terms is the limit of one window, and a text
    of w windows keeps sqrt(w) times as many, as the number of different words in a text grows (Heaps' law).

    Counters: `truncated` texts or windows longer than `max_length` tokens, `windows_read` windows, and `unknown` texts
    or windows with more than half of their tokens outside the vocabulary. A text with no token in the vocabulary, as an
    empty one, has no terms. After `know_collection`, weights of queries are multiplied by the terms' IDF to the power
    `query_idf`, by default the model's own.
    """

    @checked
    def __init__(
        self,
        model: SparseEncoder,
        role: Role = "document",
        *,
        query_idf: Annotated[float | None, Ge(0)] = None,
        **options: Unpack[Encoding],  # `device` is the model's
    ) -> None:
        self.long_documents = options.get("long_documents", "truncate")
        if self.long_documents == "passages":
            raise ArgumentError("long_documents must be truncate or maxpool, not 'passages'")
        max_terms = options.get("max_terms")
        self.role, self.min_weight, self.mass = role, options.get("min_weight", 0.0), options.get("mass")
        config, own = role_config(model, role), terms_kept(model, role)
        self.max_terms = max_terms or own
        self._grows = self.long_documents == "maxpool" and max_terms is None and own is not None
        own_idf = getattr(config, "query_idf", None) or 0.0
        self.query_idf: float = 0.0 if role == "document" else own_idf if query_idf is None else query_idf
        self._factors: np.ndarray | None = None
        self._static = static_embedding(model, role)
        self.model = _in_dtype(model, options.get("dtype", "auto")) if self._static is None else model.eval()
        self.prompt = own_prompt(model, role)
        self.max_length = length_read(model, role, options.get("max_length"))
        poolings = [module.pooling_strategy for module in route(model, role) if isinstance(module, SpladePooling)]
        self.pooling: str = poolings[0] if poolings else "static"
        self.truncated = self.windows_read = self.unknown = 0
        self._keeps_special = keeps_special_terms(config)
        # Only the stock head lets special terms through.
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
        """Encode b texts into [b, v]; `advance` is called after every batch with its number of texts.

        `begun` gets the order in which the texts are encoded, int64 [b], and may return vectors of the first ones from
        an earlier call. `keep` gets all vectors so far after every batch.
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
        """Multiply weights from now on by the terms' IDF in a collection, to the power `query_idf`.

        `frequencies` [v] counts the collection's `documents` that contain each term.
        """
        if self.query_idf and documents:
            self._factors = idf(frequencies, documents) ** self.query_idf

    def weighed(self, vectors: csr_array) -> csr_array:
        """Multiply the weights of vectors [b, v] by the IDF of the collection, if it is known."""
        if self._factors is None:
            return vectors
        weights = vectors.data * self._factors[vectors.indices]
        return csr_array((weights, vectors.indices, vectors.indptr), shape=vectors.shape)

    def windows(self, text: str, before: str = "", share: float = 1.0) -> list[CharacterSpan]:
        """Cut a text into windows that fit into the model's length, after the prompt and the text `before`.

        `share` is the largest share of the model's length that a window takes. Raises `ArgumentError` if the tokenizer
        does not return the places of its tokens.
        """
        if self.max_length is None:
            return [(0, len(text))]
        tokenizer: PreTrainedTokenizerBase = route(self.model, self.role)[0].tokenizer
        if not tokenizer.is_fast:
            raise ArgumentError(
                "long_documents: this model's tokenizer does not return places of tokens: truncate, or split texts"
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
            # The model's own get_embedding_dimension returns the hidden size until a text has been encoded.
            transformer = main_transformer(self.model)
            return csr_array((0, output_layer(transformer.auto_model).out_features), dtype=np.float32)
        if self._static is not None:
            return self._look_up(texts, advance)
        lengths, known = self._lengths_and_known(texts)
        if self.max_length is not None:
            self.truncated += int((lengths > self.max_length).sum())
            lengths = np.minimum(lengths, self.max_length)
        order = np.argsort(-lengths, kind="stable")
        batches, start = [], 0
        while start < len(order):  # the longest first; only a batch of one text has more tokens than the limit
            size = max(1, self._batch_tokens // max(1, int(lengths[order[start]])))
            batches.append(order[start : start + size])
            start += size
        rows, ends = [], np.cumsum([len(batch) for batch in batches])
        if (earlier := begun(order)) is not None and earlier.shape[0] in ends:  # else it came from other batches
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
        """Count the tokens of each text, with the prompt and special tokens, int64 [b]; nothing is truncated.

        For a model without tokens, count characters.
        """
        return self._lengths_and_known(texts)[0]

    def _lengths_and_known(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the lengths of texts, and True for those with a token in the vocabulary, bool [b]."""
        if self._static is None and not isinstance(route(self.model, self.role)[0], Transformer):
            return np.array([len(text) for text in texts]), np.ones(len(texts), dtype=bool)
        ids = self._tokens(texts, special=self._static is None)
        return np.array(list(map(len, ids))), self._known(texts, ids)

    def _known(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> np.ndarray:
        """Return True for texts with a token in the vocabulary within the length, bool [b]; count unknown texts.

        `ids` are the tokens of prompt and text, not truncated. A text of blanks has none.
        """
        tokenizer: PreTrainedTokenizerBase = route(self.model, self.role)[0].tokenizer
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
        """Yield the vectors of each batch; a CPU encodes several batches at once, each in one thread.

        Threads that share a product wait for each other, and wait long if another process has one of the cores.
        """
        threads = torch.get_num_threads() if self.model.device.type == "cpu" else 1
        first, rest = batches[:1], batches[1:]
        yield from map(self._encode_batch, first)  # which also makes the 8-bit weights, once
        if threads == 1 or len(rest) < threads:
            yield from map(self._encode_batch, rest)
            return
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                yield from pool.map(self._encode_batch, rest)
            finally:
                torch.set_num_threads(threads)  # for threads that start later

    def _beginning(self, text: str) -> str:
        """Return the beginning of a long text that holds all tokens to be read, unchanged.

        Longer and longer beginnings are tokenized, until enough tokens come before the last word, which may be cut. A
        text of one word stays whole, as does every text if the tokenizer has no words.
        """
        if self.max_length is None or len(text) <= (size := LONGEST_TOKEN * self.max_length):
            return text
        tokenizer: PreTrainedTokenizerBase = route(self.model, self.role)[0].tokenizer
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

    def features(self, texts: Sequence[str]) -> dict[str, object]:
        """Return the inputs of the encoder: tokens, truncated and padded, on the model's device."""
        options = {} if self.max_length is None else {"max_length": self.max_length}
        with TOKENIZING:
            features = self.model.preprocess(list(texts), prompt=self.prompt, task=self.role, **options)
        moved: dict[str, object] = batch_to_device(features, self.model.device)
        return moved

    @torch.inference_mode()
    def _encode_batch(self, texts: list[str]) -> csr_array:
        pooled = self.model(self.features(texts), task=self.role)["sentence_embedding"]
        if self._silenced is not None:
            pooled = pooled.index_fill(1, self._silenced.to(pooled.device), 0)
        return self._pruned(_to_csr(pooled))

    def _pruned(self, vectors: csr_array) -> csr_array:
        """Prune the vectors of texts; windows are pruned later, as a whole text."""
        return (
            vectors if self.long_documents == "maxpool" else prune(vectors, self.max_terms, self.min_weight, self.mass)
        )

    def _limited(self, vectors: csr_array, windows: np.ndarray) -> csr_array:
        """Prune the vectors [b, v] of texts by their numbers of windows [b]."""
        if not self._grows:
            return prune(vectors, self.max_terms, self.min_weight, self.mass)
        assert self.max_terms is not None
        return prune(
            heaviest(vectors, np.ceil(self.max_terms * np.sqrt(windows))), min_weight=self.min_weight, mass=self.mass
        )

    def _tokens(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        """Return the token ids of each prompt and text, not truncated; with `special` tokens around them."""
        tokenizer: PreTrainedTokenizerBase = route(self.model, self.role)[0].tokenizer
        prompted = [self.prompt + text for text in texts] if self.prompt else list(texts)
        options = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        with TOKENIZING:
            ids: list[list[int]] = tokenizer(prompted, add_special_tokens=special, **options)["input_ids"]
        return ids


def _in_dtype(model: SparseEncoder, dtype: DType) -> SparseEncoder:
    """Return the model itself, or a copy in another type, as casting back and forth would lose precision."""
    if exported(model):
        if dtype == "bfloat16":
            raise ArgumentError("dtype bfloat16: an exported model computes in the number type of its graph")
        return model.eval()
    wanted = torch.bfloat16 if in_bfloat16(dtype, model.device) else torch.float32
    made = model if model.dtype == wanted else copy.deepcopy(model).to(wanted)
    if wanted == torch.bfloat16:
        for transformer, _ in splade_modules(made):
            use_few_shapes(transformer.auto_model)
    return made.eval()


def _with_rows(vectors: csr_array, kept: np.ndarray) -> csr_array:
    """Empty all rows of vectors [b, v] but those `kept`, bool [b]."""
    return vectors if kept.all() else selected(vectors, np.repeat(kept, np.diff(vectors.indptr)))


def _to_csr(pooled: Tensor) -> csr_array:
    """Convert dense weights [b, v] to a csr_array."""
    pooled = pooled.float()
    keep = pooled > 0
    rows, columns = keep.nonzero(as_tuple=True)
    indptr = np.zeros(len(pooled) + 1, dtype=np.int32)
    np.cumsum(keep.sum(dim=1).cpu().numpy(), out=indptr[1:])
    values = pooled[rows, columns].cpu().numpy()
    return csr_array((values, columns.to(torch.int32).cpu().numpy(), indptr), shape=tuple(pooled.shape))
