"""Find the engine of a place, and define what an engine declares about itself.

An engine is a module of `vocable.engines` with a class `ENGINE`, a `Store` (`engines/base.py`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from typing_extensions import Doc

from vocable import engines as package
from vocable.core.folders import COMMIT
from vocable.core.storage import path_name, regular
from vocable.core.tables import masked
from vocable.errors import ArgumentError
from vocable.options import AnswerOptions

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # slow to import, and no command needs it for its help

    from vocable.engines.filters import Filter

ENGINE_PLACE = re.compile(r"(?P<name>[a-z][a-z0-9_]+)(?P<server>\+https?://|://|:)")
DEFAULT_ENGINE = "folder"  # engine of a plain folder
Space = str  # kind of vectors of a document: "sparse" and "bm25" are sparse [n, v]; "dense" is float32 [n, d]


class OpenedSearchOptions(AnswerOptions, total=False):
    """Settings of a search, and for opening its index."""

    engine_options: Annotated[
        str | Mapping[str, object] | None,
        Doc("Options of the engine for a search, such as partial=true of a server (docs/engines.md)."),
    ]


@dataclass(frozen=True)
class NoOptions:
    """Options of an engine without options."""


@dataclass(frozen=True)
class About:
    """Properties of an engine."""

    engine: str
    exact: bool  # always finds the k best documents
    precision: str = "float32"  # type of the stored weights: a NumPy type, or "9 bits" of the significand
    max_nonzeros: int | None = None  # largest number of terms of a document
    max_terms: int | None = None  # largest number of terms of a query
    changes: bool = True  # documents can be added, replaced and deleted after the index is made
    instead: str = "index again to a plain folder, or to a server"  # what to do where they cannot
    durable: bool = False  # added documents survive a kill of the process that added them
    filters: bool = False  # a search can filter documents by their fields
    matching: tuple[str, ...] = ()  # options of `vocable.options.Matching` that the engine applies itself
    side_by_side: bool = False  # a service searches by several threads
    cheap_reads: bool = False  # all ids are listed, and terms counted, without asking a server
    knows_fields: bool = False  # the settings have the names of all fields, also while others write
    words_first: bool = False  # documents are searched by their words before they have vectors
    spaces: tuple[Space, ...] = ("sparse",)
    part: int = 512  # documents encoded and written together: if the process is killed, at most one part is lost
    options: type[Any] = NoOptions  # dataclass of the options that a collection is made with and keeps
    of_run: tuple[str, ...] = ()  # of these, what a repeated call may give anew, for its own writing
    search_options: type[Any] = NoOptions  # dataclass of the options of one handle's searches; nothing keeps them


class Lexicon(Protocol):
    """The words of a collection, for BM25."""

    def query_vectors(
        self, texts: Sequence[str], *, stems: bool = False, idf_filter: Filter | None = None
    ) -> csr_array:
        """Return the vectors of q texts, or `stems`, as queries [q, columns], without words that no document has.

        The words have the IDF of the documents that pass `idf_filter`, by default all.
        """

    def words_like(self, initials: str, shortest: int, longest: int) -> list[tuple[str, int]]:
        """Return words of these lengths that begin with a letter of `initials`, with their document frequencies.

        A server has only hashes of words: the list is empty.
        """

    def mean_lengths(self) -> tuple[float | None, float]:
        """Return the mean length in words that the weights are for, and the mean length of the documents now."""


def engine_named(name: str) -> Any:
    """Return the class of an engine, whose name is the name of its module; None if it is unknown."""
    if name not in {module.name for module in iter_modules(package.__path__)}:
        return None
    return getattr(import_module(f"{package.__name__}.{name}"), "ENGINE", None)


def engines() -> dict[str, Any]:
    """Return the classes of all engines by name."""
    named = ((module.name, engine_named(module.name)) for module in iter_modules(package.__path__))
    return {name: engine for name, engine in named if engine is not None}


def engine_of(place: str | os.PathLike[str]) -> tuple[Any, str]:
    """Return the engine class of a place, and the address for that engine.

    A place is a folder, ENGINE:FOLDER, ENGINE+http(s)://HOST/NAME, or ENGINE://HOST/NAME, whose address is the whole
    place. A folder belongs to the engine that created it.

    Raises:
        ArgumentError: the engine is unknown.
    """
    text = path_name(place, "a place")
    match = ENGINE_PLACE.match(text)
    if match is None or (match["server"] == ":" and engine_named(match["name"]) is None):
        name = DEFAULT_ENGINE
        # Its engine names what is wrong with the record.
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            name = str(json.loads(regular(Path(text, COMMIT)).read_bytes())["engine"])
        if (engine := engine_named(name)) is None:
            raise ArgumentError(f"{text}: unknown engine {name!r}: the engines are {', '.join(engines())}")
        return engine, text
    if match["name"] in ("http", "https"):
        raise ArgumentError(
            f"{masked(text)}: a service is searched by its address, its hits are explained by vocable search "
            "--explain, and documents change there by PUT and DELETE; all else needs the index itself"
        )
    if (engine := engine_named(match["name"])) is None:
        raise ArgumentError(f"{text.partition('//')[0]}: the engines are {', '.join(engines())}")
    return engine, text if match["server"] == "://" else text[match.end("name") + 1 :]


def holds_index(place: str | os.PathLike[str]) -> bool:
    """Return whether a place names an engine, or is the folder of a collection."""
    text = path_name(place, "a place")
    match = ENGINE_PLACE.match(text)
    named = match is not None and (match["server"] != ":" or engine_named(match["name"]) is not None)
    return named or Path(text, COMMIT).is_file()
