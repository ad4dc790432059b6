"""The module of a published page that finds the words of its language: a stemmer of Snowball, and stop words."""

from __future__ import annotations

import json
from pathlib import Path

from vocable.errors import ArgumentError
from vocable.retrieval.languages import ENGLISH, language_of

SNOWBALL = Path(__file__).parent / "snowball"


def has_script(language: str) -> bool:
    """Return whether a browser finds the same words in a language as BM25."""
    found = language_of(language)
    return not found.icu and (found.stemmer in (None, ENGLISH) or (SNOWBALL / f"{found.stemmer}.js").is_file())


def language_script(language: str) -> bytes:
    """Return the module, with `stem` and `STOP`; `ArgumentError` for a language without one."""
    if not has_script(language):
        instead = "publish without BM25 (--no-bm25), or index with another --language, as none"
        raise ArgumentError(f"language: a browser cannot find BM25's words of {language}: {instead}")
    found = language_of(language)
    if found.stemmer is None:
        lines = ["export const stem = (word) => word;"]
    elif found.stemmer == ENGLISH:
        lines = ['export { stem } from "./stemmer.js";']
    else:
        base, rules = ((SNOWBALL / f"{name}.js").read_text(encoding="utf-8") for name in ("base", found.stemmer))
        made = f"const made = new {found.stemmer.title()}Stemmer();"
        lines = [f"var {base}", rules, made, "export const stem = (word) => made.stemWord(word);"]
    stop = json.dumps(sorted(found.stop), ensure_ascii=False)
    return "\n".join([*lines, f"export const STOP = new Set({stop});", ""]).encode()
