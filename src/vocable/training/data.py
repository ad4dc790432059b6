"""Training data: the examples of a run, their teachers' scores, and inverse document frequencies.

The examples are one data set per source, on disk, drawn in the shares that the recipe asks for. With `topical` a batch
has examples that are near each other: topic-aware sampling as in TAS-B (Hofstätter et al. 2021). Instead of k-means,
whose topics are of any size, the examples are halved along their principal direction until each part is one batch.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset, DatasetDict, concatenate_datasets
from datasets.exceptions import DatasetGenerationError
from datasets.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch import Tensor
from torch.utils.data import SequentialSampler

from vocable.data import Example, read_corpus, read_examples, read_mined_negatives, read_queries, read_scores
from vocable.data.docstore import IdSet, TextStore, text_store
from vocable.encoder.asymmetric import route
from vocable.encoder.idf import document_frequencies, idf
from vocable.encoder.output_vocabulary import output_layer, output_vocabulary
from vocable.errors import DataError, ModelError, RecipeError
from vocable.progress import track
from vocable.storage import replacing
from vocable.training.recipe import Recipe
from vocable.training.settings import DataSettings, HardNegatives, located
from vocable.training.teachers import Teacher, load_sparse_teacher, load_teachers, own_scores

logger = logging.getLogger(__name__)


class Examples(NamedTuple):
    """The examples of a run by source, and pairs of query and positive that it does not learn from."""

    drawn: DatasetDict
    held_out: Dataset


def load_examples(
    sources: Sequence[str | HardNegatives],
    settings: DataSettings,
    *,
    draws: int,
    batch_size: int,
    seed: int,
    cache: Path,
    scored: bool = False,
) -> Examples:
    """Load the examples of a run, one data set per source, so that a batch can be drawn from one source.

    Some are kept apart, from every source in proportion, and none of their queries is learned from.

    Args:
        settings: `negatives` of an example become the columns negative_1, negative_2, ..., the first ones or, with
            random sampling, others in every pass; a source of n examples gets a share proportional to n to the power
            `size_exponent`. An example is passed over if `false_negative_margin`, or its ids, leave too few.
        draws: examples that the run sees; a source is repeated, newly shuffled, when its share is larger than it is.
        batch_size: shares are rounded to whole batches, one at least.
        cache: folder for the Arrow files, which are memory-mapped rather than held.
        scored: also give the column label: the teacher's scores of the positive and of each negative taken.

    Raises:
        DataError: a source without an example, an example with fewer negatives than asked for, or without the scores
            that a margin or `scored` needs.
    """
    names = [f"{i}-{Path(one if isinstance(one, str) else one.file).name}" for i, one in enumerate(sources)]
    first = [_on_disk(source, settings, scored, seed, 0, cache) for source in sources]
    whole = sum(map(len, first))
    parts = [_held_out(one, -(-settings.held_out * len(one) // whole), seed) for one in first]
    sizes = np.array([len(learned) for learned, _ in parts])
    if batch_size > sizes.max() and not settings.topical:  # of which no text is twice
        most = f"and the largest source of data.examples has {sizes.max():,}"
        raise RecipeError(f"training.batch_size: a batch takes {batch_size:,} different examples, {most}")
    shares = sizes**settings.size_exponent / (sizes**settings.size_exponent).sum()
    rng = np.random.default_rng(seed)
    drawn = {}
    for name, source, read, (learned, _), share in zip(names, sources, first, parts, shares, strict=True):
        examples = read.select(learned)
        count = max(1, round(draws * share / batch_size)) * batch_size
        passes = -(-count // len(examples))
        rows = np.concatenate([rng.permutation(len(examples)) for _ in range(passes)])[:count]
        if settings.sampling == "random":
            others = [
                _on_disk(source, settings, scored, seed, number, cache).select(learned) for number in range(1, passes)
            ]
            rows += np.arange(count) // len(examples) * len(examples)
            examples = concatenate_datasets([examples, *others])
        drawn[name] = examples.select(rows)
    held_out = [one.select(rows) for one, (_, rows) in zip(first, parts, strict=True)]
    return Examples(DatasetDict(drawn), concatenate_datasets(held_out).select_columns(["query", "positive"]))


def _held_out(examples: Dataset, count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows to learn from, and `count` others of different queries, none of which those to learn from have.

    At most a tenth of the examples are taken from the training.
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


def _on_disk(
    source: str | HardNegatives, settings: DataSettings, scored: bool, seed: int, number: int, cache: Path
) -> Dataset:
    """One pass over a source as a memory-mapped data set; a second call finds the files of the first."""
    options = {
        "source": source if isinstance(source, str) else source.model_dump(),
        "negatives": settings.negatives,
        "margin": settings.false_negative_margin,
        "scored": scored,
        "draw": (seed, number) if settings.sampling == "random" else None,
        "cache": str(cache),
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
    draw: tuple[int, int] | None,
    cache: str,
) -> Iterator[dict[str, Any]]:
    chooser = Chooser(negatives, margin, None if draw is None else np.random.default_rng(draw))
    if isinstance(source, str):
        place, examples = source, _chosen(source, chooser, negatives, margin)
    else:
        settings = HardNegatives(**source)
        place, examples = settings.file, read_hard_negatives(settings, chooser, Path(cache))
    taken = passed_over = 0
    for example in examples:
        if example is None or len(example.negatives) < negatives:
            passed_over += 1
            continue
        if scored and not example.scores:
            remedy = "name training.teacher, or score them first (vocable teacher-scores)"
            raise DataError(f"its examples carry no scores to learn from: {remedy}", source=place)
        taken += 1
        columns = {f"negative_{i}": text for i, text in enumerate(example.negatives, start=1)}
        label = {"label": list(example.scores)} if scored else {}
        yield {"query": example.query, "positive": example.positive, **columns, **label}
    if not taken:
        raise DataError("no example" + (f" has {negatives} usable negatives" if passed_over else ""), source=place)
    if (passed_over or chooser.dropped) and (draw is None or draw[1] == 0):
        message = "%s: %d negatives left out for their scores, %d of %d examples passed over"
        logger.warning(message, place, chooser.dropped, passed_over, taken + passed_over)


def _chosen(place: str, chooser: Chooser, negatives: int, margin: float | None) -> Iterator[Example | None]:
    """The examples of a place, each with the negatives taken."""
    for example in read_examples(place):
        if len(example.negatives) < negatives:
            few = f"an example has {len(example.negatives)} negatives where {negatives} are asked for"
            raise DataError(f"{few}: {example.query[:60]!r}", source=place)
        if margin is not None and not example.scores:
            raise DataError(f"an example has no scores to compare: {example.query[:60]!r}", source=place)
        own, *others = example.scores or [None] * (1 + len(example.negatives))
        chosen = chooser.choose([list(map(Candidate, example.negatives, others))], own)
        names = tuple(candidate.name for candidate in chosen)
        yield example._replace(negatives=names, scores=_all_scores(own, chosen))


class Candidate(NamedTuple):
    """A negative, by its text or id, and its teacher's score if there is one."""

    name: str
    score: float | None = None


class Chooser:
    """Takes up to `count` negatives of an example, evenly from the systems that found them.

    A negative whose score is above the positive's less `margin` is left out, and counted in `dropped`. With `rng` the
    systems and the negatives of each are taken in random order, else as they stand.
    """

    def __init__(self, count: int, margin: float | None = None, rng: np.random.Generator | None = None) -> None:
        self._count, self._margin, self._rng = count, margin, rng
        self.dropped = 0

    def choose(
        self,
        systems: Sequence[Sequence[Candidate]],
        positive: float | None = None,
        usable: Callable[[str], bool] = lambda name: True,
    ) -> list[Candidate]:
        """The negatives taken, each name once, from the candidates of each system, best first.

        The positive's score is needed with a margin; `usable` says which names can be taken at all.

        >>> lists = [[Candidate("a"), Candidate("b")], [Candidate("a"), Candidate("c")]]
        >>> [candidate.name for candidate in Chooser(3).choose(lists)]
        ['a', 'c', 'b']
        """
        chosen: dict[str, Candidate] = {}
        dropped: set[str] = set()
        if self._rng is not None:
            rng = self._rng
            shuffled = [[system[i] for i in rng.permutation(len(system))] for system in systems]
            systems = [shuffled[i] for i in rng.permutation(len(shuffled))]
        turns = deque(iter(system) for system in systems)
        while turns and len(chosen) < self._count:
            system = turns.popleft()
            for candidate in system:
                if candidate.name in chosen or candidate.name in dropped:
                    continue
                if self._too_good(candidate, positive):
                    dropped.add(candidate.name)
                elif usable(candidate.name):
                    chosen[candidate.name] = candidate
                    turns.append(system)
                    break
        self.dropped += len(dropped)
        return list(chosen.values())

    def _too_good(self, candidate: Candidate, positive: float | None) -> bool:
        if self._margin is None or candidate.score is None or positive is None:
            return False
        return candidate.score > positive - self._margin


def read_hard_negatives(source: HardNegatives, chooser: Chooser, cache: Path) -> Iterator[Example | None]:
    """One example for each query and positive of `source`, with the negatives that `chooser` takes.

    None stands for one whose query or positive has no text, or no score where there are scores. A positive of the
    query is never its negative. `cache` is the folder for the texts and scores by id, made once.

    Raises:
        DataError: scores of a query that do not stand together, or a system that no query has.
    """
    corpus = _store(cache, "corpus", source.corpus, _documents)
    queries = _store(cache, "queries", source.queries, read_queries)
    scores = None if source.scores is None else _store(cache, "scores", source.scores, _scores)
    name, unseen = Path(source.file).name.partition(".")[0], set(source.systems or ())
    for mined in read_mined_negatives(source.file):
        unseen -= mined.systems.keys()
        query = queries.get(mined.query_id)
        scored: dict[str, float] | None = None if scores is None else json.loads(scores.get(mined.query_id) or "{}")
        systems = [
            [
                Candidate(one, None if scored is None else scored[one])
                for one in mined.systems.get(system, ())
                if one not in mined.positives and (scored is None or one in scored)
            ]
            for system in source.systems or mined.systems
        ]
        for positive in mined.positives:
            text = corpus.get(positive)
            if query is None or text is None or (scored is not None and positive not in scored):
                yield None
                continue
            own = None if scored is None else scored[positive]
            chosen = chooser.choose(systems, own, lambda identifier: corpus.get(identifier) is not None)
            texts = tuple(corpus.get(candidate.name) or "" for candidate in chosen)
            yield Example(query, text, texts, name, _all_scores(own, chosen))
    if unseen:
        raise DataError(f"no query has negatives of {', '.join(sorted(unseen))}", source=source.file)


def _all_scores(positive: float | None, negatives: Iterable[Candidate]) -> tuple[float, ...]:
    return () if positive is None else (positive, *(candidate.score or 0.0 for candidate in negatives))


def _store(cache: Path, kind: str, place: str, read: Callable[[str], Iterable[tuple[str, str]]]) -> TextStore:
    """The texts of a place by id, shared by the sources that name it."""
    digest = blake2b(place.encode(), digest_size=4).hexdigest()
    return text_store(cache / f"{kind}-{digest}", lambda: track(read(place), kind))


def _documents(place: str) -> Iterator[tuple[str, str]]:
    """The ids and texts of a corpus, but for documents without text."""
    return ((document.id, document.full) for document in read_corpus(place) if document.full)


def _scores(place: str) -> Iterator[tuple[str, str]]:
    """For each query its documents' scores, as JSON: a hundred million of them are too many to sort."""
    seen = IdSet()
    for query, rows in groupby(read_scores(place), key=lambda row: row.query_id):
        if not seen.add(query):
            raise DataError(f"the scores of query {query!r} do not stand together: sort by query", source=place)
        yield query, json.dumps({row.doc_id: row.score for row in rows})


def topical_order(
    embeddings: NDArray[np.floating[Any]], batch_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """An order of n examples in which every `batch_size` in a row are near each other, the batches themselves shuffled.

    By embeddings [n, d]. n may leave a remainder, which stands at the end.
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
        direction = np.linalg.eigh(centred.T @ centred)[1][:, -1]  # in which the vectors vary most
        ranked = part[np.argsort(centred @ direction, kind="stable")]
        half = -(-len(ranked) // (2 * batch_size)) * batch_size  # whole batches on one side
        parts += [ranked[:half], ranked[half:]]
    whole = [batch for batch in batches if len(batch) == batch_size]
    rest = [batch for batch in batches if len(batch) < batch_size]
    return np.concatenate([whole[i] for i in rng.permutation(len(whole))] + rest)


class InOrder(DefaultBatchSampler):
    """Batches of the data set as it stands."""

    def __init__(self, dataset: Any, batch_size: int, drop_last: bool, **others: Any) -> None:
        super().__init__(SequentialSampler(dataset), batch_size=batch_size, drop_last=drop_last, **others)


class TrainingData(NamedTuple):
    """Training data: examples, teachers and IDF."""

    examples: DatasetDict  # columns query, positive, negative_1, ..., and with a teacher `label`, the row
    teacher: Teacher | None = None
    sparse_teacher: Teacher | None = None
    idf: Tensor | None = None  # [v]
    sources: NDArray[np.int64] = np.empty(0, np.int64)  # [m], the number of each example's source, by its label
    held_out: Dataset = Dataset.from_dict({"query": [], "positive": []})  # not learned from


def load_training_data(recipe: Recipe, model: SparseEncoder, folder: Path) -> TrainingData:
    """Load the examples of a recipe, and what its teachers say of them.

    The folder keeps what was made; what a killed run left there is used.
    """
    settings = recipe.training
    examples, held_out = load_examples(
        [located(source, recipe.place) for source in recipe.data.examples],
        recipe.data,
        draws=settings.steps * settings.batch_size * settings.gradient_accumulation,
        batch_size=settings.batch_size,
        seed=recipe.seed,
        cache=folder,
        scored=settings.needs_scores and settings.teacher is None,
    )
    together = concatenate_datasets(list(examples.values()))
    texts = together.select_columns([column for column in together.column_names if column != "label"])
    sources = np.repeat(np.arange(len(examples)), [len(source) for source in examples.values()])
    uses = (settings.needs_scores, settings.sparse_teacher is not None, settings.query_idf, recipe.data.topical)
    if any(uses):
        examples = _numbered(examples)
    teacher: Teacher | None = None
    if settings.teacher is not None:
        teacher, embeddings = load_teachers(texts, sources, settings.teacher, folder, settings.dtype)
        if recipe.data.topical:
            if not embeddings:
                raise RecipeError("data.topical: none of training.teacher.models is dense, to say what is near")
            rng = np.random.default_rng(recipe.seed)
            for name, source in examples.items():  # near by the sum of query and positive
                pairs = embeddings[0].pairs(np.array(source["label"]))
                examples[name] = source.select(topical_order(pairs, settings.batch_size, rng))
    elif settings.needs_scores:
        teacher = own_scores(together)
    sparse_teacher = None
    if settings.sparse_teacher is not None:
        sparse_teacher = load_sparse_teacher(
            settings.sparse_teacher, model, texts, folder / "sparse-teacher", settings.dtype
        )
    weights = _idf(model, texts, folder) if settings.regularizers.needing("idf") else None
    return TrainingData(examples, teacher, sparse_teacher, weights, sources, held_out)


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
