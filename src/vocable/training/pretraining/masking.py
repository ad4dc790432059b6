"""Masking: the tokens of a window that are hidden from a model, and their replacements.

Letters: s tokens of a window, n words.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

IGNORED = -100  # the label of a token without a loss, PyTorch's convention
NO_WORD, CONTINUES = -1, -2  # in place of a word's number: a token of no word; a later sub-token of a word

Ids: TypeAlias = NDArray[np.int64]
Part = Literal["all", "first", "later"]


class Masked(NamedTuple):
    """A window as the model reads it, and the labels of its hidden tokens, both [s] int64."""

    input_ids: Ids
    labels: Ids


def mask_tokens(ids: Ids, probabilities: NDArray[np.float64], rng: Generator, *, mask_id: int, size: int) -> Masked:
    """Hide tokens with the probabilities [s]; of these, 80 % become [MASK], 10 % random tokens, 10 % stay.

    Random tokens are drawn from range(size). At least one token is hidden, so that every text has a loss, unless all
    probabilities are 0. A token of probability 0 is never hidden.
    """
    draws, possible = rng.random(len(ids)), probabilities > 0
    chosen = draws < probabilities
    if not chosen.any() and possible.any():  # take the one that came nearest
        chosen[np.where(possible, draws / np.where(possible, probabilities, 1.0), np.inf).argmin()] = True
    masked = _replaced(ids, chosen, rng.random(len(ids)), rng, mask_id, size)
    return Masked(masked, np.where(chosen, ids, IGNORED))


def _replaced(
    ids: Ids, hidden: NDArray[np.bool_], fate: NDArray[np.float64], rng: Generator, mask_id: int, size: int
) -> Ids:
    """Replace hidden tokens by [MASK] or a random token, or keep them, by the `fate` of each, from 0 to 1."""
    random = rng.integers(size, size=len(ids))
    masked = np.where(hidden & (fate < 0.8), mask_id, ids)
    return np.where(hidden & (fate >= 0.8) & (fate < 0.9), random, masked)


def overlap_aware(
    special: NDArray[np.bool_], new: NDArray[np.bool_], rate: float, weight: float = 2.0
) -> NDArray[np.float64]:
    """Return probabilities [s] that mask new tokens `weight` times as often as shared ones, and `rate` on average.

    They are min(1, c) for shared and min(1, c weight) for new tokens, with c such that their mean over the ordinary
    tokens is the rate, and 0 for special tokens. Where one kind is masked entirely, the rest of the rate goes to the
    other, so that a text of only new tokens is masked as often as any other.

    Overlap-aware masking of Geng and Yang 2026 (§4.2.3), which gives the weights 1 and lambda; the equal rate of every
    text is our interpretation.
    """
    tokens, of_new = int((~special).sum()), int((new & ~special).sum())
    of_shared = tokens - of_new
    chosen = rate * tokens  # tokens of both kinds, expected
    chosen_new = min(of_new, chosen * weight * of_new / max(weight * of_new + of_shared, 1e-9))
    chosen_shared = min(of_shared, chosen - chosen_new)
    chosen_new = chosen - chosen_shared
    probabilities = np.where(new, chosen_new / max(of_new, 1), chosen_shared / max(of_shared, 1))
    return np.where(special, 0.0, probabilities)


def whole_words(
    ids: Ids,
    words: Ids,
    rng: Generator,
    *,
    rate: float,
    mask_id: int,
    size: int,
    part: Part = "all",
    by_token: bool = False,
) -> Masked:
    """Hide floor(rate n) of the n words of a text, at least one; every hidden token has the label of its word.

    The masking of Kim et al. 2026 (appendix B.2): the number of words is fixed. Of the hidden words 80 % become [MASK],
    10 % random tokens, 10 % stay; that one draw decides for all sub-tokens of a word is our interpretation. In a text
    without a word nothing is hidden.

    Args:
        words: [s], for each token the number of the word that begins there, `CONTINUES` for the later sub-tokens of
            that word, `NO_WORD` for all others.
        rate: share of the words, in (0, 1].
        mask_id, size: as in `mask_tokens`.
        part: "all" sub-tokens of a word are hidden, or only its "first", or only the "later" ones. For the last two,
            only words of several sub-tokens count.
        by_token: as the authors of Geng and Yang 2026 mask terms: the number of words is rounded to the nearest (halves
            to the even one), and each sub-token is drawn by itself.
    """
    begins = np.flatnonzero(words >= 0)
    place = np.cumsum(words >= 0) - 1  # the word that a token belongs to, if any
    lengths = np.bincount(place[words != NO_WORD], minlength=len(begins))
    candidates = np.flatnonzero(lengths > (0 if part == "all" else 1))
    if not len(candidates):
        return Masked(ids, np.full(len(ids), IGNORED))
    # 0.15 * 100 may be a little less than 15 in binary
    count = round(rate * len(candidates)) if by_token else int(rate * len(candidates) + 1e-9)
    chosen = rng.choice(candidates, size=max(1, count), replace=False)
    fate = np.full(len(begins), np.inf)  # of words that are not chosen
    fate[chosen] = rng.random(len(chosen))
    hidden = (words != NO_WORD) & np.isfinite(fate[place])
    if part != "all":
        hidden &= (words >= 0) == (part == "first")
    labels = np.where(hidden, words[begins][place], IGNORED)
    drawn = rng.random(len(ids)) if by_token else fate[place]
    return Masked(_replaced(ids, hidden, drawn, rng, mask_id, size), labels)
