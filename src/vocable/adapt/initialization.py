"""Initial rows and biases of a new vocabulary (Geng and Yang 2026, §4.2.2).

Semantic and sub-token initialization make each row a weighted mean of source rows. The weights are computed once, and
`mix` applies them to the embeddings and to an untied decoder. The output bias takes the source's scale (eq. 10).

Letters: v source tokens, v' target tokens, n new tokens, a anchors, d hidden size, d' hidden size of the target model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from vocable.adapt.alignment import Alignment
from vocable.adapt.stages import TokenInit
from vocable.data.texts import iter_texts
from vocable.encoding.terms import token_ids
from vocable.errors import ArgumentError, require_extra

NEW_TOKENS = 512  # at a time: their cosines with 17,000 anchors take 35 MB
SUPPORT = 128  # largest cosines that sparsemax sorts; a row with more neighbours is solved again with twice the number


@torch.inference_mode()
def semantic_weights(embeddings: Tensor, anchors: NDArray[np.int64], new: NDArray[np.int64]) -> csr_array:
    """Return alpha_t, the sparsemax of the cosines of each new token t with every anchor (eq. 7, 8): [n, a] float32.

    `embeddings` [v', d'] are the target model's; `anchors` [a] and `new` [n] are target ids. Rows are non-negative, sum
    to 1 and are mostly zero.
    """
    sparsemax = require_extra("entmax", "train").sparsemax
    unit = torch.nn.functional.normalize(embeddings.float(), dim=1)
    directions = unit[torch.from_numpy(anchors)].T
    blocks = [csr_array((0, len(anchors)), dtype=np.float32)]
    for start in range(0, len(new), NEW_TOKENS):
        cosines = unit[torch.from_numpy(new[start : start + NEW_TOKENS])] @ directions
        blocks.append(csr_array(sparsemax(cosines, dim=1, k=SUPPORT).cpu().numpy()))
    return vstack(blocks, format="csr")


def barycentres(embeddings: Tensor, alignment: Alignment, new: NDArray[np.int64], size: int) -> csr_array:
    """Return the semantic weights of `new` tokens over v = `size` source tokens: [n, v] float32."""
    cosines = semantic_weights(embeddings, alignment.anchors, new)
    sources = alignment.source_of[alignment.anchors][cosines.indices]
    weights = csr_array((cosines.data, sources, cosines.indptr), shape=(len(new), size))
    weights.sum_duplicates()
    return weights


def subtoken_weights(pieces: Sequence[Sequence[int]], size: int) -> csr_array:
    """Return equal weights for the pieces (source ids) of each of n new tokens, out of v = `size`: [n, v] float32.

    >>> subtoken_weights([[0, 2], [], [1, 1]], 3).toarray()
    array([[0.5, 0. , 0.5],
           [0. , 0. , 0. ],
           [0. , 1. , 0. ]], dtype=float32)
    """
    offsets = [0, *accumulate(map(len, pieces))]
    values = np.repeat([np.float32(1 / max(len(ids), 1)) for ids in pieces], np.diff(offsets))
    ids = np.fromiter(chain.from_iterable(pieces), dtype=np.int64, count=offsets[-1])
    weights = csr_array((values, ids, offsets), shape=(len(pieces), size), dtype=np.float32)
    weights.sum_duplicates()
    return weights


def mix(weights: csr_array, rows: Tensor) -> Tensor:
    """Return E'_t = sum_u alpha_tu E_u (eq. 9): [n, v] times [v, d] gives [n, d] float32."""
    return torch.from_numpy(weights @ rows.float().cpu().numpy())


def initial_rows(
    rows: Tensor, init: TokenInit, weights: csr_array | None, alignment: Alignment, generator: torch.Generator
) -> Tensor:
    """Return the matrix [v', d] that replaces `rows` [v, d], of the same type.

    Shared tokens keep their rows, bit for bit, unless `init` is "random-all". "semantic" and "subtoken" need `weights`
    [n, v]; a token with an empty row of weights gets the centroid of the anchors.
    """
    if init == "random-all":
        return random_rows(rows, len(alignment.source_of), generator)
    initial = rows.new_empty(len(alignment.source_of), rows.shape[1])
    initial[alignment.shared] = rows[alignment.source_of[alignment.shared]]
    if init == "random-new":
        initial[alignment.new] = random_rows(rows, len(alignment.new), generator)
        return initial
    initial[alignment.new] = rows[alignment.source_of[alignment.anchors]].float().mean(dim=0).to(rows)
    if weights is not None:
        placed = np.diff(weights.indptr) > 0
        initial[alignment.new[placed]] = mix(weights[placed], rows).to(rows)
    return initial


def random_rows(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw [count, d], of the type of `rows`, from a normal distribution with mean 0 and the deviation of `rows`."""
    return (torch.randn(count, rows.shape[1], generator=generator) * rows.float().std().cpu()).to(rows)


def transferred_prior(source: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return b' = mean(b_src) + std(b_src) (b_tgt - mean(b_tgt)) / std(b_tgt) (Geng and Yang 2026, eq. 10).

    `source` [v] is the source's output bias. `target` [v'] is the target's output bias, or the log counts of its
    tokens. Raises `ArgumentError` if all target values are equal.

    >>> transferred_prior(np.array([-1.0, 1.0]), np.array([10.0, 20.0, 30.0])).round(3)
    array([-1.225,  0.   ,  1.225])
    """
    spread = target.std()
    if not spread > 0:
        raise ArgumentError("the target's output bias is the same for every token: give texts to count, or bias='keep'")
    return source.mean() + source.std() * (target - target.mean()) / spread


def log_counts(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> NDArray[np.float64]:
    """Return log(count + 1) of every token in `texts`, without the template's special tokens: [v']."""
    counts = np.zeros(1 + max(tokenizer.get_vocab().values()), dtype=np.int64)
    for ids in token_ids(tokenizer, iter_texts(texts)):
        np.add.at(counts, ids, 1)
    if not counts.any():
        raise ArgumentError("the texts for the output bias have no token")
    return np.log(counts + 1.0)
