"""What can go wrong, as one tree.

Every `VocableError` is the user's to mend: the command line prints it as one line and exits with status 2. Anything
else that escapes is a fault of ours (status 1).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class VocableError(Exception):
    """The base of every error that a user can mend."""


class DataError(VocableError):
    """A corpus, query, judgment or example file is missing or malformed; the message begins with source and line.

    `line` is counted from 1.
    """

    def __init__(self, message: str, *, source: str | None = None, line: int | None = None) -> None:
        self.source, self.line = source, line
        where = "" if source is None else f"{source}: " if line is None else f"{source}:{line}: "
        super().__init__(where + message)


class VectorsError(VocableError):
    """Stored vectors or an index are damaged, cut short, or of another vocabulary."""


class NoSpaceError(VectorsError):
    """The disk has too little room for an index."""


class ModelError(VocableError):
    """Not a sparse encoder, or a head that cannot be used without its logits."""


class RecipeError(VocableError):
    """A recipe has an unknown key, a wrong type or an impossible combination; the message has the key's path."""


class ArgumentError(VocableError):
    """An argument is out of its range, or arguments exclude each other."""


class InUseError(ArgumentError):
    """Another process is making the same output."""


class UnwrittenError(VocableError):
    """A file cannot be written when the work is done: `result` is what there is to see."""

    def __init__(self, error: OSError, result: object) -> None:
        super().__init__(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        self.result = result


class CollapseError(VocableError):
    """A training that the guard has stopped; the message has the likely cause and the repair."""


class LostProcessError(VocableError):
    """Another process of the same training has ended, or does not come to what all do together."""


class ServiceError(VocableError):
    """A service has refused a request, or does not answer; the message has its reason."""


class MissingExtraError(VocableError):
    """An optional dependency is not installed; the message has the install line."""


def require_extra(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise `MissingExtraError` with the line that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module} is not installed: pip install 'vocable[{extra}]'") from error
