"""Suggestions for misspelt words: the nearest words of a collection by edit distance.

Letters: w words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

LEAST_LETTERS = 4  # letters of the shortest word that gets a suggestion
TWO_EDITS = 8  # letters of the shortest word whose suggestion may differ by two edits
STEMS = 4  # stems whose documents are read for the spellings of words
DOCUMENTS_READ = 16  # documents read for each stem


def edits_of(word: str) -> int:
    """Return the most edits between a word and its suggestion; 0 for no suggestion.

    >>> edits_of("fox"), edits_of("foxes"), edits_of("algorithm")
    (0, 1, 2)
    """
    return 0 if len(word) < LEAST_LETTERS else 1 if len(word) < TWO_EDITS else 2


def nearest(word: str, candidates: Sequence[tuple[str, int]]) -> str | None:
    """Return the word with the fewest edits, and among equals the largest count; None if all are too far.

    >>> nearest("algoritm", [("algorithm", 3), ("logarithm", 9), ("fox", 1)])
    'algorithm'
    """
    if not candidates:
        return None
    edits = distances(word, [candidate for candidate, _ in candidates])
    place = min(range(len(candidates)), key=lambda place: (edits[place], -candidates[place][1]))
    return candidates[place][0] if edits[place] <= edits_of(word) else None


def likely_stems(word: str, stem: str, counts: Mapping[str, int]) -> list[str]:
    """Return at most `STEMS` stems that an unknown word may have been meant to have, the likeliest first.

    A mistake in an ending keeps the stemmer from cutting it off. Therefore a stem is compared with the `stem` of the
    unknown word and with the nearest beginning of the word. Of equally near stems, stems nearer to the whole word come
    first, then stems with larger `counts`.

    >>> likely_stems("quantizaton", "quantizaton", {"quantiz": 9, "quantiti": 5, "quick": 7})
    ['quantiz', 'quantiti']
    """
    stems = list(counts)
    if not stems:
        return []
    edits = np.minimum(distances(stem, stems), distances(word, stems, beginnings=True))
    places = np.flatnonzero(edits <= edits_of(word))
    whole = distances(word, [stems[place] for place in places])
    near = [
        (edits[place], more, -counts[stems[place]], stems[place]) for place, more in zip(places, whole, strict=True)
    ]
    return [candidate for *_, candidate in sorted(near)[:STEMS]]


def distances(word: str, words: Sequence[str], beginnings: bool = False) -> np.ndarray:
    """Return the edit distances from a word to w words, int [w]; with `beginnings`, from its nearest beginnings.

    An edit inserts, deletes or replaces a letter, or swaps two neighbours (optimal string alignment).

    >>> distances("copy", ["copy", "cpoy", "coppy", "file"]).tolist()
    [0, 1, 1, 4]
    """
    lengths = np.array([len(other) for other in words], dtype=int)
    longest, w = int(lengths.max(initial=1)), len(words)
    letters = np.array(words, dtype=f"U{longest}").view(np.uint32).reshape(w, longest).T.copy()  # [letters, words]
    codes = [ord(letter) for letter in word]
    second_last = last = np.repeat(np.arange(longest + 1, dtype=np.int16)[:, None], w, axis=1)
    least = lengths
    for i, code in enumerate(codes):
        row, same = np.full_like(last, i + 1), letters == code
        for j in range(longest):
            row[j + 1] = np.minimum(np.minimum(last[j + 1], row[j]) + 1, last[j] + ~same[j])
            if i and j:
                swapped = same[j - 1] & (letters[j] == codes[i - 1])
                row[j + 1] = np.where(swapped, np.minimum(row[j + 1], second_last[j - 1] + 1), row[j + 1])
        second_last, last = last, row
        least = np.minimum(least, row[lengths, np.arange(w)])
    return least if beginnings else last[lengths, np.arange(w)]
