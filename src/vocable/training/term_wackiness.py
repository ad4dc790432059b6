"""How wacky each term is, measured again and again while the model changes.

Letters: m sampled texts, v terms.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from datasets import DatasetDict, concatenate_datasets
from sentence_transformers import SparseEncoder
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vocable.encoder.encode import TextEncoder
from vocable.encoder.own_terms import own_terms
from vocable.encoder.routes import Role
from vocable.evaluation.wackiness import wackiness, without_itself
from vocable.search.exact import ExactIndex
from vocable.training import processes
from vocable.training.penalties import Penalties
from vocable.training.settings import Regularizer


class Sample:
    """Queries and documents of the examples, on which the wackiness of one role's expansions is measured.

    Args:
        examples: of the run, one data set a source; their positives are the documents.
        size: how many examples to take; a text that is there twice counts once.
        role: whose expansions. The collection is the documents in either case; one of them does not retrieve itself.
        k: documents that are retrieved for a text.
        seed: decides which examples.
    """

    def __init__(self, examples: DatasetDict, size: int, role: Role, k: int, seed: int) -> None:
        together = concatenate_datasets([source.select_columns(["query", "positive"]) for source in examples.values()])
        rows = np.random.default_rng(seed).permutation(len(together))[:size]
        chosen = together.select(np.sort(rows))
        self._documents = list(dict.fromkeys(chosen["positive"]))
        self._queries = list(dict.fromkeys(chosen["query"])) if role == "query" else None
        self._k = k

    def scores(self, model: SparseEncoder) -> Tensor:
        """The Wackiness Scores [v] by this model as it is; 0 for a term that is nobody's expansion."""
        documents = TextEncoder(model).encode(self._documents)
        counts = own_terms(model, self._documents)
        index = ExactIndex(documents)
        if self._queries is None:
            rows = without_itself(index.search(documents, self._k + 1).rows, np.arange(len(self._documents)))
            found = wackiness(documents, counts, rows, counts)
        else:
            queries = TextEncoder(model, "query").encode(self._queries)
            found = wackiness(queries, own_terms(model, self._queries), index.search(queries, self._k).rows, counts)
        return torch.from_numpy(np.nan_to_num(found.scores, nan=0.0)).float()


class MeasureWackiness(TrainerCallback):
    """Measures before the first step, then every so many steps; between two measurements the scores stay.

    The penalties keep them, in checkpoints, too, and what is measured depends on nothing but the model: a run that goes
    on from a checkpoint has the scores that it would have had.
    """

    def __init__(
        self, penalties: Penalties, settings: Mapping[Role, Regularizer], examples: DatasetDict, seed: int
    ) -> None:
        self._penalties, self._settings = penalties, settings
        self._samples = {side: Sample(examples, part.sample, side, part.k, seed) for side, part in settings.items()}

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: SparseEncoder | None = None,
        **kwargs: object,
    ) -> None:
        if model is None:
            return
        for side, part in self._settings.items():
            if state.global_step % part.every == 0:
                self._measure(model, side)

    def _measure(self, model: SparseEncoder, side: Role) -> None:
        kept = self._penalties.wackiness(side)
        if processes.is_first():
            kept.copy_(self._samples[side].scores(model))
            model.train()
        processes.take_over(kept)
