"""Write postings by term into files, each with a range of terms: documents as differences, weights in 8 bits.

A file of BM25's words begins with words and their stems, so that a browser needs no stemmer. It has every word that is
in the range of the file, or has its stem there. Most words are in the same range as their stem, so a query reads one
file for both.

A list of postings is in the order of the documents. A long list is divided by weight: the heaviest postings are in the
file of the range, the others in separate blocks, heavier blocks first, so that a search can skip blocks that are too
light to matter.

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

from vocable.publishing.files import FileTable, SiteFiles, floats, front_coded, gaps, ranges, size_of, table_of, varints

POSTINGS_BYTES = 1_500  # least size of a file before compression
FIRST_BLOCK = 2_048  # postings in the first block of a list; each further block has twice the size
LARGEST_WEIGHT = 255
HEAD_BYTES = 16  # approximate size of a list without its first block
STEM_BYTES = 8  # approximate size of a word and its stem


class Terms(NamedTuple):
    """v terms with postings, sorted by name.

    `weights` uint8 [n, v] are multiples of the terms' `scales`; `factors` are the weights of the terms in a query,
    without the inverse document frequency. `stems` has the stem of each word that differs from its stem.
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
    return np.clip(np.rint(weights / scales), 1, LARGEST_WEIGHT).astype(np.uint8)


class PostingsBlock(NamedTuple):
    """Postings in the order of the documents: rows int64, weights uint8."""

    rows: np.ndarray
    weights: np.ndarray

    def to_bytes(self) -> bytes:
        """Encode the postings."""
        return varints(gaps(self.rows)) + self.weights.tobytes()


def write_postings(files: SiteFiles, terms: Terms) -> FileTable:
    """Write the postings of terms into files, and return their table."""
    # Cut the postings of each term into blocks. Only the first block stands in the term's file.
    columns = terms.weights.tocsc()
    columns.sort_indices()
    starts = columns.indptr.tolist()
    blocks = [_blocks(columns.indices[a:b].astype(np.int64), columns.data[a:b]) for a, b in pairwise(starts)]
    parts = [of_term[0].to_bytes() for of_term in blocks]
    sizes = {name: len(part) + HEAD_BYTES for name, part in zip(terms.names, parts, strict=True)}
    # Words are keys, too. A word and its stem stand in one file, so that a query reads it once.
    keys = sorted(sizes.keys() | terms.stems.keys())
    families = _families(keys, terms.stems)
    widths = [sum(sizes.get(key, STEM_BYTES) for key in family) for family in families]
    cut = [list(chain.from_iterable(families[part])) for part in ranges(widths, POSTINGS_BYTES)]
    near = _words_near(terms.stems)

    def add(number: int) -> str:
        # The terms of this file, and the files of their later blocks.
        chosen = slice(bisect_left(terms.names, cut[number][0]), bisect_right(terms.names, cut[number][-1]))
        later = [[_later(files, block) for block in of_term[1:]] for of_term in blocks[chosen]]
        firsts = zip(blocks[chosen], parts[chosen], later, strict=True)
        # Numbers of each term: documents and bytes of the first block, count of later blocks, factor and scale.
        counts = [[len(of_term[0].rows), len(part), len(more)] for of_term, part, more in firsts]
        numbers = [floats([terms.factors[term], terms.scales[term]]) for term in range(chosen.start, chosen.stop)]
        # The words whose stems the readers of this file need.
        words = sorted(set().union(*(near[key] for key in cut[number] if key in near)))
        stems = front_coded([text for word in words for text in (word, terms.stems[word])])
        head = front_coded(terms.names[chosen]) + varints([count for of_term in counts for count in of_term])
        return files.add(b"".join([stems, head, *numbers, *chain.from_iterable(later), *parts[chosen]]))

    return table_of(cut, add)


def _families(keys: Sequence[str], stems: Mapping[str, str]) -> list[list[str]]:
    """Cut sorted words into families: a word joins the previous word if that is its stem or has the same stem."""
    families = list[list[str]]()
    for key in keys:
        stem = stems.get(key)
        if stem is not None and families and stem in (families[-1][0], stems.get(families[-1][-1])):
            families[-1].append(key)
        else:
            families.append([key])
    return families


def _words_near(stems: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the words that a file has for each word or stem in its range: the word itself, or words with the stem."""
    near = defaultdict[str, set[str]](set)
    for word, stem in stems.items():
        near[word].add(word)
        near[stem].add(word)
    return near


def _later(files: SiteFiles, block: PostingsBlock) -> bytes:
    """Write a block into its own file; return its checksum, size, number of postings, and largest weight."""
    name = files.add(block.to_bytes())
    return bytes.fromhex(name[:8]) + varints([size_of(name), len(block.rows), int(block.weights.max())])


def _blocks(rows: np.ndarray, weights: np.ndarray) -> list[PostingsBlock]:
    """Divide a list of postings into blocks, with the heaviest postings in the first block."""
    order = np.argsort(-weights.astype(np.int64), kind="stable")
    blocks = list[PostingsBlock]()
    start, size = 0, FIRST_BLOCK
    while start < len(order) or not blocks:
        chosen = np.sort(order[start : start + size])
        blocks.append(PostingsBlock(rows[chosen], weights[chosen]))
        start, size = start + size, 2 * size
    return blocks
