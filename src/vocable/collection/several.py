"""Several indexes in one search: the kinds of vectors that they share, and their settings together."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from vocable.collection.collection import Collection, open_index
from vocable.encoding.model_fingerprint import differences
from vocable.engines.base import Store
from vocable.engines.memory import MemoryStore
from vocable.engines.protocols import Space
from vocable.engines.several import INDEX_FIELD, Settings, SeveralStore
from vocable.errors import ArgumentError

logger = logging.getLogger(__name__)


def open_several(
    sources: Sequence[str | PathLike[str] | Collection],
    engine_options: str | Mapping[str, object] | None,
    *,
    allow_changed_model: bool,
    device: str | None,
) -> Collection:
    """Return several indexes as one; those that are opened here are closed with it."""
    collections, opened = list[Collection](), list[Store]()
    try:
        for source in sources:
            if isinstance(source, Collection):
                collections.append(source)
            else:
                collections.append(open_index(source, engine_options=engine_options))
                opened.append(collections[-1].store)
        names = unique_names([one.name for one in collections], [one.place for one in collections])
        if len(names) < 2 or len({*map(_identity, collections)}) < len(names):
            raise ArgumentError(f"a list of indexes needs two different indexes, not {', '.join(names) or 'none'}")
        stores = dict(zip(names, (one.store for one in collections), strict=True))
        store = SeveralStore(stores, together, opened)
        for kind, reason in kinds_apart({name: of.settings for name, of in stores.items()}).items():
            logger.warning("%s: searched without %s vectors: %s", store.place, kind, reason)
        collection = Collection(store.place, store, allow_changed_model=allow_changed_model, device=device)
        collection.opened_at = [str(one.opened_at) for one in collections]
        return collection
    except BaseException:
        for one in opened:
            one.close()
        raise


def _identity(collection: Collection) -> object:
    """Return a value that differs between two indexes."""
    if not isinstance(collection.opened_at, str):
        raise ArgumentError(f"{collection.place} are several indexes already: name each in one list")
    if isinstance(collection.store, MemoryStore):
        return id(collection.store)
    return Path(collection.opened_at).resolve() if Path(collection.opened_at).exists() else collection.place


def unique_names(names: Sequence[str], places: Sequence[str]) -> list[str]:
    """Return the names of indexes, or their places if several have one name, without colons, which end a name in ids.

    >>> unique_names(["guide", "memory", "guide"], ["a/guide", "memory", "b/guide"])
    ['a/guide', 'memory', 'b/guide']
    >>> unique_names(["memory", "memory"], ["memory", "memory"])
    ['memory', 'memory-2']
    """
    counts, unique = Counter(names), list[str]()
    for name, place in zip(names, places, strict=True):
        first = chosen = (place if counts[name] > 1 else name).replace(":", "_")
        while chosen in unique:
            chosen = f"{first}-{2 + unique.index(chosen)}"
        unique.append(chosen)
    return unique


def together(settings: Settings) -> dict[str, Any]:
    """Return the settings of several indexes as those of one index with the kinds of vectors that all share.

    Raises `ArgumentError` if they share no kind.
    """
    first, *others = settings.values()
    apart = kinds_apart(settings)
    kinds = [kind for kind in ("sparse", "bm25", "dense") if kind not in apart]
    fields = [of["fields"] for of in settings.values() if of["fields"] is not None]
    weights = first.get("weights")
    agreed = all(of.get("weights") == weights for of in others) and not {*(weights or ())} - {*kinds}
    coverage = [of["progress"]["coverage"] for of in settings.values()]
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


def kinds_apart(settings: Settings) -> dict[Space, str]:
    """Return why indexes cannot be searched together by a kind of vectors, by kind.

    Raises `ArgumentError` if they can be searched by no kind, and for an index in passages beside whole documents.
    """
    (first, of_first), *others = settings.items()
    apart: dict[Space, str] = {}
    for name, of_other in others:
        if _in_passages(of_first) != _in_passages(of_other):
            reason = "has passages and the other whole documents: index both with the same long_documents"
            raise ArgumentError(f"{first}, {name}: one {reason}")
        for kind, reason in _differences(of_first, of_other):
            apart.setdefault(kind, f"{first} and {name} have {reason}")
    if len(apart) == 3:
        reasons = "; ".join(f"{kind}: {reason}" for kind, reason in apart.items())
        raise ArgumentError(f"{', '.join(settings)} cannot be searched together: {reasons}")
    return apart


def _differences(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[Space, str]]:
    """Yield the kinds of vectors that two indexes do not share, and what they have instead."""
    metas, models = (first["meta"], other["meta"]), f"different models ({first['model']}, {other['model']})"
    known = metas[0]["fingerprint"] and metas[1]["fingerprint"]
    same = all(metas[0][part] == metas[1][part] for part in ("vocabulary", "size"))
    same = same and not differences(metas[0]["fingerprint"], metas[1]["fingerprint"])
    if not same or not (known or first["model"] == other["model"]):
        same = False
        yield "sparse", models
    if not (first["bm25"] and other["bm25"]):
        yield "bm25", "not both words"
    elif first["language"] != other["language"]:
        yield "bm25", f"different languages ({first['language']}, {other['language']})"
    prints = first["dense_fingerprint"], other["dense_fingerprint"]
    if None in (first["dense"], other["dense"]):
        yield "dense", "not both dense vectors"
    elif (prints[0] is None) != (prints[1] is None) or (prints[0] is None and not same):
        yield "dense", models
    elif prints[0] is not None and differences(*prints):
        yield "dense", f"different models ({first['dense']}, {other['dense']})"


def _in_passages(settings: Mapping[str, Any]) -> bool:
    return bool(settings["limits"]["long_documents"] == "passages")
