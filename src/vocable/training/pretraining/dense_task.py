"""Masked language modelling that keeps the dense embeddings of the initial model.

The model predicts masked tokens. In addition, the mean of its last hidden states over a masked window learns to equal
the initial model's mean over the unmasked window. So an encoder that was trained for dense retrieval keeps this ability
while its head learns to predict.

Letters: b texts of a batch, s tokens of a text.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.torch_models.dense import DENSE, keep_last_hidden, mean_embeddings, take_last_hidden
from vocable.torch_models.fuse import pack
from vocable.training.pretraining.masking import IGNORED
from vocable.training.pretraining.mlm import MaskingTask, TokenBatch, masked_states, mean_cross_entropy
from vocable.training.recipe import PretrainSettings


class DenseMaskingTask(MaskingTask):
    """Masks tokens, and adds `dense_weight` times the mean of 1 - cosine to the initial model's embeddings.

    The model gets a dense side with all dimensions of its hidden states.
    """

    def __init__(
        self,
        mlm: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        settings: PretrainSettings,
        size: int,
        new: NDArray[np.bool_] | None,
    ) -> None:
        super().__init__(tokenizer, settings, size, new)
        self._weight, self._d = settings.dense_weight, mlm.config.hidden_size
        self._initial = copy.deepcopy(mlm.base_model).eval().requires_grad_(False)
        self._initial._forward_hooks.clear()
        setattr(mlm.config, DENSE, self._d)
        keep_last_hidden(mlm)

    def loss(self, model: nn.Module, batch: TokenBatch, decoder: nn.Linear) -> tuple[Tensor, int]:
        states, labels, distance = masked_states(model, batch, self._distance)
        loss = mean_cross_entropy(states, decoder.weight, decoder.bias, labels, self.margin)
        return loss + self._weight * distance.float() / len(batch["labels"]), len(labels)

    def _distance(self, batch: TokenBatch) -> Tensor:
        """Return the sum of 1 - cosine over the texts of a batch [b, s] that the model has just read."""
        last, masks, labels = take_last_hidden(), batch["attention_mask"], batch["labels"]
        assert last is not None
        with torch.no_grad():
            unmasked = torch.where(labels != IGNORED, labels, batch["input_ids"])
            initial = self._initial(input_ids=unmasked, attention_mask=masks)[0]
        embeddings, initial_embeddings = (
            mean_embeddings(*pack({"token_embeddings": states, "attention_mask": masks}), self._d)
            for states in (last, initial)
        )
        return (1 - cosine_similarity(embeddings, initial_embeddings, dim=1)).sum()
