"""Exception hierarchy.

The user can correct the cause of a `VocableError`: the command line prints it as one line and exits with status 2. Any
other exception is a bug (status 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

# Packages of the extra `train`, as they are imported.
TRAIN = {"accelerate", "datasets", "entmax", "onnx", "onnxscript", "sentence_transformers", "sklearn"}
TRAIN |= {"psutil", "torch", "transformers"}


class VocableError(Exception):
    """Base of all errors whose cause a user can correct."""


class DataError(VocableError):
    """A source of documents, queries, judgments or examples is missing or malformed.

    The message begins with the source and the line, which is counted from 1.
    """

    def __init__(self, message: str, *, source: str | None = None, line: int | None = None) -> None:
        self.source, self.line = source, line
        where = "" if source is None else f"{source}: " if line is None else f"{source}:{line}: "
        super().__init__(where + message)


class VectorsError(VocableError):
    """Stored vectors or an index are damaged, truncated, or of another vocabulary."""


class NoSpaceError(VectorsError):
    """The disk has too little room for an index."""


class UnavailableError(VectorsError):
    """The server of an index stayed busy or unreachable until the last repetition of a request.

    After a write, `unwritten` are the ids of the documents that the server has not acknowledged. After `seconds` the
    request may be tried again.
    """

    def __init__(self, message: str, unwritten: Sequence[str] = (), seconds: float = 1.0) -> None:
        super().__init__(message)
        self.unwritten, self.seconds = list(unwritten), seconds


class GoneError(VectorsError):
    """A collection was deleted while it was open."""


class ModelError(VocableError):
    """A model cannot be loaded, is not a sparse encoder, or does not support an operation."""


class RecipeError(VocableError):
    """A recipe has an unknown key, a wrong type or an impossible combination; the message names the key."""


class ArgumentError(VocableError):
    """An argument is out of range, or arguments exclude each other."""


class InUseError(ArgumentError):
    """Another process is writing the same output."""


class UnwrittenError(VocableError):
    """A file could not be written after the work was done; `result` has the result of the work."""

    def __init__(self, error: OSError, result: object) -> None:
        super().__init__(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        self.result = result


class CollapseError(VocableError):
    """The guard stopped a training; the message has the likely cause and the repair."""


class LostProcessError(VocableError):
    """Another process of the same training ended or stopped responding."""


class ServiceError(VocableError):
    """A service refused a request or did not answer; the message has the reason."""


class MissingExtraError(VocableError):
    """An optional dependency is not installed; the message has the command that installs it."""


@contextmanager
def naming_extra() -> Iterator[None]:
    """Turn the `ModuleNotFoundError` for a package of the extra `train` into a `MissingExtraError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in TRAIN:
            raise
        raise MissingExtraError(f"{error.name} is not installed: pip install 'vocable[train]'") from error


def require_extra(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise `MissingExtraError` with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(f"{package} is not installed: pip install 'vocable[{extra}]'") from error
