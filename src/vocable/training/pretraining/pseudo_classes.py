"""Class pre-training: a model learns to predict the class of a text from its sparse vector.

Kim et al. 2026 (§J.2) propose it in place of masks, with pseudo classes where there are no labels: clusters of another
model's embeddings (An et al. 2023). They give no formula and no figure. Our interpretation: the clusters are those of
k-means, a linear layer predicts the class from the vector, and it is dropped at the end.

Letters: n windows, c classes, b texts of a batch, s tokens of a text, v output terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import cast

import numpy as np
from numpy.random import Generator
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from vocable.errors import DataError
from vocable.evaluation.clusters import cluster
from vocable.storage import replacing
from vocable.training.pretraining.masking import IGNORED, Ids, Masked, Part
from vocable.training.pretraining.mlm import PredictionTask
from vocable.training.pretraining.windows import Windows
from vocable.training.recipe import PretrainSettings
from vocable.training.teachers import embed

CLASS_LAYER = "class_layer"  # its name in the model while that learns


class ClassTask(PredictionTask):
    """The task: unmasked windows, whose classes are predicted from their sparse vectors.

    The class layer is a part of the model while it learns.
    """

    def __init__(self, model: nn.Module, pooling: nn.Module, terms: int, classes: int) -> None:
        self._model, self._pooling = model, pooling  # the fused one of the encoder
        self.layer = nn.Linear(terms, classes)  # of v terms and c classes
        for parameter in self.layer.parameters():
            nn.init.zeros_(parameter)  # all classes are equally likely

    @contextmanager
    def part_of_model(self) -> Iterator[None]:
        """Within the context the layer learns and is saved with the model."""
        self._model.add_module(CLASS_LAYER, self.layer.to(next(self._model.parameters()).device))
        try:
            yield
        finally:
            delattr(self._model, CLASS_LAYER)

    def __call__(self, ids: Ids, rng: Generator, words: Ids | None = None, part: Part = "all") -> Masked:
        """Return a window [s] unmasked; `words` is its class, the label of its first token."""
        labels = np.full_like(ids, IGNORED)
        if words is not None and part == "all":
            labels[0] = words[0]
        return Masked(ids, labels)

    def inputs(
        self, model: nn.Module, batch: dict[str, Tensor], decoder: nn.Linear
    ) -> tuple[Tensor, Tensor, nn.Linear]:
        """Return the vectors [b, v], the classes [b], and the class layer."""
        mask = batch["attention_mask"]
        states = model(input_ids=batch["input_ids"], attention_mask=mask).logits
        pooled = self._pooling({"token_embeddings": states, "attention_mask": mask})
        return pooled["sentence_embedding"], batch["labels"][:, 0], self.layer


class ClassifiedWindows(Windows):
    """Windows on disk with the class of each [n] in place of the words of its tokens; -1 where none is needed."""

    def __init__(self, folder: Path, classes: Ids) -> None:
        super().__init__(folder)
        self._classes = classes

    def words(self, index: int) -> Ids:
        """The class of one window, [1]."""
        return self._classes[index : index + 1]


def classify_windows(
    folder: Path,
    windows: Windows,
    rows: Ids,
    tokenizer: PreTrainedTokenizerBase,
    teacher: SentenceTransformer,
    settings: PretrainSettings,
    seed: int,
) -> ClassifiedWindows:
    """Put the windows `rows` into classes, the clusters of the teacher's embeddings of their texts.

    Embeddings and classes are kept in `folder`, where an interrupted run finds them.

    Raises:
        DataError: there are fewer windows, or fewer different texts, than classes.
    """
    classes = cast(int, settings.classes)
    if len(rows) < classes:
        raise DataError(
            f"{classes:,} classes of {len(rows):,} windows: add texts, take more steps, or ask for fewer classes"
        )
    made_of = blake2b(f"{settings.teacher} {seed}".encode() + rows.tobytes(), digest_size=8).hexdigest()
    finished, embedded = folder / f"classes-{classes}-{made_of}.npy", folder / f"embeddings-{made_of}.npy"
    if not finished.exists():
        if not embedded.exists():

            def decode(some: Sequence[int]) -> list[str]:
                ids = [windows[int(row)].tolist() for row in some]
                texts: list[str] = tokenizer.batch_decode(ids, skip_special_tokens=True)
                return texts

            embed(rows.tolist(), teacher, embedded, settings.dtype, decode)
        found = np.full(len(windows), -1, dtype=np.int64)
        found[rows] = cluster(np.load(embedded).astype(np.float32), classes, seed)
        if (different := len(np.unique(found[rows]))) < classes:
            raise DataError(f"{classes:,} classes of texts that make {different:,}: ask for fewer, or add other texts")
        with replacing(finished) as file:
            np.save(file, found)
    return ClassifiedWindows(folder, np.load(finished))
