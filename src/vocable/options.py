"""Options that several verbs share: one typed record each, taken as `**options: Unpack[Encoding]`.

Callers write plain keywords. An option that is left out has the default of what it is passed on to. The metadata of a
field is its limits and its sentence of help: `check` applies the limits, and the command line reads both. A function in
`RULES` refuses combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
from annotated_types import Ge, Gt, Le
from typing_extensions import Doc, TypedDict

from vocable.errors import ArgumentError

DType: TypeAlias = Literal["auto", "float32", "bfloat16"]
LongDocuments: TypeAlias = Literal["truncate", "maxpool", "passages"]
Fusion: TypeAlias = Literal["weighted", "reciprocal-rank"]
T = TypeVar("T")


class Pruning(TypedDict, total=False):
    """The terms of a vector to keep."""

    max_terms: Annotated[int | None, Ge(1), Doc("Keep only the terms with the largest weights, at most this many.")]
    min_weight: Annotated[float, Ge(0), Doc("Drop terms with a smaller weight.")]
    mass: Annotated[float | None, Gt(0), Le(1), Doc("Keep the fewest terms that have this share of the total weight.")]


class Inference(TypedDict, total=False):
    """The device and number type of a model, and the length of its input."""

    dtype: Annotated[DType, Doc("Number type of the model; auto is bfloat16 where the device has it natively.")]
    max_length: Annotated[int | None, Ge(1), Doc("Tokens per text; by default the model's own maximum.")]
    device: Annotated[str | None, Doc("Device of the model, as cpu, cuda or cuda:1; by default the best available.")]


class Encoding(Inference, Pruning, total=False):
    """Encoding of documents."""

    long_documents: Annotated[
        LongDocuments,
        Doc(
            "Documents beyond max_length: truncate them, read them in windows and keep each term's largest weight "
            "(maxpool), or index each window (passages)."
        ),
    ]


class SearchOptions(Pruning, total=False):
    """Settings of a search; those of `Pruning` apply to the queries."""

    hybrid: Annotated[bool, Doc("Also use BM25 and dense scores, if the index has them.")]
    weights: Annotated[
        str | Mapping[str, float] | None, Doc("Weights of the fused scores, as sparse=0.5,bm25=0.3,dense=0.2.")
    ]
    fusion: Annotated[Fusion, Doc("Fuse scores scaled to 0 to 1 (weighted), or reciprocal ranks (reciprocal-rank).")]
    filter: Annotated[str | None, Doc("Filter on document fields, as 'lang=de and year>=2020'.")]
    minimum_match: Annotated[float, Ge(0), Le(1), Doc("Share of a query's terms that a hit must contain.")]
    query_idf: Annotated[
        float | None, Ge(0), Doc("Multiply query weights by the collection's IDF to this power; default: the model's.")
    ]


def _check_fusion(given: Mapping[str, Any]) -> None:
    if given.get("fusion", "weighted") != "weighted" and not given.get("hybrid") and not given.get("weights"):
        raise ArgumentError("`fusion` goes with `hybrid` or `weights`")


RULES: dict[Any, Callable[[Mapping[str, Any]], None]] = {SearchOptions: _check_fusion}
WORDS = {"greater than or equal to": "at least", "less than or equal to": "at most", "greater than": "above"}


def check(record: type[T], given: Mapping[str, Any]) -> T:
    """Return the options of a record, checked; NumPy's numbers become Python's.

    Raises `ArgumentError` for an unknown option, a value of another type or out of its limits, or a combination that
    the record refuses.

    >>> check(Pruning, {"max_terms": 0})
    Traceback (most recent call last):
    vocable.errors.ArgumentError: max_terms must be at least 1, not 0
    """
    from pydantic import ValidationError

    plain = {name: one.item() if isinstance(one, np.generic) else one for name, one in given.items()}
    for name, value in plain.items():
        if isinstance(value, float) and not isfinite(value):
            raise ArgumentError(f"{name} must be a finite number, not {value}")
    try:
        checked = _adapter(cast(Any, record)).validate_python(plain, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, limit = str(first["loc"][0]), first["msg"].removeprefix("Input should be ")
        if first["type"] == "extra_forbidden":
            raise ArgumentError(f"{name}: no such option") from error
        for theirs, ours in WORDS.items():
            limit = limit.replace(theirs, ours)
        raise ArgumentError(f"{name} must be {limit}, not {first['input']!r}") from error
    if record in RULES:
        RULES[record](checked)
    return cast(T, checked)


@cache
def _adapter(record: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(record)
