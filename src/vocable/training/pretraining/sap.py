"""Sparse alignment pre-training (SAP): a model learns the largest logits that a sparse teacher gives to a text's terms.

After the code that Geng and Yang 2026 (table 6) and arXiv 2510.00671 publish; the papers give no formula.

Letters: b texts, s tokens of a text, d size of the decoder's input, v output terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.encoder.asymmetric import route
from vocable.encoder.fuse import pack
from vocable.encoder.graph import refuse_exported
from vocable.encoder.head import max_logits
from vocable.encoder.load import load
from vocable.encoder.output_vocabulary import output_layer
from vocable.encoder.terms import terms
from vocable.encoder.text_encoder import TextEncoder, in_bfloat16
from vocable.errors import ModelError
from vocable.options import DType
from vocable.training.pretraining.mlm import BATCH, collate
from vocable.training.pretraining.windows import IGNORED, Masked, Windows
from vocable.vectors import vocabulary_fingerprint


def squared_difference(student: Tensor, teacher: Tensor) -> tuple[Tensor, int]:
    """The mean squared difference of pooled logits over the terms that either has above zero, and how many these are.

    Both are [b, v]. A term that both leave inactive costs nothing, however far below zero.

    >>> squared_difference(torch.tensor([[1.0, -2.0, -5.0]]), torch.tensor([[3.0, 1.0, -1.0]]))
    (tensor(6.5000), 2)
    """
    either = (student > 0) | (teacher > 0)
    count = int(either.sum())
    return ((student - teacher) * either).square().sum() / max(count, 1), count


class SparseTeacher:
    """A sparse model that says how large the logits of a text are; it reads the text with its own tokenizer.

    Raises `ModelError` if it cannot be read, is exported, or has other output terms than `names`, the learning model's.
    """

    def __init__(self, name: str, names: Sequence[str], device: str, dtype: DType) -> None:
        model = load(name, device=device)
        refuse_exported(model)
        self._encoder = encoder = TextEncoder(model, "document", dtype=dtype)
        own = terms(encoder.model)
        if vocabulary_fingerprint(own) != vocabulary_fingerprint(names):
            raise ModelError(
                f"teacher {name}: its {len(own)} output terms are not those of the model that learns ({len(names)}): "
                "logits are compared term by term"
            )
        self._transformer: Any = route(encoder.model, "document")[0]

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Tensor:
        """The largest logit of every term in each text: [b, v] float32."""
        features = self._encoder.features(texts)
        layer = output_layer(self._transformer.auto_model)
        hidden, offsets = pack(self._transformer(features))
        return max_logits(hidden, layer.weight, layer.bias, offsets)


class Aligned(NamedTuple):
    """How near a model is to its teacher."""

    terms: int  # of all texts, above zero in one of the two
    loss: float  # mean squared difference of their logits


class Alignment:
    """The task: windows as they are, and the loss of a batch of them.

    `decoder` is the layer of the output terms; the model gives its inputs in place of logits, as within
    `encoder.fuse.without_logits`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, teacher: SparseTeacher) -> None:
        self._tokenizer, self._teacher = tokenizer, teacher

    def __call__(self, ids: NDArray[np.int64], *_: object) -> Masked:
        """A window [s] of which nothing is hidden."""
        return Masked(ids, np.full_like(ids, IGNORED))

    def loss(self, model: nn.Module, batch: dict[str, Tensor], decoder: nn.Linear) -> tuple[Tensor, int]:
        """`squared_difference` of the model's logits and the teacher's, who reads what the windows' tokens spell."""
        ids, mask = batch["input_ids"], batch["attention_mask"]
        tokens = [row[kept].tolist() for row, kept in zip(ids.cpu(), mask.cpu().bool(), strict=True)]
        target = self._teacher(self._tokenizer.batch_decode(tokens, skip_special_tokens=True))
        states = model(input_ids=ids, attention_mask=mask).logits
        hidden, offsets = pack({"token_embeddings": states, "attention_mask": mask})
        return squared_difference(max_logits(hidden, decoder.weight, decoder.bias, offsets), target)


class HeldOutTexts:
    """The windows `rows`, on which the loss is measured."""

    def __init__(
        self, windows: Windows, rows: NDArray[np.int64], task: Alignment, *, padding: int, dtype: DType = "auto"
    ) -> None:
        self._windows, self._rows, self._task, self._padding, self._dtype = windows, rows, task, padding, dtype

    @torch.inference_mode()
    def guess(self, mlm: PreTrainedModel, decoder: nn.Linear) -> dict[str, Aligned]:
        """As `mlm.HeldOut.guess`, of "all" texts; nothing where there are none."""
        training, device, total, active = mlm.training, mlm.device, 0.0, 0
        mlm.eval()
        with torch.autocast(device.type, torch.bfloat16, enabled=in_bfloat16(self._dtype, device)):
            for start in range(0, len(self._rows), BATCH):
                some = (self._task(self._windows[int(row)]) for row in self._rows[start : start + BATCH])
                batch = {key: part.to(device) for key, part in collate(some, self._padding).items()}
                loss, count = self._task.loss(mlm, batch, decoder)
                total, active = total + float(loss) * count, active + count
        mlm.train(training)
        return {"all": Aligned(active, total / active)} if active else {}
