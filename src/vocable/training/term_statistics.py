"""Statistics of terms that regularizers of one side need, computed while a model is trained.

A new statistic is a class here with its entry in `TERM_STATISTICS`, and its name in `objectives.regularizers`.

Letters: n documents of a batch, v terms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from datasets import DatasetDict, concatenate_datasets
from sentence_transformers import SparseEncoder
from torch import Tensor, nn

from vocable.encoder.asymmetric import Role, route
from vocable.encoder.idf import document_frequencies, idf
from vocable.encoder.output_vocabulary import output_vocabulary
from vocable.encoder.terms import input_terms, terms
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ModelError
from vocable.objectives.regularizers import OneSide, Regularizers, Statistic, WackinessFlops
from vocable.retrieval.exact_index import ExactIndex
from vocable.storage import replacing
from vocable.training import distributed
from vocable.wackiness.score import wackiness, without_itself

REFRESH = 100  # steps between two estimates of document frequencies (arXiv 2505.15070)


class StatisticInputs(NamedTuple):
    """The inputs of a statistic for the regularizer of one side."""

    model: SparseEncoder
    side: str  # query or document
    settings: OneSide
    examples: DatasetDict
    folder: Path  # for files that a resumed run uses again
    seed: int


class TermStatistic(nn.Module):
    """A statistic [v]; checkpoints keep its persistent buffers."""

    def begin_step(self, model: SparseEncoder, step: int) -> None:
        """Called before each step, counted from 0."""

    def observe(self, documents: Tensor, step: int) -> None:
        """Called with the documents [n, v] that the model learns from in a step."""

    def values(self) -> Tensor:
        """Return the statistic [v]."""
        raise NotImplementedError


class DocumentFrequencies(TermStatistic):
    """The share of documents in which each term is active, estimated every `REFRESH` steps.

    Before the first estimate it is the share of all documents seen.
    """

    seen: Tensor  # [v], for each term the documents since the last estimate in which it was active
    documents: Tensor  # number of these documents
    estimate: Tensor  # [v]
    estimated: Tensor  # the step of the last estimate

    def __init__(self, v: int) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(v, dtype=torch.int64))
        self.register_buffer("documents", torch.tensor(0))
        self.register_buffer("estimate", torch.zeros(v))
        self.register_buffer("estimated", torch.tensor(0))

    @torch.no_grad()
    def observe(self, documents: Tensor, step: int) -> None:
        if step - int(self.estimated) >= REFRESH:
            self.estimate.copy_(self.seen / self.documents.clamp(min=1))
            self.estimated.fill_(step)
            self.seen.zero_()
            self.documents.zero_()
        self.seen += (documents > 0).sum(dim=0)
        self.documents += len(documents)

    def values(self) -> Tensor:
        return self.estimate if int(self.estimated) else self.seen / self.documents.clamp(min=1)


class InverseDocumentFrequencies(TermStatistic):
    """The IDF [v] of the tokens of the examples' documents."""

    idf: Tensor

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("idf", values, persistent=False)

    def values(self) -> Tensor:
        return self.idf


class TermWackiness(TermStatistic):
    """The wackiness [v] of each term as an expansion of one side's texts, measured every `every` steps.

    It is 0 before the first measurement.
    """

    scores: Tensor

    def __init__(self, v: int, every: int, measure: Callable[[SparseEncoder], Tensor]) -> None:
        super().__init__()
        self.register_buffer("scores", torch.zeros(v))
        self._every, self._measure = every, measure

    def begin_step(self, model: SparseEncoder, step: int) -> None:
        if step % self._every == 0:
            self.scores.copy_(distributed.by_first(partial(self._measure, model)))
            model.train()

    def values(self) -> Tensor:
        return self.scores


class WackinessSample:
    """Queries and documents of `size` random examples, on which the wackiness of one role's expansions is measured.

    The positives are the collection for either role; k documents are retrieved for a text, and a document does not
    retrieve itself. A repeated text counts once.
    """

    def __init__(self, examples: DatasetDict, size: int, role: Role, k: int, seed: int) -> None:
        together = concatenate_datasets([source.select_columns(["query", "positive"]) for source in examples.values()])
        rows = np.random.default_rng(seed).permutation(len(together))[:size]
        sample = together.select(np.sort(rows))
        self._documents = list(dict.fromkeys(sample["positive"]))
        self._queries = list(dict.fromkeys(sample["query"])) if role == "query" else None
        self._k = k

    def scores(self, model: SparseEncoder) -> Tensor:
        """Return the Wackiness Scores [v] of the model in its present state; 0 for a term that expands no text."""
        documents = TextEncoder(model).encode(self._documents)
        counts = input_terms(model, self._documents)
        index = ExactIndex(documents)
        if self._queries is None:
            rows = without_itself(index.search(documents, self._k + 1).rows, np.arange(len(self._documents)))
            found = wackiness(documents, counts, rows, counts)
        else:
            queries = TextEncoder(model, "query").encode(self._queries)
            found = wackiness(queries, input_terms(model, self._queries), index.search(queries, self._k).rows, counts)
        return torch.from_numpy(np.nan_to_num(found.scores, nan=0.0)).float()


def _document_frequencies(inputs: StatisticInputs) -> TermStatistic:
    return DocumentFrequencies(len(terms(inputs.model)))


def _inverse_document_frequencies(inputs: StatisticInputs) -> TermStatistic:
    transformer: Any = route(inputs.model, "document")[0]
    if output_vocabulary(transformer.auto_model) is not None:
        raise ModelError("idf_flops counts the tokens of documents, but this model's output terms are not its tokens")
    path = inputs.folder / "idf.npy"
    with distributed.first_alone():
        if not path.exists():
            texts = (
                text
                for source in inputs.examples.values()
                for column in source.column_names
                if column not in ("query", "label")
                for text in source[column]
            )
            with replacing(path) as file:
                np.save(file, idf(*document_frequencies(texts, transformer.tokenizer, size=len(terms(inputs.model)))))
    return InverseDocumentFrequencies(torch.from_numpy(np.load(path)))


def _wackiness(inputs: StatisticInputs) -> TermStatistic:
    settings = cast(WackinessFlops, inputs.settings)
    sample = WackinessSample(inputs.examples, settings.sample, cast(Role, inputs.side), settings.k, inputs.seed)
    return TermWackiness(len(terms(inputs.model)), settings.every, sample.scores)


TERM_STATISTICS: dict[Statistic, Callable[[StatisticInputs], TermStatistic]] = {
    "document_frequencies": _document_frequencies,
    "idf": _inverse_document_frequencies,
    "wackiness": _wackiness,
}


def term_statistics(
    settings: Regularizers, model: SparseEncoder, examples: DatasetDict, folder: Path, seed: int
) -> dict[str, TermStatistic]:
    """Return the statistic of each side whose active regularizer needs one."""
    return {
        side: TERM_STATISTICS[part.needs](StatisticInputs(model, side, part, examples, folder, seed))
        for side, part in settings.active.items()
        if isinstance(part, OneSide) and part.needs is not None
    }
