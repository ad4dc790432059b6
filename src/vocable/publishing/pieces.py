"""Write the vocabulary of a tokenizer into files, each with a range of the sorted pieces.

A file also holds every piece that is a prefix of its first key: so a single file has all pieces that a text can begin
with.

A file holds the pieces, then their bytes by column: the first byte of every piece, the second byte of every piece, and
so on. The first byte has flags. In byte-level BPE, merges follow, 5 bytes each: the length of the left piece, and the
rank. In Unigram, the score follows, a float64.
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

PIECES_BYTES = 5_000  # least size of a file before compression
TERM, WHOLE = 1, 2  # flags: the piece has postings; a word equal to the piece is tokenized as this piece alone
MERGE_BYTES = 5


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
    scores: dict[str, float] = {entry[0]: entry[1] for entry in vocabulary}
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
        written = [first[:length] for length in range(1, len(first)) if first[:length] in rows] + in_range
        columns = numbers[[rows[piece] for piece in written]].T
        return files.add(front_coded(written) + columns.tobytes())

    return table_of([pieces[part] for part in cut], add)
