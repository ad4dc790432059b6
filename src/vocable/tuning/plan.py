"""The plan of a tuning: the steps that fit the time, by figures of the documents and of this machine; no PyTorch."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from math import ceil, sqrt

from psutil import Process, virtual_memory

from vocable.core.tables import Table, Tabled, counted
from vocable.errors import ArgumentError, DataError, ModelError
from vocable.language.coverage import foreign
from vocable.tuning.exam import MOST_QUESTIONS, ONE_IN
from vocable.tuning.recipe import QUESTIONS_PER_STEP

logger = logging.getLogger(__name__)

RESERVE = 0.85  # share of the minutes that is planned
ENCODED = 0.4  # largest share of the planned time for encoding
MOST_SEARCHED, FEWEST_SEARCHED = 20_000, 2_000  # documents of the exam's collection
LEAST_STEPS = 2  # in the first step the learning rate is 0
FEWEST_STEPS, TRAINING_STEPS = 10, 250  # fewest steps without a warning, and most steps
QUESTION_DEVIATION = 0.15  # standard deviation of a question's difference of nDCG@10, in the study of 16 collections
EXPORT_STEPS = 4  # a graph of the trained model takes the time of about so many training steps
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


def check_vocabulary(name: str, reading: Reading) -> None:
    """Raise `ModelError` if the documents are in another language than the vocabulary."""
    if figures := foreign(reading.tokens_per_word, reading.unknown, reading.unit):
        raise ModelError(
            f"{name}: its vocabulary does not fit these documents ({figures}): tune a model of their language, or "
            "give this model another vocabulary first (vocable train-vocabulary, vocable transfer)"
        )


def check_questions(reading: Reading) -> None:
    """Raise `DataError` if the documents give too few questions for a step of the training."""
    count = int(reading.questions * (reading.documents - reading.repeated))
    if count < QUESTIONS_PER_STEP:
        raise DataError(
            f"titles and texts are too short: they give about {counted(count, 'question')}, and a step needs "
            f"{QUESTIONS_PER_STEP}; queries of people or a generator (a model that writes questions) help"
        )


@dataclass(frozen=True)
class TuningSpeed:
    """Speed of this machine with a model and typical texts of the collection, and the memory of a training there."""

    texts_per_second: float  # documents encoded
    seconds_per_step: float  # training steps
    gigabytes: float = 0.0
    models: int = 2  # that encode the collection: before, after, and perhaps the dense model beside both


@dataclass(frozen=True)
class Plan(Tabled):
    """The plan of a tuning. It is made once: a resumed run keeps it, even if the machine has another speed then."""

    reading: Reading
    speed: TuningSpeed
    collection: int  # number of documents of the exam's collection, including the documents to learn from
    minutes: float
    steps: int  # training steps

    @property
    def exam_questions(self) -> int:
        """The number of questions that decide the verdict, if people's queries do not."""
        suitable = int(self.reading.questions * self.collection)
        return max(1, min(MOST_QUESTIONS, self.collection // ONE_IN, suitable))

    @property
    def visible_gain(self) -> float:
        """The smallest difference of nDCG@10 that an exam of this size tells from chance, with 95 % confidence."""
        return 1.96 * QUESTION_DEVIATION / sqrt(self.exam_questions)

    def check_memory(self) -> None:
        """Raise `ArgumentError` if the plan needs more memory than is free."""
        free = (virtual_memory().available + Process().memory_info().rss) / 1e9
        if self.speed.gigabytes > free:
            needed = (
                f"a tuning of this model needs about {self.speed.gigabytes:.1f} GB of memory, and {free:.1f} are free"
            )
            raise ArgumentError(f"{needed}: close other programs, or take a smaller model")

    @property
    def expected_minutes(self) -> float:
        """The minutes that encoding and training take at the measured speed."""
        return (_encoding(self.collection, self.speed) + self.steps * self.speed.seconds_per_step) / 60

    def stages(self, *, asked: bool, graph: bool) -> dict[str, float]:
        """Return the planned seconds of the stages in order; questions that are `asked` need vectors first."""
        encoding = _encoding(self.collection, self.speed) / self.speed.models
        stages = {"train": self.steps * self.speed.seconds_per_step}
        if graph:
            stages["export-model"] = EXPORT_STEPS * self.speed.seconds_per_step
        initial = {"before": encoding}
        dense = {"dense": encoding} if self.speed.models > 2 else {}
        return (initial | stages if asked else stages | initial) | {"after": encoding} | dense

    def lines(self) -> list[tuple[str, str]]:
        """Return the figures of the documents, the machine and the work, each with its name."""
        reading, speed = self.reading, self.speed
        encoded = "before and after, and as dense vectors" if speed.models > 2 else "before and after"
        return [
            ("documents", f"{reading.documents:,}, {reading.repeated:,} of them repeated or empty"),
            ("words of a document", f"{reading.words:.0f}, median"),
            ("tokens per word", f"{reading.tokens_per_word:.2f}, {reading.unknown:.1%} unknown"),
            ("speed", f"{speed.texts_per_second:,.0f} texts/s encoded, {speed.seconds_per_step:.1f} s a training step"),
            ("encoding", f"{self.collection:,} documents, {encoded}"),
            ("questions", f"{reading.questions:.1f} a document"),
            (
                "exam",
                f"{counted(self.exam_questions, 'question')}, which show gains above {self.visible_gain:.3f} nDCG@10",
            ),
            ("memory", f"about {speed.gigabytes:.1f} GB"),
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
    budget = minutes * 60 * RESERVE
    distinct = reading.documents - reading.repeated
    least = min(distinct, FEWEST_SEARCHED)
    training = min(FEWEST_STEPS, _most_steps(reading, least)) * speed.seconds_per_step
    least_steps = min(LEAST_STEPS, _most_steps(reading, least))
    if _encoding(least, speed) + least_steps * speed.seconds_per_step > minutes * 60:
        needed = ceil((_encoding(least, speed) + training) / RESERVE / 60)
        raise ArgumentError(f"minutes must be at least {needed} at the speed of this machine, not {minutes:g}")
    encoding = min(ENCODED * budget, budget - training)
    affordable = int(encoding * speed.texts_per_second / speed.models)
    collection = min(distinct, MOST_SEARCHED, max(least, affordable))
    steps = min(int((budget - _encoding(collection, speed)) / speed.seconds_per_step), _most_steps(reading, collection))
    return Plan(reading, speed, collection, minutes, max(least_steps, steps))


def warn_of_few_steps(plan: Plan) -> None:
    """Log a warning if the plan has too few steps to show a difference: the machine is busy, or the time is short."""
    if plan.steps < min(FEWEST_STEPS, _most_steps(plan.reading, plan.collection)):
        logger.warning(
            "%g minutes allow %s of training at the speed just measured, and fewer than %d rarely show a difference: "
            "give it more minutes, or repeat this while the machine is idle",
            plan.minutes,
            counted(plan.steps, "step"),
            FEWEST_STEPS,
        )


def _most_steps(reading: Reading, collection: int) -> int:
    """Return the number of steps that the questions of this number of documents allow."""
    questions = int(reading.questions * collection * (1 - 1 / ONE_IN))
    return max(1, min(TRAINING_STEPS, int(FULL_BATCHES * questions) // QUESTIONS_PER_STEP))


def _encoding(collection: int, speed: TuningSpeed) -> float:
    """Return the seconds that all models need to encode the collection."""
    return speed.models * collection / speed.texts_per_second
