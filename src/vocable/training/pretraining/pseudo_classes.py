"""Class pre-training: a model learns from a text's sparse vector which class the text is of.

Kim et al. 2026 (§J.2) propose it in place of masks, which ask about one text only, with pseudo classes where there are
no labels: clusters of what another model makes of the texts (An et al. 2023). They give no formula and no figure; that
the clusters are those of k-means, that a linear layer tells the classes from the vector, and that it is dropped at the
end, is our reading.

Letters: n windows, c classes, b texts of a batch, s tokens of a text, v output terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import cast, overload

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from vocable.errors import DataError
from vocable.evaluation.testsets import cluster
from vocable.storage import replacing
from vocable.training.pretraining.mlm import Guessing
from vocable.training.pretraining.windows import IGNORED, Masked, Part, Windows
from vocable.training.settings import PretrainSettings
from vocable.training.teachers import embed

CLASS_LAYER = "class_layer"  # its name in the model while that learns


class PseudoClasses(Guessing):
    """The task: windows as they are, and the classes of a batch of them, told from their sparse vectors.

    The layer that tells them learns with the model, of which it is a part while it does.
    """

    def __init__(self, model: nn.Module, pooling: nn.Module, terms: int, classes: int) -> None:
        self._model, self._pooling = model, pooling  # the fused one of the encoder
        self.layer = nn.Linear(terms, classes)  # of v terms and c classes
        for parameter in self.layer.parameters():
            nn.init.zeros_(parameter)  # a class is as good as another

    @contextmanager
    def part_of_model(self) -> Iterator[None]:
        """Within the context the layer learns and is saved with the model."""
        self._model.add_module(CLASS_LAYER, self.layer.to(next(self._model.parameters()).device))
        try:
            yield
        finally:
            delattr(self._model, CLASS_LAYER)

    def __call__(
        self,
        ids: NDArray[np.int64],
        rng: np.random.Generator,
        words: NDArray[np.int64] | None = None,
        part: Part = "all",
    ) -> Masked:
        """A window [s] of which nothing is hidden; `words` is its class, which becomes the label of its first token."""
        labels = np.full_like(ids, IGNORED)
        if words is not None and part == "all":
            labels[0] = words[0]
        return Masked(ids, labels)

    def inputs(
        self, model: nn.Module, batch: dict[str, Tensor], decoder: nn.Linear
    ) -> tuple[Tensor, Tensor, nn.Linear]:
        """The vectors [b, v], the classes [b], and the layer that is to tell one from the other."""
        mask = batch["attention_mask"]
        states = model(input_ids=batch["input_ids"], attention_mask=mask).logits
        pooled = self._pooling({"token_embeddings": states, "attention_mask": mask})
        return pooled["sentence_embedding"], batch["labels"][:, 0], self.layer


class SortedWindows(Windows):
    """Windows on disk with the class of each [n] in place of the words of its tokens; -1 where it is not needed."""

    def __init__(self, folder: Path, classes: NDArray[np.int64]) -> None:
        super().__init__(folder)
        self._classes = classes

    def words(self, index: int) -> NDArray[np.int64]:
        """The class of one window, [1]."""
        return self._classes[index : index + 1]


def sort_windows(
    folder: Path,
    windows: Windows,
    rows: NDArray[np.int64],
    tokenizer: PreTrainedTokenizerBase,
    teacher: SentenceTransformer,
    settings: PretrainSettings,
    seed: int,
) -> SortedWindows:
    """Put the windows in `rows` into classes, the clusters of their texts' embeddings by the teacher.

    What a killed run with these settings embedded or clustered in `folder`, that of the windows, is used.

    Raises:
        DataError: there are fewer of these windows, or of different texts in them, than classes.
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
            embed(_Spelled(windows, rows, tokenizer), teacher, embedded, settings.dtype)
        found = np.full(len(windows), -1, dtype=np.int64)
        found[rows] = cluster(np.load(embedded).astype(np.float32), classes, seed)
        if (different := len(np.unique(found[rows]))) < classes:
            raise DataError(f"{classes:,} classes of texts that make {different:,}: ask for fewer, or add other texts")
        with replacing(finished) as file:
            np.save(file, found)
    return SortedWindows(folder, np.load(finished))


class _Spelled(Sequence[str]):
    """The texts that the tokens of windows spell, made when they are asked for."""

    def __init__(self, windows: Windows, rows: NDArray[np.int64], tokenizer: PreTrainedTokenizerBase) -> None:
        self._windows, self._rows, self._tokenizer = windows, rows, tokenizer

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, int):
            return self[index : index + 1][0]
        ids = [self._windows[int(row)].tolist() for row in self._rows[index]]
        spelled: list[str] = self._tokenizer.batch_decode(ids, skip_special_tokens=True)
        return spelled
