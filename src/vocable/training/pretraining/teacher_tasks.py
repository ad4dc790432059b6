"""Tasks of a pre-training by a teacher: its largest logits (SAP), or clusters of its embeddings as classes.

In sparse alignment pre-training (SAP) a model learns the largest logits of a sparse teacher for a text's terms. It
follows the code that Geng and Yang 2026 (table 6) and arXiv 2510.00671 publish; the papers give no formula.

In class pre-training a model learns to predict the class of a text from its sparse vector. Kim et al. 2026 (§J.2)
propose it instead of masks. Texts without labels get pseudo classes: clusters of another model's embeddings (An et al.
2023). The paper gives no formula and no figure. In our interpretation k-means makes the clusters, and a linear layer,
which is dropped at the end, predicts the class from the vector.

Letters: b texts of a batch, s tokens of a text, d size of the decoder's input, v output terms, n windows, c classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from vocable.adapt.stages import PretrainSettings
from vocable.core.steps import array_once, made_once
from vocable.errors import DataError
from vocable.evaluation.clusters import cluster
from vocable.options import DType
from vocable.torch_models.asymmetric import route
from vocable.torch_models.fuse import pack
from vocable.torch_models.head import max_logits
from vocable.torch_models.output_vocabulary import output_layer
from vocable.torch_models.sparse_encoder import load_sparse_encoder
from vocable.torch_models.torch_model import TorchEncoder
from vocable.training.pretraining.masking import IGNORED, Masked, TokenIds, WordPart
from vocable.training.pretraining.mlm import PredictionTask, Task, TeacherDistance, TokenBatch
from vocable.training.pretraining.windows import Windows
from vocable.training.teachers import check_terms, embed

CLASS_LAYER = "class_layer"  # name of the layer in the model, as long as it learns


def squared_difference(student: Tensor, teacher: Tensor) -> tuple[Tensor, int]:
    """Return the mean squared difference of pooled logits [b, v] over the terms above zero in either, and their number.

    A term that is inactive in both costs nothing, however far below zero its logits are.

    >>> squared_difference(torch.tensor([[1.0, -2.0, -5.0]]), torch.tensor([[3.0, 1.0, -1.0]]))
    (tensor(6.5000), 2)
    """
    either = (student > 0) | (teacher > 0)
    count = int(either.sum())
    return ((student - teacher) * either).square().sum() / max(count, 1), count


class AlignmentTask(Task):
    """The task of SAP: unmasked windows, whose loss is the distance of their logits from a sparse teacher's logits.

    The teacher reads the windows' texts with its own tokenizer. Raises `ModelError` if the teacher cannot be read, is
    exported, or has other output terms than `names`, the student's terms.
    """

    outcome = TeacherDistance

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, teacher: str, names: Sequence[str], device: str, dtype: DType
    ) -> None:
        self._tokenizer = tokenizer
        self._teacher = TorchEncoder.of(load_sparse_encoder(teacher, device=device), "document", dtype)
        check_terms(f"teacher {teacher}", self._teacher.model, names, "logits are compared term by term")
        self._transformer: Any = route(self._teacher.model.sparse_encoder, "document")[0]

    def __call__(self, ids: TokenIds, rng: Generator, labels: TokenIds | None = None, part: WordPart = "all") -> Masked:
        return Masked(ids, np.full_like(ids, IGNORED))

    def loss(self, model: nn.Module, batch: TokenBatch, decoder: nn.Linear) -> tuple[Tensor, int]:
        ids, mask = batch["input_ids"], batch["attention_mask"]
        tokens = [row[kept].tolist() for row, kept in zip(ids.cpu(), mask.cpu().bool(), strict=True)]
        target = self.target(self._tokenizer.batch_decode(tokens, skip_special_tokens=True))
        states = model(input_ids=ids, attention_mask=mask).logits
        hidden, offsets = pack({"token_embeddings": states, "attention_mask": mask})
        return squared_difference(max_logits(hidden, decoder.weight, decoder.bias, offsets), target)

    @torch.no_grad()
    def target(self, texts: Sequence[str]) -> Tensor:
        """Return the teacher's largest logit of every term in each text: [b, v] float32."""
        layer = output_layer(self._transformer.auto_model)
        hidden, offsets = pack(self._transformer(self._teacher.features(texts, self._teacher.settings.prompt)))
        return max_logits(hidden, layer.weight, layer.bias, offsets)

    def figures(self, model: nn.Module, batch: TokenBatch, decoder: nn.Linear) -> tuple[Tensor, Tensor | None]:
        loss, count = self.loss(model, batch, decoder)
        return torch.tensor([[count], [float(loss) * count]], dtype=torch.float64), None


class ClassTask(PredictionTask):
    """The task of class pre-training: unmasked windows, whose classes are predicted from their sparse vectors.

    The class layer is a part of the model while it learns.
    """

    def __init__(self, model: nn.Module, pooling: nn.Module, terms: int, classes: int) -> None:
        self._model, self._pooling = model, pooling  # the encoder's fused pooling
        self.layer = nn.Linear(terms, classes)  # from v terms to c classes
        for parameter in self.layer.parameters():
            nn.init.zeros_(parameter)  # all classes are equally likely

    @contextmanager
    def part_of_model(self) -> Iterator[None]:
        """Make the layer a part of the model within the context, so that it learns and is saved."""
        self._model.add_module(CLASS_LAYER, self.layer.to(next(self._model.parameters()).device))
        try:
            yield
        finally:
            delattr(self._model, CLASS_LAYER)

    def __call__(self, ids: TokenIds, rng: Generator, labels: TokenIds | None = None, part: WordPart = "all") -> Masked:
        """Return a window [s] unmasked; its class, the first of `labels`, is the label of its first token."""
        predicted = np.full_like(ids, IGNORED)
        if labels is not None and part == "all":
            predicted[0] = labels[0]
        return Masked(ids, predicted)

    def inputs(self, model: nn.Module, batch: TokenBatch, decoder: nn.Linear) -> tuple[Tensor, Tensor, nn.Linear]:
        """Return the vectors [b, v], the classes [b], and the class layer."""
        mask = batch["attention_mask"]
        states = model(input_ids=batch["input_ids"], attention_mask=mask).logits
        pooled = self._pooling({"token_embeddings": states, "attention_mask": mask})
        return pooled["sentence_embedding"], batch["labels"][:, 0], self.layer


def classify_windows(
    windows: Windows,
    rows: TokenIds,
    tokenizer: PreTrainedTokenizerBase,
    teacher: SentenceTransformer,
    settings: PretrainSettings,
    seed: int,
) -> None:
    """Put the windows `rows` into classes, the clusters of the teacher's embeddings of their texts.

    The folder of the windows keeps embeddings and classes for an interrupted run. Raises `DataError` if there are fewer
    windows, or fewer different texts, than classes.
    """
    classes = cast(int, settings.classes)
    if len(rows) < classes:
        raise DataError(
            f"{classes:,} classes of {len(rows):,} windows: add texts, take more steps, or ask for fewer classes"
        )
    # The names of the files tell what they are made of: teacher, seed and windows.
    made_of = blake2b(f"{settings.teacher} {seed}".encode() + rows.tobytes(), digest_size=8).hexdigest()
    embedded = windows.folder / f"embeddings-{made_of}.npy"

    def decode(batch: Sequence[int]) -> list[str]:
        ids = [windows[int(row)].tolist() for row in batch]
        return tokenizer.batch_decode(ids, skip_special_tokens=True)

    def labels() -> NDArray[np.int64]:
        made_once(embedded, lambda: embed(rows.tolist(), teacher, embedded, settings.dtype, decode))
        labels = np.full(len(windows), -1, dtype=np.int64)
        labels[rows] = cluster(np.load(embedded).astype(np.float32), classes, seed)
        if (different := len(np.unique(labels[rows]))) < classes:
            raise DataError(f"{classes:,} classes of texts that make {different:,}: ask for fewer, or add other texts")
        return labels

    windows.classify(array_once(windows.folder / f"classes-{classes}-{made_of}.npy", labels))
