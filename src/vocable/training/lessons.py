"""What a training learns from: its examples, and all that has to be known of them before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset, DatasetDict, concatenate_datasets
from sentence_transformers import SparseEncoder
from torch import Tensor

from vocable.encoder.idf import document_frequencies, idf
from vocable.encoder.output_vocabulary import output_layer, output_vocabulary
from vocable.encoder.routes import route
from vocable.errors import ModelError
from vocable.storage import replacing
from vocable.training.examples import load_examples
from vocable.training.recipe import Recipe
from vocable.training.sources import located
from vocable.training.sparse_teacher import SparseTeacher, teach_sparsely
from vocable.training.teacher import OwnScores, Teacher, teach
from vocable.training.topics import by_topic


class Lessons(NamedTuple):
    """The examples of a run, and who says what about them."""

    examples: DatasetDict  # columns query, positive, negative_1, ..., and where somebody teaches `label`, the row
    teacher: Teacher | None = None
    sparse_teacher: SparseTeacher | None = None
    idf: Tensor | None = None  # [v]


def prepare(recipe: Recipe, model: SparseEncoder, folder: Path) -> Lessons:
    """Read the examples, and let the teachers read them.

    Args:
        model: who is to learn.
        folder: keeps what was made; what a killed run left there is used.

    Raises:
        DataError, ModelError: what the recipe names cannot be read, or examples without the scores that a loss needs.
    """
    settings = recipe.training
    examples = _load(recipe, folder)
    together = concatenate_datasets(list(examples.values()))
    texts = together.select_columns([column for column in together.column_names if column != "label"])
    if settings.taught or settings.aligned or recipe.data.topical:
        examples = _numbered(examples)
    teacher: Teacher | None = None
    if settings.teacher is not None:
        teacher, dense = teach(texts, settings.teacher, folder)
        if recipe.data.topical:
            examples = by_topic(examples, dense[0].embeddings, settings.batch_size, recipe.seed)
    elif settings.taught:
        teacher = OwnScores(together)
    sparse_teacher = None
    if settings.sparse_teacher is not None:
        sparse_teacher = teach_sparsely(settings.sparse_teacher, model, texts, folder / "sparse-teacher")
    weights = _idf(model, texts, folder) if "idf_flops" in settings.regularizers.names else None
    return Lessons(examples, teacher, sparse_teacher, weights)


def _load(recipe: Recipe, folder: Path) -> DatasetDict:
    settings = recipe.training
    return load_examples(
        [located(source, recipe.place) for source in recipe.data.examples],
        recipe.data,
        draws=settings.steps * settings.batch_size * settings.gradient_accumulation,
        batch_size=settings.batch_size,
        seed=recipe.seed,
        cache=folder,
        scored=settings.taught and settings.teacher is None,
    )


def _numbered(examples: DatasetDict) -> DatasetDict:
    """The examples with their rows, counted over all sources, for labels."""
    numbered, start = {}, 0
    for name, source in examples.items():
        rows = Dataset.from_dict({"label": np.arange(start, start + len(source))})
        texts = source.select_columns([column for column in source.column_names if column != "label"])
        numbered[name] = concatenate_datasets([texts, rows], axis=1)
        start += len(source)
    return DatasetDict(numbered)


def _idf(model: SparseEncoder, texts: Dataset, folder: Path) -> Tensor:
    """Inverse document frequencies [v] over the documents of the examples."""
    transformer: Any = route(model, "document")[0]
    if output_vocabulary(transformer.auto_model) is not None:
        raise ModelError("idf_flops counts the tokens of documents, but this model's output terms are not its tokens")
    finished = folder / "idf.npy"
    if not finished.exists():
        size = output_layer(transformer.auto_model).out_features
        documents = (text for column in texts.column_names[1:] for text in texts[column])
        with replacing(finished) as file:
            np.save(file, idf(*document_frequencies(documents, transformer.tokenizer, size=size)))
    return torch.from_numpy(np.load(finished))
