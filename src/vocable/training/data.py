"""Training data: the examples of a run and their teachers' scores.

Each source is a data set, drawn in its share of the recipe. Its examples are numbers of texts, and the texts are on
disk once (`training.prepared`). With `topical` the examples of a batch are similar: topic-aware sampling as in TAS-B
(Hofstätter et al. 2021). Clusters of k-means differ in size. Instead, the examples are halved along their principal
direction until each part is a single batch.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset, DatasetDict
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.sampler import DefaultBatchSampler, NoDuplicatesBatchSampler
from torch.utils.data import SequentialSampler

from vocable.errors import RecipeError
from vocable.training.mined_negatives import MiningPlan, MiningSteps, planned
from vocable.training.prepared import IdTexts, Sampled, joined, open_passes
from vocable.training.recipe import DataSettings, HardNegatives, Recipe
from vocable.training.teachers import (
    Teacher,
    load_sparse_teacher,
    load_teachers,
    own_scores,
)

logger = logging.getLogger(__name__)


def load_examples(
    sources: Sequence[str | HardNegatives],
    settings: DataSettings,
    *,
    draws: int,
    batch_size: int,
    seed: int,
    cache: Path,
    scored: bool = False,
) -> tuple[DatasetDict, Dataset]:
    """Return the examples of a run, a data set per source, and held-out pairs of query and positive.

    The negatives of an example are the columns negative_1, negative_2, ...: its first negatives or, with random
    sampling, different negatives in each pass. Crops differ in each pass, too. An example is passed over if the margin,
    or ids without a text, leave too few negatives. Every source holds out the same share of its examples; their queries
    are not learned from.

    Args:
        draws: number of examples that the run sees; a source smaller than its share is repeated, shuffled again.
        batch_size: shares are rounded to whole batches, at least one.
        cache: folder of the prepared examples, which are memory-mapped.
        scored: add the column label: the teacher's scores of the positive and of each negative.
    """
    names = [f"{i}-{Path(file if isinstance(file, str) else file.file).name}" for i, file in enumerate(sources)]
    # The examples of the first pass of each source; random negatives and crops differ between passes.
    opened = [open_passes(source, cache) for source in sources]
    sampled = [Sampled(passes, settings, number, seed, scored) for number, passes in enumerate(opened)]
    texts = IdTexts()
    first = [sample.examples(0, texts) for sample in sampled]
    whole = sum(map(len, first))
    # Rows to learn from and rows held out, by source.
    parts = [_held_out(examples, -(-settings.held_out * len(examples) // whole), seed) for examples in first]
    sizes = np.array([len(learned) for learned, _ in parts])
    if batch_size > sizes.max() and not settings.topical:
        largest = f"the largest source of data.examples has {sizes.max():,}"
        raise RecipeError(f"training.batch_size: a batch needs {batch_size:,} different examples, {largest}")
    # The share of each source in the run; an exponent below 1 favours small sources.
    shares = sizes**settings.size_exponent / (sizes**settings.size_exponent).sum()
    rng = np.random.default_rng(seed)
    drawn = {}
    for number, (name, (learned, _), share) in enumerate(zip(names, parts, shares, strict=True)):
        # Whole batches of the source, from shuffled passes.
        count = max(1, round(draws * share / batch_size)) * batch_size
        passes = -(-count // len(learned))
        rows = np.concatenate([learned[rng.permutation(len(learned))] for _ in range(passes)])[:count]
        drawn[name] = sampled[number].drawn(rows, len(learned), texts)
    held_out = [examples.select(rows) for examples, (_, rows) in zip(first, parts, strict=True)]
    return DatasetDict(drawn), joined(held_out).select_columns(["query", "positive"])


def _held_out(examples: Dataset, count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows to learn from, and the held-out rows: at most `count`, with different queries.

    No other row has a held-out query. The rows with these queries are at most a tenth of all rows.
    """
    queries, held = examples["query"][:], dict[str, int]()
    times, room = Counter(queries), len(queries) // 10
    for row in np.random.default_rng((seed, len(queries))).permutation(len(queries)).tolist():
        if len(held) == count or not room:
            break
        if queries[row] not in held and times[queries[row]] <= room:
            held[queries[row]], room = row, room - times[queries[row]]
    learned = np.array([row for row, query in enumerate(queries) if query not in held], dtype=np.int64)
    return learned, np.array(sorted(held.values()), dtype=np.int64)


def topical_order(
    embeddings: NDArray[np.floating[Any]], batch_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return an order of n examples by their embeddings [n, d]: a batch has similar examples, and batches are shuffled.

    The last batch may be smaller.
    """
    batches: list[NDArray[np.int64]] = []
    parts = [np.arange(len(embeddings))]
    while parts:
        part = parts.pop()
        if len(part) <= batch_size:
            batches.append(rng.permutation(part))
            continue
        vectors = embeddings[part].astype(np.float32)
        centred = vectors - vectors.mean(axis=0)
        direction = np.linalg.eigh(centred.T @ centred)[1][:, -1]  # the direction with the largest variance
        ranked = part[np.argsort(centred @ direction, kind="stable")]
        half = -(-len(ranked) // (2 * batch_size)) * batch_size  # whole batches
        parts += [ranked[:half], ranked[half:]]
    whole = [batch for batch in batches if len(batch) == batch_size]
    rest = [batch for batch in batches if len(batch) < batch_size]
    return np.concatenate([whole[i] for i in rng.permutation(len(whole))] + rest)


class InOrder(DefaultBatchSampler):
    """Batches in the order of the data set."""

    def __init__(self, dataset: Any, batch_size: int, drop_last: bool, **others: Any) -> None:
        super().__init__(SequentialSampler(dataset), batch_size=batch_size, drop_last=drop_last, **others)


class WithoutRepeats(NoDuplicatesBatchSampler):
    """Batches without a repeated text; their number is the number that the examples fill if all texts differ.

    The last examples of a pass may share texts and thus fill no batch. sentence-transformers before 6.2 then ends the
    run early; from 6.2 on it makes two more passes. This sampler makes up to `PASSES` shuffled passes. The batches
    before the further passes are the same as in sentence-transformers.
    """

    PASSES = 10
    epoch: int

    def __iter__(self) -> Iterator[list[int]]:
        wanted, epoch = len(self), self.epoch
        for number in range(self.PASSES):
            self.epoch = epoch + number  # it determines the order of a pass
            for batch in super().__iter__():
                yield batch
                wanted -= 1
                if not wanted:
                    break
            if not wanted:
                break
        self.epoch = epoch


class TrainingData(NamedTuple):
    """The examples of a run and its teachers."""

    examples: DatasetDict  # columns query, positive, negative_1, ..., and with a teacher `label`, the row
    teacher: Teacher | None = None
    sparse_teacher: Teacher | None = None
    held_out: Dataset = Dataset.from_dict({"query": [], "positive": []})  # not learned from
    folder: Path = Path()  # holds files that a resumed run uses again
    plan: MiningPlan | None = None  # plan of the mined negatives


def load_training_data(recipe: Recipe, model: SparseEncoder, folder: Path) -> TrainingData:
    """Load the examples of a recipe and the scores and vectors of its teachers, and keep them in `folder`."""
    settings = recipe.training
    # Examples by source; negatives that the run mines are not in them yet.
    examples, held_out = load_examples(
        recipe.examples(),
        recipe.data if settings.mine is None else recipe.data.model_copy(update={"negatives": 0}),
        draws=settings.steps * settings.batch_size * settings.gradient_accumulation,
        batch_size=settings.batch_size,
        seed=recipe.seed,
        cache=folder,
        scored=settings.needs_scores and settings.teacher is None,
    )
    # Texts of all sources for the teachers, with the number of the source [m].
    together = joined(list(examples.values()))
    texts = together.select_columns([column for column in together.column_names if column != "label"])
    sources = np.repeat(np.arange(len(examples)), [len(source) for source in examples.values()])
    # The label of an example is its row in all sources: teachers find its scores by it.
    if settings.needs_rows or recipe.data.topical:
        rows = np.split(np.arange(len(together)), np.flatnonzero(np.diff(sources)) + 1)
        for (name, source), numbers in zip(examples.items(), rows, strict=True):  # labels are rows of all sources
            unlabelled = source.select_columns(texts.column_names)
            examples[name] = joined([unlabelled, Dataset.from_dict({"label": numbers})], axis=1)
    # Scores by teacher models, or from the examples themselves.
    teacher: Teacher | None = None
    sparse_teacher: Teacher | None = None
    if settings.teacher is not None:
        teacher, embeddings = load_teachers(texts, sources, settings.teacher, folder, settings.dtype)
        if recipe.data.topical:
            if not embeddings:
                raise RecipeError("data.topical needs a dense model among training.teacher.models")
            rng = np.random.default_rng(recipe.seed)
            vectors, rows_of = embeddings[0]
            for name, source in examples.items():  # similar by the sum of query and positive
                pairs = vectors[rows_of[np.array(source["label"]), :2]].sum(axis=1)
                examples[name] = source.select(topical_order(pairs, settings.batch_size, rng))
    elif settings.needs_scores:
        teacher = own_scores(together)
    if settings.sparse_teacher is not None:
        kept = folder / "sparse-teacher"
        sparse_teacher = load_sparse_teacher(settings.sparse_teacher, model, texts, kept, settings.dtype)
    # Negatives that are mined during the run.
    plan = _plan(recipe, examples, folder)
    if plan is not None:
        examples = DatasetDict({"examples": plan.with_negatives()})
    return TrainingData(
        examples=examples, teacher=teacher, sparse_teacher=sparse_teacher, held_out=held_out, folder=folder, plan=plan
    )


def _plan(recipe: Recipe, examples: DatasetDict, folder: Path) -> MiningPlan | None:
    """Return the plan of the negatives that the training mines, or None if it mines no negatives."""
    settings, mine = recipe.training, recipe.training.mine
    if mine is None:
        return None
    b, seed = settings.batch_size, recipe.seed
    steps = MiningSteps(folder / "mined", b * settings.gradient_accumulation, mine.every, recipe.data.negatives)
    corpus = None if mine.corpus is None else recipe.place(mine.corpus)
    return MiningPlan(
        pairs=planned(list(examples.values()), b, seed), steps=steps, b=b, depth=mine.depth, corpus=corpus, seed=seed
    )
