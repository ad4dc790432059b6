"""DF-FLOPS: what a term costs by the number of documents that it is active in."""

from __future__ import annotations

import math

from torch import Tensor

from vocable.errors import ArgumentError


def df_weights(frequencies: Tensor, *, alpha: float = 0.1, beta: float = 10.0) -> Tensor:
    """g = 1 / (1 + (x^{log_alpha 2} - 1)^beta), the term weights of DF-FLOPS (arXiv 2505.15070).

    The penalty is `flops(vectors, term_weights=df_weights(frequencies))`. A term of no document costs nothing, one of
    every document as much as in FLOPS.

    Args:
        frequencies: [v] x, for each of v terms the share of documents that it is active in.
        alpha: the share at which g is one half.
        beta: how steeply g rises there.

    Returns:
        [v] from 0 to 1.

    Raises:
        ArgumentError: frequencies are not shares, or alpha or beta is out of its range.

    >>> import torch
    >>> df_weights(torch.tensor([0.0, 0.05, 0.1, 0.2, 1.0])).round(decimals=3)
    tensor([0.0000, 0.0220, 0.5000, 0.9910, 1.0000])
    """
    if not 0 < alpha < 1 or beta <= 0:
        raise ArgumentError(f"alpha must be between 0 and 1 and beta above 0, not {alpha} and {beta}")
    if not bool(((frequencies >= 0) & (frequencies <= 1)).all()):
        raise ArgumentError("document frequencies must be shares of the documents, from 0 to 1")
    exponent = math.log(2) / math.log(alpha)
    return 1 / (1 + (frequencies**exponent - 1) ** beta)
