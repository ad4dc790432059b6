"""A queue of documents from earlier batches, encoded by a momentum copy of the encoder (MoCo).

After arXiv 1911.05722 and Kim et al. 2026, J.4. Our interpretation of what they leave open: the queue adds to the
negatives of the batch; all documents of a batch, including negatives, enter it; a query's own positive in the queue is
not a negative.

Letters: b queries of a batch, n documents, m documents in the queue, v terms.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import reduce
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from torch import Tensor, nn

from vocable.encoder.asymmetric import route
from vocable.encoder.fuse import pack as without_padding
from vocable.objectives.losses import Packed, Queue, QueueSettings, empty, join, last_rows, pack
from vocable.training import distributed
from vocable.training.micro_batches import Tokens


class Documents(NamedTuple):
    """Documents by fingerprint and vector."""

    texts: Tensor  # [n], equal for equal texts
    vectors: Packed  # n rows


class Momentum(CachedLossMixin):
    """The queue and the momentum encoder, a copy of the document encoder that reads `micro_batch` texts at a time."""

    def __init__(self, model: SparseEncoder, settings: QueueSettings, micro_batch: int) -> None:
        self._followed = nn.Sequential(*route(model, "document"))
        self.model = copy.deepcopy(self._followed).eval().requires_grad_(False)
        self.mini_batch_size = micro_batch
        self._settings = settings
        weight = next(self.model.parameters())
        texts = torch.empty(0, dtype=torch.int64, device=weight.device)
        self._queue = Documents(texts, empty(weight.new_empty(0, dtype=torch.float32)))

    def read(self, columns: Sequence[Tokens]) -> Documents:
        """Encode the documents of a batch on all processes, given this one's tokens by column."""
        texts, vectors = [], []
        for column in columns:
            parts = [part for part, _ in self.embed_minibatch_iter(column, with_grad=False, copy_random_state=False)]
            texts.append(distributed.gathered(fingerprints(column).to(self._queue.texts.device)))
            vectors.append(pack(distributed.gathered(torch.cat(parts)), self._settings.terms))
        return Documents(torch.cat(texts), reduce(join, vectors))

    def negatives(self, positives: Tensor) -> Queue:
        """Return the documents in the queue as negatives of queries whose positives have these fingerprints [b]."""
        return Queue(self._queue.vectors, positives[:, None] == self._queue.texts)

    def push(self, newest: Documents) -> None:
        """Add documents to the queue and drop the oldest."""
        size = self._settings.size
        texts = torch.cat([self._queue.texts, newest.texts])[-size:]
        self._queue = Documents(texts, last_rows(join(self._queue.vectors, newest.vectors), size))

    @torch.no_grad()
    def follow(self) -> None:
        """Move the copy's weights by a share of 1 - momentum towards the encoder's."""
        for own, followed in zip(self.model.parameters(), self._followed.parameters(), strict=True):
            own.lerp_(followed, 1 - self._settings.momentum)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""
        queue = {"texts": self._queue.texts, **self._queue.vectors._asdict()}
        return dict(self.model.named_parameters()) | {f"queue.{name}": tensor for name, tensor in queue.items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state_dict` returned."""
        for name, weight in self.model.named_parameters():
            weight.copy_(state[name])
        queue = {name: state[f"queue.{name}"].to(self._queue.texts.device) for name in ("texts", *Packed._fields)}
        self._queue = Documents(queue.pop("texts"), Packed(**queue))


def fingerprints(column: Tokens) -> Tensor:
    """Return a hash of the tokens of each text in a column: [b] int64."""
    tokens, offsets = without_padding({**column, "token_embeddings": column["input_ids"]})
    ids = tokens.cpu().numpy()
    digests = (blake2b(ids[start:end].tobytes(), digest_size=8).digest() for start, end in pairwise(offsets))
    return torch.tensor([int.from_bytes(digest, "little", signed=True) for digest in digests])
