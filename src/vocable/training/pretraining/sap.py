"""Sparse alignment pre-training (SAP): a model learns the largest logits of a sparse teacher for a text's terms.

After the code that Geng and Yang 2026 (table 6) and arXiv 2510.00671 publish; the papers give no formula.

Letters: b texts, s tokens of a text, d size of the decoder's input, v output terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from vocable.encoder.asymmetric import route
from vocable.encoder.fuse import pack
from vocable.encoder.graph import refuse_exported
from vocable.encoder.head import max_logits
from vocable.encoder.output_vocabulary import output_layer
from vocable.encoder.sparse_encoder import load_sparse_encoder
from vocable.encoder.terms import terms
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ModelError
from vocable.options import DType
from vocable.training.pretraining.masking import IGNORED, Ids, Masked, Part
from vocable.training.pretraining.mlm import Task, TeacherDistance
from vocable.vectors import vocabulary_fingerprint


def squared_difference(student: Tensor, teacher: Tensor) -> tuple[Tensor, int]:
    """Return the mean squared difference of pooled logits over the terms above zero in either, and their number.

    Both are [b, v]. A term that is inactive in both costs nothing, however far below zero.

    >>> squared_difference(torch.tensor([[1.0, -2.0, -5.0]]), torch.tensor([[3.0, 1.0, -1.0]]))
    (tensor(6.5000), 2)
    """
    either = (student > 0) | (teacher > 0)
    count = int(either.sum())
    return ((student - teacher) * either).square().sum() / max(count, 1), count


class SparseTeacher:
    """A sparse model whose largest logits are learned; it reads a text with its own tokenizer.

    Raises `ModelError` if it cannot be read, is exported, or has other output terms than the student's, `names`.
    """

    def __init__(self, name: str, names: Sequence[str], device: str, dtype: DType) -> None:
        model = load_sparse_encoder(name, device=device)
        refuse_exported(model)
        self._encoder = encoder = TextEncoder(model, "document", dtype=dtype)
        own = terms(encoder.model)
        if vocabulary_fingerprint(own) != vocabulary_fingerprint(names):
            raise ModelError(
                f"teacher {name}: its {len(own)} output terms differ from the student's {len(names)}: "
                "logits are compared term by term"
            )
        self._transformer: Any = route(encoder.model, "document")[0]

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return the largest logit of every term in each text: [b, v] float32."""
        features = self._encoder.features(texts)
        layer = output_layer(self._transformer.auto_model)
        hidden, offsets = pack(self._transformer(features))
        return max_logits(hidden, layer.weight, layer.bias, offsets)


class AlignmentTask(Task):
    """The task: unmasked windows, and the distance of a batch of them from the teacher's logits."""

    outcome = TeacherDistance

    def __init__(self, tokenizer: PreTrainedTokenizerBase, teacher: SparseTeacher) -> None:
        self._tokenizer, self._teacher = tokenizer, teacher

    def __call__(self, ids: Ids, rng: Generator, words: Ids | None = None, part: Part = "all") -> Masked:
        return Masked(ids, np.full_like(ids, IGNORED))

    def loss(self, model: nn.Module, batch: dict[str, Tensor], decoder: nn.Linear) -> tuple[Tensor, int]:
        """Return the `squared_difference` of the model's logits and the teacher's, which reads the windows' texts."""
        ids, mask = batch["input_ids"], batch["attention_mask"]
        tokens = [row[kept].tolist() for row, kept in zip(ids.cpu(), mask.cpu().bool(), strict=True)]
        target = self._teacher(self._tokenizer.batch_decode(tokens, skip_special_tokens=True))
        states = model(input_ids=ids, attention_mask=mask).logits
        hidden, offsets = pack({"token_embeddings": states, "attention_mask": mask})
        return squared_difference(max_logits(hidden, decoder.weight, decoder.bias, offsets), target)

    def sums(
        self, model: nn.Module, batch: dict[str, Tensor], decoder: nn.Linear, name: str, new: Tensor | None
    ) -> dict[str, NDArray[np.float64]]:
        loss, count = self.loss(model, batch, decoder)
        return {name: np.array([count, float(loss) * count])}
