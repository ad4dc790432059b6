"""Several indexes in one search: the kinds of vectors that they share, and their settings together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from vocable.encoding.model_fingerprint import differences
from vocable.engines.protocols import Space
from vocable.engines.several import INDEX_FIELD, SettingsByIndex
from vocable.errors import ArgumentError


def unique_names(names: Sequence[str], places: Sequence[str]) -> list[str]:
    """Return the names of indexes, or their places if several have one name, without colons, which end a name in ids.

    >>> unique_names(["guide", "memory", "guide"], ["a/guide", "memory", "b/guide"])
    ['a/guide', 'memory', 'b/guide']
    >>> unique_names(["memory", "memory"], ["memory", "memory"])
    ['memory', 'memory-2']
    """
    counts, unique = Counter(names), list[str]()
    for name, place in zip(names, places, strict=True):
        chosen = (place if counts[name] > 1 else name).replace(":", "_")
        numbered = (chosen if number == 1 else f"{chosen}-{number}" for number in count(1))
        unique.append(next(name for name in numbered if name not in unique))
    return unique


def together(settings: SettingsByIndex) -> dict[str, Any]:
    """Return the settings of one index instead of several, with the kinds of vectors that all share.

    Raises `ArgumentError` if they share no kind.
    """
    first, *others = settings.values()
    apart = kinds_apart(settings)
    kinds = _kinds(first) - apart.keys()
    # What the indexes have in common: fields, and weights of a fusion if all agree.
    fields = [of["fields"] for of in settings.values() if of["fields"] is not None]
    weights = first.get("weights")
    agreed = all(of.get("weights") == weights for of in others) and not {*(weights or ())} - kinds
    coverage = [of["progress"]["coverage"] for of in settings.values()]
    # Take the settings of the first index, but for what the indexes do not share.
    return {
        **first,
        "engine": "several",
        "meta": {**first["meta"], **({} if "sparse" in kinds else {"size": 0})},
        "bm25": "bm25" in kinds,
        "dense": first["dense"] if "dense" in kinds else None,
        "dense_fingerprint": first["dense_fingerprint"] if "dense" in kinds else None,
        "progress": {**first["progress"], "coverage": [sum(counts) for counts in zip(*coverage, strict=False)]},
        "whole": all(of["whole"] for of in settings.values()),
        "fields": sorted({INDEX_FIELD}.union(*fields)) if len(fields) == len(settings) else None,
        "weights": weights if agreed else None,
    }


def kinds_apart(settings: SettingsByIndex) -> dict[Space, str]:
    """Return why indexes cannot be searched together by a kind of vectors, by kind.

    Raises `ArgumentError` if they share no kind, or if one has passages and another whole documents.
    """
    (first, of_first), *others = settings.items()
    apart: dict[Space, str] = {}
    for name, of_other in others:
        if _in_passages(of_first) != _in_passages(of_other):
            reason = "has passages and the other whole documents: index both with the same long_documents"
            raise ArgumentError(f"{first}, {name}: one {reason}")
        for kind, reason in _differences(of_first, of_other):
            apart.setdefault(kind, f"{first} and {name} have {reason}")
    if not _kinds(of_first) - apart.keys():
        reasons = "; ".join(f"{kind}: {reason}" for kind, reason in apart.items())
        raise ArgumentError(f"{', '.join(settings)} cannot be searched together: {reasons}")
    return apart


def _differences(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[Space, str]]:
    """Yield the kinds of vectors that two indexes do not share, and what they have instead."""
    metas, models = (first["meta"], other["meta"]), f"different models ({first['model']}, {other['model']})"
    known = [meta["fingerprint"] for meta in metas]
    # Models are the same by their fingerprints, or without fingerprints by their names.
    same = all(metas[0][part] == metas[1][part] for part in ("vocabulary", "size"))
    same = same and not differences(*known) and (all(known) or first["model"] == other["model"])
    if not same:
        yield "sparse", models
    if first["bm25"] != other["bm25"]:
        yield "bm25", "not both words"
    elif first["bm25"] and first["language"] != other["language"]:
        yield "bm25", f"different languages ({first['language']}, {other['language']})"
    dense = [of["dense"] for of in (first, other)]
    known = [of["dense_fingerprint"] for of in (first, other)]
    if dense == [None, None]:
        return
    # Dense vectors without a fingerprint come from the sparse model.
    alike = same if known == [None, None] else None not in known and not differences(*known)
    if None in dense:
        yield "dense", "not both dense vectors"
    elif not alike:
        yield "dense", f"different models ({dense[0]}, {dense[1]})"


def _kinds(settings: Mapping[str, Any]) -> set[Space]:
    """Return the kinds of vectors of an index."""
    return {"sparse", *["bm25"] * settings["bm25"], *["dense"] * (settings["dense"] is not None)}


def _in_passages(settings: Mapping[str, Any]) -> bool:
    return bool(settings["limits"]["long_documents"] == "passages")
