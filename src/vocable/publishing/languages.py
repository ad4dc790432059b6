"""The module of a published page that has the stop words of its language."""

from __future__ import annotations

import json

from vocable.errors import ArgumentError
from vocable.language.languages import language_of


def is_readable(language: str) -> bool:
    """Return whether a browser finds the same words in a language as BM25: all languages but ICU's dictionaries."""
    return not language_of(language).icu


def language_script(language: str) -> bytes:
    """Return the module, with `STOP`; `ArgumentError` for a language with words of ICU."""
    if not is_readable(language):
        instead = "publish without BM25 (--no-bm25), or index with another --language, as none"
        raise ArgumentError(f"language: a browser cannot find BM25's words of {language}: {instead}")
    stop = json.dumps(sorted(language_of(language).stop), ensure_ascii=False)
    return f"export const STOP = new Set({stop});\n".encode()
