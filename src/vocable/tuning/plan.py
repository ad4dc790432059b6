"""The plan of a tuning: figures of the documents, the speed of this machine, and the steps that fit the time."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from statistics import median
from time import perf_counter

import torch
from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerBase

from vocable.core.tables import Table, Tabled, counted
from vocable.data import Document
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, ModelError
from vocable.evaluation.cost import spread
from vocable.language.coverage import Coverage, foreign
from vocable.language.words import spaced_pieces
from vocable.torch_models.cpu import in_bfloat16
from vocable.torch_models.fuse import splade_modules
from vocable.torch_models.torch_model import HostTokenization
from vocable.training.micro_batches import embedded
from vocable.tuning.examples import made_examples
from vocable.tuning.questions import Rarity
from vocable.tuning.settings import (
    DOCUMENT_LENGTH,
    ENCODED,
    FEWEST_SEARCHED,
    FEWEST_STEPS,
    LEAST_STEPS,
    MOST_SEARCHED,
    ONE_IN,
    QUERY_LENGTH,
    QUESTIONS_PER_STEP,
    RESERVE,
    TRAINING_STEPS,
)

logger = logging.getLogger(__name__)

VOCABULARY_TEXTS = 256  # texts that are cut into tokens to judge the vocabulary
SPEED_TEXTS, ROUNDS = 32, 3  # texts and rounds of the measured speed
PASSES = 2  # the initial model and the tuned model each encode the collection
CONTROL_TEXTS = 1_300  # texts of the control, which both models encode, too
FULL_BATCHES = 0.97  # share of the questions in full batches: a batch repeats no text, an incomplete batch is left out


@dataclass(frozen=True)
class Reading:
    """Figures of the documents, and of their words in a model's vocabulary."""

    documents: int
    repeated: int  # documents with the words of an earlier document, or without words
    words: float  # median number of words of a document
    tokens_per_word: float
    unknown: float  # share of unknown tokens
    questions: float  # mean number of questions that a document gives
    unit: str = "word"  # or character, in scripts without spaces


def read_words(documents: Sequence[Document], repeated: int, tokenizer: PreTrainedTokenizerBase) -> Reading:
    """Measure how well the vocabulary knows the words of evenly spread documents."""
    sample = [documents[row] for row in spread(len(documents), VOCABULARY_TEXTS)]
    texts = [document.full for document in sample]
    coverage = Coverage.of(texts, HostTokenization(tokenizer))
    return Reading(
        documents=len(documents) + repeated,
        repeated=repeated,
        words=median(len(spaced_pieces(text)) for text in texts),
        tokens_per_word=coverage.tokens_per_word,
        unit=coverage.unit,
        unknown=coverage.unknown_share,
        questions=len(made_examples(sample, Rarity(texts), 0, sys.maxsize)) / len(sample),
    )


def check_vocabulary(name: str, reading: Reading) -> None:
    """Raise `ModelError` if the documents are in another language than the vocabulary."""
    if figures := foreign(reading.tokens_per_word, reading.unknown, reading.unit):
        raise ModelError(
            f"{name}: its vocabulary does not fit these documents ({figures}): tune a model of their language, or "
            "give this model another vocabulary first (vocable train-vocabulary, vocable transfer)"
        )


@dataclass(frozen=True)
class TuningSpeed:
    """Speed of this machine with a model and typical texts of the collection."""

    texts_per_second: float  # documents encoded
    seconds_per_step: float  # training steps


def measure_speed(model: SparseEncoder, documents: Sequence[Document]) -> TuningSpeed:
    """Time the encoding of documents, and a forward and backward pass over a batch of the training."""
    texts = [documents[row].full for row in spread(len(documents), SPEED_TEXTS)]
    encoder = TextEncoder(model, "document")
    # The fastest of several rounds: the first round warms up caches, and other programs slow some rounds down.
    rates = [len(texts) / _seconds(lambda: encoder.encode(texts)) for _ in range(ROUNDS)]
    batch = [texts[row % len(texts)] for row in range(QUESTIONS_PER_STEP)]
    seconds = min(_pass(model, batch) for _ in range(ROUNDS))
    if encoder.dimensions:  # the initial model teaches the dense vectors, so it encodes the batch, too
        seconds += len(batch) / max(rates)
    return TuningSpeed(max(rates), (1 + QUERY_LENGTH / DOCUMENT_LENGTH) * seconds)  # queries are shorter


def _seconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def _pass(model: SparseEncoder, texts: list[str]) -> float:
    """Return the seconds of a forward and backward pass over texts."""
    transformer = splade_modules(model)[-1][0]
    lengths = transformer.document_length
    transformer.document_length = DOCUMENT_LENGTH
    try:
        tokens = model.preprocess(texts, task="document")
        tokens = {
            name: part.to(model.device) if isinstance(part, torch.Tensor) else part for name, part in tokens.items()
        }
        start = perf_counter()
        with torch.autocast(model.device.type, torch.bfloat16, enabled=in_bfloat16("auto", model.device)):
            [vectors] = embedded(model, [tokens])
        vectors.float().sum().backward()
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        return perf_counter() - start
    finally:
        transformer.document_length = lengths
        model.zero_grad(set_to_none=True)


@dataclass(frozen=True)
class Plan(Tabled):
    """The plan of a tuning. It is made once: a resumed run keeps it, even if the machine has another speed then."""

    reading: Reading
    speed: TuningSpeed
    collection: int  # number of documents of the exam's collection, including the documents to learn from
    minutes: float
    steps: int  # training steps

    @property
    def expected_minutes(self) -> float:
        """The minutes that encoding and training take at the measured speed."""
        return (_encoding(self.collection, self.speed) + self.steps * self.speed.seconds_per_step) / 60

    def lines(self) -> list[tuple[str, str]]:
        """Return the figures of the documents, the machine and the work, each with its name."""
        reading, speed = self.reading, self.speed
        return [
            ("documents", f"{reading.documents:,}, {reading.repeated:,} of them repeated or empty"),
            ("words of a document", f"{reading.words:.0f}, median"),
            ("tokens per word", f"{reading.tokens_per_word:.2f}, {reading.unknown:.1%} unknown"),
            ("speed", f"{speed.texts_per_second:,.0f} texts/s encoded, {speed.seconds_per_step:.1f} s a training step"),
            ("encoding", f"{self.collection:,} documents and a control, before and after"),
            ("questions", f"{reading.questions:.1f} a document"),
            ("training", f"{counted(self.steps, 'step')} of {QUESTIONS_PER_STEP} questions"),
            ("time", f"about {max(1, self.expected_minutes):.0f} of {self.minutes:g} minutes"),
        ]

    def table(self) -> Table:
        """Return the lines as a table."""
        return Table("plan", ["", "figure"], [list(line) for line in self.lines()])

    def to_json(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return asdict(self) | {"expected_minutes": self.expected_minutes}


def make_plan(reading: Reading, speed: TuningSpeed, minutes: float) -> Plan:
    """Return the plan for documents on a machine.

    Raises `ArgumentError` if not even two steps of training fit into the minutes.
    """
    budget, distinct = minutes * 60 * RESERVE, reading.documents - reading.repeated
    least = min(distinct, FEWEST_SEARCHED)
    training = min(FEWEST_STEPS, _most_steps(reading, least)) * speed.seconds_per_step
    least_steps = min(LEAST_STEPS, _most_steps(reading, least))
    if _encoding(least, speed) + least_steps * speed.seconds_per_step > minutes * 60:
        needed = ceil((_encoding(least, speed) + training) / RESERVE / 60)
        raise ArgumentError(f"minutes must be at least {needed} at the speed of this machine, not {minutes:g}")
    encoding = min(ENCODED * budget, budget - training)
    affordable = int(encoding * speed.texts_per_second / PASSES) - CONTROL_TEXTS
    collection = min(distinct, MOST_SEARCHED, max(least, affordable))
    steps = min(int((budget - _encoding(collection, speed)) / speed.seconds_per_step), _most_steps(reading, collection))
    return Plan(reading, speed, collection, minutes, max(least_steps, steps))


def warn_of_few_steps(plan: Plan) -> None:
    """Log a warning if the plan has too few steps to show a difference: the machine is busy, or the time is short."""
    if plan.steps < min(FEWEST_STEPS, _most_steps(plan.reading, plan.collection)):
        logger.warning(
            "%g minutes allow %s of training at the speed just measured, and fewer than %d rarely show a difference: "
            "give --minutes more, or repeat this while the machine is idle",
            plan.minutes,
            counted(plan.steps, "step"),
            FEWEST_STEPS,
        )


def _most_steps(reading: Reading, collection: int) -> int:
    """Return the number of steps that the questions of this number of documents allow."""
    questions = int(reading.questions * collection * (1 - 1 / ONE_IN))
    return max(1, min(TRAINING_STEPS, int(FULL_BATCHES * questions) // QUESTIONS_PER_STEP))


def _encoding(collection: int, speed: TuningSpeed) -> float:
    """Return the seconds that both models need to encode the collection and the control."""
    return PASSES * (collection + CONTROL_TEXTS) / speed.texts_per_second
