"""The dense side of a sparse encoder: the mean of its last hidden states, from the same forward pass.

Stock sentence-transformers computes the same vectors when it loads the folder as a `SentenceTransformer`. For fewer
dimensions than the hidden states have, its `truncate_dim` does the same (Kusupati et al. 2022, arXiv:2205.13147).

Letters: b texts, n tokens of all texts together, d dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import local

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from transformers import PreTrainedConfig, PreTrainedModel

DENSE = "dense_dimensions"  # key in the configuration of a model that gives dense vectors


class _LastHidden(local):
    states: Tensor | None = None


_last = _LastHidden()  # of each thread: several encode batches with one model at the same time


def dense_dimensions(config: PreTrainedConfig) -> int | None:
    """Return the dimensions d of a model's dense vectors; None without dense vectors."""
    return getattr(config, DENSE, None)


def keep_last_hidden(mlm: PreTrainedModel) -> None:
    """Let each forward pass of a model with a dense side keep its last hidden states for `take_last_hidden`."""
    encoder: nn.Module = mlm.base_model
    if dense_dimensions(mlm.config) is not None and _keep not in encoder._forward_hooks.values():
        encoder.register_forward_hook(_keep)


def _keep(encoder: nn.Module, inputs: object, output: Sequence[Tensor]) -> None:
    _last.states = output[0]


def take_last_hidden() -> Tensor | None:
    """Return the last hidden states of this thread's newest forward pass, once; afterwards None."""
    states, _last.states = _last.states, None
    return states


def mean_embeddings(hidden: Tensor, offsets: Sequence[int], d: int) -> Tensor:
    """Return the unit vectors [b, d], float32, of the means of the texts' states; text i has rows offsets[i:i + 2].

    The states are [n, d or more]; their first d dimensions count.

    >>> mean_embeddings(torch.tensor([[3.0, 0.0, 7.0], [3.0, 8.0, 7.0], [1.0, 0.0, 7.0]]), [0, 2, 3], 2)
    tensor([[0.6000, 0.8000],
            [1.0000, 0.0000]])
    """
    counts = torch.tensor(offsets, device=hidden.device).diff()
    owners = torch.repeat_interleave(counts)
    states = hidden[:, :d].float()
    sums = states.new_zeros(len(counts), states.shape[1]).index_add(0, owners, states)
    return normalize(sums / counts.clamp(min=1)[:, None], dim=1)
