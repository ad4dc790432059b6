"""What can go wrong, as one tree.

    VocableError
    ├── DataError          a corpus, query, judgment or example file: names the file and the line
    ├── VectorsError       stored vectors or an index: damaged, cut short, or of another vocabulary
    ├── ModelError         not a sparse encoder, or a head that cannot be used without its logits
    ├── RecipeError        an unknown key, a wrong type, an impossible combination: names the key's path
    ├── ArgumentError      an argument out of its range, or arguments that exclude each other
    ├── CollapseError      a training that the guard has stopped: names the likely cause and the repair
    └── MissingExtraError  an optional dependency is not installed: names the install line

Every one of them is the user's to mend: the command line prints it as one line and exits with status 2. Anything else
that escapes is a fault of ours (status 1).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class VocableError(Exception):
    """The base of every error that a user can mend."""


class DataError(VocableError):
    """Input data is missing or malformed.

    `source` is the file (or other source) and `line` the line's number, counted from 1; both stand at the front of the
    message.
    """

    def __init__(self, message: str, *, source: str | None = None, line: int | None = None) -> None:
        self.source, self.line = source, line
        where = "" if source is None else f"{source}: " if line is None else f"{source}:{line}: "
        super().__init__(where + message)


class VectorsError(VocableError):
    """Stored vectors or an index cannot be used."""


class ModelError(VocableError):
    """A model cannot be loaded or is of the wrong kind."""


class RecipeError(VocableError):
    """A recipe does not say what it should."""


class ArgumentError(VocableError):
    """An argument is out of range, or two arguments exclude each other."""


class CollapseError(VocableError):
    """A training would have come to nothing, and was stopped."""


class MissingExtraError(VocableError):
    """An optional dependency is not installed."""


def check_texts(texts: object, name: str = "texts") -> None:
    """Refuse one str in place of a list of them: its characters would be taken for texts.

    Raises:
        ArgumentError: `texts`, which the caller knows as `name`, is a str.
    """
    if isinstance(texts, str):
        raise ArgumentError(f"{name} must be a list of texts, not one str: write [text]")


def require_extra(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise `MissingExtraError` with the line that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module} is not installed: pip install 'vocable[{extra}]'") from error
