"""Training data: the examples of a run and their teachers' scores.

Each source is a data set, drawn in its share of the recipe. Its examples are on disk. Where negatives are sampled anew
in each pass, the examples are numbers of texts, and the texts are on disk once (`training.prepared`). With `topical`
the examples of a batch are similar: topic-aware sampling as in TAS-B (Hofstätter et al. 2021). Clusters of k-means
differ in size. Instead, the examples are halved along their principal direction until each part is a single batch.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset, DatasetDict
from datasets.exceptions import DatasetGenerationError
from datasets.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.sampler import DefaultBatchSampler, NoDuplicatesBatchSampler
from torch.utils.data import SequentialSampler

from vocable.data import Example, read_examples
from vocable.data.read import crops_of
from vocable.data.sources import parse_source
from vocable.errors import DataError, RecipeError
from vocable.training.mined_negatives import MiningPlan, MiningSteps, planned
from vocable.training.negatives import Candidate, NegativeSampler, all_scores, read_hard_negatives
from vocable.training.prepared import IdTexts, Sampled, is_prepared, joined, open_prepared
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
        cache: folder of the Arrow files, which are memory-mapped.
        scored: add the column label: the teacher's scores of the positive and of each negative.
    """
    names = [f"{i}-{Path(file if isinstance(file, str) else file.file).name}" for i, file in enumerate(sources)]
    by_id = settings.sampling == "random" or any(isinstance(name, str) and is_prepared(name) for name in sources)
    if by_id and any(map(_is_cropped, sources)):
        raise RecipeError("data.examples: crops cannot be combined with a folder of prepared examples")
    prepared = [open_prepared(source, cache) for source in sources] if by_id else []
    sampled = [Sampled(examples, settings, number, seed, scored) for number, examples in enumerate(prepared)]
    texts = IdTexts(prepared)
    if by_id:
        first = [sample.examples(0, texts) for sample in sampled]
    else:
        first = [_on_disk(source, settings, scored, cache) for source in sources]
    whole = sum(map(len, first))
    parts = [_held_out(examples, -(-settings.held_out * len(examples) // whole), seed) for examples in first]
    sizes = np.array([len(learned) for learned, _ in parts])
    if batch_size > sizes.max() and not settings.topical:
        largest = f"the largest source of data.examples has {sizes.max():,}"
        raise RecipeError(f"training.batch_size: a batch needs {batch_size:,} different examples, {largest}")
    shares = sizes**settings.size_exponent / (sizes**settings.size_exponent).sum()
    rng = np.random.default_rng(seed)
    drawn = {}
    for number, (name, (learned, _), share) in enumerate(zip(names, parts, shares, strict=True)):
        count = max(1, round(draws * share / batch_size)) * batch_size
        passes = -(-count // len(learned))
        rows = np.concatenate([learned[rng.permutation(len(learned))] for _ in range(passes)])[:count]
        if sampled:
            drawn[name] = sampled[number].drawn(rows, len(learned), texts)
        elif _is_cropped(sources[number]):
            turns = [rows[at : at + len(learned)] for at in range(0, count, len(learned))]
            crops = [_on_disk(sources[number], settings, scored, cache, turn) for turn in range(len(turns))]
            drawn[name] = joined([turn.select(taken) for turn, taken in zip(crops, turns, strict=True)])
        else:
            drawn[name] = first[number].select(rows)
    held_out = [examples.select(rows) for examples, (_, rows) in zip(first, parts, strict=True)]
    return DatasetDict(drawn), joined(held_out).select_columns(["query", "positive"])


def _is_cropped(source: str | HardNegatives) -> bool:
    """Return whether the examples of a source are crops, which are cut again in each pass."""
    return isinstance(source, str) and parse_source(source)[0] == "crops"


def _held_out(examples: Dataset, count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows to learn from, and the held-out rows: at most `count`, with different queries.

    No other row has a held-out query. The rows with these queries are at most a tenth of all rows.
    """
    queries, held = list(examples["query"]), dict[str, int]()
    times, room = Counter(queries), len(queries) // 10
    for row in np.random.default_rng((seed, len(queries))).permutation(len(queries)).tolist():
        if len(held) == count or not room:
            break
        if queries[row] not in held and times[queries[row]] <= room:
            held[queries[row]], room = row, room - times[queries[row]]
    learned = np.array([row for row, query in enumerate(queries) if query not in held], dtype=np.int64)
    return learned, np.array(sorted(held.values()), dtype=np.int64)


def _on_disk(source: str | HardNegatives, settings: DataSettings, scored: bool, cache: Path, turn: int = 0) -> Dataset:
    """Return the examples of a source with their first negatives, memory-mapped; a second call opens the same files.

    Examples that are crops are the crops of pass `turn`.
    """
    options = {
        "source": source if isinstance(source, str) else source.model_dump(),
        "negatives": settings.negatives,
        "margin": settings.false_negative_margin,
        "scored": scored,
        "cache": str(cache),
        "turn": turn,
    }
    shown = is_progress_bar_enabled()
    disable_progress_bar()
    try:
        return Dataset.from_generator(_rows, gen_kwargs=options, cache_dir=str(cache))
    except DatasetGenerationError as error:
        raise (error.__cause__ if isinstance(error.__cause__, DataError) else error) from None
    finally:
        if shown:
            enable_progress_bar()


def _rows(
    source: str | dict[str, Any],
    negatives: int,
    margin: float | None,
    scored: bool,
    cache: str,
    turn: int,
) -> Iterator[dict[str, Any]]:
    sampler = NegativeSampler(negatives, margin)
    if isinstance(source, str):
        place, examples = source, _sampled(source, sampler, turn)
    else:
        settings = HardNegatives(**source)
        place, examples = settings.file, read_hard_negatives(settings, sampler, Path(cache))
    taken = passed_over = 0
    for example in examples:
        if example is None or len(example.negatives) < negatives:
            passed_over += 1
            continue
        if scored and not example.scores:
            remedy = "name training.teacher, or score them first (vocable teacher-scores)"
            raise DataError(f"its examples have no scores to learn from: {remedy}", source=place)
        taken += 1
        columns = {f"negative_{i}": text for i, text in enumerate(example.negatives, start=1)}
        label = {"label": list(example.scores)} if scored else {}
        yield {"query": example.query, "positive": example.positive, **columns, **label}
    if not taken:
        raise DataError("no example" + (f" has {negatives} usable negatives" if passed_over else ""), source=place)
    if passed_over or sampler.dropped:
        message = "%s: %d negatives left out for their scores, %d of %d examples passed over"
        logger.warning(message, place, sampler.dropped, passed_over, taken + passed_over)


def _sampled(place: str, sampler: NegativeSampler, turn: int) -> Iterator[Example | None]:
    """Yield the examples of a source with their sampled negatives; if they are crops, the crops of pass `turn`."""
    for example in crops_of(place, turn) or read_examples(place):
        if len(example.negatives) < sampler.count:
            few = f"an example has {len(example.negatives)} negatives, and data.negatives is {sampler.count}"
            raise DataError(f"{few}: {example.query[:60]!r}", source=place)
        if sampler.margin is not None and not example.scores:
            raise DataError(f"an example has no scores to compare: {example.query[:60]!r}", source=place)
        positive_score, *negative_scores = example.scores or [None] * (1 + len(example.negatives))
        taken = sampler.sample([list(map(Candidate, example.negatives, negative_scores))], positive_score)
        names = tuple(candidate.name for candidate in taken)
        yield example._replace(negatives=names, scores=all_scores(positive_score, taken))


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
    examples, held_out = load_examples(
        recipe.examples(),
        recipe.data if settings.mine is None else recipe.data.model_copy(update={"negatives": 0}),
        draws=settings.steps * settings.batch_size * settings.gradient_accumulation,
        batch_size=settings.batch_size,
        seed=recipe.seed,
        cache=folder,
        scored=settings.needs_scores and settings.teacher is None,
    )
    together = joined(list(examples.values()))
    texts = together.select_columns([column for column in together.column_names if column != "label"])
    sources = np.repeat(np.arange(len(examples)), [len(source) for source in examples.values()])
    if settings.needs_rows or recipe.data.topical:
        rows = np.split(np.arange(len(together)), np.flatnonzero(np.diff(sources)) + 1)
        for (name, source), numbers in zip(examples.items(), rows, strict=True):  # labels are rows of all sources
            unlabelled = source.select_columns(texts.column_names)
            examples[name] = joined([unlabelled, Dataset.from_dict({"label": numbers})], axis=1)
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
    plan = _plan(recipe, examples, folder)
    if plan is not None:
        examples = DatasetDict({"examples": plan.with_negatives()})
    return TrainingData(examples, teacher, sparse_teacher, held_out, folder, plan)


def _plan(recipe: Recipe, examples: DatasetDict, folder: Path) -> MiningPlan | None:
    """Return the plan of the negatives that the training mines, or None if it mines no negatives."""
    settings, mine = recipe.training, recipe.training.mine
    if mine is None:
        return None
    b, seed = settings.batch_size, recipe.seed
    steps = MiningSteps(folder / "mined", b * settings.gradient_accumulation, mine.every, recipe.data.negatives)
    corpus = None if mine.corpus is None else recipe.place(mine.corpus)
    return MiningPlan(planned(list(examples.values()), b, seed), steps, b, mine.depth, corpus, seed)
