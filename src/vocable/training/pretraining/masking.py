"""Masking: choose the tokens of a window that a model has to predict, and replace them.

Letters: s tokens of a window, n words.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

IGNORED = -100  # the label of a token without a loss, by PyTorch's convention
NO_WORD, CONTINUES = -1, -2  # instead of a word's number: a token that belongs to no word; a later sub-token of a word

TokenIds: TypeAlias = NDArray[np.int64]
WordPart = Literal["all", "first", "later"]


class Masked(NamedTuple):
    """A window as the model reads it, and the labels of its masked tokens, both [s] int64."""

    input_ids: TokenIds
    labels: TokenIds


def mask_tokens(
    ids: TokenIds, probabilities: NDArray[np.float64], rng: Generator, *, mask_id: int, size: int
) -> Masked:
    """Mask tokens with the probabilities [s]: 80 % of them become [MASK], 10 % become random tokens, 10 % stay.

    Random tokens are drawn from range(size). At least one token is masked, so that every text has a loss, unless all
    probabilities are 0. A token of probability 0 is never masked.
    """
    draws, possible = rng.random(len(ids)), probabilities > 0
    chosen = draws < probabilities
    if not chosen.any() and possible.any():  # take the token whose draw came nearest to its probability
        chosen[np.where(possible, draws / np.where(possible, probabilities, 1.0), np.inf).argmin()] = True
    replaced = _replaced(ids, chosen, rng.random(len(ids)), rng, mask_id, size)
    return Masked(replaced, np.where(chosen, ids, IGNORED))


def _replaced(
    ids: TokenIds, masked: NDArray[np.bool_], fate: NDArray[np.float64], rng: Generator, mask_id: int, size: int
) -> TokenIds:
    """Replace masked tokens with [MASK] or a random token, or keep them; the `fate` of each, from 0 to 1, decides."""
    random = rng.integers(size, size=len(ids))
    replaced = np.where(masked & (fate < 0.8), mask_id, ids)
    return np.where(masked & (fate >= 0.8) & (fate < 0.9), random, replaced)


def overlap_aware(
    special: NDArray[np.bool_], new: NDArray[np.bool_], rate: float, weight: float = 2.0
) -> NDArray[np.float64]:
    """Return probabilities [s] that mask new tokens `weight` times as often as shared tokens, and `rate` on average.

    They are min(1, c) for shared tokens, min(1, c weight) for new tokens and 0 for special tokens. c is chosen so that
    their mean over the ordinary tokens is the rate. If all tokens of one kind are masked, the rest of the rate goes to
    the other kind. So a text of only new tokens is masked as often as any other text.

    Overlap-aware masking of Geng and Yang 2026 (§4.2.3), which gives the weights 1 and lambda; the equal rate of every
    text is our interpretation.
    """
    tokens, new_tokens = int((~special).sum()), int((new & ~special).sum())
    shared_tokens = tokens - new_tokens
    masked = rate * tokens  # expected number
    masked_new = min(new_tokens, masked * weight * new_tokens / max(weight * new_tokens + shared_tokens, 1e-9))
    masked_shared = min(shared_tokens, masked - masked_new)
    masked_new = masked - masked_shared  # more than before if all shared tokens are masked
    probabilities = np.where(new, masked_new / max(new_tokens, 1), masked_shared / max(shared_tokens, 1))
    return np.where(special, 0.0, probabilities)


def whole_words(
    ids: TokenIds,
    words: TokenIds,
    rng: Generator,
    *,
    rate: float,
    mask_id: int,
    size: int,
    part: WordPart = "all",
    by_token: bool = False,
) -> Masked:
    """Mask floor(rate n) of the n words of a text, at least one; every masked token has the label of its word.

    The masking of Kim et al. 2026 (appendix B.2): the number of words is fixed. 80 % of the masked words become [MASK],
    10 % become random tokens, 10 % stay. A single draw decides for all sub-tokens of a word; this is our
    interpretation. A text without a word has no masked token.

    Args:
        words: [s], for each token the number of the word that begins there, `CONTINUES` for the later sub-tokens of
            that word, `NO_WORD` for all other tokens.
        rate: share of the words, in (0, 1].
        mask_id, size: as in `mask_tokens`.
        part: mask "all" sub-tokens of a word, only the "first", or only the "later" sub-tokens. With "first" and
            "later", only words of several sub-tokens count.
        by_token: mask terms as the authors of Geng and Yang 2026 do: the number of words is rounded to the nearest
            integer (halves to the even integer), and each sub-token is drawn by itself.
    """
    begins = np.flatnonzero(words >= 0)
    word_of = np.cumsum(words >= 0) - 1  # the last word that begins at or before a token; -1 before the first
    lengths = np.bincount(word_of[words != NO_WORD], minlength=len(begins))
    candidates = np.flatnonzero(lengths > (0 if part == "all" else 1))
    if not len(candidates):
        return Masked(ids, np.full(len(ids), IGNORED))
    # 0.15 * 100 may be a little less than 15 in binary
    count = round(rate * len(candidates)) if by_token else int(rate * len(candidates) + 1e-9)
    chosen = rng.choice(candidates, size=max(1, count), replace=False)
    fate = np.full(len(begins), np.inf)  # infinite for words that are not chosen
    fate[chosen] = rng.random(len(chosen))
    masked = (words != NO_WORD) & np.isfinite(fate[word_of])
    if part != "all":
        masked &= (words >= 0) == (part == "first")
    labels = np.where(masked, words[begins][word_of], IGNORED)
    drawn = rng.random(len(ids)) if by_token else fate[word_of]
    return Masked(_replaced(ids, masked, drawn, rng, mask_id, size), labels)
