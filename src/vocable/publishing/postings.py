"""Postings by term, in files that hold ranges of terms: documents as differences, weights in 8 bits.

A file of BM25's words begins with words and their stems, so that a browser needs no stemmer: every word that is in the
range of the file, or has its stem there. Most words share the range with their stem, and a query reads one file for
both.

A list of postings is in the order of the documents. A long one is divided by weight: its heaviest postings are in the
file of its range, the others in blocks of their own, heavier blocks first, so that a search can leave out blocks that
are too light to matter.

Letters: n documents, v terms.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from vocable.publishing.binary import floats, front_coded, gaps, varints
from vocable.publishing.files import SiteFiles
from vocable.publishing.tables import FileTable, ranges, table_of

POSTINGS_BYTES = 1_500  # of a file, at least, before compression
FIRST_BLOCK = 2_048  # postings of the first block of a list; each further block has twice as many
LARGEST_WEIGHT = 255
HEAD_BYTES = 16  # of a list, besides its first block, about
STEM_BYTES = 8  # of a word and its stem, about


class Terms(NamedTuple):
    """Terms with postings, v of them in the order of their names.

    `weights` uint8 [n, v] are multiples of each term's `scales`; `factors` are the weights of the terms in a query,
    without their inverse document frequency. `stems` has the stem of each word that is not its own stem.
    """

    names: list[str]
    weights: csr_array
    scales: list[float]
    factors: list[float]
    stems: Mapping[str, str] = MappingProxyType({})


def rounded(weights: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return weights as multiples of their scales, uint8, at least 1.

    >>> rounded(np.array([2.0, 0.001]), np.array([0.01, 0.01])).tolist()
    [200, 1]
    """
    found: np.ndarray = np.clip(np.rint(weights / scales), 1, LARGEST_WEIGHT).astype(np.uint8)
    return found


class PostingsBlock(NamedTuple):
    """Postings in the order of the documents: rows int64, weights uint8."""

    rows: np.ndarray
    weights: np.ndarray

    def to_bytes(self) -> bytes:
        """Encode the postings."""
        return varints(gaps(self.rows)) + self.weights.tobytes()


class LaterBlock(NamedTuple):
    """A block in a file of its own: its name, the number of postings, and the largest weight."""

    name: str
    postings: int
    top: int


def write_postings(files: SiteFiles, terms: Terms) -> FileTable:
    """Write the postings of terms into files, and return their table."""
    columns = terms.weights.tocsc()
    columns.sort_indices()
    starts = columns.indptr.tolist()
    blocks = [_blocks(columns.indices[a:b].astype(np.int64), columns.data[a:b]) for a, b in pairwise(starts)]
    parts = [some[0].to_bytes() for some in blocks]
    sizes = {name: len(part) + HEAD_BYTES for name, part in zip(terms.names, parts, strict=True)}
    keys = sorted(sizes.keys() | terms.stems.keys())
    families = _families(keys, terms.stems)
    widths = [sum(sizes.get(key, STEM_BYTES) for key in family) for family in families]
    cut = [list(chain.from_iterable(families[place])) for place in ranges(widths, POSTINGS_BYTES)]
    near = _words_near(terms.stems)

    def add(number: int) -> str:
        some = slice(bisect_left(terms.names, cut[number][0]), bisect_right(terms.names, cut[number][-1]))
        later = [[_add_block(files, block) for block in one[1:]] for one in blocks[some]]
        firsts = zip(blocks[some], parts[some], later, strict=True)
        counts = [[len(one[0].rows), len(part), len(more)] for one, part, more in firsts]
        further = [part for more in later for block in more for part in _described(block)]
        numbers = [floats([terms.factors[place], terms.scales[place]]) for place in range(some.start, some.stop)]
        words = sorted(set().union(*(near[key] for key in cut[number] if key in near)))
        stems = front_coded([text for word in words for text in (word, terms.stems[word])])
        head = front_coded(terms.names[some]) + varints([one for three in counts for one in three])
        return files.add(b"".join([stems, head, *numbers, *further, *parts[some]]))

    return table_of(cut, add)


def _families(keys: Sequence[str], stems: Mapping[str, str]) -> list[list[str]]:
    """Cut sorted words into families: a word that follows its stem, or a word with the same stem, stays with it."""
    families = list[list[str]]()
    for key in keys:
        stem = stems.get(key)
        if stem is not None and families and stem in (families[-1][0], stems.get(families[-1][-1])):
            families[-1].append(key)
        else:
            families.append([key])
    return families


def _words_near(stems: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the words that a file has for a word or stem in its range: the word itself, and words with the stem."""
    near = defaultdict[str, set[str]](set)
    for word, stem in stems.items():
        near[word].add(word)
        near[stem].add(word)
    return near


def _add_block(files: SiteFiles, block: PostingsBlock) -> LaterBlock:
    return LaterBlock(files.add(block.to_bytes()), len(block.rows), int(block.weights.max()))


def _described(block: LaterBlock) -> list[bytes]:
    size = int(block.name[9:], 16)
    return [bytes.fromhex(block.name[:8]), varints([size, block.postings, block.top])]


def _blocks(rows: np.ndarray, weights: np.ndarray) -> list[PostingsBlock]:
    """Divide a list of postings into blocks, the heaviest postings first."""
    order = np.argsort(-weights.astype(np.int64), kind="stable")
    found = list[PostingsBlock]()
    start, size = 0, FIRST_BLOCK
    while start < len(order) or not found:
        some = np.sort(order[start : start + size])
        found.append(PostingsBlock(rows[some], weights[some]))
        start, size = start + size, 2 * size
    return found
