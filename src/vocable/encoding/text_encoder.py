"""Encode texts as sparse vectors: sorted by length, in batches by number of tokens, with any runtime."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Unpack

import numpy as np
from scipy.sparse import csr_array, vstack

from vocable.core.cancelling import stop_if_cancelled
from vocable.data.texts import Texts, as_texts
from vocable.encoding.idf import idf, weighed
from vocable.encoding.models import Model, encoding_model
from vocable.encoding.protocol import EncodedTexts, Role, Tokenization
from vocable.encoding.pruning import heaviest, prune
from vocable.encoding.vectors import VectorsMeta, selected
from vocable.encoding.windows import CharacterSpan, maximum, mean_of_windows, windows
from vocable.errors import ArgumentError
from vocable.options import Encoding, IdfPower, checked

logger = logging.getLogger(__name__)

LONGEST_TOKEN = 32  # characters; only the beginning of a text with more characters per token of the limit is tokenized


def warn_of_unknown(unknown: int, texts: int, kind: str = "texts", share: float = 0.5) -> None:
    """Warn if more than a `share` of `texts` has most of its tokens outside the vocabulary."""
    if unknown > share * texts:
        message = "the model's vocabulary does not know most tokens of %d of %d %s: it was made for other languages"
        logger.warning(message, unknown, texts, kind)


def warn_of_cut(cut: int, texts: int, kind: str, length: int | None) -> None:
    """Warn if texts were longer than the tokens that a model reads."""
    if cut:
        logger.warning("%d of %d %s were cut at %d tokens", cut, texts, kind, length)


class TextEncoder:
    """A model prepared for encoding texts of a role: number type, `Router` route, prompt and maximum length are set.

    With `long_documents` "maxpool", a text is read in windows and gets each term's largest weight in any window.
    `max_terms` limits the whole text. The model's own term limit applies to each window: a text of w windows keeps
    sqrt(w) times that limit, as the number of different words in a text grows (Heaps' law).

    Counters: `truncated` texts or windows longer than `max_length` tokens, `windows_read` windows, and `unknown` texts
    or windows with more than half of their tokens outside the vocabulary. A text without a token in the vocabulary,
    such as an empty text, has no terms. `term_idf` returns the IDF of a collection's terms: weights of queries are
    multiplied by it to the power `query_idf`, by default the power that the model sets.
    """

    @checked
    def __init__(
        self,
        model: Model,
        role: Role = "document",
        *,
        query_idf: IdfPower = None,
        **options: Unpack[Encoding],  # `device` and `runtime` are the model's
    ) -> None:
        self.long_documents = options["long_documents"] or "truncate"
        if self.long_documents == "passages":
            raise ArgumentError("long_documents must be truncate or maxpool, not 'passages'")
        self.role = role
        self.loaded = encoding_model(model)  # in the number type that it was loaded in
        self._encoder = encoder = self.loaded.encoder(role, options["dtype"], options["max_length"])
        settings = encoder.settings
        self.model = encoder.model
        self.pooling = encoder.pooling
        self.truncation = encoder.truncation
        self.batch_tokens = encoder.batch_tokens
        self.prompt = settings.prompt
        self.max_length = settings.max_length
        self.min_weight = options["min_weight"]
        self.mass = options["mass"]
        max_terms = options["max_terms"]
        self.max_terms = max_terms or settings.max_terms
        self._grows = self.long_documents == "maxpool" and max_terms is None and settings.max_terms is not None
        self.query_idf: float = settings.query_idf if query_idf is None else query_idf
        if role == "document":
            self.query_idf = 0.0
        self.term_idf: Callable[[np.ndarray], np.ndarray] | None = None  # from numbers of terms to their IDF
        self.truncated = self.windows_read = self.unknown = 0

    @property
    def dimensions(self) -> int | None:
        """The dimensions d of the model's dense vectors; None for a model without dense vectors."""
        return self._encoder.settings.dimensions

    def encode(self, texts: Texts, advance: Callable[[int], object] = lambda done: None) -> csr_array:
        """Encode b texts into [b, v]; call `advance` after every batch with its number of texts."""
        return self.encode_both(texts, advance).sparse

    def encode_both(
        self,
        texts: Texts,
        advance: Callable[[int], object] = lambda done: None,
        *,
        begun: Callable[[np.ndarray], EncodedTexts | None] = lambda order: None,
        keep: Callable[[list[EncodedTexts]], object] = lambda rows: None,
    ) -> EncodedTexts:
        """Encode b texts as `encode` does, and also return their dense vectors [b, d] if the model gives any.

        Dense vectors are unit vectors, and zero for a text without a token in the vocabulary. With "maxpool" a text has
        the mean of its windows' dense vectors, as a unit vector.

        `begun(order)` gets the rows of the texts in the order of encoding, int64 [b]. It may return vectors saved by an
        interrupted call, for the first texts in that order. `keep` gets all vectors so far after every batch.
        """
        texts = as_texts(texts)
        if self.long_documents == "truncate":
            sparse, dense = self._rows(texts, advance, begun, keep)
            return EncodedTexts(self.weighed(sparse), dense)
        # Windows of the texts; `owners` has the text of each window [windows].
        spans = [self.windows(text) for text in texts]
        counts, done = [len(text_spans) for text_spans in spans], 0
        owners = np.repeat(np.arange(len(texts)), counts)

        # `advance` counts texts: a share of the windows counts as the same share of the texts, rounded down.
        def advance_windows(count: int) -> None:
            nonlocal done
            advance((done + count) * len(texts) // len(owners) - done * len(texts) // len(owners))
            done += count

        # A term has its largest weight in any window; the limits are for the whole text.
        parts = [text[start:end] for text, text_spans in zip(texts, spans, strict=True) for start, end in text_spans]
        rows, dense = self._rows(parts, advance_windows, lambda order: begun(owners[order]), keep)
        self.windows_read += len(parts)
        sparse = self.weighed(self._limited(maximum(rows, counts), np.array(counts)))
        return EncodedTexts(sparse, None if dense is None else mean_of_windows(dense, counts))

    def know_collection(self, frequencies: np.ndarray, documents: int) -> None:
        """Multiply all weights from now on by the terms' IDF in a collection, to the power `query_idf`.

        `frequencies` [v] counts the collection's `documents` that contain each term.
        """
        if self.query_idf and documents:
            term_idf = idf(frequencies, documents)
            self.term_idf = lambda terms: term_idf[terms]

    def weighed(self, vectors: csr_array) -> csr_array:
        """Multiply the weights of vectors [b, v] by the IDF of the collection, if it is known."""
        return weighed(vectors, self.term_idf, self.query_idf)

    def windows(self, text: str, preceding: str = "", share: float = 1.0) -> list[CharacterSpan]:
        """Cut a text into windows that fit into the model's length, after the prompt and the text `preceding`.

        `share` is the largest share of the model's length that a window takes. Raises `ArgumentError` if the tokenizer
        does not return the places of its tokens.
        """
        if self.max_length is None:
            return [(0, len(text))]
        if not self._tokenization.has_places:
            raise ArgumentError(
                "long_documents: this model's tokenizer does not return places of tokens: truncate, or split texts"
            )
        tokens = [(start, end) for _, start, end in self._tokenization.places(text)]
        special = not self.looked_up
        room = int((self.max_length - len(self._tokens([preceding], special=special)[0])) * share)
        while True:  # a token may become several where a window begins within a word
            spans = windows(text, tokens, max(1, room))
            lengths = map(len, self._tokens([preceding + text[start:end] for start, end in spans], special=special))
            excess = max(lengths) - self.max_length
            if excess <= 0 or room <= 1:
                return spans
            room -= excess

    def _rows(
        self,
        texts: Sequence[str],
        advance: Callable[[int], object],
        begun: Callable[[np.ndarray], EncodedTexts | None],
        keep: Callable[[list[EncodedTexts]], object],
    ) -> EncodedTexts:
        if not texts:
            nothing = None if self.dimensions is None else np.zeros((0, self.dimensions), dtype=np.float32)
            return EncodedTexts(csr_array((0, len(self.model.terms)), dtype=np.float32), nothing)
        # Numbers of tokens [b], tokens, and whether a text has a token in the vocabulary [b].
        texts = [self._beginning(text) for text in texts]
        lengths, ids, known = self._read(texts)
        if self.max_length is not None:
            self.truncated += int((lengths > self.max_length).sum())
            lengths = np.minimum(lengths, self.max_length)
        # Batches of texts of similar length, the longest first. Only a batch of one text can exceed the limit.
        order = np.argsort(-lengths, kind="stable")
        batches, start = [], 0
        while start < len(order):
            size = max(1, self.batch_tokens // max(1, int(lengths[order[start]])))
            batches.append(order[start : start + size])
            start += size
        # Continue after the vectors of an interrupted call, if it had the same batches.
        rows = list[EncodedTexts]()
        ends = np.cumsum([len(batch) for batch in batches])
        earlier = begun(order)
        done = 0 if earlier is None else earlier.sparse.shape[0]
        if earlier is not None and done in ends:
            rows.append(earlier)
            batches = batches[int(np.searchsorted(ends, done)) + 1 :]
            advance(done)

        def encode(batch: np.ndarray) -> EncodedTexts:
            batch_texts, batch_ids = [texts[i] for i in batch], [ids[i] for i in batch]
            vectors = self._encoder.encode(batch_texts, batch_ids, self.prompt, self.truncation)
            if self.long_documents == "maxpool":  # the windows of a text are pruned later, together
                return vectors
            return vectors._replace(sparse=prune(vectors.sparse, self.max_terms, self.min_weight, self.mass))

        for batch, vectors in zip(batches, self._encoded(encode, batches), strict=True):
            stop_if_cancelled()
            rows.append(vectors)
            advance(len(batch))
            keep(rows)
        # Put the rows into the order of the texts. A text of unknown tokens has no terms.
        sparse, dense = joined_texts(rows)
        back = np.argsort(order)
        sparse = sparse[back]
        if not known.all():
            sparse = selected(sparse, np.repeat(known, np.diff(sparse.indptr)))
        return EncodedTexts(sparse, None if dense is None else dense[back] * known[:, None])

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        """Count the tokens of each text, with the prompt and special tokens, int64 [b], without truncation.

        For a model without tokens, count characters.
        """
        return self._read(texts)[0]

    @property
    def looked_up(self) -> bool:
        """True if a table of token weights encodes the role."""
        return self._encoder.looked_up

    @property
    def tokenization(self) -> Tokenization | None:
        """The tokenizer of the texts; None for a model without tokens."""
        return self._encoder.tokenization

    @property
    def _tokenization(self) -> Tokenization:
        assert self._encoder.tokenization is not None
        return self._encoder.tokenization

    def _read(self, texts: Sequence[str]) -> tuple[np.ndarray, list[list[int]], np.ndarray]:
        """Return the lengths of texts, their tokens, and True for texts with a token in the vocabulary, bool [b]."""
        if self._encoder.tokenization is None:
            return np.array([len(text) for text in texts]), [[]] * len(texts), np.ones(len(texts), dtype=bool)
        ids = self._tokens(texts, special=not self.looked_up)
        return np.array(list(map(len, ids))), ids, self._known(texts, ids)

    def _known(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> np.ndarray:
        """Return True for texts with a token in the vocabulary within the length, bool [b]; count unknown texts.

        `ids` are the tokens of prompt and text, not truncated. A blank text has no tokens.
        """
        # Take away special tokens; `prompt` and `read` bound the tokens of the text that the model reads.
        unknown_id = -1 if self._tokenization.unknown is None else self._tokenization.unknown
        special = self._tokenization.special - {unknown_id}
        prompt = len(self._tokens([""], special=False)[0])
        added = 0 if self.looked_up else self._tokenization.added
        read = None if self.max_length is None else self.max_length - added
        rows = [[token for token in text_ids if token not in special] for text_ids in ids]
        mostly_unknown = [2 * row[prompt:].count(unknown_id) > len(row) - prompt for row in rows]
        self.unknown += sum(mostly_unknown)
        pairs = zip(texts, rows, strict=True)
        known = [bool(text.strip()) and any(token != unknown_id for token in row[prompt:read]) for text, row in pairs]
        return np.array(known) | np.bool_(self._encoder.settings.keeps_special)

    def _encoded(
        self, encode: Callable[[np.ndarray], EncodedTexts], batches: list[np.ndarray]
    ) -> Iterator[EncodedTexts]:
        """Yield the vectors of each batch; a CPU encodes several batches at once, each in one thread.

        Threads that share a matrix product wait for each other, and wait long if another process uses a core. They
        share the first batch, which makes the 8-bit weights of a head in PyTorch once, and all batches if there are
        few.
        """
        threads, shared = self._encoder.threads, self._encoder.takes_all_threads
        first = batches[:1] if shared else []
        rest = batches[len(first) :]
        yield from map(encode, first)
        if threads == 1 or len(rest) < (threads if shared else 2):
            yield from map(encode, rest)
            return
        with self._encoder.one_thread_each() as prepare, ThreadPoolExecutor(threads, initializer=prepare) as pool:
            yield from pool.map(encode, rest)

    def _beginning(self, text: str) -> str:
        """Return the beginning of a long text that contains all tokens to be read, unchanged.

        It tokenizes longer and longer beginnings, until enough tokens precede the last word, which may be cut. A text
        of one word stays whole, and so does every text if the tokenizer does not return places.
        """
        if self.max_length is None or len(text) <= (size := LONGEST_TOKEN * self.max_length):
            return text
        while self._tokenization.has_places and self.truncation == "right" and size < len(text):
            words = self._tokenization.word_numbers((self.prompt or "") + text[:size])
            if sum(word != words[-1] for word in words) > self.max_length:
                return text[:size]
            size *= 2
        return text

    def _limited(self, vectors: csr_array, windows: np.ndarray) -> csr_array:
        """Prune the vectors [b, v] of texts according to their numbers of windows [b]."""
        if not self._grows:
            return prune(vectors, self.max_terms, self.min_weight, self.mass)
        assert self.max_terms is not None
        return prune(
            heaviest(vectors, np.ceil(self.max_terms * np.sqrt(windows))), min_weight=self.min_weight, mass=self.mass
        )

    def _tokens(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        """Return the token ids of each prompt and text, not truncated; with `special` tokens around them."""
        prompted = [self.prompt + text for text in texts] if self.prompt else texts
        return self._tokenization.ids(prompted, special=special)


def joined_texts(parts: Sequence[EncodedTexts]) -> EncodedTexts:
    """Join the vectors of several groups of texts."""
    dense = [part.dense for part in parts if part.dense is not None]
    sparse = csr_array(vstack([part.sparse for part in parts], format="csr"))
    return EncodedTexts(sparse, np.concatenate(dense) if dense else None)


def describe(encoder: TextEncoder, name: str) -> VectorsMeta:
    """Return the metadata of the vectors of `encoder`, which differ between vocabularies and between models."""
    model, length = encoder.model, encoder.max_length or 0
    origin = model.vocabulary, name, encoder.pooling, encoder.role, length
    return VectorsMeta(*origin, size=len(model.terms), runtime=model.runtime, fingerprint=encoder.loaded.fingerprint())
