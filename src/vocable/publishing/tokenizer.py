"""Check and describe the tokenizer of queries for a browser; a description is tokenizer.json without the vocabulary.

In a browser, page/steps.js finds added tokens and carries out the normalizers. A file of tokenizers/, published as
tokenizer.js, has the pre-tokenizers and the model of a family, and the spelling of its tokens.

The vocabulary is in files, each with a range of the sorted pieces. A file also holds every piece that is a prefix of
its first key: so a single file has all pieces that a text can begin with. The bytes of the pieces follow by column: the
first byte of every piece, the second byte of every piece, and so on. The first byte has flags. In byte-level BPE,
merges follow, 5 bytes each: the length of the left piece, and the rank. In Unigram, the score follows, a float64.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

import numpy as np
from tokenizers import Tokenizer

from vocable.encoding.tokens import BYTE_OF
from vocable.errors import ModelError
from vocable.publishing.files import FileTable, SiteFiles, front_coded, ranges, table_of

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
    # The kinds of steps, and how many a model of this kind may have.
    normalizers, words = _steps(described["normalizer"]), _steps(described["pre_tokenizer"])
    for part, steps, read in zip(("normalizer", "pre_tokenizer"), (normalizers, words), READ_STEPS[kind], strict=True):
        yield from (f"the {part} {step['type']}" for step in steps if step["type"] not in read)
        if (len(steps) != 1 and len(read) == 1) or (part == "pre_tokenizer" and not steps):
            yield f"{len(steps)} steps in its {part}"
    # Settings of steps that the browser does not read.
    for step in words:
        if step.get("prepend_scheme") == "first" or step.get("use_regex") is False:
            yield f"the pre_tokenizer {step['type']} with prepend_scheme first or without use_regex"
    for step in normalizers:
        if step["type"] == "Replace" and step["pattern"].get("Regex", SPACES) != SPACES:
            yield f"the normalizer Replace of {step['pattern']['Regex']!r}"
    # Settings of the model.
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


LEAF = 1 << 8  # flag of a unit that ends a key
LABEL_BITS = 0x800000FF  # bits of a unit's label, which is a byte
WIDE = 1 << 9  # flag of an offset in blocks of 256


def charsmap_entries(content: bytes) -> dict[str, str]:
    """Return the shortest keys of a map of SentencePiece with their replacements.

    The map ("precompiled charsmap") is a trie in a double array, and replacements. The shortest key at the beginning of
    a text is replaced, so longer keys with the same beginning have no effect.
    """
    # A node is a number with its label, a flag for the end of a key, and the offset of its children.
    size = int.from_bytes(content[:4], "little")
    units, texts = np.frombuffer(content[4 : 4 + size], dtype="<u4").tolist(), content[4 + size :]
    entries, open_nodes = {}, [(0, b"")]
    while open_nodes:
        node, key = open_nodes.pop()
        below = node ^ ((units[node] >> 10) << (8 if units[node] & WIDE else 0))
        # If a key ends here, the first child has the start of the replacement, which a zero ends.
        if key and units[node] & LEAF:
            start = units[below] & 0x7FFFFFFF
            entries[key.decode()] = texts[start : texts.index(0, start)].decode()
            continue
        # The child for a byte lies at offset ^ byte, if the node there has this label.
        labels = ((byte, below ^ byte) for byte in range(1, 256))
        open_nodes += [
            (to, key + bytes([byte])) for byte, to in labels if to < len(units) and units[to] & LABEL_BITS == byte
        ]
    return dict(sorted(entries.items()))


PIECES_BYTES = 5_000  # least size of a file before compression
TERM, WHOLE = 1, 2  # flags: the piece has postings; a word equal to the piece is tokenized as this piece alone


@dataclass(frozen=True)
class PieceTables:
    """The tables of pieces: `continuing` has WordPiece's pieces that continue words, without their mark."""

    initial: FileTable
    continuing: FileTable


def write_pieces(files: SiteFiles, tokenizer: Tokenizer, terms: Collection[str]) -> PieceTables:
    """Write the vocabulary of a tokenizer into files, and return their tables."""
    model = json.loads(tokenizer.to_str())["model"]
    scored, merges = isinstance(model["vocab"], list), model.get("merges")
    vocabulary = [entry[0] for entry in model["vocab"]] if scored else list(model["vocab"])
    if merges is None and "continuing_subword_prefix" in model:
        continuing = [piece for piece in vocabulary if piece.startswith(MARK) and piece != MARK]
        # No word begins with the mark.
        initial = sorted(piece for piece in vocabulary if piece and not piece.startswith(MARK))
        both = initial, sorted(piece.removeprefix(MARK) for piece in continuing)
        marked = {piece.removeprefix(MARK) for piece in terms if piece.startswith(MARK)}
        flags = (_numbers(pieces, terms=names) for pieces, names in zip(both, (terms, marked), strict=True))
        return PieceTables(*(_write(files, *pair) for pair in zip(both, flags, strict=True)))
    pieces = sorted(filter(None, vocabulary))
    whole = {piece for piece in pieces if [token.value for token in tokenizer.model.tokenize(piece)] == [piece]}
    more = _scores(pieces, model["vocab"]) if scored else _merges(pieces, merges or [])
    numbers = np.concatenate([_numbers(pieces, terms=terms, whole=whole), more], axis=1)
    return PieceTables(_write(files, pieces, numbers), FileTable([], []))


def _numbers(pieces: Sequence[str], *, terms: Collection[str], whole: Collection[str] = ()) -> np.ndarray:
    flags = [TERM * (piece in terms) + WHOLE * (piece in whole) for piece in pieces]
    return np.array(flags, dtype=np.uint8).reshape(-1, 1)


def _scores(pieces: Sequence[str], vocabulary: Sequence[tuple[str, float]]) -> np.ndarray:
    scores = dict(vocabulary)
    return np.array([scores[piece] for piece in pieces], dtype="<f8").view(np.uint8).reshape(len(pieces), 8)


def _merges(pieces: Sequence[str], merges: Sequence[tuple[str, str]]) -> np.ndarray:
    merges_of_piece = defaultdict[str, bytes](bytes)
    for rank, (left, right) in enumerate(merges):
        merges_of_piece[left + right] += len(left).to_bytes(2, "little") + rank.to_bytes(3, "little")
    width = max(map(len, merges_of_piece.values()), default=0)
    padded = b"".join(merges_of_piece[piece].ljust(width, b"\0") for piece in pieces)
    return np.frombuffer(padded, dtype=np.uint8).reshape(len(pieces), width)


def _write(files: SiteFiles, pieces: Sequence[str], numbers: np.ndarray) -> FileTable:
    rows = {piece: row for row, piece in enumerate(pieces)}
    cut = list(ranges([len(piece.encode()) + 1 + numbers.shape[1] for piece in pieces], PIECES_BYTES))

    def add(number: int) -> str:
        in_range = list(pieces[cut[number]])
        first = in_range[0]
        # The first piece brings the pieces that it begins with: a search for the longest piece reads one file.
        written = [first[:length] for length in range(1, len(first)) if first[:length] in rows] + in_range
        columns = numbers[[rows[piece] for piece in written]].T
        return files.add(front_coded(written) + columns.tobytes())

    return table_of([pieces[part] for part in cut], add)
