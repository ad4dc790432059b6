"""Write the module of a published page with the stop words of its language."""

from __future__ import annotations

import json

from vocable.errors import ArgumentError
from vocable.language.languages import language_of


def is_readable(language: str) -> bool:
    """Return whether a browser finds the same words as BM25: in all languages but those that need ICU."""
    return not language_of(language).icu


def language_script(language: str) -> bytes:
    """Return the module, which exports `STOP`, `COMMON` and `CODE`.

    Raises:
        ArgumentError: the language needs ICU.
    """
    if not is_readable(language):
        instead = "publish without BM25 (--no-bm25), or index with another --language, as none"
        raise ArgumentError(f"language: a browser cannot find BM25's words of {language}: {instead}")
    spoken = language_of(language)
    sets = {"STOP": spoken.stop, "COMMON": spoken.common}
    lines = [f"export const {n} = new Set({json.dumps(sorted(s), ensure_ascii=False)});" for n, s in sets.items()]
    return "\n".join([*lines, f"export const CODE = {json.dumps(spoken.code)};\n"]).encode()
