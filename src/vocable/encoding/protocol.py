"""The protocol of models that encode texts, which a PyTorch model and an exported graph implement.

`EncodingModel` has the name, the terms and the settings of a model. Its `RoleEncoder` turns batches of texts of a role
into vectors. Both read texts through a `Tokenization`. Nothing here loads PyTorch.

Letters: b texts, v output terms, d dimensions of dense vectors.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from tokenizers import Tokenizer
from tokenizers.normalizers import Normalizer

from vocable.encoding.vectors import FingerprintParts, vocabulary_fingerprint
from vocable.options import DType, Runtime

if TYPE_CHECKING:
    from vocable.encoding.tokens import Surface

Role = Literal["query", "document"]
PaddingSide = Literal["left", "right"]

NOTES_KEY = "vocable"  # in a model's configuration

# The encoders of a model share a tokenizer, and it stores its truncation and padding: only one thread may use it.
# A fork waits for that thread, or the tokenizer's own lock would stay closed in the child.
TOKENIZING = Lock()
if hasattr(os, "register_at_fork"):
    _release = TOKENIZING.release
    os.register_at_fork(before=TOKENIZING.acquire, after_in_parent=_release, after_in_child=_release)


class Token(NamedTuple):
    """A token of a text, and its characters `text[start:end]`."""

    id: int
    start: int
    end: int


class Tokenization(ABC):
    """A tokenizer: the tokens of texts, their places, and the vocabulary."""

    special: frozenset[int]  # ids of special tokens, such as [CLS] and [UNK]
    marked: frozenset[int]  # these, and ids of added tokens that are marked as special
    unknown: int | None  # id of the unknown token
    has_places: bool  # returns the places of tokens

    @property
    @abstractmethod
    def backend(self) -> Tokenizer:
        """The tokenizer of the tokenizers library; raises `ModelError` for a tokenizer in Python."""

    @property
    @abstractmethod
    def added(self) -> int:
        """The number of special tokens around a text."""

    @property
    @abstractmethod
    def normalizer(self) -> Normalizer | None:
        """The normalizer of the tokenizers library; None without a normalizer."""

    @abstractmethod
    def ids(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Return the token ids of each text, not truncated; with `special` tokens around them."""

    @abstractmethod
    def places(self, text: str) -> list[Token]:
        """Return the tokens of a text with their places, without special tokens around them."""

    @abstractmethod
    def word_numbers(self, text: str) -> list[int | None]:
        """Return the number of the word of each token of a text, without special tokens around them."""

    @abstractmethod
    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens with these ids."""

    @abstractmethod
    def surfaces(self) -> list[Surface | None]:
        """Return the surface of every id, None for unused ids; raise `ModelError` if tokens cannot be read as text."""


class EncodedTexts(NamedTuple):
    """The vectors of b texts."""

    sparse: csr_array  # [b, v]
    dense: NDArray[np.float32] | None = None  # [b, d], unit vectors; None for a model without dense vectors


class RoleSettings(NamedTuple):
    """A model's settings for the texts of a role."""

    role: Role
    prompt: str | None
    max_length: int | None  # tokens that are read, including special tokens; None without a limit
    max_terms: int | None  # terms that the model keeps of a text; None for all
    query_idf: float  # power of the IDF for weights of queries
    keeps_special: bool  # special tokens are terms
    dimensions: int | None = None  # d of dense vectors; None for a model without dense vectors


class RoleEncoder(ABC):
    """The encoder of texts of a role."""

    model: EncodingModel  # in the number type of the computation
    settings: RoleSettings
    tokenization: Tokenization | None  # None for a model without tokens
    pooling: str
    looked_up: bool  # weights come from a table of token weights
    truncation: PaddingSide = "right"  # where the tokenizer cuts long texts
    batch_tokens: int  # most tokens of a batch, padding included
    takes_all_threads = False  # a batch that is encoded alone uses all threads

    @property
    @abstractmethod
    def threads(self) -> int:
        """The number of batches that are encoded at the same time."""

    @abstractmethod
    def encode(
        self, texts: Sequence[str], ids: Sequence[Sequence[int]], prompt: str | None, side: PaddingSide
    ) -> EncodedTexts:
        """Return the vectors of a batch of texts that begin with `prompt`; truncate long texts on a side.

        `ids` are their tokens with the special tokens around them, not truncated.
        """

    def one_thread_each(self) -> AbstractContextManager[Callable[[], object]]:
        """Return a context for threads that encode batches; it yields a function that each thread calls first."""
        return nullcontext(lambda: None)


class EncodingModel(ABC):
    """A model that encodes texts.

    Attributes:
        runtime: the library that computes the model.
        device, dtype: device and number type of the computation, as "cpu" and "bfloat16".
        prompts, default_prompt: prompts by name, and the name of the default prompt.
        refusal: the reason why the weights of a model that only encodes cannot be read or changed; else empty.
    """

    runtime: Runtime
    device: str
    dtype: str
    prompts: Mapping[str, str]
    default_prompt: str | None
    refusal = ""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the model in its outputs."""

    @property
    @abstractmethod
    def notes(self) -> Mapping[str, Any]:
        """Its provenance and new terms (`vocable.torch_models.provenance`)."""

    @property
    @abstractmethod
    def parameters(self) -> int | None:
        """The number of its weights; None if unknown."""

    @property
    def dimensions(self) -> int | None:
        """The dimensions d of dense vectors from the same pass; None for a model that is sparse alone."""
        return None

    @property
    @abstractmethod
    def own_terms(self) -> Sequence[str] | None:
        """The output terms of a model whose terms are not its tokens; None for any other model."""

    @property
    @abstractmethod
    def terms(self) -> list[str]:
        """The v output terms by column; a column without a token is `<column>`."""

    def described_terms(self, texts: Callable[[], Sequence[str]]) -> Sequence[str]:
        """Return the terms by column for readers; `texts` may tell what terms without words stand for."""
        return self.terms

    @cached_property
    def columns(self) -> Mapping[str, int]:
        """The columns of the output terms by name."""
        return {term: column for column, term in enumerate(self.terms)}

    @cached_property
    def vocabulary(self) -> str:
        """The fingerprint of the output terms; a search compares it, and computing it takes 5 ms."""
        return vocabulary_fingerprint(self.terms)

    @property
    @abstractmethod
    def tokenization(self) -> Tokenization:
        """The tokenizer; for an asymmetric model with two tokenizers, the query tokenizer."""

    @property
    @abstractmethod
    def special_terms(self) -> NDArray[np.int64]:
        """The columns of the special terms, such as [CLS], ascending."""

    @abstractmethod
    def fingerprint(self, number_type: str | None = None) -> FingerprintParts:
        """Return everything that its vectors depend on (`vocable.encoding.model_fingerprint`).

        The weights are digested in `number_type`, such as "bfloat16", by default in the number type that they have.
        """

    @abstractmethod
    def encoder(self, role: Role, dtype: DType = "auto", max_length: int | None = None) -> RoleEncoder:
        """Return the encoder of a role; `max_length` replaces the model's maximum length.

        Raises `ArgumentError` if the model does not compute in `dtype`, or has fewer positions than `max_length`.
        """
