"""Mine negatives during a training, from an index of the model that is rebuilt every few steps (ANCE).

After Xiong et al. 2021 (arXiv 2007.00808), who build the index during the training; here the training waits for it. The
batches are planned before the first step. So only the examples up to the next index are mined, and a resumed run mines
the same examples. A batch is read ahead: negatives that are mined after step n are learned from in step n + 2.

Documents are drawn at random among the `depth` best of the query, except its answers and the positives of the batch. If
these are too few, documents are drawn among all.

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
from vocable.collection.index import index as index_of
from vocable.data import Document, Example, read_corpus
from vocable.data.docstore import without_repeats
from vocable.encoding.models import model_digest
from vocable.errors import DataError
from vocable.options import check
from vocable.training import distributed
from vocable.training.example_files import rewrite
from vocable.training.mine import Miner, answer
from vocable.training.prepared import PreparedExamples, joined, prepare, prepared_folder
from vocable.training_options import NegativeOptions

NEGATIVES, COLUMN = "negatives.jsonl", "negative_"

Transform: TypeAlias = Callable[[dict[str, list[Any]]], dict[str, list[Any]]]


def batches_without_repeats(texts: Sequence[Sequence[Hashable]], b: int) -> Iterator[list[int]]:
    """Yield batches of b row numbers in order; a row that shares a text with a batch waits for the next batch.

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
        waiting = [*later, *waiting[len(batch) + len(later) :]]  # also the rows that a full batch did not look at
        yield batch


def planned(sources: Sequence[Dataset], b: int, seed: int) -> Dataset:
    """Return the examples batch after batch; the batches are shuffled, and a batch has examples of one source."""
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
    """The schedule of the mining: its steps, their rows, and the folder of its results.

    Here a step learns from 8 rows. Negatives that are mined after step 3 are first used in step 5, which begins with
    row 32.

    >>> steps = MiningSteps(Path("mined"), rows=8, every=3, n=1)
    >>> [steps.step_of(row) for row in (0, 31, 32, 55, 56)]
    [0, 0, 3, 3, 6]
    >>> [steps.first_row(step) for step in (0, 3, 6)]
    [0, 32, 56]
    """

    folder: Path
    rows: int  # rows that a step learns from
    every: int  # steps from one mining to the next
    n: int  # negatives of an example

    def step_of(self, row: int) -> int:
        """Return the step that the negatives of a row are mined after."""
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
        """Return the examples with columns of negatives; a negative is read from disk when its row is read."""
        rows = np.arange(len(self.pairs))
        columns = Dataset.from_dict({f"{COLUMN}{i}": rows for i in range(1, 1 + self.steps.n)})
        inner = self.pairs.format["format_kwargs"].get("transform")
        return joined([self.pairs, columns], axis=1).with_transform(MinedTexts(self.steps, inner))

    def _examples(self, step: int) -> Iterator[Example]:
        """Yield the examples to mine for after a step, with the other positives of the batch as negatives."""
        first, last = self.steps.first_row(step), self.steps.first_row(step + self.steps.every)
        for start in range(first, min(last, len(self.pairs)), self.b):
            batch = self.pairs[start : start + self.b]
            for query, positive in zip(batch["query"], batch["positive"], strict=True):
                yield Example(query, positive, tuple(text for text in batch["positive"] if text != positive))

    def _miner(self, model: SparseEncoder, step: int, work: Path) -> Miner:
        if self.corpus is None:
            texts = self.pairs["positive"]
        else:
            texts = (document.full for document in read_corpus(self.corpus))
        collection = index_of(model, without_repeats(texts), work / "index")
        answers = {answer(*pair) for pair in zip(self.pairs["query"], self.pairs["positive"], strict=True)}
        rule = check(NegativeOptions, {"negatives": self.steps.n, "to_rank": max(self.steps.n, self.depth)})
        return _DrawingMiner(model, collection, rule, answers, (self.seed, step))


class _DrawingMiner(Miner):
    """Draws negatives at random, seeded by `key`."""

    def __init__(
        self,
        model: SparseEncoder,
        collection: Collection,
        rule: NegativeOptions,
        answers: set[int],
        key: tuple[int, ...],
    ) -> None:
        super().__init__(model, collection, rule, answers, scored=False)
        self._key, self._size = key, len(collection)

    def _with_negatives(self, example: Example, positive_score: float, hits: Sequence[tuple[str, float]]) -> Example:
        digest = blake2b(f"{example.query}\n{example.positive}".encode(), digest_size=8).digest()
        rng = np.random.default_rng((*self._key, int.from_bytes(digest)))
        n = self._rule["negatives"]
        by_id = sorted(hits)  # by score, rounding could decide the order of similar documents
        drawn = [by_id[position] for position in rng.permutation(len(by_id))]
        anywhere = [(str(number), 0.0) for number in rng.permutation(self._size)[: 4 * self._rule["to_rank"]]]
        # The texts of all candidates are read, so a short list is tried first.
        for candidates in (drawn[: 4 * n], drawn, drawn + anywhere):
            mined = super()._with_negatives(example, positive_score, candidates)
            if len(mined.negatives) == n:
                return mined
        what = f"{self._size:,} documents have no {n} negatives for {example.query[:60]!r}: add documents"
        raise DataError(f"{what} (training.mine.corpus), or mine fewer (data.negatives)")

    def _is_answer(self, example: Example, document: Document) -> bool:
        return document.full in example.negatives or super()._is_answer(example, document)


class MinedTexts:
    """A transform of a data set: replaces numbers of rows with the texts of their negatives."""

    def __init__(self, steps: MiningSteps, inner: Transform | None) -> None:
        self._steps, self._inner = steps, inner
        self._opened: tuple[int, PreparedExamples] | None = None

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        others = {name: values for name, values in batch.items() if not name.startswith(COLUMN)}
        columns = self._inner(others) if self._inner is not None and others else others
        mined = {name: int(name.removeprefix(COLUMN)) - 1 for name in batch if name not in others}
        return columns | {name: [self._text(row, number) for row in batch[name]] for name, number in mined.items()}

    def _text(self, row: int, number: int) -> str:
        step = self._steps.step_of(row)
        if self._opened is None or self._opened[0] != step:
            self._opened = step, PreparedExamples(self._steps.place(step), verify=False)
        # Each row has n candidates; the file begins with the first row that is mined after the step.
        examples, place = self._opened[1], (row - self._steps.first_row(step)) * self._steps.n + number
        return examples.text(int(examples.candidates[place]))

    def __deepcopy__(self, memo: object) -> MinedTexts:
        return self


class MineDuringTraining(TrainerCallback):
    """Mines every `every` steps in the first process, after a checkpoint of the weights.

    It must come after `MarkComplete`: a run that is interrupted while it mines resumes from this checkpoint.
    """

    def __init__(self, plan: MiningPlan) -> None:
        self._plan = plan

    def on_train_begin(self, args: object, state: TrainerState, control: object, **kwargs: Any) -> None:
        self._mine(state, kwargs["model"])  # an earlier call may have been interrupted while it mined

    def on_step_end(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        control.should_save = control.should_save or self._is_due(state)

    def on_save(self, args: object, state: TrainerState, control: object, **kwargs: Any) -> None:
        self._mine(state, kwargs["model"])

    def _is_due(self, state: TrainerState) -> bool:
        return self._plan.is_due(state.global_step) and state.global_step < state.max_steps

    def _mine(self, state: TrainerState, model: SparseEncoder) -> None:
        if self._is_due(state):
            distributed.by_first(partial(self._plan.mine, model, state.global_step))
