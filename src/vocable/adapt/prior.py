"""The output bias of another vocabulary: how frequent its tokens are, on the source's scale.

Letters: v source tokens, v' target tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from vocable.errors import ArgumentError, check_texts

BATCH = 1000  # texts tokenized at a time


def transferred_prior(source: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """b' = mean(b_src) + std(b_src) (b_tgt - mean(b_tgt)) / std(b_tgt): the Vocabulary Transfer paper's eq. 10.

    Args:
        source: [v], the source's output bias.
        target: [v'], the target's, or the logarithms of how often its tokens occur.

    Returns:
        [v'] with the order of `target` and the mean and standard deviation of `source`.

    Raises:
        ArgumentError: all entries of `target` are equal, so that they tell nothing.

    >>> transferred_prior(np.array([-1.0, 1.0]), np.array([10.0, 20.0, 30.0])).round(3)
    array([-1.225,  0.   ,  1.225])
    """
    spread = target.std()
    if not spread > 0:
        raise ArgumentError("the target's output bias is the same for every token: give texts to count, or bias='keep'")
    moved: NDArray[np.float64] = source.mean() + source.std() * (target - target.mean()) / spread
    return moved


def log_counts(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> NDArray[np.float64]:
    """log(count + 1) of every token in `texts`, special tokens of the template not counted: [v'].

    Raises:
        ArgumentError: there is no text with a token.
    """
    check_texts(texts)
    counts = np.zeros(1 + max(tokenizer.get_vocab().values()), dtype=np.int64)
    stream = iter(texts)
    while batch := list(islice(stream, BATCH)):
        for ids in tokenizer(batch, add_special_tokens=False)["input_ids"]:
            np.add.at(counts, ids, 1)
    if not counts.any():
        raise ArgumentError("the texts for the output bias have not a single token")
    return np.log(counts + 1.0)
