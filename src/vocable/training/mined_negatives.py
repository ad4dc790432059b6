"""Negatives mined during a training, from an index of the model that is made anew every some steps (ANCE).

After Xiong et al. 2021 (arXiv 2007.00808), whose index is made beside the training; here the training waits for it. The
batches are planned before the first step, so that only the examples up to the next index are mined, and a resumed run
has the same ones. A batch is read ahead: the negatives that are mined after step n are learned from in step n + 2.
Documents are drawn at random among the best `depth` of the query that are no answer to it and no positive of the batch;
where these are too few, among all.

Letters: m rows of the plan, b examples of a batch, n negatives of an example.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from transformers import TrainerCallback, TrainerControl, TrainerState

from vocable.collection.collection import Collection
from vocable.collection.verbs import build
from vocable.data import Document, Example, read_corpus
from vocable.data.docstore import IdSet
from vocable.encoding.models import model_digest
from vocable.errors import DataError
from vocable.training import distributed
from vocable.training.mine import Miner, NegativeRule, answer, rewrite
from vocable.training.prepared import PreparedExamples, joined, prepare, prepared_folder

NEGATIVES, COLUMN = "negatives.jsonl", "negative_"

Transform: TypeAlias = Callable[[dict[str, list[Any]]], dict[str, list[Any]]]


def batches_without_repeats(texts: Sequence[Sequence[Hashable]], b: int) -> Iterator[list[int]]:
    """Yield batches of b row numbers in order; a row that shares a text with a batch waits for the next one.

    >>> [*batches_without_repeats([("q", "a"), ("r", "a"), ("s", "b"), ("t", "c")], 2)]
    [[0, 2], [1, 3]]
    """
    waiting, left = list[int](), iter(range(len(texts)))
    while True:
        batch, used, later = list[int](), set[Hashable](), list[int]()
        for row in chain(waiting, left):
            if used.isdisjoint(texts[row]):
                batch.append(row)
                used.update(texts[row])
            else:
                later.append(row)
            if len(batch) == b:
                break
        else:
            return
        waiting = [*later, *waiting[len(batch) + len(later) :]]
        yield batch


def planned(sources: Sequence[Dataset], b: int, seed: int) -> Dataset:
    """Return the examples in the order of their batches, each of one source; batches of all sources are shuffled."""
    batches, start = list[NDArray[np.int64]](), 0
    for source in sources:
        texts = [*zip(map(hash, source["query"]), map(hash, source["positive"]), strict=True)]
        batches += [start + np.array(batch) for batch in batches_without_repeats(texts, b)]
        start += len(source)
    if not batches:
        raise DataError(f"data.examples has too few distinct texts for batch_size {b}")
    order = np.random.default_rng(seed).permutation(len(batches))
    return joined(sources).select(np.concatenate([batches[number] for number in order]))


class MiningSteps(NamedTuple):
    """The steps after which negatives are mined, the rows that learn from them, and the folder where they are."""

    folder: Path
    rows: int  # of a step
    every: int
    n: int

    def before(self, row: int) -> int:
        """Return the step after which the negatives of a row are mined."""
        return max(0, row // self.rows - 1) // self.every * self.every

    def first_row(self, step: int) -> int:
        """Return the first row whose negatives are mined after a step."""
        return (step + 1) * self.rows if step else 0

    def file(self, step: int) -> str:
        return str(self.folder / f"{step}-{NEGATIVES}")

    def place(self, step: int) -> Path:
        """Return the folder of the prepared examples that are mined after a step."""
        return prepared_folder(self.file(step), self.folder)


class MiningPlan(NamedTuple):
    """The examples of a training in the order of its batches, and how their negatives are mined."""

    pairs: Dataset  # query and positive [m]
    steps: MiningSteps
    b: int
    depth: int
    corpus: str | None
    seed: int

    def is_due(self, step: int) -> bool:
        """Return whether negatives are mined after a step."""
        return step % self.steps.every == 0 and self.steps.first_row(step) < len(self.pairs)

    def mine(self, model: SparseEncoder, step: int) -> None:
        """Mine with the model, in its state after a step; an interrupted call resumes, and a finished one is kept."""
        if self.steps.place(step).exists():
            return
        self.steps.folder.mkdir(parents=True, exist_ok=True)
        file, settings = self.steps.file(step), {"step": step, "model": model_digest(model)}
        rewrite(partial(self._examples, step), file, settings, partial(self._miner, model, step), title="mine")
        prepare(file, self.steps.folder)
        model.train()

    def with_negatives(self) -> Dataset:
        """Return the examples with columns of negatives, which are read when they have been mined."""
        rows = np.arange(len(self.pairs))
        columns = Dataset.from_dict({f"{COLUMN}{i}": rows for i in range(1, 1 + self.steps.n)})
        inner = self.pairs.format["format_kwargs"].get("transform")
        return joined([self.pairs, columns], axis=1).with_transform(MinedTexts(self.steps, inner))

    def _examples(self, step: int) -> Iterator[Example]:
        """Yield the examples to mine for after a step; their negatives are the other positives of the batch."""
        first, last = (self.steps.first_row(one) for one in (step, step + self.steps.every))
        for start in range(first, min(last, len(self.pairs)), self.b):
            some = self.pairs[start : start + self.b]
            for query, positive in zip(some["query"], some["positive"], strict=True):
                yield Example(query, positive, tuple(one for one in some["positive"] if one != positive))

    def _miner(self, model: SparseEncoder, step: int, work: Path) -> Miner:
        texts = self.pairs["positive"] if self.corpus is None else (one.full for one in read_corpus(self.corpus))
        documents = (Document(str(number), text) for number, text in enumerate(filter(IdSet().add, texts)))
        collection = build(model, documents, f"exact:{work / 'index'}", name="", source=self.corpus or "positives")
        answers = {answer(*pair) for pair in zip(self.pairs["query"], self.pairs["positive"], strict=True)}
        rule = NegativeRule(self.steps.n, 1, max(self.steps.n, self.depth))
        return _DrawingMiner(model, collection, rule, answers, (self.seed, step))


class _DrawingMiner(Miner):
    """Draws negatives at random, seeded by `key`."""

    def __init__(
        self,
        model: SparseEncoder,
        collection: Collection,
        rule: NegativeRule,
        answers: set[int],
        key: tuple[int, ...],
    ) -> None:
        super().__init__(model, collection, rule, answers, scored=False)
        self._key, self._size = key, len(collection)

    def _mined(self, example: Example, own: float, hits: Sequence[tuple[str, float]]) -> Example:
        digest = blake2b(f"{example.query}\n{example.positive}".encode(), digest_size=8).digest()
        rng = np.random.default_rng((*self._key, int.from_bytes(digest)))
        found, n = sorted(hits), self._rule.negatives  # by id: of scores nearly alike, rounding decides the order
        drawn = [found[place] for place in rng.permutation(len(found))]
        anywhere = [(str(number), 0.0) for number in rng.permutation(self._size)[: 4 * self._rule.to_rank]]
        for some in (drawn[: 4 * n], drawn, drawn + anywhere):  # the texts of few are read where these are enough
            mined = super()._mined(example, own, some)
            if len(mined.negatives) == n:
                return mined
        what = f"{self._size:,} documents have no {n} negatives for {example.query[:60]!r}: add documents"
        raise DataError(f"{what} (training.mine.corpus), or mine fewer (data.negatives)")

    def _is_answer(self, example: Example, document: Document) -> bool:
        return document.full in example.negatives or super()._is_answer(example, document)


class MinedTexts:
    """A transform of a data set: numbers of rows become the texts of their negatives."""

    def __init__(self, steps: MiningSteps, inner: Transform | None) -> None:
        self._steps, self._inner = steps, inner
        self._opened: tuple[int, PreparedExamples] | None = None

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        others = {name: values for name, values in batch.items() if not name.startswith(COLUMN)}
        found = self._inner(others) if self._inner is not None and others else others
        mined = {name: int(name.removeprefix(COLUMN)) - 1 for name in batch if name not in others}
        return found | {name: [self._text(row, number) for row in batch[name]] for name, number in mined.items()}

    def _text(self, row: int, number: int) -> str:
        step = self._steps.before(row)
        if self._opened is None or self._opened[0] != step:
            self._opened = step, PreparedExamples(self._steps.place(step), verify=False)
        one = self._opened[1]
        return one.text(int(one.candidates[(row - self._steps.first_row(step)) * self._steps.n + number]))

    def __deepcopy__(self, memo: object) -> MinedTexts:
        return self


class MineDuringTraining(TrainerCallback):
    """Mines after every `every` steps, in the first process, once a checkpoint has the weights; the last callback."""

    def __init__(self, plan: MiningPlan) -> None:
        self._plan = plan

    def on_train_begin(self, args: object, state: TrainerState, control: object, **kwargs: Any) -> None:
        self._mine(state, kwargs["model"])  # of a run that was interrupted while it mined

    def on_step_end(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        control.should_save = control.should_save or self._is_due(state)

    def on_save(self, args: object, state: TrainerState, control: object, **kwargs: Any) -> None:
        self._mine(state, kwargs["model"])

    def _is_due(self, state: TrainerState) -> bool:
        return self._plan.is_due(state.global_step) and state.global_step < state.max_steps

    def _mine(self, state: TrainerState, model: SparseEncoder) -> None:
        if self._is_due(state):
            distributed.by_first(partial(self._plan.mine, model, state.global_step))
