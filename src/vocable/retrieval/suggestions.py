"""Suggestions for misspelt words: the nearest words of a collection by edit distance.

Letters: w words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEAST_LETTERS = 4  # letters of a word for which another one is suggested
TWO_EDITS = 8  # letters of a word in which two edits are one mistake


def edits_of(word: str) -> int:
    """Return the number of edits within which another word is suggested; 0 for none.

    >>> edits_of("fox"), edits_of("foxes"), edits_of("algorithm")
    (0, 1, 2)
    """
    return 0 if len(word) < LEAST_LETTERS else 1 if len(word) < TWO_EDITS else 2


def nearest(word: str, candidates: Sequence[tuple[str, int]]) -> str | None:
    """Return the word of fewest edits, and of these the one with the largest count; None if all are too far.

    >>> nearest("algoritm", [("algorithm", 3), ("logarithm", 9), ("fox", 1)])
    'algorithm'
    """
    if not candidates:
        return None
    edits = distances(word, [one for one, _ in candidates])
    place = min(range(len(candidates)), key=lambda place: (edits[place], -candidates[place][1]))
    return candidates[place][0] if edits[place] <= edits_of(word) else None


def distances(word: str, words: Sequence[str]) -> np.ndarray:
    """Return the edit distance from a word to each of w words, int [w].

    An edit inserts, deletes or replaces a letter, or swaps two neighbours (optimal string alignment).

    >>> distances("copy", ["copy", "cpoy", "coppy", "file"]).tolist()
    [0, 1, 1, 4]
    """
    lengths = np.array([len(one) for one in words])
    longest, w = int(lengths.max(initial=1)), len(words)
    letters = np.array(words, dtype=f"U{longest}").view(np.uint32).reshape(w, longest).T.copy()  # [letters, words]
    codes = [ord(one) for one in word]
    before = last = np.repeat(np.arange(longest + 1, dtype=np.int16)[:, None], w, axis=1)
    for i, code in enumerate(codes):
        row, same = np.full_like(last, i + 1), letters == code
        for j in range(longest):
            row[j + 1] = np.minimum(np.minimum(last[j + 1], row[j]) + 1, last[j] + ~same[j])
            if i and j:
                swapped = same[j - 1] & (letters[j] == codes[i - 1])
                row[j + 1] = np.where(swapped, np.minimum(row[j + 1], before[j - 1] + 1), row[j + 1])
        before, last = last, row
    found: np.ndarray = last[lengths, np.arange(w)]
    return found
