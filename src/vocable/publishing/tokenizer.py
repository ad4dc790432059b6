"""Check and describe the tokenizer of queries for a browser; a description is tokenizer.json without the vocabulary.

In a browser, page/steps.js finds added tokens and carries out the normalizers. A file of tokenizers/, published as
tokenizer.js, has the pre-tokenizers and the model of a family, and the spelling of its tokens.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Collection, Iterator
from typing import Any
from unicodedata import normalize

from tokenizers import Tokenizer

from vocable.encoding.tokens import BYTE_OF
from vocable.errors import ModelError
from vocable.publishing.binary import front_coded
from vocable.publishing.charsmap import charsmap_entries
from vocable.publishing.files import SiteFiles

Description = dict[str, Any]  # has the keys of tokenizer.json

TOKENIZER_SCRIPTS = {"WordPiece": "wordpiece.js", "BPE": "byte_level.js", "Unigram": "unigram.js"}
MARK = "##"  # begins a piece that continues a word, in WordPiece
# No decompositions: browsers know newer characters than the library. A query is in NFC.
NORMALIZERS = {"NFC", "Lowercase", "Strip", "Prepend", "Replace", "Precompiled"}
READ_STEPS = {  # supported normalizers and pre-tokenizers by model
    "WordPiece": ({"BertNormalizer"}, {"BertPreTokenizer"}),
    "BPE": (NORMALIZERS, {"ByteLevel"}),
    "Unigram": (NORMALIZERS, {"WhitespaceSplit", "Metaspace"}),
}
BPE_SETTINGS = ("dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix")  # must not be set
BYTES = {sign for sign, byte in BYTE_OF.items() if byte not in (0xC0, 0xC1) and byte < 0xF5}  # bytes of valid UTF-8
SPACES = " {2,}"  # the only regular expression that the normalizer Replace may have
UNKNOWN_PENALTY = 10.0  # an unknown character in Unigram scores this much below the lowest score
PRINTED_ASCII = "".join(map(chr, range(32, 127)))
AS_NFKC = "\0"  # stands for a replacement that is the NFKC of its character


def check_tokenizer(tokenizer: Tokenizer, name: str) -> None:
    """Raise `ModelError` if a browser cannot read a part of the tokenizer; the message has the model and the part."""
    part = next(_unread(json.loads(tokenizer.to_str())), None)
    if part is not None:
        families = "WordPiece as BERT has it, byte-level BPE as GPT-2, Unigram as XLM-RoBERTa"
        raise ModelError(f"{name}: its tokenizer has {part}, which a browser does not read: it reads {families}")


def _unread(described: Description) -> Iterator[str]:
    model, kind = described["model"], described["model"]["type"]
    if kind not in READ_STEPS:
        yield f"the model {kind}"
        return
    normalizers, words = _steps(described["normalizer"]), _steps(described["pre_tokenizer"])
    for part, steps, read in zip(("normalizer", "pre_tokenizer"), (normalizers, words), READ_STEPS[kind], strict=True):
        yield from (f"the {part} {step['type']}" for step in steps if step["type"] not in read)
        if (len(steps) != 1 and len(read) == 1) or (part == "pre_tokenizer" and not steps):
            yield f"{len(steps)} steps in its {part}"
    for step in words:
        if step.get("prepend_scheme") == "first" or step.get("use_regex") is False:
            yield f"the pre_tokenizer {step['type']} with prepend_scheme first or without use_regex"
    for step in normalizers:
        if step["type"] == "Replace" and step["pattern"].get("Regex", SPACES) != SPACES:
            yield f"the normalizer Replace of {step['pattern']['Regex']!r}"
    if kind == "WordPiece" and model["continuing_subword_prefix"] != MARK:
        yield f"continuing_subword_prefix {model['continuing_subword_prefix']!r}"
    if kind == "BPE":
        yield from (f"{key} in its BPE" for key in BPE_SETTINGS if model[key])
        if not model["vocab"].keys() >= BYTES:
            yield "a vocabulary without some bytes"
    if kind == "Unigram" and (model["unk_id"] is None or model["byte_fallback"]):
        yield "a Unigram without an unknown token or with byte_fallback"
    yield from (
        f"the added token {token['content']!r} (single_word)"
        for token in described["added_tokens"]
        if token["single_word"]
    )


def _steps(step: Description | None) -> list[Description]:
    """Return the steps of a normalizer or pre-tokenizer, with all sequences flattened."""
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    return [single for part in step.get("normalizers") or step.get("pretokenizers") or [] for single in _steps(part)]


def describe(files: SiteFiles, tokenizer: Tokenizer, terms: Collection[str]) -> Description:
    """Return the description of a tokenizer; an added token that is among the `terms` gets the key `term`."""
    full = json.loads(tokenizer.to_str())
    model, added = full["model"], full["added_tokens"]
    vocabulary = model.pop("vocab")
    model.pop("merges", None)
    if model["type"] == "Unigram":
        lowest = min(score for _, score in vocabulary)
        model |= {"unk_token": vocabulary[model.pop("unk_id")][0], "unknown_score": lowest - UNKNOWN_PENALTY}
        model["longest"] = max(len(piece) for piece, _ in vocabulary)
    keys = ("lstrip", "rstrip", "normalized")
    tokens = [{"content": token["content"], **{key: True for key in keys if token[key]}} for token in added]
    return {
        "model": {key: value for key, value in model.items() if value is not None},
        "normalizer": [_published(files, step) for step in _steps(full["normalizer"])],
        "pre_tokenizer": _steps(full["pre_tokenizer"]),
        "added_tokens": [token | ({"term": True} if token["content"] in terms else {}) for token in tokens],
    }


def _published(files: SiteFiles, step: Description) -> Description:
    """Return a normalizer, with its map of characters moved to a file; `plain` means that printed ASCII stays."""
    if step["type"] != "Precompiled":
        return step
    entries = charsmap_entries(b64decode(step["precompiled_charsmap"]))
    values = [AS_NFKC if normalize("NFKC", key) == value else value for key, value in entries.items()]
    name = files.add(front_coded(list(entries)) + front_coded(values))
    return {"type": "Precompiled", "file": name, "plain": entries.keys().isdisjoint(PRINTED_ASCII)}
