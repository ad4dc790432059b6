"""Which tokens a masked language model has to guess."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

IGNORED = -100  # the label of a token that is not to be guessed, torch's own convention
NO_WORD, GOES_ON = -1, -2  # in place of a word's number: a token of no word, and a later sub-token of one

Part = Literal["all", "first", "later"]


class Masked(NamedTuple):
    """A text prepared for guessing: what the model sees and what it should have seen, both [s] int64."""

    input_ids: NDArray[np.int64]
    labels: NDArray[np.int64]


def uniform(
    ids: NDArray[np.int64],
    special: NDArray[np.bool_],
    rng: np.random.Generator,
    *,
    rate: float,
    mask_id: int,
    size: int,
) -> Masked:
    """Choose each ordinary token with probability `rate`; of the chosen, 80 % become [MASK], 10 % random, 10 % stay.

    Args:
        ids: [s] token ids.
        special: [s], True where a token is never masked.
        rate: probability in (0, 1].
        mask_id: the [MASK] token.
        size: v, random tokens are drawn from range(size).

    At least one ordinary token is chosen where there is one, so that no text is without a loss.
    """
    return _mask(ids, np.where(special, 0.0, rate), rng, mask_id, size)


def overlap_aware(
    ids: NDArray[np.int64],
    special: NDArray[np.bool_],
    new: NDArray[np.bool_],
    rng: np.random.Generator,
    *,
    rate: float,
    weight: float = 2.0,
    mask_id: int,
    size: int,
) -> Masked:
    """Choose new tokens `weight` times as often as shared ones, and as many tokens of the text as `uniform` does.

    The overlap-aware masking of paper 001 (section 4.2.3). It gives the weights 1 and lambda; that the rate of every
    text stays the same is our reading.

    Args:
        ids, special, mask_id, size: as in `uniform`.
        new: [s], True where the token is not one of the source vocabulary.
        rate: mean probability of the ordinary tokens of the text, in (0, 1].
        weight: lambda > 0. Where it would ask for a probability above 1 it stands at 1 and the other tokens take the
            rest, so that a text of new tokens only is masked as often as any other.
    """
    return _mask(ids, _overlap_aware_probabilities(special, new, rate, weight), rng, mask_id, size)


def whole_words(
    ids: NDArray[np.int64],
    words: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    rate: float,
    mask_id: int,
    size: int,
    part: Part = "all",
) -> Masked:
    """Choose floor(rate n) of the n words of a text, but at least one; every hidden token has the label of its word.

    The masking of paper 004 (appendix B.2): the number of words is fixed, no coin is thrown for each. Of the chosen
    words 80 % become [MASK], 10 % random tokens, 10 % stay. That this is drawn once for a word and done to all of its
    sub-tokens is our reading.

    Args:
        ids: [s] token ids.
        words: [s], for each token the number of the word that begins there, `GOES_ON` for the later sub-tokens of that
            word, `NO_WORD` for all others.
        rate: share of the words, in (0, 1].
        mask_id, size: as in `uniform`.
        part: "all" sub-tokens of a chosen word are hidden, or only its "first", or only the "later" ones. For the last
            two, the n words are those of several sub-tokens.

    Without such a word nothing is hidden.
    """
    begins = np.flatnonzero(words >= 0)
    place = np.cumsum(words >= 0) - 1  # which of the words a token belongs to, where it belongs to one
    lengths = np.bincount(place[words != NO_WORD], minlength=len(begins))
    candidates = np.flatnonzero(lengths > (0 if part == "all" else 1))
    if not len(candidates):
        return Masked(ids, np.full(len(ids), IGNORED))
    chosen = rng.choice(candidates, size=words_to_hide(len(candidates), rate), replace=False)
    fate = np.full(len(begins), np.inf)  # of those that are not chosen
    fate[chosen] = rng.random(len(chosen))
    hidden = (words != NO_WORD) & np.isfinite(fate[place])
    if part != "all":
        hidden &= (words >= 0) == (part == "first")
    labels = np.where(hidden, words[begins][place], IGNORED)
    masked = np.where(hidden & (fate[place] < 0.8), mask_id, ids)
    random = rng.integers(size, size=len(ids))
    masked = np.where(hidden & (fate[place] >= 0.8) & (fate[place] < 0.9), random, masked)
    return Masked(masked, labels)


def words_to_hide(words: int, rate: float) -> int:
    """How many of the words of a text are hidden: floor(rate * words), at least one.

    >>> [words_to_hide(n, 0.15) for n in (1, 13, 14, 20, 100)]
    [1, 1, 2, 3, 15]
    """
    return max(1, int(rate * words + 1e-9))  # 0.15 of 100 is a little less than 15 in binary, in some order or other


def _overlap_aware_probabilities(
    special: NDArray[np.bool_], new: NDArray[np.bool_], rate: float, weight: float
) -> NDArray[np.float64]:
    """min(1, c) for shared and min(1, c weight) for new tokens [s], c such that their mean is `rate`; special: 0."""
    tokens, of_new = int((~special).sum()), int((new & ~special).sum())
    of_shared = tokens - of_new
    # How many of either kind are chosen on average; what one kind has no room for goes to the other.
    chosen = rate * tokens
    chosen_new = min(of_new, chosen * weight * of_new / max(weight * of_new + of_shared, 1e-9))
    chosen_shared = min(of_shared, chosen - chosen_new)
    chosen_new = chosen - chosen_shared
    probabilities = np.where(new, chosen_new / max(of_new, 1), chosen_shared / max(of_shared, 1))
    return np.where(special, 0.0, probabilities)


def _mask(
    ids: NDArray[np.int64], probabilities: NDArray[np.float64], rng: np.random.Generator, mask_id: int, size: int
) -> Masked:
    """Choose tokens with the probabilities [s], of which 0 is a token never chosen, and hide them."""
    draws, possible = rng.random(len(ids)), probabilities > 0
    chosen = draws < probabilities
    if not chosen.any() and possible.any():  # take the one that came nearest
        chosen[np.where(possible, draws / np.where(possible, probabilities, 1.0), np.inf).argmin()] = True
    fate = rng.random(len(ids))
    labels = np.where(chosen, ids, IGNORED)
    masked = np.where(chosen & (fate < 0.8), mask_id, ids)
    random = rng.integers(size, size=len(ids))
    masked = np.where(chosen & (fate >= 0.8) & (fate < 0.9), random, masked)
    return Masked(masked, labels)
