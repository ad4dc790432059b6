"""The tokenizer of queries: its settings, and its vocabulary in files that hold ranges of pieces.

The tokenizer is BERT's, WordPiece, in any vocabulary; page/tokenizer.js is the same in a browser. A word is cut into
the longest piece that it begins with, and the longest pieces that continue it. Of all pieces that a word begins with,
those that sort before the first key of the word's range are beginnings of that key: a file has them, too, so that a
browser reads one file to find a piece.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vocable.encoder.protocol import Tokenization
from vocable.errors import ModelError
from vocable.publishing.binary import front_coded
from vocable.publishing.files import SiteFiles
from vocable.publishing.tables import FileTable, ranges, table_of

PIECES_BYTES = 5_000  # of a file, at least, before compression
MARK = "##"  # before a piece that continues a word
FAULT = "a browser reads queries with BERT's tokenizer only (WordPiece)"


@dataclass(frozen=True)
class TokenizerSettings:
    """The settings of a BERT tokenizer; `special` are the tokens that are found in a text before all others."""

    clean_text: bool
    handle_chinese_chars: bool
    strip_accents: bool
    lowercase: bool
    longest_word: int  # characters; a longer word is unknown
    unknown: str
    special: list[str]


@dataclass(frozen=True)
class PieceTables:
    """The tables of the pieces that begin words, and of those that continue them, without their mark."""

    initial: FileTable
    continuing: FileTable


def tokenizer_settings(tokenization: Tokenization, name: str) -> TokenizerSettings:
    """Return the settings of a model's tokenizer; `ModelError`, naming the model, if it is another one than BERT's."""
    described = json.loads(tokenization.backend.to_str())
    model, normalizer = described["model"], described["normalizer"] or {}
    kinds = model["type"], normalizer.get("type"), (described["pre_tokenizer"] or {}).get("type")
    if kinds != ("WordPiece", "BertNormalizer", "BertPreTokenizer") or model["continuing_subword_prefix"] != MARK:
        raise ModelError(f"{name}: {FAULT}, not {model['type']}")
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for token in described["added_tokens"]:
        if {key: token[key] for key in plain} != plain:
            raise ModelError(f"{name}: {FAULT}, without added tokens such as {token['content']!r}")
    accents = normalizer["strip_accents"]
    return TokenizerSettings(
        normalizer["clean_text"],
        normalizer["handle_chinese_chars"],
        normalizer["lowercase"] if accents is None else accents,
        normalizer["lowercase"],
        model["max_input_chars_per_word"],
        model["unk_token"],
        [token["content"] for token in described["added_tokens"]],
    )


def write_pieces(files: SiteFiles, vocabulary: Mapping[str, int], terms: Collection[str]) -> PieceTables:
    """Write the pieces of a vocabulary into files, and return their tables.

    After the pieces of a file comes a bit for each of them, the lowest of a byte first: 1 for those in `terms`.
    """
    continuing = sorted(piece.removeprefix(MARK) for piece in vocabulary if piece.startswith(MARK) and piece != MARK)
    initial = sorted(piece for piece in vocabulary if piece and not piece.startswith(MARK))  # no word begins with it
    marked = {piece.removeprefix(MARK) for piece in terms if piece.startswith(MARK)}
    return PieceTables(_write(files, initial, terms), _write(files, continuing, marked))


def _write(files: SiteFiles, pieces: Sequence[str], terms: Collection[str]) -> FileTable:
    known = set(pieces)
    cut = list(ranges([len(piece.encode()) + 2 for piece in pieces], PIECES_BYTES))

    def add(number: int) -> str:
        some = list(pieces[cut[number]])
        beginnings = [some[0][:length] for length in range(1, len(some[0])) if some[0][:length] in known]
        flags = np.packbits([piece in terms for piece in beginnings + some], bitorder="little")
        return files.add(front_coded(beginnings + some) + flags.tobytes())

    return table_of([pieces[some] for some in cut], add)
