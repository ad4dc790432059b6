"""Windows kept apart from the training, and how well a model guesses their hidden tokens.

Which windows and which masks is a function of the seed, and tokens are masked uniformly however the training masks:
runs on the same corpus can be compared, and so can one run before, meanwhile and after. Where whole words are masked,
they are here, too, and there are two sets more (paper 004, section 3.2): of words of several sub-tokens only the first
is hidden, or only the later ones, of the same words.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel

from vocable.encoder.precision import DType, in_bfloat16
from vocable.training.cross_entropy import guess
from vocable.training.masked_lm import Masker, collate, hidden_tokens
from vocable.training.masking import IGNORED, Masked, Part
from vocable.training.windows import Windows

LARGEST_SHARE = 10  # at most one window in so many is kept apart
BATCH = 32

# Streams of random numbers of their own: the training's keys have no fourth number, which is the same as a zero.
CHOICE, MASKS, PARTS = 1, 2, 3
PART_SETS: dict[str, Part] = {"first sub-word": "first", "later sub-words": "later"}


class Guesses(NamedTuple):
    """How well hidden tokens are guessed."""

    tokens: int  # that were to be guessed
    loss: float  # mean cross-entropy, in nats
    accuracy: float  # share of which the largest logit is the right one


def split(windows: int, held_out: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of the windows to learn from, and of those kept apart, both ascending.

    Args:
        windows: how many there are.
        held_out: how many to keep apart; a tenth of all is the most.
    """
    order = np.random.default_rng((seed, 0, 0, CHOICE)).permutation(windows)
    count = min(held_out, windows // LARGEST_SHARE)
    return np.sort(order[count:]), np.sort(order[:count])


class HeldOut:
    """The windows `rows`, masked once and for all.

    Args:
        new: [v], True for the tokens that are not of the source vocabulary; None where nothing is new.
        padding: the token that fills short texts up.
        dtype: of products, as in the training.
    """

    def __init__(
        self,
        windows: Windows,
        rows: NDArray[np.int64],
        masker: Masker,
        *,
        new: NDArray[np.bool_] | None,
        padding: int,
        seed: int,
        dtype: DType = "auto",
    ) -> None:
        self._sets: dict[str, list[Masked]] = defaultdict(list)
        for i, row in enumerate(map(int, rows)):
            ids, words = windows[row], windows.words(row)
            rng = np.random.default_rng((seed, 0, i, MASKS))
            if words is None:
                self._sets["all"].append(masker.uniform(ids, rng))
                continue
            self._sets["all"].append(masker(ids, rng, words))
            for name, part in PART_SETS.items():
                masked = masker.part_of_words(ids, np.random.default_rng((seed, 0, i, PARTS)), words, part)
                if (masked.labels != IGNORED).any():
                    self._sets[name].append(masked)
        self._new = None if new is None or not new.any() else torch.from_numpy(new)
        self._padding, self._dtype = padding, dtype

    @torch.inference_mode()
    def guess(self, mlm: PreTrainedModel, decoder: nn.Linear) -> dict[str, Guesses]:
        """Guesses of "all" tokens, or where some are new of the "shared" and the "new" ones.

        Where whole words are masked, "all" are their tokens, and "first sub-word" and "later sub-words" are sets of
        their own. What no hidden token belongs to is left out, so that without windows there is nothing. Within
        `encoder.fuse.without_logits`; the model's mode is left as it is.
        """
        training, device = mlm.training, mlm.device
        mlm.eval()
        sums: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(3))
        with torch.autocast(device.type, torch.bfloat16, enabled=in_bfloat16(self._dtype, device)):
            for name, texts in self._sets.items():
                for start in range(0, len(texts), BATCH):
                    batch = collate(texts[start : start + BATCH], self._padding)
                    states, labels = hidden_tokens(mlm, {key: part.to(device) for key, part in batch.items()})
                    losses, right = guess(states, decoder.weight, decoder.bias, labels)
                    figures = torch.stack([torch.ones_like(losses), losses, right.float()])
                    for group, members in self._groups(name, labels.cpu()).items():
                        sums[group] += figures[:, members.to(device)].sum(dim=1, dtype=torch.float64).cpu().numpy()
        mlm.train(training)
        return {
            group: Guesses(int(tokens), loss / tokens, right / tokens)
            for group, (tokens, loss, right) in ((group, map(float, total)) for group, total in sums.items())
            if tokens
        }

    def _groups(self, name: str, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self._new is None:
            return {name: torch.ones_like(labels, dtype=torch.bool)}
        new = self._new[labels]
        return {"shared": ~new, "new": new}
