"""Many-to-one maps of a vocabulary onto a coarser one, and vectors folded along them.

A map pi (paper 001, section 3.1) is an array: the class of every term. It is made from what tokens stand for in a text,
by normalizers that are applied one after another, or comes from elsewhere.

Shapes: n vectors, v terms, c classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import Stemmer
from numpy.typing import NDArray
from scipy.sparse import csr_array

from vocable.adapt.normalization import without_accents
from vocable.errors import ArgumentError
from vocable.vectors import as_vectors

if TYPE_CHECKING:  # a name that is needed for its type alone: its module takes seconds to import
    from vocable.adapt.surfaces import Surface

    Normalizer = Callable[[Surface], Surface]


def case_folding(surface: Surface) -> Surface:
    """The surface in lower case.

    >>> from vocable.adapt.surfaces import Surface
    >>> case_folding(Surface("Naïve", True, "word")).text
    'naïve'
    """
    return surface._replace(text=surface.text.lower())


def accent_stripping(surface: Surface) -> Surface:
    """The surface without accents.

    >>> from vocable.adapt.surfaces import Surface
    >>> accent_stripping(Surface("Naïve", True, "word")).text
    'Naive'
    """
    return surface._replace(text=without_accents(surface.text))


def porter_stem(surface: Surface) -> Surface:
    """The Porter stem of what begins a word; the rest of a word has none. Stems are of lower-case words.

    >>> from vocable.adapt.surfaces import Surface
    >>> porter_stem(Surface("connections", True, "word")).text
    'connect'
    """
    return surface._replace(text=_porter().stemWord(surface.text)) if surface.kind == "word" else surface


def coarse_graining(
    surfaces: Sequence[Surface | None], *normalizers: Normalizer, size: int | None = None
) -> NDArray[np.int64]:
    """The map pi that merges the tokens which `normalizers` make equal.

    A token that begins a word and one that goes on with it stay apart, however they are spelled, and so does every
    token without a text of its own: special ones, single bytes, ids that no token has.

    Args:
        surfaces: of the v tokens, from `vocable.adapt.surfaces.surfaces`.
        normalizers: `case_folding`, `accent_stripping`, `porter_stem`, or any function from surface to surface, applied
            in this order.
        size: v, where the vectors have more terms than the tokenizer has tokens; each of these is a class by itself.

    Returns:
        int64 [v], the classes numbered from 0 in the order of their first terms.

    Raises:
        ArgumentError: the size is smaller than the number of surfaces.

    >>> from vocable.adapt.surfaces import Surface
    >>> words = [Surface(text, True, "word") for text in ("Café", "cafe", "cat")]
    >>> coarse_graining(words, case_folding, accent_stripping).tolist()
    [0, 0, 1]
    """
    size = len(surfaces) if size is None else size
    if size < len(surfaces):
        raise ArgumentError(f"size must not be smaller than the {len(surfaces)} surfaces, not {size}")
    keys: list[Any] = []
    for surface in surfaces:
        if surface is None or surface.kind in ("special", "bytes"):
            keys.append(len(keys))  # a number, equal to no surface's key
            continue
        for normalizer in normalizers:
            surface = normalizer(surface)
        keys.append((surface.text, surface.initial))
    keys.extend(range(len(keys), size))
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def fold(vectors: csr_array, classes: NDArray[np.integer[Any]], how: Literal["max", "sum"] = "max") -> csr_array:
    """Fold vectors [n, v] onto their classes: the repair of a raw vocabulary that needs no training.

    Args:
        vectors: encoded texts.
        classes: the map pi, int [v], as `coarse_graining` makes it.
        how: what a class weighs where several of its terms are active: the heaviest of them, or all together.

    Returns:
        csr_array [n, c], c one more than the largest class.

    Raises:
        ArgumentError: no such `how`, or classes that are not v numbers from 0.
        VectorsError: not sparse vectors.

    >>> vectors = csr_array(np.array([[1.0, 2.0, 5.0]], dtype=np.float32))
    >>> fold(vectors, np.array([0, 0, 1])).toarray().tolist()
    [[2.0, 5.0]]
    >>> fold(vectors, np.array([0, 0, 1]), "sum").toarray().tolist()
    [[3.0, 5.0]]
    """
    if how not in ("max", "sum"):
        raise ArgumentError(f"how must be max or sum, not {how!r}")
    vectors = as_vectors(vectors)
    classes = as_classes(classes, vectors.shape[1])
    n, c = vectors.shape[0], int(classes.max(initial=-1)) + 1
    rows = np.repeat(np.arange(n), np.diff(vectors.indptr))
    folded = classes[vectors.indices]
    if how == "max":
        # Sorted by row, class and weight, the last entry of each class is its heaviest.
        order = np.lexsort((vectors.data, folded, rows))
        places = (rows * c + folded)[order]
        last = order[np.append(places[1:] != places[:-1], True)] if len(order) else order
        return as_vectors(csr_array((vectors.data[last], (rows[last], folded[last])), shape=(n, c)))
    return as_vectors(csr_array((vectors.data, (rows, folded)), shape=(n, c)))


def as_classes(classes: NDArray[np.integer[Any]], v: int) -> NDArray[np.int64]:
    """`classes` as int64 [v]; raises `ArgumentError` if they are not v whole numbers from 0."""
    found = np.asarray(classes)
    if found.shape != (v,) or found.dtype.kind not in "iu":
        raise ArgumentError(f"classes must be {v} whole numbers, one a term, not {found.dtype} {list(found.shape)}")
    if found.min(initial=0) < 0:
        raise ArgumentError(f"classes are numbered from 0, not from {found.min()}")
    return found.astype(np.int64, copy=False)


@cache
def _porter() -> Any:
    return Stemmer.Stemmer("porter")
