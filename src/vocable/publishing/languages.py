"""Write the module of a published page with the stop words of its language."""

from __future__ import annotations

import json

from vocable.errors import ArgumentError
from vocable.language.languages import language_of


def is_readable(language: str) -> bool:
    """Return whether a browser finds the same words as BM25: in all languages but those that need ICU."""
    return not language_of(language).icu


def language_script(language: str) -> bytes:
    """Return the module, which exports `STOP` and `CODE`; raise `ArgumentError` for a language that needs ICU."""
    if not is_readable(language):
        instead = "publish without BM25 (--no-bm25), or index with another --language, as none"
        raise ArgumentError(f"language: a browser cannot find BM25's words of {language}: {instead}")
    stop = json.dumps(sorted(language_of(language).stop), ensure_ascii=False)
    code = json.dumps(language_of(language).code)
    return f"export const STOP = new Set({stop});\nexport const CODE = {code};\n".encode()
