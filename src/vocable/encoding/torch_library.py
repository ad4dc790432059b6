"""Access to the models that only PyTorch computes; only here does the search side reach the training side.

Everything else on the search side works without PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder

    from vocable.encoding.protocol import EncodingModel
    from vocable.encoding.vectors import FingerprintParts

LIBRARY = "vocable.torch_models.library"  # named, not imported: the search side does not depend on the training side
M = TypeVar("M")


@dataclass(frozen=True)
class ModelKind:
    """A kind of sparse model: a test whether a model has this kind, and the loader."""

    name: str
    opens: Callable[[str], bool]  # of the folder or Hub id of a model
    load: Callable[..., Any]  # of its name, with the changes of its head, a device, and `trust_remote_code`


class TorchLibrary(Protocol):
    """The functions of `vocable.torch_models.library`."""

    def kinds(self) -> tuple[ModelKind, ...]:
        """Return the kinds of sparse models; the first kind that opens a model loads it, the last opens any model."""

    def as_encoding_model(self, model: SparseEncoder) -> EncodingModel:
        """Return a model of sentence-transformers as an `EncodingModel`."""

    def fingerprint(self, model: SentenceTransformer | CrossEncoder) -> FingerprintParts:
        """Return the fingerprint of a model of dense vectors or of a cross encoder."""

    def model_kind(self, name: str) -> str:
        """Return the kind of a model according to its configuration, such as "cross"."""

    def open_model(self, name: str | Path, open_place: Callable[..., M], device: str | None = None) -> M:
        """Load a model; turn errors into messages of one line."""

    def without_bars(self) -> AbstractContextManager[None]:
        """Hide the progress bars of reading weights within the context."""


def torch_library() -> TorchLibrary:
    """Return the functions that load models in PyTorch, whose import takes seconds."""
    return cast(TorchLibrary, import_module(LIBRARY))
