"""What a token of the target vocabulary was made of: the view of the Vocabulary Transfer paper's table 4."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from vocable.adapt.subtokens import cut
from vocable.adapt.surfaces import surfaces
from vocable.adapt.transfer import Transfer
from vocable.errors import ArgumentError


class Neighbours(NamedTuple):
    """What a target token was made of: the view of the paper's table 4."""

    token: str
    subtokens: list[str]  # how the source's tokenizer cuts it
    made_of: list[tuple[str, float]]  # source tokens and their weights, heaviest first; the token itself if shared


def neighbours(transferred: Transfer, source: PreTrainedTokenizerBase, word: str, k: int = 5) -> Neighbours:
    """The `k` heaviest source tokens of `word`, which is a token of the target vocabulary as it is spelled there.

    Raises:
        ArgumentError: the target vocabulary has no such token, or its row was not made as a weighted mean.
    """
    target, alignment, weights = transferred.target, transferred.alignment, transferred.weights
    i = target.get_vocab().get(word)
    if i is None:
        raise ArgumentError(f"{word!r} is no token of the target vocabulary")
    subtokens = source.convert_ids_to_tokens(cut(source, [surfaces(target)[i]])[0])
    if alignment.source_of[i] >= 0:
        return Neighbours(word, subtokens, [(source.convert_ids_to_tokens(int(alignment.source_of[i])), 1.0)])
    if weights is None:
        raise ArgumentError("only semantic and subtoken make a new token of others")
    row = weights[[np.searchsorted(alignment.new, i)]]
    heaviest = np.argsort(-row.data, kind="stable")[:k]
    names = source.convert_ids_to_tokens(row.indices[heaviest].tolist())
    return Neighbours(word, subtokens, list(zip(names, row.data[heaviest].tolist(), strict=True)))
