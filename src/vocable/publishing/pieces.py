"""The vocabulary of a tokenizer in files that hold ranges of pieces, which are sorted.

Of all pieces that a text begins with, those that sort before the first key of the text's range are beginnings of that
key: a file has them, too, so that a browser reads one file to find them all.

A file has the pieces and then some bytes for each, all first ones, all second ones, and so on. The first are flags;
those of byte-level BPE have a merge next, 5 bytes (the length of its left piece, its rank), or several; those of
Unigram have the score, a float64.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from vocable.publishing.binary import front_coded
from vocable.publishing.files import SiteFiles
from vocable.publishing.tables import FileTable, ranges, table_of
from vocable.publishing.tokenizer import MARK

PIECES_BYTES = 5_000  # of a file, at least, before compression
TERM, WHOLE = 1, 2  # flags: the piece has postings; a word that is the piece has this one token
MERGE_BYTES = 5


@dataclass(frozen=True)
class PieceTables:
    """The tables of pieces, and of those that continue words in WordPiece, without their mark."""

    initial: FileTable
    continuing: FileTable


def write_pieces(files: SiteFiles, tokenizer: Tokenizer, terms: Collection[str]) -> PieceTables:
    """Write the vocabulary of a tokenizer's model into files, and return their tables."""
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary = [one[0] for one in model["vocab"]] if model["type"] == "Unigram" else list(model["vocab"])
    if model["type"] == "WordPiece":
        continuing = [piece for piece in vocabulary if piece.startswith(MARK) and piece != MARK]
        initial = sorted(
            piece for piece in vocabulary if piece and not piece.startswith(MARK)
        )  # no word begins with it
        both = initial, sorted(piece.removeprefix(MARK) for piece in continuing)
        marked = {piece.removeprefix(MARK) for piece in terms if piece.startswith(MARK)}
        flags = (_numbers(some, terms=known) for some, known in zip(both, (terms, marked), strict=True))
        return PieceTables(*(_write(files, *one) for one in zip(both, flags, strict=True)))
    pieces = sorted(filter(None, vocabulary))
    whole = {piece for piece in pieces if [one.value for one in tokenizer.model.tokenize(piece)] == [piece]}
    more = _scores(pieces, model["vocab"]) if model["type"] == "Unigram" else _merges(pieces, model["merges"])
    numbers = np.concatenate([_numbers(pieces, terms=terms, whole=whole), more], axis=1)
    return PieceTables(_write(files, pieces, numbers), FileTable([], []))


def _numbers(pieces: Sequence[str], *, terms: Collection[str], whole: Collection[str] = ()) -> np.ndarray:
    flags = [TERM * (piece in terms) + WHOLE * (piece in whole) for piece in pieces]
    return np.array(flags, dtype=np.uint8).reshape(-1, 1)


def _scores(pieces: Sequence[str], vocabulary: Sequence[tuple[str, float]]) -> np.ndarray:
    scores: dict[str, float] = {one[0]: one[1] for one in vocabulary}
    return np.array([scores[piece] for piece in pieces], dtype="<f8").view(np.uint8).reshape(len(pieces), 8)


def _merges(pieces: Sequence[str], merges: Sequence[tuple[str, str]]) -> np.ndarray:
    found = defaultdict[str, bytes](bytes)
    for rank, (left, right) in enumerate(merges):
        found[left + right] += len(left).to_bytes(2, "little") + rank.to_bytes(3, "little")
    width = max(map(len, found.values()), default=0)
    padded = b"".join(found[piece].ljust(width, b"\0") for piece in pieces)
    return np.frombuffer(padded, dtype=np.uint8).reshape(len(pieces), width)


def _write(files: SiteFiles, pieces: Sequence[str], numbers: np.ndarray) -> FileTable:
    places = {piece: place for place, piece in enumerate(pieces)}
    cut = list(ranges([len(piece.encode()) + 1 + numbers.shape[1] for piece in pieces], PIECES_BYTES))

    def add(number: int) -> str:
        some = list(pieces[cut[number]])
        beginnings = [some[0][:length] for length in range(1, len(some[0])) if some[0][:length] in places]
        rows = numbers[[places[piece] for piece in beginnings + some]]
        return files.add(front_coded(beginnings + some) + rows.T.tobytes())

    return table_of([pieces[some] for some in cut], add)
